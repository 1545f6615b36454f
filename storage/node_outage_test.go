package storage_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func TestAnOutageInTheMiddleOfACommitEndsNoNode(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := startNodes(t, 3)
				for _, n := range nodes {
					unknown := func(commit func() error) error {
						if committed {
							_ = commit()
						}
						n.line.Cut(true)
						return storage.ErrUnknown
					}
					n.unknown.Store(&unknown)
				}
				time.Sleep(10 * time.Second)
				for _, n := range nodes {
					n.line.Cut(false)
				}
				time.Sleep(5 * time.Second)
				for i, n := range nodes {
					if err := n.Ready(); err != nil {
						t.Errorf("node %d after the outage: %v", i, err)
					}
				}
			})
		})
	}
}

// frozen is a shared engine that a test can freeze: calls wait, and none fails before its context ends.
// It rehearses each update.
type frozen struct {
	storage.Engine
	until *atomic.Pointer[chan struct{}] // nil: it is not frozen
	wake  time.Duration                  // of this node, after the thaw
}

func (f *frozen) Shared() bool { return true }

func (f *frozen) wait(ctx context.Context) error {
	if thawed := f.until.Load(); thawed != nil {
		select {
		case <-*thawed:
			time.Sleep(f.wake)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *frozen) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.Engine.View(ctx, fn)
}

func (f *frozen) Update(ctx context.Context, fn func(storage.Txn) error) error {
	_ = f.Engine.Update(ctx, func(t storage.Txn) error {
		_ = fn(t)
		return errors.New("a rehearsal")
	})
	time.Sleep(15 * time.Millisecond) // another node has the turn
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.Engine.Update(ctx, fn)
}

func TestAStoreThatStoodStillEndsNoNode(t *testing.T) {
	for offset := 10 * time.Millisecond; offset < 500*time.Millisecond; offset += 5 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			var until atomic.Pointer[chan struct{}]
			open := memory.NewShared()
			first := startNode(t, &frozen{Engine: open(), until: &until, wake: 5 * time.Millisecond})
			time.Sleep(125 * time.Millisecond)
			second := startNode(t, &frozen{Engine: open(), until: &until, wake: 10 * time.Millisecond})
			time.Sleep(offset)
			thawed := make(chan struct{})
			until.Store(&thawed)
			time.Sleep(3500 * time.Millisecond)
			until.Store(nil)
			close(thawed)
			time.Sleep(3 * time.Second)
			for i, n := range []*node{first, second} {
				if err := n.Ready(); err != nil {
					t.Errorf("frozen %v after its beat, node %d: %v", offset, i, err)
				}
			}
		})
	}
}

func TestANodeThatMissesRowsOfTheFeedIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2)
		nodes[1].line.Cut(true)
		nodes[0].tell(t, "first")
		nodes[0].tell(t, "second")
		if err := nodes[0].Update(t.Context(), func(txn storage.Txn) error { // the engine has removed it
			return txn.Delete(storage.Key("feed", "at", int64(1)))
		}); err != nil {
			t.Fatal(err)
		}
		nodes[1].line.Cut(false)
		time.Sleep(time.Second)
		if !errors.Is(nodes[1].Err(), storage.ErrFenced) {
			t.Errorf("a node that misses a row has %v, want ErrFenced", nodes[1].Err())
		}
		if heard := nodes[1].heard(); len(heard) != 0 {
			t.Errorf("it heard %q, out of order", heard)
		}
	})
}
