package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

func cancelledInQueue(t *testing.T, f *fixture) {
	s := f.store(immediate)
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	update := start(func() error {
		return s.Update(ctx, func(storage.Txn) error { t.Error("the closure of a cancelled update ran"); return nil })
	})
	until(t, func() bool { return s.Stats().Queued == 2 })
	cancel()
	if err := update.wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("an update cancelled in the queue got %v, want context.Canceled", err)
	}
	release()
	set(t, s, "a", "1")
	if stats := s.Stats(); stats.Cancelled != 1 || stats.Queued != 0 {
		t.Errorf("%d cancelled and %d queued, want 1 and none", stats.Cancelled, stats.Queued)
	}

	never := func(storage.Txn) error { t.Error("a closure ran for a cancelled context"); return nil }
	for what, err := range map[string]error{
		"Update": s.Update(cancelled(), never),
		"Post":   s.Post(cancelled(), never, func(error) { t.Error("done was called") }),
		"Flush":  s.Flush(cancelled()),
		"View":   s.View(cancelled(), func(storage.Reader) error { t.Error("a view ran"); return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s got %v, want context.Canceled", what, err)
		}
	}
}

func cancelledAfterBegin(t *testing.T, f *fixture) {
	s := f.store(immediate)
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(txn storage.Txn) error {
		cancel()
		return txn.Set([]byte("a"), []byte("1"), never)
	})
	if err != nil {
		t.Errorf("an update cancelled after its beginning got %v, want nil", err)
	}
	expect(t, s, "a", "1")

	// A Post is accepted once it is queued.
	release := hold(t, s)
	ctx, cancel = context.WithCancel(t.Context())
	outcome := make(chan error, 1)
	if err := s.Post(ctx, setting("b", "2"), func(err error) { outcome <- err }); err != nil {
		t.Fatal(err)
	}
	cancel()
	release()
	if err := <-outcome; err != nil {
		t.Errorf("a post got %v after its context ended, want nil", err)
	}
	expect(t, s, "a", "1", "b", "2")
}

func fullQueue(t *testing.T, f *fixture) {
	s := f.store(storage.Options{Gather: -1, Queue: 2})
	release := hold(t, s)
	p := &posts{t: t, s: s}
	p.set("first", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	err := s.Post(ctx, func(storage.Txn) error { t.Error("a closure ran"); return nil },
		func(error) { t.Error("done was called") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a post to a full queue got %v, want to wait until its deadline", err)
	}
	waits := start(func() error {
		for i := range 5 {
			p.set(fmt.Sprintf("more%d", i), "")
		}
		return nil
	})
	release()
	waits.wait()
	p.succeed()
	expect(t, s, "first", "1", "more0", "", "more1", "", "more2", "", "more3", "", "more4", "")
}

func failureFreesWaiters(t *testing.T, f *fixture) {
	s := f.store(storage.Options{Gather: -1, Queue: 1})
	release := hold(t, s)
	f.Plan(SyncFailed)
	// The call does not run, whether it waits at the failure or is made later.
	waits := start(func() error { return s.Flush(t.Context()) })
	release()
	if err := waits.wait(); !errors.Is(err, storage.ErrStopped) {
		t.Errorf("the waiting call got %v, want ErrStopped", err)
	}
}

func closeDrains(t *testing.T, f *fixture) {
	s := f.store(gathering)
	p := &posts{t: t, s: s}
	for i := range 10 {
		p.set(fmt.Sprintf("k%d", i), "posted")
	}
	both := []running{start(s.Close), start(s.Close)}
	for _, r := range both {
		if err := r.wait(); err != nil {
			t.Errorf("close: %v", err)
		}
		if stats := s.Stats(); stats.Committed != 10 || stats.Queued != 0 {
			t.Errorf("after Close, %d of 10 are committed and %d queued", stats.Committed, stats.Queued)
		}
	}
	p.succeed()
	if err := f.Engine.View(t.Context(), func(storage.Reader) error { return nil }); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("the engine returns %v, want ErrClosed", err)
	}
	for what, err := range map[string]error{
		"View":   s.View(t.Context(), func(storage.Reader) error { t.Error("a view ran"); return nil }),
		"Update": s.Update(t.Context(), func(storage.Txn) error { t.Error("a closure ran"); return nil }),
		"Post":   s.Post(t.Context(), func(storage.Txn) error { t.Error("a closure ran"); return nil }, nil),
		"Flush":  s.Flush(t.Context()),
	} {
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("%s got %v, want ErrClosed", what, err)
		}
	}
}

func closeWaitsForViews(t *testing.T, f *fixture) {
	s := f.store(immediate)
	set(t, s, "a", "1")
	var ended atomic.Bool
	var closing running
	view(t, s, func(r storage.Reader) error {
		closing = start(s.Close)
		until(t, func() bool { return errors.Is(s.Flush(t.Context()), storage.ErrClosed) })
		defer ended.Store(true)
		return has(r, "a", "1")
	})
	if err := closing.wait(); err != nil || !ended.Load() {
		t.Errorf("close: %v; the view had ended: %t", err, ended.Load())
	}
}

func donePanics(t *testing.T, f *fixture) {
	s := f.store(immediate)
	release := hold(t, s)
	if err := s.Post(t.Context(), setting("a", "1"), func(error) { panic("ouch") }); err != nil {
		t.Fatal(err)
	}
	p := &posts{t: t, s: s}
	p.set("b", "2")
	release()
	p.succeed()
	expect(t, s, "a", "1", "b", "2")
}
