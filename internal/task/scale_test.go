package task

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// engineWithQueue returns an engine on the real clock with 8 running tasks. The others wait.
func engineWithQueue(t testing.TB, tasks int) (*Engine, *storage.Store, *ledger.Ledger) {
	t.Helper()
	works := newMockService()
	disk := memory.New()
	store := storage.New(disk, storage.Options{Gather: -1})
	l, err := ledger.Open(context.Background(), store, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := Open(store, l, Options{})
	serve := func(limit int) {
		if err := e.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: works, MaxRunning: limit}}}); err != nil {
			t.Fatal(err)
		}
	}
	serve(8)
	const writers = 256
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for range tasks / writers {
				s := with(func(s *Submission) { s.Key, s.Quote = fmt.Sprint("key_", i), flat(0) })
				if _, _, err := e.Submit(context.Background(), s); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return e, store, l
}

// TestQueuedTasksUseNoMemory checks that the memory of an engine does not grow with the number of
// queued tasks.
func TestQueuedTasksUseNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("creates thousands of tasks")
	}
	e, store, l := engineWithQueue(t, 20_000)
	defer store.Close()
	defer l.Close(context.Background())
	defer e.Close(context.Background())

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	second := Open(store, l, Options{})
	if err := second.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: newMockService(), MaxRunning: 8}}}); err != nil {
		t.Fatal(err)
	}
	all, err := second.Backends(t.Context())
	if err != nil || all[0].Running != 8 || all[0].Waiting < 19_000 {
		t.Fatalf("%+v, %v", all, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("a start took %v", took)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("a second engine with 20,000 tasks uses %d bytes", grown)
	}
	second.Close(context.Background())
}

// BenchmarkSubmit measures 64 concurrent submissions to a backend that accepts each
// job at once. Users alternate. A submission ends when its acceptance is durable.
func BenchmarkSubmit(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(*testing.B) storage.Engine
	}{
		{"memory", func(*testing.B) storage.Engine { return memory.New() }},
		{"badger", onDisk},
	} {
		b.Run("engine="+engine.name, func(b *testing.B) {
			const submitters, users = 64, 4000
			counted := &counting{Engine: engine.open(b)}
			store := storage.New(counted, storage.Options{Gather: -1})
			defer store.Close()
			e := busy(b, store, users)
			before, written := store.Stats(), counted.written.Load()
			var next atomic.Int64
			var workers sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range submitters {
				workers.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						s := with(func(s *Submission) { s.Payer.User, s.Key = fmt.Sprint("user_", n%users), fmt.Sprint("key_", n%users) })
						if _, _, err := e.Submit(context.Background(), s); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			workers.Wait()
			e.Close(context.Background()) // waits until all acceptances are durable
			stats := store.Stats()
			b.ReportMetric(float64(stats.Committed-before.Committed)/float64(b.N), "commits/op")
			b.ReportMetric(float64(counted.written.Load()-written)/float64(b.N), "keys/op")
		})
	}
}

// busy returns an engine over a store with users that have money.
func busy(b *testing.B, store *storage.Store, users int) *Engine {
	b.Helper()
	l, err := ledger.Open(context.Background(), store, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(context.Background()) })
	err = store.Update(context.Background(), func(t storage.Txn) error {
		for n := range users {
			user := fmt.Sprint("user_", n)
			_, err := journal.Book(t, store.Now(), journal.Transfer{
				ID: journal.IDOf("credit", user), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), 1<<40),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	e := Open(store, l, Options{})
	if err := e.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: acceptingBackend{}}}}); err != nil {
		b.Fatal(err)
	}
	return e
}

// acceptingBackend is a backend that accepts each job at once and finishes none.
type acceptingBackend struct{}

func (acceptingBackend) Submit(_ context.Context, job backends.Job) (backends.Ref, error) {
	return backends.Ref{ID: "job-" + job.Token}, nil
}

func (acceptingBackend) Poll(context.Context, backends.Ref) (backends.Status, error) {
	return backends.Status{State: backends.Running, Progress: 50}, nil
}

// counting is an engine that counts the keys that are written.
type counting struct {
	storage.Engine
	written atomic.Int64
}

// Sole implements [storage.Sole], as the engine of gateways does.
func (*counting) Sole() bool { return true }

func (c *counting) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return c.Engine.Update(ctx, func(t storage.Txn) error { return fn(countingTxn{t, c}) })
}

type countingTxn struct {
	storage.Txn
	*counting
}

func (t countingTxn) Set(key, val []byte, purge time.Time) error {
	t.written.Add(1)
	return t.Txn.Set(key, val, purge)
}

func (t countingTxn) Delete(key []byte) error {
	t.written.Add(1)
	return t.Txn.Delete(key)
}

// onDisk opens the engine that gateways have, in a new directory.
func onDisk(b *testing.B) storage.Engine {
	b.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: b.TempDir()}
	if err := module.Provision(ctx); err != nil {
		b.Fatal(err)
	}
	engine, err := module.Open(ctx)
	if err != nil {
		b.Fatal(err)
	}
	return engine
}

func BenchmarkGetFinished(b *testing.B) {
	e := Open(storage.New(memory.New(), storage.Options{}), nil, Options{})
	rec := &record.Record{ID: record.NewID(), Key: annKey, User: ann, Kind: backends.Video, State: record.Success, Completed: time.Now().UnixMilli(), Results: []record.Media{{URL: "https://x"}}}
	e.cache.put(rec)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Get(context.Background(), record.OfKey(annKey), rec.ID); err != nil {
			b.Fatal(err)
		}
	}
}
