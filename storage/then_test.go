package storage_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// TestCallbacksRunInTheOrderOfCommits checks that the callback of a closure runs after
// those of all earlier closures, because state in memory follows the store.
func TestCallbacksRunInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	s := storage.New(memory.New(), storage.Options{Gather: -1})
	defer s.Close()
	var ran, callbacks []int // each by one goroutine at a time
	var callers sync.WaitGroup
	refused := errors.New("refused")
	for i := range 200 {
		callers.Go(func() {
			called := false
			err := s.UpdateThen(t.Context(), func(storage.Txn) error {
				ran = append(ran, i)
				if i%7 == 0 {
					return refused
				}
				return nil
			}, func(err error) {
				callbacks, called = append(callbacks, i), true
				if errors.Is(err, refused) != (i%7 == 0) {
					t.Errorf("the callback of %d got %v", i, err)
				}
			})
			if !called || errors.Is(err, refused) != (i%7 == 0) {
				t.Errorf("%d returned %v; its callback had run: %t", i, err, called)
			}
		})
	}
	callers.Wait()
	if !slices.Equal(ran, callbacks) {
		t.Errorf("the closures ran as\n%v, the callbacks as\n%v", ran, callbacks)
	}
}

func TestAClosureThatDidNotRunHasNoCallback(t *testing.T) {
	t.Parallel()
	s := storage.New(memory.New(), storage.Options{})
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.UpdateThen(ctx, func(storage.Txn) error { t.Error("the closure ran"); return nil }, func(error) { t.Error("the callback ran") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("UpdateThen returned %v", err)
	}
}
