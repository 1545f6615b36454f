package storage

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// run beats until the store is closed or has failed.
func (m *membership) run() {
	ctx, cancel := context.WithCancel(m.store.closing)
	defer cancel()
	defer m.clearing.Wait()
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	failing := false
	for {
		err := m.beat(ctx)
		switch {
		case ctx.Err() != nil, m.store.Err() != nil:
			return
		case errors.Is(err, ErrFenced):
			m.store.fail(err)
			return
		case err != nil:
			clear(m.seen) // a node is ended only if every beat within endAfter has read the store
			if !failing {
				m.store.log.Warn("this gateway cannot follow the store and takes no calls", zap.Error(err))
			}
		case failing:
			m.store.log.Info("this gateway follows the store again")
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-m.store.failed:
			return
		}
	}
}

// vitalKey is the key of a context value; see [Vital].
type vitalKey struct{}

// Vital reports whether a View is part of a beat, as those that OnTopics makes are. An engine must not let it
// wait for other Views, because the node is taken for dead otherwise.
func Vital(ctx context.Context) bool { return ctx.Value(vitalKey{}) != nil }

// beat reads the feed and the other nodes, and then writes that this node lives.
func (m *membership) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, vitalKey{}, true), endAfter)
	defer cancel()
	began := time.Since(m.started)
	follower := m.follower.Load()
	var topics []string
	var nodes []Node
	position := m.position
	err := m.store.View(ctx, func(r Reader) (err error) {
		if nodes, err = readNodes(r); err != nil || follower == nil {
			return err
		}
		topics, position, err = readFeed(r, m.position)
		return err
	})
	if err != nil {
		return err
	}
	if len(topics) > 0 {
		if err := follower.OnTopics(ctx, topics); err != nil {
			return err
		}
	}
	if err := m.look(ctx, nodes); err != nil {
		return err
	}
	err = m.store.Update(ctx, func(t Txn) error {
		n := m.self
		if _, err := GetRecord(t, nodeKey(n.Epoch), &n); err != nil {
			return err
		}
		n.Beat++
		n.Last, n.Seen, n.Config = m.store.Now().Unix(), position, m.config.Load().(string)
		return SetRecord(t, nodeKey(n.Epoch), n)
	})
	if err != nil {
		return err
	}
	m.position = position
	if follower != nil && len(topics) < maxTopics { // else there may be more to follow
		m.fresh.Store(int64(max(1, began)))
	}
	return nil
}

// look ends the nodes whose beat has not changed for endAfter. If this node leads, it also starts to
// clear up after those that have ended.
func (m *membership) look(ctx context.Context, nodes []Node) error {
	now, present := time.Now(), make(map[int64]seenBeat, len(nodes))
	if now.Sub(m.looked) > freshness {
		clear(m.seen) // no beat was read meanwhile, for instance because the engine stood still
	}
	m.looked = now
	var live, ended []Node
	for _, n := range nodes {
		if n.Ended != 0 {
			ended = append(ended, n)
			continue
		}
		live = append(live, n)
		s, known := m.seen[n.Epoch]
		if !known || s.beat != n.Beat {
			s = seenBeat{n.Beat, now}
		}
		present[n.Epoch] = s
		if n.Epoch != m.self.Epoch && now.Sub(s.since) >= endAfter {
			if err := m.end(ctx, n); err != nil {
				return err
			}
		}
	}
	m.seen = present
	m.live.Store(&live)
	if follower := m.follower.Load(); follower != nil && len(ended) > 0 && m.store.Leads() && m.busy.CompareAndSwap(false, true) {
		m.clearing.Go(func() {
			defer m.busy.Store(false)
			for _, n := range ended {
				m.clearUp(n, follower)
			}
		})
	}
	return nil
}

// end ends the epoch of a node, unless its beat has changed meanwhile.
func (m *membership) end(ctx context.Context, silent Node) error {
	done := false
	err := m.store.Update(ctx, func(t Txn) error {
		var n Node
		done = false
		if found, err := GetRecord(t, nodeKey(silent.Epoch), &n); err != nil || !found || n.Beat != silent.Beat || n.Ended != 0 {
			return err
		}
		done = true
		return endNode(t, silent.Epoch, m.store.Now())
	})
	if err == nil && done {
		m.store.log.Warn("ended a gateway that was silent", zap.Int64("epoch", silent.Epoch), zap.String("name", silent.Name))
	}
	return err
}

// keepEnded is how long the record of an ended node is kept, so that operators see it.
const keepEnded = time.Hour

// clearUp clears up after an ended node, and removes its record when it is older than keepEnded.
func (m *membership) clearUp(n Node, f *Follower) {
	ctx := m.store.closing
	old := m.store.Now().Unix()-n.Ended > int64(keepEnded/time.Second)
	if n.Cleared && !old {
		return
	}
	if !n.Cleared {
		if err := f.OnEnded(ctx, n.Epoch); err != nil {
			if ctx.Err() == nil && !errors.Is(err, ErrStopped) {
				m.store.log.Error("cannot clear up after a gateway that has ended; it is tried again", zap.Int64("epoch", n.Epoch), zap.Error(err))
			}
			return
		}
	}
	err := m.store.Update(ctx, func(t Txn) error {
		if old {
			return t.Delete(nodeKey(n.Epoch))
		}
		n.Cleared = true
		return SetRecord(t, nodeKey(n.Epoch), n)
	})
	if err != nil && ctx.Err() == nil && m.store.Err() == nil {
		m.store.log.Warn("cannot record that a gateway was cleared up after; it is tried again", zap.Error(err))
	}
}
