package badger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// never is the purge time of records without expiry.
var never time.Time

func TestConformance(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Engine {
		return openTest(t, t.TempDir())
	})
	storagetest.RunStore(t, func(t *testing.T) storage.Engine {
		return openTest(t, t.TempDir())
	})
	storagetest.RunPersistent(t, func(t *testing.T, dir string) storage.Engine {
		return openTest(t, dir)
	})
}

// openTest opens a small engine without a space limit.
func openTest(tb testing.TB, dir string) *engine {
	tb.Helper()
	return openWith(tb, testConfig(dir))
}

func testConfig(dir string) config {
	return config{
		dir:     dir,
		size:    sizings["small"],
		minFree: 1 << 30,
		free:    func(string) (uint64, error) { return math.MaxUint64, nil },
		logger:  zap.NewNop(),
	}
}

// openWith opens an engine and closes it at the end of the test, if it is still
// open.
func openWith(tb testing.TB, c config) *engine {
	tb.Helper()
	e, err := open(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// badgerOpen opens the directory with Badger itself.
func badgerOpen(c config) (*badger.DB, error) {
	return badger.Open(c.size.options(c.dir, nil))
}

// put writes one key durably.
func put(tb testing.TB, e storage.Engine, key string, val []byte) {
	tb.Helper()
	if err := e.Update(tb.Context(), func(tx storage.Txn) error { return tx.Set([]byte(key), val, never) }); err != nil {
		tb.Fatal(err)
	}
}

// get reads one key.
func get(tb testing.TB, e storage.Engine, key string) (val []byte) {
	tb.Helper()
	err := e.View(tb.Context(), func(r storage.Reader) (err error) {
		val, err = r.Get([]byte(key))
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return val
}

func TestATooLargeTransactionHasNoEffect(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	put(t, e, "key", []byte("before"))
	for name, write := range map[string]func(tx storage.Txn) error{
		"many values": func(tx storage.Txn) error {
			for n := range 64 {
				if err := tx.Set(fmt.Appendf(nil, "many/%d", n), make([]byte, 64<<10), never); err != nil {
					return err
				}
			}
			return nil
		},
		"many keys": func(tx storage.Txn) error {
			for n := range 1 << 20 {
				if err := tx.Delete(fmt.Appendf(nil, "many/%d", n)); err != nil {
					return err
				}
			}
			return nil
		},
		"large values": func(tx storage.Txn) error {
			val := make([]byte, 16<<20)
			for n := range 4 {
				if err := tx.Set(fmt.Appendf(nil, "many/%d", n), val, never); err != nil {
					return err
				}
			}
			return nil
		},
		"a long key": func(tx storage.Txn) error {
			return tx.Set(make([]byte, maxKey+1), nil, never)
		},
	} {
		for _, report := range []bool{true, false} {
			err := e.Update(t.Context(), func(tx storage.Txn) error {
				if err := tx.Set([]byte("key"), []byte(name), never); err != nil {
					return err
				}
				if err := write(tx); report {
					return err
				}
				return nil // a closure that ignores the error
			})
			if !errors.Is(err, storage.ErrTooLarge) {
				t.Errorf("%s: got %v, want ErrTooLarge", name, err)
			}
			if got := get(t, e, "key"); string(got) != "before" {
				t.Errorf("%s: key is %q", name, got)
			}
		}
	}
}

func TestCloseWaitsForTransactions(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	closing := make(chan error)
	err := e.Update(t.Context(), func(tx storage.Txn) error {
		go func() { closing <- e.Close() }()
		<-e.ended // Close has begun
		if err := e.View(t.Context(), func(storage.Reader) error { return nil }); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a view after Close: %v", err)
		}
		select {
		case err := <-closing:
			t.Errorf("Close returned during a transaction: %v", err)
		default:
		}
		return tx.Set([]byte("key"), []byte("last"), never)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-closing; err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"view":    func() error { return e.View(t.Context(), nil) },
		"update":  func() error { return e.Update(t.Context(), nil) },
		"backup":  func() error { return e.Backup(t.Context(), nil) },
		"restore": func() error { return e.Restore(t.Context(), nil) },
	} {
		if err := call(); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", name, err)
		}
	}
}

func TestAWaitingUpdateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	err := e.Update(t.Context(), func(storage.Txn) error {
		waiting := make(chan error)
		go func() {
			waiting <- e.Update(ctx, func(storage.Txn) error { t.Error("ran concurrently with another update"); return nil })
		}()
		cancel()
		return <-waiting
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	base := time.Unix(2_000_000_000, 0)
	for _, c := range []struct {
		purge time.Time
		want  uint64
	}{
		{never, 0},
		{base, 2_000_000_000},
		{base.Add(1), 2_000_000_001},
		{base.Add(-1), 2_000_000_000},
		{time.Unix(0, 0), 1}, // not 0, which is never
		{time.Unix(-5, 0), 1},
	} {
		if got := expiry(c.purge); got != c.want {
			t.Errorf("%v expires at %d, want %d", c.purge, got, c.want)
		}
	}
	// An expired version hides the one below it, as a deletion does.
	e := openTest(t, t.TempDir())
	put(t, e, "key", []byte("old"))
	err := e.Update(t.Context(), func(tx storage.Txn) error {
		return tx.Set([]byte("key"), []byte("new"), time.Unix(1, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, e, "key"); string(got) == "old" {
		t.Error("a purged key has its earlier value")
	}
}

func TestCommonPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"", "", ""}, {"a/", "a0", "a"}, {"a", "b", ""}, {"ab", "abc", "ab"}, {"acct/1/x", "acct/1/y", "acct/1/"},
	} {
		if got := commonPrefix([]byte(c[0]), []byte(c[1])); string(got) != c[2] {
			t.Errorf("%q, %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// TestCloseEndsWithoutTheDirectory removes the directory of an open engine. Badger then tries without end to
// write its memtable.
func TestCloseEndsWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	c := testConfig(filepath.Join(t.TempDir(), "store"))
	e, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, "key", nil)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), c.dir) {
			t.Errorf("Close returned %v, which does not name the directory", err)
		}
	case <-time.After(time.Minute):
		t.Error("Close has not returned")
	}
}
