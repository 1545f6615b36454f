package task

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// crowd is an engine on the real clock with tasks that wait behind 8 that run.
func crowd(t testing.TB, tasks int) (*Engine, *storage.Store, *ledger.Ledger) {
	t.Helper()
	works := newWorks()
	disk := memory.New()
	store := storage.New(disk, storage.Options{Gather: -1})
	l, err := ledger.Open(context.Background(), store, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := Open(store, l, Options{})
	serve := func(most int) {
		if err := e.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: works, MaxRunning: most}}}); err != nil {
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

// A task that waits has nothing in memory: what the engine takes does not grow
// with how many there are.
func TestTasksThatWaitTakeNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes thousands of tasks")
	}
	e, store, l := crowd(t, 20_000)
	defer store.Close()
	defer l.Close(context.Background())
	defer e.Close(context.Background())

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	second := Open(store, l, Options{})
	if err := second.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: newWorks(), MaxRunning: 8}}}); err != nil {
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
		t.Errorf("a second engine over 20,000 tasks takes %d bytes", grown)
	}
	second.Close(context.Background())
}

func BenchmarkSubmit(b *testing.B) {
	works := newWorks()
	works.hold = nil
	store := storage.New(memory.New(), storage.Options{Gather: -1})
	defer store.Close()
	l, err := ledger.Open(context.Background(), store, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	e := Open(store, l, Options{})
	defer e.Close(context.Background())
	if err := e.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: works, MaxRunning: 1}}}); err != nil {
		b.Fatal(err)
	}
	err = l.Update(context.Background(), ann, nil, func(t *ledger.Txn) error {
		_, err := ledger.Book(t, store.Now(), ledger.Transfer{
			ID: ledger.IDOf("credit"), Kind: ledger.Credit, User: ann, Legs: ledger.Move(ledger.Operator, ledger.Wallet(ann), 1<<50),
		})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	before := store.Stats().Committed
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := e.Submit(context.Background(), video()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(store.Stats().Committed-before)/float64(b.N), "commits/op")
}

func BenchmarkGetFinished(b *testing.B) {
	e := Open(storage.New(memory.New(), storage.Options{}), nil, Options{})
	rec := &record{ID: newID(), Key: annKey, User: ann, Kind: backends.Video, State: Success, Completed: milliseconds(time.Now()), Results: []made{{URL: "https://x"}}}
	e.cache.put(rec)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Get(context.Background(), OfKey(annKey), rec.ID); err != nil {
			b.Fatal(err)
		}
	}
}
