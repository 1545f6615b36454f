package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Shared is an optional interface of an [Engine] that several processes have open at the same
// time. It runs the updates of all of them one after another. If the outcome of an update is
// unknown, the next update runs after that one has ended.
type Shared interface {
	// Shared reports whether the engine has these properties.
	Shared() bool
}

// Node is one process among those that have a shared store open. Each epoch is given out once:
// a process that was ended gets a new one when it joins again.
type Node struct {
	Epoch   int64  `json:"epoch"`
	Name    string `json:"name"`              // that operators see
	Version string `json:"version"`           // of the build
	Config  string `json:"config,omitempty"`  // fingerprint of the configuration
	Since   int64  `json:"since"`             // Unix seconds of its start
	Beat    int64  `json:"beat"`              // the number of its beats: writes by which it shows that it lives
	Last    int64  `json:"last"`              // Unix seconds of the last beat
	Seen    int64  `json:"seen"`              // position in the feed up to which the node follows
	Ended   int64  `json:"ended,omitempty"`   // Unix seconds of its end; zero while it lives
	Cleared bool   `json:"cleared,omitempty"` // another node has cleared up after its end
}

const (
	// beatInterval is the time between two beats of a node.
	beatInterval = 250 * time.Millisecond

	// freshness is how long after a beat was sent a node may admit calls.
	freshness = time.Second

	// endAfter is how long a node is silent before another one ends it.
	endAfter = 3 * time.Second

	// outcomePause is the time between two attempts to learn the outcome of a commit.
	outcomePause = 50 * time.Millisecond
)

// membership makes a [Store] one of the nodes of a shared engine. The fence is a record that
// exists until the epoch ends. Each batch reads it and counts itself there. So an ended node never
// commits again, and a node can find out the outcome of each commit. Neither depends on a clock.
type membership struct {
	store *Store
	self  Node
	nonce []byte // distinguishes this epoch from the same number, given out again by a store that has lost commits
	batch int64  // number of the last batch; used by the goroutine that commits

	started time.Time
	fresh   atomic.Int64 // when the last beat that has succeeded began, since started; zero: never
	config  atomic.Value // string: fingerprint of the configuration

	follower atomic.Pointer[Follower]
	position int64              // in the feed; used by the goroutine that beats
	seen     map[int64]seenBeat // of other nodes; used by the goroutine that beats
	looked   time.Time          // when they were read last; used by the goroutine that beats
	live     atomic.Pointer[[]Node]

	clearing sync.WaitGroup
	busy     atomic.Bool // a goroutine clears up after ended nodes
	beating  sync.WaitGroup
}

// seenBeat is the present beat of a node, and when this node first saw it.
type seenBeat struct {
	beat  int64
	since time.Time
}

// Follower has the functions by which a node reacts to the other nodes. Both may be called again
// with the same argument, and concurrently with each other.
type Follower struct {
	// OnTopics is called with the topics of [Store.Tell] by all nodes, in the order of commits.
	// After an error it is called again, and the node admits no calls until it succeeds.
	OnTopics func(ctx context.Context, topics []string) error

	// OnEnded clears up after a node that has ended. After an error it is called again.
	OnEnded func(ctx context.Context, epoch int64) error
}

func isShared(e Engine) bool {
	s, ok := e.(Shared)
	return ok && s.Shared()
}

// Shared reports whether other processes may have the store open at the same time.
func (s *Store) Shared() bool { return s.shared }

// Epoch returns the number of this process among those that have opened the shared store;
// zero if it is not shared.
func (s *Store) Epoch() int64 {
	if m := s.member.Load(); m != nil {
		return m.self.Epoch
	}
	return 0
}

var lastEpochKey = Key("node", "last")

func nodeKey(epoch int64) []byte  { return Key("node", "at", epoch) }
func fenceKey(epoch int64) []byte { return Key("node", "fence", epoch) }

// fence returns the value of the fence after a number of batches.
func (m *membership) fence(batch int64) []byte { return AppendKey(Key(batch), string(m.nonce)) }

// Join makes the process a node of a shared store; with another store it does nothing. It must
// be called once, before other processes may see what this one writes. Of self it uses the name,
// the version and the configuration.
func (s *Store) Join(ctx context.Context, self Node) error {
	if !s.shared {
		return nil
	}
	m := &membership{store: s, self: self, nonce: []byte(rand.Text()), started: time.Now(), seen: map[int64]seenBeat{}}
	m.config.Store(self.Config)
	err := s.Update(ctx, func(t Txn) error {
		last, err := getNumber(t, lastEpochKey)
		if err != nil {
			return err
		}
		if m.position, err = getNumber(t, feedHeadKey); err != nil {
			return err
		}
		m.self.Epoch, m.self.Seen, m.self.Since, m.self.Last = last+1, m.position, s.Now().Unix(), s.Now().Unix()
		return errors.Join(
			t.Set(lastEpochKey, Key(m.self.Epoch), time.Time{}),
			t.Set(fenceKey(m.self.Epoch), m.fence(0), time.Time{}),
			SetRecord(t, nodeKey(m.self.Epoch), m.self))
	})
	if err != nil {
		return err
	}
	s.member.Store(m)
	m.beating.Go(m.run)
	s.log.Info("this gateway has joined the store", zap.Int64("epoch", m.self.Epoch))
	return nil
}

// Follow begins to follow the feed from where it was when the process joined, and to clear up
// after nodes that have ended. It must be called once; until then, [Store.Ready] returns an
// error. Without Join it does nothing.
func (s *Store) Follow(f Follower) {
	if m := s.member.Load(); m != nil {
		m.follower.Store(&f)
	}
}

// SetConfig changes the fingerprint of the configuration that other nodes see.
func (s *Store) SetConfig(fingerprint string) {
	if m := s.member.Load(); m != nil {
		m.config.Store(fingerprint)
	}
}

// Nodes returns the nodes of a shared store, the ended ones of the last hour included, by epoch.
// told is the position of the last topic in the feed. A node whose Seen is lower has not read all.
func (s *Store) Nodes(ctx context.Context) (nodes []Node, told int64, err error) {
	err = s.View(ctx, func(r Reader) (err error) {
		if told, err = getNumber(r, feedHeadKey); err != nil {
			return err
		}
		nodes, err = readNodes(r)
		return err
	})
	return nodes, told, err
}

// Rank returns the position of this node among those that live, from the oldest, and their number, as
// its last beat has read them. The position is -1 before the first beat, and after this node has ended. They are 0 and 1 if the
// store is not shared. Rank does not block.
func (s *Store) Rank() (rank, live int) {
	m := s.member.Load()
	if m == nil {
		return 0, 1
	}
	nodes := m.live.Load()
	if nodes == nil {
		return -1, 1
	}
	return slices.IndexFunc(*nodes, func(n Node) bool { return n.Epoch == m.self.Epoch }), max(1, len(*nodes))
}

// Leads reports whether this node is the oldest one that lives; see [Store.Rank]. It does the work that
// one node does for all. Two nodes may briefly lead at the same time, so that work must be correct if
// it is done twice.
func (s *Store) Leads() bool {
	rank, _ := s.Rank()
	return rank == 0
}

// LiveNodes returns how many nodes live; see [Store.Rank].
func (s *Store) LiveNodes() int {
	_, live := s.Rank()
	return live
}

// HasEnded reports inside a transaction whether an epoch has ended. If so, its node commits nothing
// after this transaction.
func HasEnded(r Reader, epoch int64) (bool, error) {
	fence, err := r.Get(fenceKey(epoch))
	return fence == nil, err
}

func readNodes(r Reader) (nodes []Node, err error) {
	lo, hi := Below("node", "at")
	scanned := r.Scan(lo, hi, func(_, val []byte) bool {
		var n Node
		if err = DecodeRecord(val, &n); err == nil {
			nodes = append(nodes, n)
		}
		return err == nil
	})
	return nodes, errors.Join(scanned, err)
}

// check returns ErrFenced if the epoch has ended, or if the store has lost a batch of it. It must
// be called in each batch.
func (m *membership) check(r Reader) error {
	have, err := r.Get(fenceKey(m.self.Epoch))
	if err == nil && !bytes.Equal(have, m.fence(m.batch)) {
		err = fmt.Errorf("%w: epoch %d has ended", ErrFenced, m.self.Epoch)
	}
	return err
}

// count counts the batch in the fence.
func (m *membership) count(t Txn) error {
	return t.Set(fenceKey(m.self.Epoch), m.fence(m.batch+1), time.Time{})
}

// outcome finds out whether the last batch, whose outcome is unknown, was committed. It returns nil
// if it was, ErrUnreachable if nothing happened, and ErrFenced if the epoch has ended. While the
// engine cannot be reached, no node can end the epoch, so outcome asks until there is an answer or
// the store closes.
func (m *membership) outcome(cause error) error {
	m.store.count(func(stats *Stats) { stats.Unknown++ })
	m.store.log.Warn("commit outcome unknown", zap.Error(cause))
	for {
		ctx, cancel := context.WithTimeout(context.Background(), endAfter)
		var have []byte
		err := m.store.engine.Update(ctx, func(t Txn) error {
			val, err := t.Get(fenceKey(m.self.Epoch))
			have = bytes.Clone(val)
			return err
		})
		cancel()
		switch {
		case err != nil:
		case bytes.Equal(have, m.fence(m.batch+1)):
			return nil
		case bytes.Equal(have, m.fence(m.batch)):
			return fmt.Errorf("%w: a commit did not happen: %v", ErrUnreachable, cause) //nolint:errorlint // its outcome is known now
		default:
			return fmt.Errorf("%w: epoch %d has ended", ErrFenced, m.self.Epoch)
		}
		select {
		case <-time.After(outcomePause):
		case <-m.store.closing.Done():
			return cause
		}
	}
}

// ready returns an error if the node must not admit calls.
func (m *membership) ready() error {
	if silent := time.Since(m.started) - time.Duration(m.fresh.Load()); m.fresh.Load() == 0 || silent > freshness {
		return fmt.Errorf("%w: the store has not answered for %v", ErrUnreachable, silent.Round(time.Millisecond))
	}
	return nil
}

// leave ends the epoch when no batch can follow. It blocks for at most a second. If it fails, the
// other nodes end the epoch.
func (m *membership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), freshness)
	defer cancel()
	err := m.store.engine.Update(ctx, func(t Txn) error {
		if err := m.check(t); err != nil {
			return err
		}
		return endNode(t, m.self.Epoch, m.store.Now())
	})
	if err != nil {
		m.store.log.Warn("the end of this gateway was not recorded; the other gateways end it", zap.Error(err))
	}
}

// endNode ends an epoch in the transaction t.
func endNode(t Txn, epoch int64, now time.Time) error {
	var n Node
	if found, err := GetRecord(t, nodeKey(epoch), &n); err != nil || !found || n.Ended != 0 {
		return err
	}
	n.Ended = now.Unix()
	return errors.Join(t.Delete(fenceKey(epoch)), SetRecord(t, nodeKey(epoch), n))
}

// getNumber returns the number at key; zero if there is none.
func getNumber(r Reader, key []byte) (int64, error) {
	val, err := r.Get(key)
	if err != nil || val == nil {
		return 0, err
	}
	return decodeNumber(val)
}
