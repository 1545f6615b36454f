package storagetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// recoverable are faults after which a store continues.
func recoverable(seed uint64, n int) []Fault {
	random := rand.New(rand.NewPCG(seed, 0))
	faults := make([]Fault, n)
	for i := range faults {
		if random.IntN(3) == 0 {
			faults[i] = []Fault{Conflict, UnknownCommitted, UnknownLost, LowSpace}[random.IntN(4)]
		}
	}
	return faults
}

// randomFaults increments one key and writes another key per increment, while commits
// fail. Each outcome must match the content of the store.
func randomFaults(t *testing.T, f *fixture) {
	s := f.store(storage.Options{Gather: time.Millisecond, MaxBatch: 8})
	openAccounts(t, s)
	f.Plan(recoverable(6, 400)...)
	var (
		mu                      sync.Mutex
		acknowledged, uncertain uint64
		outcomes                = map[string]error{}
	)
	record := func(key string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := outcomes[key]; twice {
			t.Errorf("%s has two outcomes", key)
		}
		outcomes[key] = err
		switch {
		case err == nil:
			acknowledged++
		case errors.Is(err, storage.ErrUnknown):
			uncertain++
		case !errors.Is(err, storage.ErrLowSpace) && !errors.Is(err, storage.ErrConflict):
			t.Error(err)
		}
	}
	const clients, rounds = 8, 40
	concurrently(clients, func(i int) {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		for round := range rounds {
			seed, key := random.Uint64(), fmt.Sprintf("done/%d/%d", i, round)
			count := func(txn storage.Txn) error {
				n, err := number(txn, "counter")
				return errors.Join(err,
					setNumber(txn, "counter", n+1), txn.Set([]byte(key), nil, never),
					transfer(txn, rand.New(rand.NewPCG(seed, 0))))
			}
			if round%2 == 0 {
				record(key, s.Update(t.Context(), count))
			} else if err := s.Post(t.Context(), count, func(err error) { record(key, err) }); err != nil {
				t.Error(err)
			}
		}
	})
	s.Flush(t.Context()) // all earlier callbacks have run, even if Flush fails
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != clients*rounds {
		t.Errorf("there are %d outcomes of %d closures", len(outcomes), clients*rounds)
	}
	view(t, f.Engine, func(r storage.Reader) error {
		n, err := number(r, "counter")
		if err == nil && (n < acknowledged || n > acknowledged+uncertain) {
			err = fmt.Errorf("the counter is %d; %d were acknowledged, %d are unknown", n, acknowledged, uncertain)
		}
		for key, outcome := range outcomes {
			switch {
			case outcome == nil:
				err = errors.Join(err, has(r, key, ""))
			case !errors.Is(outcome, storage.ErrUnknown):
				err = errors.Join(err, lacks(r, key))
			}
		}
		return errors.Join(err, conserved(r))
	})
}

// crash stops the engine at each of its first commits.
func crash(t *testing.T, f *fixture) {
	for killed := range 12 {
		faulty := NewFaulty(f.Engine)
		s := storage.New(unclosed{faulty}, storage.Options{Gather: -1, MaxBatch: 4})
		faulty.Plan(After(killed, Halted)...)
		var mu sync.Mutex
		acknowledged := map[string]bool{}
		concurrently(4, func(i int) {
			for round := range 20 {
				key := fmt.Sprintf("crash%02d/%d/%02d", killed, i, round)
				err := s.Update(t.Context(), setting(key, ""))
				if err == nil {
					mu.Lock()
					acknowledged[key] = true
					mu.Unlock()
				} else if !errors.Is(err, storage.ErrStopped) {
					t.Errorf("%s: %v, want ErrStopped", key, err)
				}
			}
		})
		found := 0
		view(t, f.Engine, func(r storage.Reader) error {
			lo, hi := fmt.Appendf(nil, "crash%02d/", killed), fmt.Appendf(nil, "crash%02d0", killed)
			return r.Scan(lo, hi, func(key, _ []byte) bool {
				if !acknowledged[string(key)] {
					t.Errorf("%s exists, but was not acknowledged", key)
				}
				found++
				return true
			})
		})
		if found != len(acknowledged) {
			t.Errorf("after a crash at commit %d, %d of %d acknowledged keys exist", killed, found, len(acknowledged))
		}
		s.Close()
	}
}

// unclosed is an engine that stays open when its store is closed.
type unclosed struct{ storage.Engine }

func failStop(t *testing.T, f *fixture) {
	s := f.store(storage.Options{Gather: -1, MaxBatch: 2})
	release := hold(t, s)
	f.Plan(None, SyncFailed)
	p := &posts{t: t, s: s}
	p.set("a", "1")
	p.set("b", "2")
	p.post(func(txn storage.Txn) error {
		if !f.Sole() { // otherwise it may have run before
			t.Error("a closure ran after the failure")
		}
		return txn.Set([]byte("c"), nil, never)
	})
	select {
	case <-s.Failed():
		t.Fatal("the store failed too early")
	default:
	}
	if err := s.Err(); err != nil {
		t.Fatalf("the store failed too early: %v", err)
	}
	release()
	outcomes := p.wait()
	for _, err := range outcomes[:2] {
		if !errors.Is(err, storage.ErrStopped) || !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, ErrSync) {
			t.Errorf("a closure of the batch got %v, want ErrStopped, ErrUnknown and the cause", err)
		}
	}
	<-s.Failed()
	refused := map[string]error{
		"the next batch": outcomes[2],
		"Err":            s.Err(),
		"View":           s.View(t.Context(), func(storage.Reader) error { t.Error("a view ran"); return nil }),
		"Update":         s.Update(t.Context(), func(storage.Txn) error { t.Error("a closure ran"); return nil }),
		"Post":           s.Post(t.Context(), func(storage.Txn) error { t.Error("a closure ran"); return nil }, nil),
		"Flush":          s.Flush(t.Context()),
	}
	for what, err := range refused {
		if !errors.Is(err, storage.ErrStopped) || !errors.Is(err, ErrSync) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s got %v, want ErrStopped and the cause, without ErrUnknown", what, err)
		}
	}
	view(t, f.Engine, func(r storage.Reader) error { return lacks(r, "c") })
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func viewAcrossFailure(t *testing.T, f *fixture) {
	s := f.store(immediate)
	f.Plan(SyncFailed)
	err := s.View(t.Context(), func(storage.Reader) error {
		s.Update(t.Context(), setting("a", "1"))
		return nil
	})
	if !errors.Is(err, storage.ErrStopped) {
		t.Errorf("the view got %v, want ErrStopped", err)
	}
}

// interrupted is an engine that calls a function during a backup.
type interrupted struct {
	*Faulty
	during func()
}

func (i *interrupted) Backup(context.Context, io.Writer) error { i.during(); return nil }

func (i *interrupted) Restore(context.Context, io.Reader) error { return errors.ErrUnsupported }

func backupAcrossFailure(t *testing.T, f *fixture) {
	e := &interrupted{Faulty: f.Faulty}
	s := storage.New(e, immediate)
	t.Cleanup(func() { s.Close() })
	e.during = func() { s.Update(t.Context(), setting("a", "1")) }
	f.Plan(SyncFailed)
	if err := s.Backup(t.Context(), io.Discard); !errors.Is(err, storage.ErrStopped) {
		t.Errorf("the backup got %v, want ErrStopped", err)
	}
}

func goexit(t *testing.T, f *fixture) {
	s := f.store(immediate)
	release := hold(t, s)
	p := &posts{t: t, s: s}
	p.set("a", "1")
	p.post(func(storage.Txn) error { runtime.Goexit(); return nil })
	release()
	for i, err := range p.wait() {
		if !errors.Is(err, storage.ErrStopped) {
			t.Errorf("post %d: %v, want ErrStopped", i, err)
		}
	}
}

func goexitOfDone(t *testing.T, f *fixture) {
	s := f.store(immediate)
	release := hold(t, s)
	for range 2 {
		if err := s.Post(t.Context(), setting("a", "1"), func(error) { runtime.Goexit() }); err != nil {
			t.Fatal(err)
		}
	}
	p := &posts{t: t, s: s}
	p.set("b", "2")
	release()
	if err := p.wait()[0]; !errors.Is(err, storage.ErrStopped) || !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("a later post got %v, want ErrStopped and ErrUnknown", err)
	}
	if err := s.Update(t.Context(), setting("c", "3")); !errors.Is(err, storage.ErrStopped) {
		t.Errorf("a later update got %v, want ErrStopped", err)
	}
}

func goexitAfterSplit(t *testing.T, f *fixture) {
	s := f.store(immediate)
	f.LimitWrites(2)
	release := hold(t, s)
	p := &posts{t: t, s: s}
	p.set("a", "1")
	p.set("b", "2")
	runs := 0
	p.post(func(txn storage.Txn) error {
		if !storage.Rehearsed(txn) {
			runs++
		}
		if runs == 2 {
			runtime.Goexit()
		}
		return txn.Set([]byte("c"), []byte("3"), never)
	})
	release()
	outcomes := p.wait()
	if outcomes[0] != nil || !errors.Is(outcomes[1], storage.ErrStopped) || !errors.Is(outcomes[2], storage.ErrStopped) {
		t.Errorf("the outcomes are %v, want nil for the first half and ErrStopped for the second", outcomes)
	}
}
