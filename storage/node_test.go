package storage_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// node is a node of a test.
type node struct {
	*storage.Store
	line *storagetest.Line

	unknown atomic.Pointer[func(commit func() error) error] // replaces the next commit; nil: none

	mu    sync.Mutex
	told  []string
	ended []int64
}

func (n *node) heard() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told)
}

func (n *node) cleared() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ended)
}

// startNodes returns n nodes of one store, all of them ready.
func startNodes(t *testing.T, n int) []*node {
	t.Helper()
	open := memory.NewShared()
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = startNode(t, open())
	}
	return nodes
}

func startNode(t *testing.T, engine storage.Engine) *node {
	t.Helper()
	n := new(node)
	n.line = &storagetest.Line{Engine: engine, OnCommit: func(commit func() error) error {
		if unknown := n.unknown.Swap(nil); unknown != nil {
			return (*unknown)(commit)
		}
		return commit()
	}}
	n.Store = storage.New(n.line, storage.Options{})
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Join(t.Context(), storage.Node{Name: t.Name()}); err != nil {
		t.Fatal(err)
	}
	if n.Ready() == nil {
		t.Error("a node is ready before it follows the others")
	}
	n.Follow(storage.Follower{
		OnTopics: func(_ context.Context, topics []string) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.told = append(n.told, topics...)
			return nil
		},
		OnEnded: func(_ context.Context, epoch int64) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.ended = append(n.ended, epoch)
			return nil
		},
	})
	time.Sleep(time.Second)
	if err := n.Ready(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) tell(t *testing.T, topic string) {
	t.Helper()
	if err := n.Update(t.Context(), func(txn storage.Txn) error { return n.Tell(txn, topic) }); err != nil {
		t.Fatal(err)
	}
}

func (n *node) set(t *testing.T, key, val string) error {
	t.Helper()
	return n.Update(t.Context(), setString(key, val))
}

func setString(key, val string) func(storage.Txn) error {
	return func(txn storage.Txn) error { return txn.Set([]byte(key), []byte(val), time.Time{}) }
}

func TestEveryNodeReadsAllTopicsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		var want []string
		for i, topic := range []string{"a", "b", "c", "d", "e", "f"} {
			nodes[i%3].tell(t, topic)
			want = append(want, topic)
		}
		if err := nodes[0].WaitUntilSeen(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, n := range nodes {
			if got := n.heard(); !slices.Equal(got, want) {
				t.Errorf("node %d has read %q, want %q", i, got, want)
			}
			if n.LiveNodes() != 3 || n.Leads() != (i == 0) {
				t.Errorf("node %d: %d live, leads %v", i, n.LiveNodes(), n.Leads())
			}
		}
	})
}

func TestASilentNodeAdmitsNothingAndIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		nodes[1].line.Cut(true)
		nodes[0].tell(t, "revoked")
		if err := nodes[0].WaitUntilSeen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if nodes[1].Ready() == nil {
			t.Error("a node is ready, but has not read a revocation that was answered")
		}
		time.Sleep(4 * time.Second)
		if got := nodes[0].cleared(); !slices.Equal(got, []int64{nodes[1].Epoch()}) {
			t.Errorf("the node that leads cleared up after epochs %v, want once after %d", got, nodes[1].Epoch())
		}
		nodes[1].line.Cut(false)
		if err := nodes[1].set(t, "late", "x"); !errors.Is(err, storage.ErrStopped) {
			t.Errorf("a write of an ended epoch: %v, want ErrStopped", err)
		}
		if !errors.Is(nodes[1].Err(), storage.ErrFenced) {
			t.Errorf("the store of an ended epoch has %v, want ErrFenced", nodes[1].Err())
		}
		if err := nodes[0].View(t.Context(), func(r storage.Reader) error {
			if val, _ := r.Get([]byte("late")); val != nil {
				t.Error("an ended epoch has written")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnOutageOfTheStoreEndsNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		for _, n := range nodes {
			n.line.Cut(true)
		}
		time.Sleep(time.Minute)
		for _, n := range nodes {
			if n.Ready() == nil {
				t.Error("a node is ready without its store")
			}
		}
		for _, n := range nodes {
			n.line.Cut(false)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		for i, n := range nodes {
			if err := n.Ready(); err != nil {
				t.Errorf("node %d after the outage: %v", i, err)
			}
		}
	})
}

func TestANodeThatClosesEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2)
		if err := nodes[0].Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := nodes[1].cleared(); !slices.Equal(got, []int64{nodes[0].Epoch()}) {
			t.Errorf("cleared up after %v, want %d", got, nodes[0].Epoch())
		}
		if !nodes[1].Leads() {
			t.Error("no node leads")
		}
		time.Sleep(2 * time.Hour)
		known, _, err := nodes[1].Nodes(t.Context())
		if err != nil || len(known) != 1 {
			t.Errorf("records of nodes after two hours: %v, %v; want one", known, err)
		}
	})
}

func TestTheOutcomeOfACommitIsFoundOut(t *testing.T) {
	for name, c := range map[string]struct {
		commits bool
		want    error
	}{
		"committed":     {true, nil},
		"not committed": {false, storage.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNodes(t, 1)[0]
				synctest.Wait() // otherwise the first beat would consume the unknown outcome
				unknown := func(commit func() error) error {
					if c.commits {
						if err := commit(); err != nil {
							t.Error(err)
						}
					}
					return storage.ErrUnknown
				}
				n.unknown.Store(&unknown)
				if err := n.set(t, "key", "1"); !errors.Is(err, c.want) {
					t.Errorf("outcome %v, want %v", err, c.want)
				}
				if err := n.set(t, "key", "2"); err != nil {
					t.Errorf("the next commit: %v", err)
				}
			})
		})
	}
}

func TestANodeWhoseHistoryTheStoreHasLostIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := memory.NewShared()
		n := startNode(t, open())
		other := open()
		var fence [][2][]byte
		read := func(r storage.Reader) error {
			lo, hi := storage.Below("node", "fence")
			return r.Scan(lo, hi, func(key, val []byte) bool {
				fence = append(fence, [2][]byte{slices.Clone(key), slices.Clone(val)})
				return true
			})
		}
		if err := other.View(t.Context(), read); err != nil || len(fence) != 1 {
			t.Fatal(err, len(fence))
		}
		if err := n.set(t, "key", "lost"); err != nil {
			t.Fatal(err)
		}
		if err := other.Update(t.Context(), func(txn storage.Txn) error { // a replica that is behind
			return errors.Join(txn.Set(fence[0][0], fence[0][1], time.Time{}), txn.Delete([]byte("key")))
		}); err != nil {
			t.Fatal(err)
		}
		if err := n.set(t, "other", "1"); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("a write after the store has lost one: %v, want ErrFenced", err)
		}
	})
}
