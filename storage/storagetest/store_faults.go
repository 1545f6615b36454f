package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

func conflictAgain(t *testing.T, f *fixture) {
	s := f.store(immediate)
	f.Plan(Conflict, Conflict)
	set(t, s, "a", "1")
	expect(t, s, "a", "1")
	if n, stats := f.Commits(), s.Stats(); n != 3 || stats.Conflicts != 2 {
		t.Errorf("there were %d commits and %d conflicts counted, want 3 and 2", n, stats.Conflicts)
	}
}

func persistentConflict(t *testing.T, f *fixture) {
	s := f.store(immediate)
	f.Plan(Conflict, Conflict, Conflict, Conflict, Conflict, Conflict, Conflict, Conflict)
	if err := s.Update(t.Context(), setting("a", "1")); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("8 conflicts in a row: %v, want ErrConflict", err)
	}
	expect(t, s)
	set(t, s, "b", "2")
}

// reading is an engine whose first reads of "bad" fail.
type reading struct {
	storage.Engine
	err   error
	times int
}

func (r *reading) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return r.Engine.Update(ctx, func(txn storage.Txn) error {
		if storage.Rehearsed(txn) {
			return fn(txn)
		}
		return fn(&badRead{txn, r})
	})
}

type badRead struct {
	storage.Txn
	failing *reading
}

func (r *badRead) Get(key []byte) ([]byte, error) {
	if string(key) == "bad" && r.failing.times > 0 {
		r.failing.times--
		return nil, r.failing.err
	}
	return r.Txn.Get(key)
}

// ignoreReadError is a closure that ignores the error of a read.
func ignoreReadError(txn storage.Txn) error {
	txn.Get([]byte("bad"))
	return txn.Set([]byte("written"), nil, never)
}

func conflictInReading(t *testing.T, f *fixture) {
	s := storage.New(&reading{Engine: f.Engine, err: storage.ErrConflict, times: 2}, immediate)
	t.Cleanup(func() { s.Close() })
	release := hold(t, s)
	p := &posts{t: t, s: s}
	p.set("a", "1")
	p.post(ignoreReadError)
	release()
	p.succeed()
	expect(t, s, "a", "1", "written", "")
	if stats := s.Stats(); stats.Conflicts != 2 {
		t.Errorf("%d conflicts counted, want 2", stats.Conflicts)
	}
}

func readFailure(t *testing.T, f *fixture) {
	cause := errors.New("checksum mismatch")
	s := storage.New(&reading{Engine: f.Engine, err: cause, times: 1}, immediate)
	t.Cleanup(func() { s.Close() })
	release := hold(t, s)
	p := &posts{t: t, s: s}
	p.set("a", "1")
	p.post(ignoreReadError)
	p.set("b", "2")
	release()
	outcomes := p.wait()
	if outcomes[0] != nil || !errors.Is(outcomes[1], cause) || outcomes[2] != nil {
		t.Errorf("the outcomes are %v, want only the second to fail", outcomes)
	}
	expect(t, s, "a", "1", "b", "2")
}

func splitInHalves(t *testing.T, f *fixture) {
	s := f.store(immediate)
	f.LimitWrites(4)
	release := hold(t, s)
	p := &posts{t: t, s: s}
	var want []string
	for i := range 11 {
		if i == 6 {
			p.post(func(txn storage.Txn) error { // too large even alone
				for j := range 5 {
					if err := txn.Set(fmt.Appendf(nil, "large%d", j), nil, never); err != nil {
						return err
					}
				}
				return nil
			})
		}
		key := fmt.Sprintf("k%02d", i)
		p.set(key, "")
		want = append(want, key, "")
	}
	release()
	for i, err := range p.wait() {
		if (i == 6) != errors.Is(err, storage.ErrTooLarge) || i != 6 && err != nil {
			t.Errorf("post %d: %v", i, err)
		}
	}
	expect(t, s, want...)
	if stats := s.Stats(); stats.Splits == 0 || s.Err() != nil {
		t.Errorf("%d splits counted, want some; the store has %v, want it to continue", stats.Splits, s.Err())
	}
}

// refusing is an engine that refuses the key "bad".
type refusing struct{ storage.Engine }

var errRefused = errors.New("key refused")

func (p refusing) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return p.Engine.Update(ctx, func(txn storage.Txn) error { return fn(refusingTxn{txn}) })
}

type refusingTxn struct{ storage.Txn }

func (p refusingTxn) Set(key, val []byte, purge time.Time) error {
	if string(key) == "bad" {
		return errRefused
	}
	return p.Txn.Set(key, val, purge)
}

func refusedWrite(t *testing.T, f *fixture) {
	s := storage.New(refusing{f.Faulty}, immediate)
	t.Cleanup(func() { s.Close() })
	release := hold(t, s)
	p := &posts{t: t, s: s}
	p.set("a", "1")
	p.set("bad", "2")
	p.set("c", "3")
	release()
	outcomes := p.wait()
	if outcomes[0] != nil || !errors.Is(outcomes[1], errRefused) || outcomes[2] != nil {
		t.Errorf("the outcomes are %v, want only the second to fail", outcomes)
	}
	expect(t, s, "a", "1", "c", "3")

	f.Plan(SyncFailed) // a different error
	if err := s.Update(t.Context(), setting("d", "4")); !errors.Is(err, storage.ErrStopped) {
		t.Errorf("a failed sync after a refused write: %v, want ErrStopped", err)
	}
}

func unknownOutcome(t *testing.T, f *fixture) {
	s := f.store(immediate)
	broken := errors.New("broken")
	for _, test := range []struct {
		fault Fault
		want  []string
	}{
		{UnknownLost, nil},
		{UnknownCommitted, []string{"a", "1", "b", "2"}},
	} {
		release := hold(t, s)
		f.Plan(None, test.fault)
		p := &posts{t: t, s: s}
		p.set("a", "1")
		p.post(func(storage.Txn) error { return broken })
		p.set("b", "2")
		release()
		for i, err := range p.wait() {
			if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrStopped) {
				t.Errorf("post %d: %v, want ErrUnknown, and a store that continues", i, err)
			}
		}
		expect(t, s, test.want...)
	}
	set(t, s, "c", "3")
}

func lowSpace(t *testing.T, f *fixture) {
	s := f.store(immediate)
	f.Plan(LowSpace)
	if err := s.Update(t.Context(), setting("a", "1")); !errors.Is(err, storage.ErrLowSpace) {
		t.Errorf("update: %v, want ErrLowSpace", err)
	}
	expect(t, s)
	set(t, s, "b", "2")
	expect(t, s, "b", "2")
	if n := s.Stats().LowSpace; n != 1 {
		t.Errorf("%d refusals counted, want 1", n)
	}
}

func unknownHistories(t *testing.T, f *fixture) {
	s := f.store(storage.Options{})
	random := rand.New(rand.NewPCG(5, 0))
	for range 200 {
		f.Plan([]Fault{None, None, None, None, None, Conflict, UnknownCommitted, UnknownLost}[random.IntN(8)])
	}
	linearizable(t, s)
}

func (unclosed) Close() error { return nil }
