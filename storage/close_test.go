package storage_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// These tests inspect the store while all goroutines wait, which only a
// synctest bubble can detect.

func TestCloseServesCallersAtAFullQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storage.New(memory.New(), storage.Options{Queue: 1})
		gate := make(chan struct{})
		go s.Update(t.Context(), func(storage.Txn) error { <-gate; return nil })
		synctest.Wait()

		outcome := make(chan error, 1)
		go func() {
			err := s.Post(t.Context(), func(storage.Txn) error { return nil }, func(err error) { outcome <- err })
			if err != nil {
				outcome <- err
			}
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		select {
		case err := <-outcome:
			t.Fatalf("the post to a full queue did not wait, but got %v", err)
		case <-closed:
			t.Fatal("Close did not wait")
		default:
		}
		if err := s.Flush(t.Context()); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a call after Close got %v, want ErrClosed", err)
		}
		close(gate)
		if err := <-outcome; err != nil {
			t.Errorf("the waiting call got %v, want a commit", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestCloseWaitsForViews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storage.New(memory.New(), storage.Options{})
		closed := make(chan error, 1)
		err := s.View(t.Context(), func(storage.Reader) error {
			go func() { closed <- s.Close() }()
			synctest.Wait()
			select {
			case <-closed:
				t.Error("Close did not wait for the view")
			default:
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// endless is an engine whose backups end only with their context.
type endless struct{ *memory.Engine }

func (endless) Backup(ctx context.Context, _ io.Writer) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseEndsABackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storage.New(endless{memory.New()}, storage.Options{})
		outcome := make(chan error, 1)
		go func() { outcome <- s.Backup(t.Context(), io.Discard) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-outcome; !errors.Is(err, storage.ErrClosed) {
			t.Errorf("the backup got %v, want ErrClosed", err)
		}
	})
}

func TestABackupEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storage.New(endless{memory.New()}, storage.Options{})
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Backup(ctx, io.Discard); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrClosed) {
			t.Errorf("the backup got %v, want context.DeadlineExceeded", err)
		}
	})
}
