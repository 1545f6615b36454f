package storage_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// medium is an engine whose commits last until the test ends them.
type medium struct {
	*memory.Engine
	results chan error // result of the next commit
}

func (m medium) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return m.Engine.Update(ctx, func(t storage.Txn) error {
		if err := fn(t); err != nil {
			return err
		}
		return <-m.results
	})
}

// TestABatchRunsDuringThePreviousCommit runs a second closure while the commit of
// the first one is in progress.
func TestABatchRunsDuringThePreviousCommit(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first error    // result of the first commit
		saw   []string // the value that each run of the second closure has read
		kept  string
	}{
		"success":            {nil, []string{"first"}, "first, second"},
		"low space":          {storage.ErrLowSpace, []string{"first", ""}, ", second"},
		"an unknown outcome": {storage.ErrUnknown, []string{"first", ""}, ", second"},
		"a conflict":         {storage.ErrConflict, []string{"first", "first"}, "first, second"},
		"a failed medium":    {errors.New("input/output error"), []string{"first"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := medium{memory.New(), make(chan error)}
				s := storage.New(m, storage.Options{})
				var called []string
				update := func(name string, fn func(storage.Txn) error) chan error {
					outcome := make(chan error, 1)
					go func() {
						outcome <- s.UpdateThen(t.Context(), fn, func(error) { called = append(called, name) })
					}()
					synctest.Wait()
					return outcome
				}
				key := []byte("key")
				first := update("first", func(txn storage.Txn) error { return txn.Set(key, []byte("first"), time.Time{}) })
				var saw []string
				second := update("second", func(txn storage.Txn) error {
					val, err := txn.Get(key)
					saw = append(saw, string(val))
					return errors.Join(err, txn.Set(key, []byte(string(val)+", second"), time.Time{}))
				})
				if !slices.Equal(saw, []string{"first"}) || len(called) != 0 {
					t.Errorf("before the first was durable, the second saw %q; callbacks: %q", saw, called)
				}

				m.results <- row.first
				close(m.results) // later commits succeed
				if err := <-first; !errors.Is(err, row.first) && !errors.Is(row.first, storage.ErrConflict) {
					t.Errorf("the first got %v, want %v", err, row.first)
				}
				err := <-second
				if stopped := row.kept == ""; stopped != errors.Is(err, storage.ErrStopped) || !stopped && err != nil {
					t.Errorf("the second got %v", err)
				}
				if !slices.Equal(saw, row.saw) || !slices.Equal(called, []string{"first", "second"}) {
					t.Errorf("the second saw %q, want %q; callbacks: %q", saw, row.saw, called)
				}
				var kept []byte
				if err := m.View(t.Context(), func(r storage.Reader) (err error) {
					kept, err = r.Get(key)
					return err
				}); err != nil || string(kept) != row.kept {
					t.Errorf("the engine has %q, %v; want %q", kept, err, row.kept)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
