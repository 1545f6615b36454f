package task

import (
	"context"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// This file is about the nodes of a shared store. Each node drives the tasks of the backends that it
// has. A claim belongs to the epoch of its node. If a node ends, another one frees its claims.

// OnTopics drops finished tasks from the cache, and wakes the drivers and the sender of callbacks, as
// the topics of the feed say; see [storage.Follower]. It ignores topics of other packages.
func (e *Engine) OnTopics(_ context.Context, topics []string) error {
	for _, topic := range topics {
		switch id, over := strings.CutPrefix(topic, record.TopicOver); {
		case over:
			e.cache.drop(id)
		case topic == record.TopicDue:
			e.nudgeAll()
		case topic == record.TopicCallbacks:
			e.sender.ReadAgain()
		}
	}
	return nil
}

// nudgeAll wakes all drivers.
func (e *Engine) nudgeAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.drivers {
		d.Nudge()
	}
}

const (
	// maxFreed is how many tasks EndEpoch reads at once.
	maxFreed = 256

	// clockSkew is how much the clocks of two nodes may differ. If they differ more, EndEpoch may miss a
	// claim, which then ends with its lease.
	clockSkew = time.Minute
)

// EndEpoch makes the tasks and callbacks due that a node had claimed when its epoch ended. Other nodes
// go on with them at once. A job that was being sent is not sent again: its delivery is unknown. It
// may be called again.
func (e *Engine) EndEpoch(ctx context.Context, epoch int64) error {
	all, err := e.Backends(ctx)
	if err != nil {
		return err
	}
	for _, b := range all {
		if err := e.freeClaims(ctx, b.Name, record.OwnerOfEpoch(epoch)); err != nil {
			return err
		}
	}
	if err := e.sender.FreeClaims(ctx, record.OwnerOfEpoch(epoch)); err != nil {
		return err
	}
	return e.store.Update(ctx, func(t storage.Txn) error {
		if err := e.store.Tell(t, record.TopicDue); err != nil {
			return err
		}
		return e.store.Tell(t, record.TopicCallbacks)
	})
}

// freeClaims frees the tasks of a backend that an owner has claimed. They are due when their leases
// expire, so it reads only the tasks that are due by then.
func (e *Engine) freeClaims(ctx context.Context, backend, owner string) error {
	in := record.Due.Under(backend).Before(backend, e.now()+(transition.LeaseFor+clockSkew).Milliseconds())
	for {
		var keys [][]byte
		var claimed []string
		err := e.store.View(ctx, func(r storage.Reader) (err error) {
			claimed = nil
			if keys, err = in.Keys(r, maxFreed); err != nil {
				return err
			}
			var unread []error // ignored: such tasks cannot be processed either
			for _, key := range keys {
				rec, err := readable(r, key, &unread)
				if err != nil {
					return err
				}
				if rec != nil && rec.Owner == owner && rec.Lease != 0 {
					claimed = append(claimed, rec.ID)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(claimed) > 0 {
			err = e.store.Update(ctx, func(t storage.Txn) error {
				for _, id := range claimed {
					rec, err := record.Tasks.Get(t, id)
					if err != nil {
						return err
					}
					c := transition.Change{Known: rec, Before: rec, Ended: owner}
					if rec == nil {
						continue
					}
					if _, err := e.writer.Apply(ctx, t, transition.Free, &c); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil || len(keys) < maxFreed {
			return err
		}
		in = in.FromKey(append(keys[len(keys)-1], 0))
	}
}

// pollsOf returns how often this node may poll a backend: the nodes divide its polls per second.
func (d *driver) pollsOf(b Backend) limit.Window {
	live := d.store.LiveNodes()
	if share := b.PollsPerSecond / live; share > 0 {
		return limit.PerSecond(int64(share))
	}
	return limit.Window{Limit: int64(b.PollsPerSecond), Period: time.Duration(live) * time.Second}
}

// orphanAfter is how long a task must be overdue before a node without its backend assumes that no node
// has the backend.
const orphanAfter = time.Hour

// expiryDelay returns how long a task must be overdue before a node without its backend expires it: zero
// if the store is not shared.
func (e *Engine) expiryDelay() time.Duration {
	if e.store.Shared() {
		return orphanAfter
	}
	return 0
}

// isOrphan reports whether no other node processes a task whose backend this node does not have.
func (e *Engine) isOrphan(rec *record.Record) bool {
	return !e.store.Shared() || e.now() >= rec.Due+orphanAfter.Milliseconds()
}

// otherNodes returns the text that an error adds if the store is shared, otherwise "".
func (e *Engine) otherNodes() string {
	if e.store.Shared() {
		return ", at a gateway that has the backend, or when no gateway has processed it for an hour"
	}
	return ""
}

// searchPause returns how long to wait before searching for the job of a claim that has ended. On a
// shared store it is zero, because an ended node sends nothing more. In a lone store, the engine whose
// lease has expired may still receive the answer.
func (d *driver) searchPause() time.Duration {
	if d.store.Shared() {
		return 0
	}
	return transition.Interval(0, 0)
}
