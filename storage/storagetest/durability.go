package storagetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// RunPersistent tests an engine that keeps its content in a directory. open
// opens the engine in dir, which is empty at first.
func RunPersistent(t *testing.T, open func(t *testing.T, dir string) storage.Engine) {
	t.Run("committed data survives a reopen", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		large := strings.Repeat("large", 100_000)

		e := open(t, dir)
		set(t, e, "a", "1", "b", "2", "c", "3", "empty", "", "large", large)
		update(t, e, func(txn storage.Txn) error { return txn.Delete([]byte("b")) })
		set(t, e, "c", "33")
		aborted := errors.New("aborted")
		err := e.Update(t.Context(), func(txn storage.Txn) error {
			return errors.Join(txn.Set([]byte("d"), []byte("4"), never), aborted)
		})
		if !errors.Is(err, aborted) {
			t.Fatal(err)
		}
		for range 2 {
			if err := e.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			e = open(t, dir)
			expect(t, e, "a", "1", "c", "33", "empty", "", "large", large)
		}
		set(t, e, "e", "5")
		if err := e.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		e = open(t, dir)
		expect(t, e, "a", "1", "c", "33", "e", "5", "empty", "", "large", large)
		if err := e.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	})
}

// backup tests an engine that is a Backuper. It skips any other engine.
func backup(t *testing.T, open func(t *testing.T) storage.Engine) {
	source := openAndClose(t, open)
	from, ok := source.(storage.Backuper)
	if !ok {
		t.Skip("this engine has no backups while in use")
	}
	restore := func(t *testing.T, e storage.Engine, copied []byte) error {
		return e.(storage.Backuper).Restore(t.Context(), bytes.NewReader(copied))
	}
	var full bytes.Buffer
	set(t, source, "a", "1", "b", "2", "empty", "", "gone", "", "large", strings.Repeat("x", 1<<20))
	update(t, source, func(txn storage.Txn) error { return txn.Delete([]byte("gone")) })
	set(t, source, "b", "22")
	if err := from.Backup(t.Context(), &full); err != nil {
		t.Fatalf("backup: %v", err)
	}

	t.Run("a restored engine has the same content", func(t *testing.T) {
		target := openAndClose(t, open)
		if err := restore(t, target, full.Bytes()); err != nil {
			t.Fatalf("restore: %v", err)
		}
		expect(t, target, "a", "1", "b", "22", "empty", "", "large", strings.Repeat("x", 1<<20))
		set(t, target, "c", "3") // the restored engine accepts writes
		expect(t, target, "a", "1", "b", "22", "c", "3", "empty", "", "large", strings.Repeat("x", 1<<20))
	})
	t.Run("a backup of an empty engine", func(t *testing.T) {
		var copied bytes.Buffer
		if err := openAndClose(t, open).(storage.Backuper).Backup(t.Context(), &copied); err != nil {
			t.Fatalf("backup: %v", err)
		}
		target := openAndClose(t, open)
		if err := restore(t, target, copied.Bytes()); err != nil {
			t.Fatalf("restore: %v", err)
		}
		expect(t, target)
	})
	t.Run("an incomplete backup is refused", func(t *testing.T) {
		for _, size := range []int{0, full.Len() / 2, full.Len() - 1} {
			if err := restore(t, openAndClose(t, open), full.Bytes()[:size]); err == nil {
				t.Errorf("%d of %d bytes were restored", size, full.Len())
			}
		}
	})
	t.Run("an engine that is not empty is refused", func(t *testing.T) {
		target := openAndClose(t, open)
		set(t, target, "mine", "1")
		if err := restore(t, target, full.Bytes()); !errors.Is(err, storage.ErrNotEmpty) {
			t.Errorf("restore: %v, want ErrNotEmpty", err)
		}
		expect(t, target, "mine", "1")
	})
	t.Run("a cancelled context is refused", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := from.Backup(ctx, new(bytes.Buffer)); !errors.Is(err, context.Canceled) {
			t.Errorf("backup returned %v, want context.Canceled", err)
		}
	})
	t.Run("a backup during writes is consistent", func(t *testing.T) {
		busy := openAndClose(t, open)
		openAccounts(t, busy)
		quit := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for random := rand.New(rand.NewPCG(3, 3)); ; {
				select {
				case <-quit:
					return
				default:
					if err := retrying(t.Context(), busy, func(txn storage.Txn) error { return transfer(txn, random) }); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		for range 3 {
			var copied bytes.Buffer
			if err := busy.(storage.Backuper).Backup(t.Context(), &copied); err != nil {
				t.Errorf("backup: %v", err)
				break
			}
			target := openAndClose(t, open)
			if err := restore(t, target, copied.Bytes()); err != nil {
				t.Errorf("restore: %v", err)
				break
			}
			if err := target.View(t.Context(), conserved); err != nil {
				t.Errorf("the copy is inconsistent: %v", err)
			}
		}
		close(quit)
		wg.Wait()
	})
}
