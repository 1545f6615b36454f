package storage_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// BenchmarkUpdate measures writers that wait until their writes are durable. It
// reports the closures per commit.
func BenchmarkUpdate(b *testing.B) {
	for _, test := range []struct {
		writers int
		sync    time.Duration
	}{{1, 0}, {8, 0}, {64, 0}, {1, time.Millisecond}, {64, time.Millisecond}} {
		b.Run(fmt.Sprintf("writers=%d/sync=%v", test.writers, test.sync), func(b *testing.B) {
			s := storage.New(syncing{memory.New(), test.sync}, storage.Options{})
			defer s.Close()
			var next atomic.Uint64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range test.writers {
				wg.Go(func() {
					for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
						if err := s.Update(b.Context(), settle(n)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			report(b, s)
		})
	}
}

// syncing is an engine whose commits take as long as those of a disk.
type syncing struct {
	storage.Engine
	sync time.Duration
}

func (e syncing) Update(ctx context.Context, fn func(storage.Txn) error) error {
	err := e.Engine.Update(ctx, fn)
	time.Sleep(e.sync)
	return err
}

// BenchmarkPost measures the cost of a settlement for its caller, including the
// commit.
func BenchmarkPost(b *testing.B) {
	s := storage.New(memory.New(), storage.Options{})
	defer s.Close()
	var next atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Post(b.Context(), settle(next.Add(1)), nil); err != nil {
				b.Error(err)
			}
		}
	})
	if err := s.Flush(b.Context()); err != nil {
		b.Error(err)
	}
	report(b, s)
}

// BenchmarkScan measures closures that scan their own writes. The size of the
// rest of their batch should not matter.
func BenchmarkScan(b *testing.B) {
	for _, writers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := storage.New(memory.New(), storage.Options{})
			defer s.Close()
			var next atomic.Uint64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
						if err := s.Update(b.Context(), sell(n)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			report(b, s)
		})
	}
}

// sell writes like a purchase: records of many kinds of one buyer, some of
// which it also scans.
func sell(n uint64) func(storage.Txn) error {
	return func(txn storage.Txn) error {
		for kind := range byte(16) {
			prefix := binary.BigEndian.AppendUint64([]byte{'a' + kind, '/'}, n%10_000)
			if err := txn.Set(binary.BigEndian.AppendUint64(prefix, n), make([]byte, 100), time.Time{}); err != nil {
				return err
			}
			if kind%4 != 0 {
				continue
			}
			found := false
			err := txn.Scan(prefix, storage.PrefixEnd(prefix), func(_, _ []byte) bool {
				found = true
				return false
			})
			if err != nil || !found {
				return fmt.Errorf("the written key is not found: %w", err)
			}
		}
		return nil
	}
}

// settle writes like a settlement: its own record and a balance that all
// closures change.
func settle(n uint64) func(storage.Txn) error {
	return func(txn storage.Txn) error {
		var balance uint64
		val, err := txn.Get([]byte("balance"))
		if err != nil {
			return err
		}
		if val != nil {
			balance = binary.BigEndian.Uint64(val)
		}
		if err := txn.Set([]byte("balance"), binary.BigEndian.AppendUint64(nil, balance+1), time.Time{}); err != nil {
			return err
		}
		return txn.Set(binary.BigEndian.AppendUint64([]byte("call/"), n%100_000), make([]byte, 200), time.Time{})
	}
}

func report(b *testing.B, s *storage.Store) {
	stats := s.Stats()
	b.ReportMetric(float64(stats.Committed)/float64(stats.Batches), "closures/commit")
}
