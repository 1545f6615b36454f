package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// backupOf returns a backup of the engine.
func backupOf(tb testing.TB, e *engine) []byte {
	tb.Helper()
	var buf bytes.Buffer
	if err := e.Backup(tb.Context(), &buf); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func TestBackupKeepsExpiryAndLargeValues(t *testing.T) {
	t.Parallel()
	source, target := openTest(t, t.TempDir()), openTest(t, t.TempDir())
	purge := time.Now().Add(time.Hour)
	err := source.Update(t.Context(), func(tx storage.Txn) error {
		return errors.Join(
			tx.Set([]byte("kept"), nil, never),
			tx.Set([]byte("purged"), []byte("soon"), purge),
			tx.Set([]byte("large"), bytes.Repeat([]byte("large"), maxInline), never))
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 { // more than fits into one transaction of a small engine
		put(t, source, fmt.Sprint("many/", n), bytes.Repeat([]byte{byte(n)}, 500<<10))
	}
	copied := backupOf(t, source)
	if err := target.Restore(t.Context(), bytes.NewReader(copied)); err != nil {
		t.Fatal(err)
	}
	if again := backupOf(t, target); !bytes.Equal(again, copied) {
		t.Error("a backup of the restored engine differs")
	}
	err = target.View(t.Context(), func(r storage.Reader) error {
		return r.(*view).each([]byte("purged"), nil, func(_, _ []byte, expires uint64) bool {
			if expires != expiry(purge) {
				t.Errorf("expires at %d, want %d", expires, expiry(purge))
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Restore(t.Context(), bytes.NewReader(copied)); err == nil {
		t.Error("restored over a store that was not empty")
	}
}

// TestABackupIsOneSnapshot makes a backup while two distant keys change
// together.
func TestABackupIsOneSnapshot(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	change := func(n int) error {
		return e.Update(t.Context(), func(tx storage.Txn) error {
			val := strconv.AppendInt(nil, int64(n), 10)
			return errors.Join(tx.Set([]byte("a"), val, never), tx.Set([]byte("z"), val, never))
		})
	}
	for n := range 200 {
		put(t, e, fmt.Sprint("m/", n), make([]byte, 4096)) // between a and z
	}
	if err := change(0); err != nil {
		t.Fatal(err)
	}
	// The writer changes both keys whenever it receives a part of the backup.
	n := 0
	var copied bytes.Buffer
	err := e.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
		n++
		if err := change(n); err != nil {
			return 0, err
		}
		return copied.Write(p)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if n < 5 {
		t.Errorf("only %d changes during the backup", n)
	}
	target := openTest(t, t.TempDir())
	if err := target.Restore(t.Context(), &copied); err != nil {
		t.Fatal(err)
	}
	if a, z := get(t, target, "a"), get(t, target, "z"); string(a) != "0" || string(z) != "0" {
		t.Errorf("a is %s and z is %s, want 0", a, z)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestBackupStops(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	for n := range 4 {
		writeRecords(t, e, n*250, 250)
	}
	full := errors.New("the medium is full")
	if err := e.Backup(t.Context(), writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := e.Backup(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
