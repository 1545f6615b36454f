package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

func absentKey(t *testing.T, e transactor) {
	view(t, e, func(r storage.Reader) error { return lacks(r, "k") })
	update(t, e, func(txn storage.Txn) error {
		if err := txn.Delete([]byte("k")); err != nil {
			return fmt.Errorf("deleting an absent key: %w", err)
		}
		return lacks(txn, "k")
	})
	expect(t, e)
}

func emptyValue(t *testing.T, e transactor) {
	// holds cannot distinguish an empty slice from a nil one.
	check := func(r storage.Reader) error {
		for _, key := range []string{"empty", "nil"} {
			if val, err := r.Get([]byte(key)); err != nil || val == nil || len(val) != 0 {
				return fmt.Errorf("get %q = %#v, %v; want an empty, non-nil slice", key, val, err)
			}
		}
		scanned := 0
		err := r.Scan(nil, nil, func(key, val []byte) bool {
			if val != nil && len(val) == 0 {
				scanned++
			}
			return true
		})
		if err == nil && scanned != 2 {
			err = fmt.Errorf("scan gave %d empty, non-nil values, want 2", scanned)
		}
		return err
	}
	update(t, e, func(txn storage.Txn) error {
		if err := txn.Set([]byte("empty"), []byte{}, never); err != nil {
			return err
		}
		if err := txn.Set([]byte("nil"), nil, never); err != nil {
			return err
		}
		return check(txn)
	})
	view(t, e, check)
}

func binaryKeys(t *testing.T, e transactor) {
	pairs := []string{
		"\x00", "zero", "\x00\x00", "zeros", "\x00\x01", "zero one", "a", "prefix",
		"a\x00", "after prefix", "ab", "longer", "\xff", "top", "\xff\xff", "tops",
		"\xff\xff" + strings.Repeat("\xff", 500), "long",
	}
	set(t, e, pairs...)
	expect(t, e, pairs...)
}

func overwriteAndDelete(t *testing.T, e transactor) {
	set(t, e, "a", "1", "b", "2", "c", "3")
	set(t, e, "b", "a longer value", "c", "")
	expect(t, e, "a", "1", "b", "a longer value", "c", "")
	update(t, e, func(txn storage.Txn) error { return txn.Delete([]byte("b")) })
	expect(t, e, "a", "1", "c", "")
	set(t, e, "b", "again")
	expect(t, e, "a", "1", "b", "again", "c", "")
}

func ownWrites(t *testing.T, e transactor) {
	set(t, e, "b", "old", "c", "old", "d", "old")
	update(t, e, func(txn storage.Txn) error {
		return errors.Join(
			txn.Set([]byte("a"), []byte("new"), never),
			txn.Set([]byte("c"), []byte("new"), never),
			txn.Delete([]byte("d")),
			holds(txn, nil, nil, "a", "new", "b", "old", "c", "new"),
			lacks(txn, "d"),

			txn.Delete([]byte("a")),
			txn.Set([]byte("d"), []byte("newer"), never),
			txn.Set([]byte("c"), []byte("newer"), never),
			lacks(txn, "a"),
			holds(txn, nil, nil, "b", "old", "c", "newer", "d", "newer"),
			holds(txn, []byte("c"), []byte("d"), "c", "newer"),
		)
	})
	expect(t, e, "b", "old", "c", "newer", "d", "newer")
}

func slicesAreCopied(t *testing.T, e transactor) {
	key, val := []byte("key"), []byte("value")
	update(t, e, func(txn storage.Txn) error { return txn.Set(key, val, never) })
	copy(key, "XXX")
	copy(val, "XXXXX")
	expect(t, e, "key", "value")
}

func largeValue(t *testing.T, e storage.Engine) {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	set(t, e, "large", large)
	set(t, e, "small", "1")
	expect(t, e, "large", large, "small", "1")
}

func manyKeys(t *testing.T, e storage.Engine) {
	const n = 20_000
	for first := 0; first < n; first += 1000 {
		update(t, e, func(txn storage.Txn) error {
			for i := first; i < first+1000; i++ {
				j := i * 7919 % n // in a different order
				if err := txn.Set(fmt.Appendf(nil, "%08d", j), fmt.Appendf(nil, "v%d", j), never); err != nil {
					return err
				}
			}
			return nil
		})
	}
	view(t, e, func(r storage.Reader) error {
		next := 0
		err := r.Scan(nil, nil, func(key, val []byte) bool {
			if string(key) != fmt.Sprintf("%08d", next) || string(val) != fmt.Sprintf("v%d", next) {
				return false
			}
			next++
			return true
		})
		if err == nil && next != n {
			err = fmt.Errorf("the scan is wrong at key %d of %d", next, n)
		}
		return err
	})
}

func hugeTransaction(t *testing.T, e storage.Engine) {
	const n = 64 << 10
	val := bytes.Repeat([]byte("x"), 500)
	err := e.Update(t.Context(), func(txn storage.Txn) error {
		for i := range n {
			if err := txn.Set(fmt.Appendf(nil, "%08d", i), val, never); err != nil {
				return err
			}
		}
		return nil
	})
	count := 0
	view(t, e, func(r storage.Reader) error {
		return r.Scan(nil, nil, func(_, _ []byte) bool { count++; return true })
	})
	switch {
	case err == nil && count == n, errors.Is(err, storage.ErrTooLarge) && count == 0:
	default:
		t.Fatalf("32 MiB in one transaction: error %v, and %d of %d keys exist", err, count, n)
	}
	update(t, e, func(txn storage.Txn) error { return txn.Set([]byte("next"), nil, never) })
}

func purge(t *testing.T, e storage.Engine) {
	write := func(key, val string, purge time.Time) {
		update(t, e, func(txn storage.Txn) error { return txn.Set([]byte(key), []byte(val), purge) })
	}
	write("future", "1", time.Now().Add(time.Hour))
	write("far", "1", time.Now().AddDate(200, 0, 0))
	write("past", "old", never)
	write("past", "new", time.Now().Add(-time.Hour))
	write("revived", "1", time.Now().Add(-time.Hour))
	write("revived", "2", never)
	view(t, e, func(r storage.Reader) error {
		if past, err := r.Get([]byte("past")); err != nil || past != nil && string(past) != "new" {
			return fmt.Errorf(`a key that may be purged is %q, %v; want absent or "new"`, past, err)
		}
		return errors.Join(has(r, "future", "1"), has(r, "far", "1"), has(r, "revived", "2"))
	})
}

func abort(t *testing.T, e transactor) {
	set(t, e, "a", "1", "b", "2")
	broken := errors.New("broken")
	err := e.Update(t.Context(), func(txn storage.Txn) error {
		return errors.Join(
			txn.Set([]byte("a"), []byte("changed"), never), txn.Delete([]byte("b")),
			txn.Set([]byte("c"), []byte("3"), never), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("the error was returned as %v", err)
	}
	if err := e.Update(t.Context(), func(storage.Txn) error { return broken }); err != broken {
		t.Fatalf("the error was returned as %v, want it unchanged", err)
	}
	if err := e.View(t.Context(), func(storage.Reader) error { return broken }); err != broken {
		t.Fatalf("the error of a view was returned as %v, want it unchanged", err)
	}
	expect(t, e, "a", "1", "b", "2")
}

func panicRollsBack(t *testing.T, e storage.Engine) {
	panics := func(run func()) {
		defer func() {
			if v := recover(); v != "ouch" {
				t.Errorf("recovered %v, want the panic of the closure", v)
			}
		}()
		run()
	}
	panics(func() {
		e.Update(t.Context(), func(txn storage.Txn) error {
			txn.Set([]byte("a"), []byte("1"), never)
			panic("ouch")
		})
	})
	panics(func() { e.View(t.Context(), func(storage.Reader) error { panic("ouch") }) })
	set(t, e, "b", "2")
	expect(t, e, "b", "2")
}

func cancelledContext(t *testing.T, e storage.Engine) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := e.Update(ctx, func(txn storage.Txn) error {
		t.Error("the closure of an Update ran")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Update returned %v, want context.Canceled", err)
	}
	err = e.View(ctx, func(storage.Reader) error {
		t.Error("the closure of a View ran")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("View returned %v, want context.Canceled", err)
	}
}

func cancelledWhileRunning(t *testing.T, e transactor) {
	ctx, cancel := context.WithCancel(t.Context())
	err := e.Update(ctx, func(txn storage.Txn) error {
		cancel()
		return txn.Set([]byte("a"), []byte("1"), never)
	})
	switch {
	case err == nil:
		expect(t, e, "a", "1")
	case errors.Is(err, storage.ErrUnknown):
		// Both results are allowed.
	default:
		expect(t, e)
	}
}

func closedEngine(t *testing.T, e storage.Engine) {
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	err := e.Update(t.Context(), func(txn storage.Txn) error { t.Error("the closure of an Update ran"); return nil })
	if !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Update returned %v, want ErrClosed", err)
	}
	err = e.View(t.Context(), func(storage.Reader) error { t.Error("the closure of a View ran"); return nil })
	if !errors.Is(err, storage.ErrClosed) {
		t.Errorf("View returned %v, want ErrClosed", err)
	}
}
