package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestCachedRowsBelongToTheSnapshot sets several keys to the same number in each
// commit, while many views read them through cached rows. A view that used a row
// of another snapshot would see two numbers.
func TestCachedRowsBelongToTheSnapshot(t *testing.T) {
	t.Parallel()
	const (
		keys    = 6
		commits = 400
		readers = 8
	)
	e := openTest(t, t.TempDir())
	names := make([][]byte, keys)
	for i := range names {
		names[i] = fmt.Appendf(nil, "row/%d", i)
	}
	write := func(n uint64) error {
		return e.Update(t.Context(), func(tx storage.Txn) error {
			for i, name := range names {
				if i == 0 && n%3 == 0 { // sometimes the first key is deleted
					if err := tx.Delete(name); err != nil {
						return err
					}
				} else if err := tx.Set(name, binary.BigEndian.AppendUint64(nil, n), never); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	var committed, known atomic.Uint64
	committed.Store(1)
	var all sync.WaitGroup
	for reader := range readers {
		all.Go(func() {
			for round := reader; committed.Load() < commits && !t.Failed(); round++ {
				least := committed.Load()
				err := e.View(t.Context(), func(r storage.Reader) error {
					var seen uint64
					absent := false
					if round%2 == 0 {
						return listed(r, least)
					}
					for i := range keys {
						n := (i + round) % keys
						if _, is := e.rows.get(names[n], r.(*view).txn.ReadTs()); is {
							known.Add(1)
						}
						val, err := r.Get(names[n])
						if err != nil {
							return err
						}
						if n == 0 && val == nil {
							absent = true
							continue
						}
						got := binary.BigEndian.Uint64(val)
						if got < least || seen != 0 && got != seen {
							t.Errorf("key %d has %d in a view that saw %d and began after %d", n, got, seen, least)
						}
						seen = got
					}
					if absent != (seen%3 == 0) {
						t.Errorf("a view that saw %d found the first key: %t", seen, !absent)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := uint64(2); n <= commits && !t.Failed(); n++ {
		if err := write(n); err != nil {
			t.Error(err)
		}
		committed.Store(n)
		for seen := known.Load(); n%50 == 0 && n < commits && known.Load() == seen && !t.Failed(); { // until a cached row was read
			runtime.Gosched()
		}
	}
	committed.Store(commits)
	all.Wait()
}

// folder is the folder of the keys that are written together.
var folder = []byte("row/")

// listed checks that all keys of the folder have the same number.
func listed(r storage.Reader, least uint64) error {
	var seen []uint64
	err := r.Scan(folder, storage.PrefixEnd(folder), func(_, val []byte) bool {
		seen = append(seen, binary.BigEndian.Uint64(val))
		return true
	})
	if err != nil {
		return err
	}
	want := 6
	if seen[0]%3 == 0 {
		want--
	}
	for _, n := range seen {
		if n != seen[0] || n < least || len(seen) != want {
			return fmt.Errorf("a list has %d and began after %d", seen, least)
		}
	}
	return nil
}

func TestOnlyACompleteFolderIsCached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lo, hi string
		want   bool
	}{
		{"a/", "a0", true}, {"a/b/", "a/b0", true}, {"a/b", "a/c", false}, {"a/", "b0", false}, {"a/", "a1", false},
		{"a/", "a/0", false}, {"", "0", false}, {"a/", "", false}, {"/", "0", true},
	} {
		if got := isFolder([]byte(c.lo), []byte(c.hi)); got != c.want {
			t.Errorf("%q to %q: %t", c.lo, c.hi, got)
		}
	}
}

func TestAWriteInvalidatesACachedList(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	list := func() (keys string) {
		t.Helper()
		err := e.View(t.Context(), func(r storage.Reader) error {
			return r.Scan([]byte("a/b/"), []byte("a/b0"), func(key, _ []byte) bool {
				keys += string(key) + " "
				return true
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	for _, step := range []struct{ key, want string }{
		{"a/c", ""}, {"a/b/1", "a/b/1 "}, {"a/b/2/3", "a/b/1 a/b/2/3 "}, {"a/b0", "a/b/1 a/b/2/3 "}, {"a/b/", "a/b/ a/b/1 a/b/2/3 "},
	} {
		before := list()
		if again := list(); again != before {
			t.Errorf("%q, and again %q", before, again)
		}
		put(t, e, step.key, []byte("x"))
		if got := list(); got != step.want {
			t.Errorf("after a write of %s, the list is %q, want %q", step.key, got, step.want)
		}
	}
}

func TestEarlierSnapshotsDoNotUseARow(t *testing.T) {
	t.Parallel()
	r := newRows(1 << 20)
	key := []byte("k")
	r.keep(key, row{val: []byte("v"), at: 10}, 0)
	if _, known := r.get(key, 9); known {
		t.Error("the row of a later snapshot is used")
	}
	if one, known := r.get(key, 10); !known || string(one.val) != "v" {
		t.Error("the row is not used by its own snapshot")
	}
	past := uint64(time.Now().Unix())
	r.keep(key, row{val: []byte("v"), expires: past, at: 12}, 0)
	if _, known := r.get(key, 12); known {
		t.Error("an expired row is used")
	}
	r.keep(key, row{expires: past + 1000, at: 12}, 0)
	if one, known := r.get(key, 12); !known || one.val != nil {
		t.Error("an absent key is not cached")
	}
}

func TestARowReadBeforeItsCommitIsNotCached(t *testing.T) {
	t.Parallel()
	r := newRows(1 << 20)
	written, other := []byte("written"), []byte("other")
	old := row{val: []byte("old"), at: 10}
	changes := []change{{key: written, val: []byte("new")}}
	r.begin(changes)
	r.keep(written, old, 0)
	r.keep(other, old, 0)
	if _, known := r.get(written, 10); known {
		t.Error("the row is cached during its commit")
	}
	r.end(changes, 11)
	r.keep(written, old, 0)
	if _, known := r.get(written, 12); known {
		t.Error("the earlier row is cached after the commit")
	}
	if _, known := r.get(other, 12); !known {
		t.Error("a commit of another key prevents caching")
	}
	r.keep(written, row{val: []byte("new"), at: 11}, r.ended.Load())
	if _, known := r.get(written, 11); !known {
		t.Error("a row that was read after the commit is not cached")
	}
}

func TestACommitUpdatesCachedRows(t *testing.T) {
	t.Parallel()
	past := uint64(time.Now().Unix())
	for _, c := range []struct {
		name   string
		before *row
		change change
		at     uint64 // of the commit; zero when it has failed
		want   string // at 11
	}{
		{"a value", &row{val: []byte("old"), at: 10}, change{val: []byte("new")}, 11, "new"},
		{"an empty value", &row{val: []byte{}, at: 10}, change{val: []byte("new")}, 11, "new"},
		{"a key that was not cached", nil, change{val: []byte("new")}, 11, "unknown"},
		{"an absent key", &row{at: 10}, change{val: []byte("new")}, 11, "unknown"},
		{"a deleted key", &row{val: []byte("old"), at: 10}, change{}, 11, "unknown"},
		{"an expired value", &row{val: []byte("old"), at: 10}, change{val: []byte("new"), expires: past}, 11, "unknown"},
		{"a failed commit", &row{val: []byte("old"), at: 10}, change{val: []byte("new")}, 0, "unknown"},
		{"a later commit", &row{val: []byte("old"), at: 10}, change{val: []byte("new")}, 12, "unknown"},
	} {
		r := newRows(1 << 20)
		c.change.key = []byte("k")
		if c.before != nil {
			r.keep(c.change.key, *c.before, 0)
		}
		changes := []change{c.change}
		r.begin(changes)
		if _, known := r.get(c.change.key, 10); known {
			t.Errorf("%s: the row is cached during its commit", c.name)
		}
		r.end(changes, c.at)
		got := "unknown"
		if one, known := r.get(c.change.key, 11); known {
			got = string(one.val)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTheLastWriteOfAKeyIsCached(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	key := []byte("k")
	put(t, e, "k", []byte("old"))
	read := func() (got string) {
		t.Helper()
		err := e.View(t.Context(), func(r storage.Reader) error {
			val, err := r.Get(key)
			got = string(val)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(); got != "old" {
		t.Fatalf("the value is %q", got)
	}
	err := e.Update(t.Context(), func(tx storage.Txn) error {
		return errors.Join(tx.Set(key, []byte("first"), never), tx.Set(key, []byte("last"), never))
	})
	if err != nil {
		t.Fatal(err)
	}
	if one, known := e.rows.get(key, e.db.MaxVersion()); !known || string(one.val) != "last" {
		t.Errorf("the cached row is %q, known: %t", one.val, known)
	}
	if got := read(); got != "last" {
		t.Errorf("the value is %q", got)
	}
}

// TestARefusedCommitIsNotCached commits the writes before one that the engine
// refused, as Restore does.
func TestARefusedCommitIsNotCached(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	put(t, e, "k", []byte("old"))
	get(t, e, "k") // now it is cached
	if err := e.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := e.begin(t.Context())
	var err error
	for n := 0; err == nil; n++ { // fill the transaction
		err = tx.set(fmt.Appendf(nil, "fill/%d", n), make([]byte, 32<<10), 0)
	}
	if again := tx.set([]byte("k"), make([]byte, 40<<10), 0); !errors.Is(err, storage.ErrTooLarge) || !errors.Is(again, storage.ErrTooLarge) {
		t.Fatalf("%v, then %v", err, again)
	}
	err = e.commit(tx)
	e.release()
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, e, "k"); string(got) != "old" {
		t.Errorf("the cached row has %d bytes that were not committed", len(got))
	}
}

func TestUnusedRowsAreRemoved(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	r := newRows(limit)
	hot := []byte("hot")
	r.keep(hot, row{val: make([]byte, 100)}, 0)
	for n := range 100_000 {
		r.keep(fmt.Appendf(nil, "cold/%d", n), row{val: make([]byte, 100)}, 0)
		if _, known := r.get(hot, 1); !known {
			t.Fatalf("a row that is read was removed after %d others", n)
		}
	}
	r.keep([]byte("huge"), row{val: make([]byte, limit)}, 0)
	var kept int
	for i := range r.shards {
		for _, generation := range []map[string]row{r.shards[i].young, r.shards[i].old} {
			for key, one := range generation {
				kept += len(key) + one.size()
			}
		}
	}
	if kept > limit || kept < limit/4 {
		t.Errorf("%d bytes are kept of at most %d", kept, limit)
	}
}

func TestACommitRemovesRowsOfTheOldGeneration(t *testing.T) {
	t.Parallel()
	r := newRows(1 << 20)
	key := []byte("k")
	r.keep(key, row{val: []byte("v")}, 0)
	s, _ := r.place(key)
	for n := 0; s.old == nil; n++ {
		r.keep(fmt.Appendf(nil, "other/%d", n), row{val: make([]byte, 100)}, 0)
	}
	if _, old := s.old[string(key)]; !old {
		t.Fatal("the row is not in the old generation")
	}
	changes := []change{{key: key}}
	r.begin(changes)
	r.end(changes, 1)
	if _, known := r.get(key, 1); known {
		t.Error("the row is cached after its key was written")
	}
}

// TestAFullScanDoesNotFillTheCache reads more in one view than it may cache.
func TestAFullScanDoesNotFillTheCache(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	c.size = sizings["large"] // one transaction has all keys
	e := openWith(t, c)
	const keys = 3 * maxKept
	name := func(n int) []byte { return fmt.Appendf(nil, "row/%d", n) }
	if err := e.Update(t.Context(), func(tx storage.Txn) error {
		for n := range keys {
			if err := tx.Set(name(n), []byte("value"), never); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.View(t.Context(), func(r storage.Reader) error {
		for n := range keys {
			if val, err := r.Get(name(n)); err != nil || string(val) != "value" {
				return fmt.Errorf("%d: %q, %w", n, val, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	known := 0
	for n := range keys {
		if _, have := e.rows.get(name(n), e.db.MaxVersion()); have {
			known++
		}
	}
	if known != maxKept {
		t.Errorf("%d rows were kept, want %d", known, maxKept)
	}
}
