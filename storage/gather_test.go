package storage_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// TestGather uses a clock that advances only while all goroutines wait, so that
// the times of the callbacks are exact.
func TestGather(t *testing.T) {
	t.Parallel()
	set := func(key string) func(storage.Txn) error {
		return func(txn storage.Txn) error { return txn.Set([]byte(key), nil, time.Time{}) }
	}
	for _, test := range []struct {
		name     string
		opts     storage.Options
		act      func(t *testing.T, s *storage.Store, post func())
		outcomes []time.Duration // time of each callback
		commits  int
	}{
		{
			name:     "a single post waits for 100 ms",
			act:      func(t *testing.T, s *storage.Store, post func()) { post() },
			outcomes: []time.Duration{100 * time.Millisecond}, commits: 1,
		},
		{
			name: "later posts join and do not prolong the wait",
			act: func(t *testing.T, s *storage.Store, post func()) {
				for range 3 {
					post()
					time.Sleep(40 * time.Millisecond)
				}
			},
			outcomes: []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}, commits: 1,
		},
		{
			name: "a post after a commit opens a new batch",
			act: func(t *testing.T, s *storage.Store, post func()) {
				post()
				time.Sleep(150 * time.Millisecond)
				post()
			},
			outcomes: []time.Duration{100 * time.Millisecond, 250 * time.Millisecond}, commits: 2,
		},
		{
			name: "an update ends the wait",
			act: func(t *testing.T, s *storage.Store, post func()) {
				post()
				time.Sleep(30 * time.Millisecond)
				if err := s.Update(t.Context(), set("update")); err != nil {
					t.Error(err)
				}
			},
			outcomes: []time.Duration{30 * time.Millisecond}, commits: 1,
		},
		{
			name: "CommitNow ends the wait, but not that of the next batch",
			act: func(t *testing.T, s *storage.Store, post func()) {
				post()
				time.Sleep(20 * time.Millisecond)
				s.CommitNow()
				time.Sleep(20 * time.Millisecond)
				post()
			},
			outcomes: []time.Duration{20 * time.Millisecond, 140 * time.Millisecond}, commits: 2,
		},
		{
			name: "a full batch does not wait",
			opts: storage.Options{MaxBatch: 2},
			act: func(t *testing.T, s *storage.Store, post func()) {
				for range 3 {
					post()
				}
			},
			outcomes: []time.Duration{0, 0, 100 * time.Millisecond}, commits: 2,
		},
		{
			name: "a full queue does not wait",
			opts: storage.Options{Queue: 2},
			act: func(t *testing.T, s *storage.Store, post func()) {
				for range 4 {
					post()
				}
			},
			outcomes: []time.Duration{0, 0, 0, 0}, commits: 2,
		},
		{
			name: "close ends the wait",
			act: func(t *testing.T, s *storage.Store, post func()) {
				post()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			},
			outcomes: []time.Duration{0}, commits: 1,
		},
		{
			name:     "Gather sets the wait",
			opts:     storage.Options{Gather: time.Second},
			act:      func(t *testing.T, s *storage.Store, post func()) { post() },
			outcomes: []time.Duration{time.Second}, commits: 1,
		},
		{
			name:     "a negative Gather disables the wait",
			opts:     storage.Options{Gather: -1},
			act:      func(t *testing.T, s *storage.Store, post func()) { post() },
			outcomes: []time.Duration{0}, commits: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				engine := storagetest.NewFaulty(memory.New())
				s := storage.New(engine, test.opts)
				defer s.Close()
				began := time.Now()
				var outcomes []time.Duration
				posted := 0
				test.act(t, s, func() {
					posted++
					err := s.Post(t.Context(), set(fmt.Sprint(posted)), func(err error) {
						if err != nil {
							t.Error(err)
						}
						outcomes = append(outcomes, time.Since(began))
					})
					if err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				if fmt.Sprint(outcomes) != fmt.Sprint(test.outcomes) {
					t.Errorf("the callbacks ran after %v, want %v", outcomes, test.outcomes)
				}
				if n := engine.Commits(); n != test.commits {
					t.Errorf("there were %d commits, want %d", n, test.commits)
				}
			})
		})
	}
}

func TestNowIsTheGivenClock(t *testing.T) {
	t.Parallel()
	then := time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)
	s := storage.New(memory.New(), storage.Options{Clock: func() time.Time { return then }})
	defer s.Close()
	if now := s.Now(); !now.Equal(then) {
		t.Errorf("Now returns %v, want %v", now, then)
	}
}
