// Package storagetest tests storage engines: [Run] tests an engine,
// [RunPersistent] an engine with persistent data, and [RunStore] a
// [storage.Store] on top of an engine. [Faulty] makes an engine fail as planned.
// Only tests import the package; it imports package storage.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// never is the purge time of records without expiry.
var never time.Time

// transactor is the common part of an Engine and a Store.
type transactor interface {
	View(ctx context.Context, fn func(storage.Reader) error) error
	Update(ctx context.Context, fn func(storage.Txn) error) error
}

// transactions are the tests that an Engine and a Store must both pass.
var transactions = map[string]func(*testing.T, transactor){
	"an absent key is nil":                          absentKey,
	"an empty value is not absent":                  emptyValue,
	"keys have any bytes":                           binaryKeys,
	"overwrite and delete":                          overwriteAndDelete,
	"a transaction sees its own writes":             ownWrites,
	"a scan sees the writes before its beginning":   writesDuringScan,
	"scan bounds and order":                         scanBounds,
	"nested scans":                                  nestedScans,
	"read values stay until the transaction ends":   readsStay,
	"slices may be changed after the transaction":   slicesAreCopied,
	"an error rolls back and is returned unchanged": abort,
	"a cancelled update returns its true outcome":   cancelledWhileRunning,
	"a view is a snapshot":                          snapshot,
	"a view sees only committed writes":             uncommittedUnseen,
	"no update is lost":                             lostUpdate,
	"no write skew":                                 writeSkew,
	"no phantoms":                                   phantoms,
	"transfers conserve the sum at every view":      transfers,
	"histories are linearisable":                    linearizable,
	"random transactions match a map":               matchesModel,
}

// Run runs the conformance suite. open returns a new, empty engine each time.
// The suite closes it, possibly twice, which must not fail.
func Run(t *testing.T, open func(t *testing.T) storage.Engine) {
	for name, test := range transactions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openAndClose(t, open))
		})
	}
	for name, test := range map[string]func(*testing.T, storage.Engine){
		"a value of 1 MiB":                      largeValue,
		"many keys":                             manyKeys,
		"a huge transaction is atomic":          hugeTransaction,
		"no key is purged early":                purge,
		"a panic rolls back and releases locks": panicRollsBack,
		"a cancelled context is refused":        cancelledContext,
		"a closed engine returns ErrClosed":     closedEngine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openAndClose(t, open))
		})
	}
	t.Run("backup", func(t *testing.T) {
		t.Parallel()
		backup(t, open)
	})
}

// openAndClose opens an engine and closes it at the end of the test.
func openAndClose(t *testing.T, open func(t *testing.T) storage.Engine) storage.Engine {
	t.Helper()
	e := open(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// update runs fn in an Update that must succeed. It retries after a conflict,
// which an engine may return to concurrent callers.
func update(t *testing.T, e transactor, fn func(storage.Txn) error) {
	t.Helper()
	if err := retrying(t.Context(), e, fn); err != nil {
		t.Fatalf("update: %v", err)
	}
}

// retrying calls Update until it does not return ErrConflict.
func retrying(ctx context.Context, e transactor, fn func(storage.Txn) error) error {
	for {
		err := e.Update(ctx, fn)
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
}

// view runs fn in a View that must succeed.
func view(t *testing.T, e transactor, fn func(storage.Reader) error) {
	t.Helper()
	if err := e.View(t.Context(), fn); err != nil {
		t.Fatalf("view: %v", err)
	}
}

// set commits alternating keys and values.
func set(t *testing.T, e transactor, pairs ...string) {
	t.Helper()
	update(t, e, func(txn storage.Txn) error {
		for i := 0; i < len(pairs); i += 2 {
			if err := txn.Set([]byte(pairs[i]), []byte(pairs[i+1]), never); err != nil {
				return err
			}
		}
		return nil
	})
}

// expect fails the test unless the engine has exactly the alternating keys and values.
func expect(t *testing.T, e transactor, pairs ...string) {
	t.Helper()
	view(t, e, func(r storage.Reader) error { return holds(r, nil, nil, pairs...) })
}

// holds returns an error unless r's keys in [lo, hi) are exactly the
// alternating keys and values, by Scan and by Get.
func holds(r storage.Reader, lo, hi []byte, pairs ...string) error {
	var got []string
	err := r.Scan(lo, hi, func(key, val []byte) bool {
		got = append(got, string(key), string(val))
		return true
	})
	if err != nil {
		return err
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", pairs) {
		return fmt.Errorf("scan of [%q, %q) gives %.1000q, want %.1000q", lo, hi, got, pairs)
	}
	for i := 0; i < len(pairs); i += 2 {
		if err := has(r, pairs[i], pairs[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// has returns an error unless key is set to want.
func has(r storage.Reader, key, want string) error {
	val, err := r.Get([]byte(key))
	switch {
	case err != nil:
		return fmt.Errorf("get %q: %w", key, err)
	case val == nil:
		return fmt.Errorf("%q is absent, want %.100q", key, want)
	case !bytes.Equal(val, []byte(want)):
		return fmt.Errorf("%q is %.100q, want %.100q", key, val, want)
	}
	return nil
}

// lacks returns an error unless key is absent.
func lacks(r storage.Reader, key string) error {
	val, err := r.Get([]byte(key))
	switch {
	case err != nil:
		return fmt.Errorf("get %q: %w", key, err)
	case val != nil:
		return fmt.Errorf("%q is %.100q, want absent", key, val)
	}
	return nil
}
