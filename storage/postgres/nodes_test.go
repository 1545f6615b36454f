package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

// joined returns a store that is a node of the database.
func joined(t *testing.T, dsn, schema string) *storage.Store {
	t.Helper()
	p := newOpener(t, dsn, schema)
	s := storage.New(opened(t, p), storage.Options{Clock: p.Now})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Join(t.Context(), storage.Node{Name: t.Name()}); err != nil {
		t.Fatal(err)
	}
	nothing := storage.Follower{
		OnTopics: func(context.Context, []string) error { return nil },
		OnEnded:  func(context.Context, int64) error { return nil },
	}
	s.Follow(nothing)
	return s
}

// increment adds one to a number.
func increment(key string) func(storage.Txn) error {
	return func(txn storage.Txn) error {
		val, err := txn.Get([]byte(key))
		if err != nil {
			return err
		}
		n := uint64(0)
		if val != nil {
			n = binary.BigEndian.Uint64(val)
		}
		return txn.Set([]byte(key), binary.BigEndian.AppendUint64(nil, n+1), never)
	}
}

func numberAt(t *testing.T, s *storage.Store, key string) (n int64) {
	t.Helper()
	if err := s.View(t.Context(), func(r storage.Reader) error {
		val, err := r.Get([]byte(key))
		if val != nil {
			n = int64(binary.BigEndian.Uint64(val))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCutConnectionsLoseAndRepeatNothing ends connections of three nodes at random, those that wait for
// the outcome of a commit included.
func TestCutConnectionsLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	dsn := server.Database()
	nodes := []*storage.Store{joined(t, dsn, "cuts"), joined(t, dsn, "cuts"), joined(t, dsn, "cuts")}
	const cuts, callers = 60, 8
	var acknowledged, refused atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range callers * len(nodes) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch err := nodes[i%len(nodes)].Update(t.Context(), increment("n")); {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, storage.ErrUnreachable):
					refused.Add(1)
				default:
					t.Errorf("an update got %v, want nil or ErrUnreachable", err)
					return
				}
			}
		})
	}
	for range cuts {
		server.Query(dsn, `select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'modelgate' and random() < 0.4`)
	}
	close(stop)
	wg.Wait()
	unknown := uint64(0)
	for _, n := range nodes {
		unknown += n.Stats().Unknown
	}
	t.Logf("%d acknowledged, %d refused, %d outcomes found out", acknowledged.Load(), refused.Load(), unknown)
	if got := numberAt(t, nodes[0], "n"); got != acknowledged.Load() || got == 0 {
		t.Errorf("the number is %d after %d acknowledged increments", got, acknowledged.Load())
	}
}

// TestACrashOfTheServerEndsNoNode stops the server at once and starts it again.
func TestACrashOfTheServerEndsNoNode(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	dsn := server.Database()
	nodes := []*storage.Store{joined(t, dsn, "crash"), joined(t, dsn, "crash")}
	server.Stop()
	for _, n := range nodes {
		if err := n.Update(t.Context(), increment("n")); !errors.Is(err, storage.ErrUnreachable) {
			t.Errorf("an update without a server gets %v, want ErrUnreachable", err)
		}
	}
	server.Start()
	for _, n := range nodes {
		for deadline := time.Now().Add(10 * time.Second); n.Ready() != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if err := n.Ready(); err != nil {
			t.Errorf("after the restart a node is not ready: %v", err)
		}
		if err := n.Update(t.Context(), increment("n")); err != nil {
			t.Errorf("an update after the restart: %v", err)
		}
	}
}

func TestAnEndedEpochCommitsNothing(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	dsn := server.Database()
	n := joined(t, dsn, "fence")
	// The end takes the write lock, as that by another node does, so that it falls between two batches.
	err := opened(t, newOpener(t, dsn, "fence")).Update(t.Context(), func(txn storage.Txn) error {
		return txn.Delete(storage.Key("node", "fence", n.Epoch()))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Update(t.Context(), increment("n")); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("an update of an ended epoch gets %v, want ErrFenced", err)
	}
	if n := server.Query(dsn, `select count(*) from fence.kv where key = 'n'`); n != "0" {
		t.Error("an ended epoch has written")
	}
}

// TestTheWriteLockIsFreeAgainWhenItsHolderIsStopped holds the lock as a stopped node does.
func TestTheWriteLockIsFreeAgainWhenItsHolderIsStopped(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	dsn := server.Database()
	n := joined(t, dsn, "stopped")
	stopped := opened(t, newOpener(t, dsn, "stopped"))
	entered, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	wg.Go(func() {
		first := true
		_ = stopped.Update(context.Background(), func(txn storage.Txn) error {
			if !storage.Rehearsed(txn) && first {
				first = false
				close(entered)
				<-release
			}
			return txn.Set([]byte("late"), []byte("x"), never)
		})
	})
	<-entered
	began := time.Now()
	if err := n.Update(t.Context(), increment("n")); err != nil {
		t.Fatal(err)
	}
	t.Logf("waited %v for the write lock", time.Since(began).Round(time.Millisecond))
	if waited := time.Since(began); waited > 4*time.Second {
		t.Errorf("waited %v for the write lock of a stopped holder, want about a second", waited)
	}
}
