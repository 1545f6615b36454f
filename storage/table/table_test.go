package table_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

type book struct {
	ISBN   string `json:"isbn"`
	Author string `json:"author,omitempty"`
	Year   int64  `json:"year"`
	Purge  int64  `json:"purge,omitempty"`

	written []byte
}

var (
	byAuthor = table.Index[book]{Name: "author", Fields: func(b *book) table.Key {
		if b.Author == "" {
			return nil
		}
		return table.Key{b.Author, b.Year}
	}}
	byYear = table.Index[book]{Name: "year", Fields: func(b *book) table.Key { return table.Key{b.Year} }}
	byISBN = table.Index[book]{Name: "first", Fixed: true, Fields: func(b *book) table.Key { return table.Key{b.ISBN[:1]} }}
	books  = table.Table[book]{
		Name:    "book",
		Key:     func(b *book) table.Key { return table.Key{b.ISBN} },
		Indexes: []*table.Index[book]{&byAuthor, &byYear, &byISBN},
		Written: func(b *book) *[]byte { return &b.written },
		Expires: func(b *book) time.Time {
			if b.Purge == 0 {
				return time.Time{}
			}
			return time.Unix(b.Purge, 0)
		},
		Check: func(b *book) (wrong []string) {
			if b.Year < 0 {
				wrong = append(wrong, "it is too old")
			}
			return wrong
		},
	}
)

func open(t *testing.T) *storage.Store {
	t.Helper()
	s := storage.New(memory.New(), storage.Options{Clock: func() time.Time { return time.Unix(100, 0) }})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func update(t *testing.T, s *storage.Store, fn func(tx storage.Txn) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// list returns the primary keys of a range, and "?" for an unreadable record.
func list(t *testing.T, s *storage.Store, in table.Range) string {
	t.Helper()
	var found []string
	if err := s.View(t.Context(), func(r storage.Reader) error {
		found = nil
		for b, err := range books.Scan(r, in) {
			switch {
			case errors.Is(err, storage.ErrUnreadable):
				found = append(found, "?")
			case err != nil:
				return err
			default:
				found = append(found, b.ISBN)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

func problems(t *testing.T, s *storage.Store) (found []string) {
	t.Helper()
	if err := s.View(t.Context(), func(r storage.Reader) error {
		found = nil
		return books.Verify(r, func(b *book) string { return "a book of " + b.Author }, func(format string, args ...any) {
			found = append(found, fmt.Sprintf(format, args...))
		})
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// newBooks returns a store with four books.
func newBooks(t *testing.T) *storage.Store {
	t.Helper()
	s := open(t)
	update(t, s, func(tx storage.Txn) error {
		for _, b := range []book{
			{ISBN: "b1", Author: "ann", Year: 1999}, {ISBN: "b2", Author: "bob", Year: 2001},
			{ISBN: "b3", Author: "ann", Year: 2000}, {ISBN: "b4", Year: 2002},
		} {
			if err := books.Put(tx, nil, &b); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

func TestListsFollowChanges(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	expect := func(in table.Range, want string) {
		t.Helper()
		if got := list(t, s, in); got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
	expect(books.Under(), "b1 b2 b3 b4")
	expect(byAuthor.Under(), "b1 b3 b2")
	expect(byAuthor.Under("ann"), "b1 b3")
	expect(byAuthor.Under("an"), "")
	expect(byYear.Under().From(int64(2000)).Before(int64(2002)), "b3 b2")
	expect(books.After(byYear.Under(), &byYear, &book{ISBN: "b3", Year: 2000}), "b2 b4")

	update(t, s, func(tx storage.Txn) error {
		changed, err := books.Change(tx, table.Key{"b3"}, func(b *book) bool { b.Author, b.Year = "bob", 1990; return true })
		if err == nil && (changed == nil || changed.Author != "bob") {
			t.Errorf("changed to %v", changed)
		}
		return err
	})
	expect(byAuthor.Under("ann"), "b1")
	expect(byYear.Under(), "b3 b1 b2 b4")

	update(t, s, func(tx storage.Txn) error {
		unchanged, err := books.Change(tx, table.Key{"b1"}, func(b *book) bool { b.Year = 1; return false })
		absent, errAbsent := books.Change(tx, table.Key{"b9"}, func(*book) bool { return true })
		if unchanged != nil || absent != nil {
			t.Errorf("changed %v and %v", unchanged, absent)
		}
		have, errGet := books.Get(tx, "b2")
		return errors.Join(err, errAbsent, errGet, books.Put(tx, have, nil))
	})
	expect(books.Under(), "b1 b3 b4")
	expect(byYear.Under(), "b3 b1 b4")
	if found := problems(t, s); len(found) > 0 {
		t.Error(found)
	}
}

func TestAFilteredListContinuesAfterTheLastRecordRead(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	for _, c := range []struct {
		author      string
		limit, read int64
		want, last  string
	}{
		{"ann", 9, 9, "b1 b3", ""},
		{"ann", 1, 9, "b1", "b1"},
		{"ann", 2, 9, "b1 b3", "b3"}, // there may be more
		{"bob", 1, 1, "", "b1"},
		{"bob", 1, 4, "b2", "b2"},
		{"eve", 1, 3, "", "b2"},
		{"eve", 1, 4, "", ""},
		{"ann", 0, 9, "", ""},
	} {
		err := s.View(t.Context(), func(r storage.Reader) error {
			found, last, err := books.Matching(r, byYear.Under(), c.limit, c.read, func(b *book) bool { return b.Author == c.author })
			var got []string
			for _, b := range found {
				got = append(got, b.ISBN)
			}
			if last == nil {
				last = new(book)
			}
			if strings.Join(got, " ") != c.want || last.ISBN != c.last {
				t.Errorf("%+v: found %q, continues after %q", c, got, last.ISBN)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestScanEndsWithItsLoop ends a loop over a range early and writes in it.
func TestScanEndsWithItsLoop(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	update(t, s, func(tx storage.Txn) error {
		n := 0
		for b, err := range books.Scan(tx, byYear.Under()) {
			if err != nil {
				return err
			}
			if n++; n == 3 {
				break
			}
			if err := books.Put(tx, b, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if got := list(t, s, books.Under()); got != "b2 b4" {
		t.Errorf("the records are %q", got)
	}
}

// TestIndexesExpireWithTheirRecord changes only the expiry of a record.
func TestIndexesExpireWithTheirRecord(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	s := storage.New(memory.New(), storage.Options{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = s.Close() })
	purges := make(map[string]bool)
	update(t, s, func(tx storage.Txn) error {
		recordingTxn := &recordingTxn{tx, purges}
		one := book{ISBN: "b1", Author: "ann", Year: 1}
		if err := books.Put(recordingTxn, nil, &one); err != nil {
			return err
		}
		clear(purges)
		later := one
		later.Purge = 200
		return books.Put(recordingTxn, &one, &later)
	})
	for _, name := range []string{"book", "author", "year", "first"} {
		if !purges[name] {
			t.Errorf("keys of %s do not expire", name)
		}
	}
}

// recordingTxn records the tables in which keys with an expiry were written.
type recordingTxn struct {
	storage.Txn
	purges map[string]bool
}

func (n *recordingTxn) Set(key, val []byte, purge time.Time) error {
	name, _, _ := strings.Cut(string(key), "/")
	n.purges[name] = purge.Equal(time.Unix(200, 0))
	return n.Txn.Set(key, val, purge)
}

// TestVerifyFindsDamage changes or removes keys directly in the store.
func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	set := func(key, val []byte) func(storage.Txn) error {
		return func(tx storage.Txn) error { return tx.Set(key, val, time.Time{}) }
	}
	for want, damage := range map[string]func(storage.Txn) error{
		"a record of book cannot be read":                             set(storage.Key("book", "b1"), []byte("\x01{")),
		"a book of ann: it is stored under the key of another record": set(storage.Key("book", "b9"), []byte("\x01"+`{"isbn":"b1","author":"ann","year":1999}`)),
		"a book of cid: it is too old":                                func(tx storage.Txn) error { return books.Put(tx, nil, &book{ISBN: "b5", Author: "cid", Year: -1}) },
		"a book of ann: its key of year is missing":                   func(tx storage.Txn) error { return tx.Delete(storage.Key("year", int64(1999), "b1")) },
		"a key of year matches no record of book":                     set(storage.Key("year", int64(1998), "b1"), []byte{2}),
		"a key of author matches no record":                           set(storage.Key("author", "ann", int64(1), "b9"), []byte{2}),
	} {
		s := newBooks(t)
		update(t, s, damage)
		if found := problems(t, s); !slices.ContainsFunc(found, func(p string) bool { return strings.HasPrefix(p, want) }) {
			t.Errorf("want %q, found %q", want, found)
		}
	}
}

// TestEveryDamagedRecordIsFound overwrites each key in turn.
func TestEveryDamagedRecordIsFound(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	storagetest.DamageEach(t, s, func(key string) {
		if len(problems(t, s)) == 0 {
			t.Errorf("damage at %q is not found", key)
		}
	})
}

// TestUnreadableRecordsAreYielded checks that a scan continues after an unreadable
// record.
func TestUnreadableRecordsAreYielded(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	update(t, s, func(tx storage.Txn) error { return tx.Set(storage.Key("book", "b1"), []byte{7}, time.Time{}) })
	for in, want := range map[string]string{"table": "? b2 b3 b4", "index": "? b3 b2 b4"} {
		rng := books.Under()
		if in == "index" {
			rng = byYear.Under()
		}
		if got := list(t, s, rng); got != want {
			t.Errorf("%s: listed %q, want %q", in, got, want)
		}
	}
}

// TestAChangeDoesNotWriteFixedIndexes checks that the keys of fixed indexes are written only with a
// new record and deleted with the record.
func TestAChangeDoesNotWriteFixedIndexes(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	update(t, s, func(tx storage.Txn) error {
		written := make(map[string]bool)
		_, err := books.Change(&recordingTxn{tx, written}, table.Key{"b1"}, func(b *book) bool { b.Year++; return true })
		if _, fixed := written["first"]; fixed || len(written) != 3 {
			t.Errorf("the change wrote keys of %v", written)
		}
		deleted, errGet := books.Get(tx, "b2")
		return errors.Join(err, errGet, books.Put(tx, deleted, nil))
	})
	if got := list(t, s, byISBN.Under("b")); got != "b1 b3 b4" {
		t.Errorf("listed %q", got)
	}
	if found := problems(t, s); len(found) > 0 {
		t.Error(found)
	}
}

// TestReread checks that Reread returns the known record until another writer has
// changed it.
func TestReread(t *testing.T) {
	t.Parallel()
	s := open(t)
	update(t, s, func(tx storage.Txn) error {
		mine := &book{ISBN: "b1", Author: "ann", Year: 1999}
		if none, err := books.Reread(tx, mine); none != nil || err != nil {
			t.Errorf("read %v, %v before it was written", none, err)
		}
		if err := books.Put(tx, nil, mine); err != nil {
			return err
		}
		if same, err := books.Reread(tx, mine); same != mine || err != nil {
			t.Errorf("read %v, %v", same, err)
		}
		read, err := books.Get(tx, "b1")
		if err != nil {
			return err
		}
		if again, err := books.Reread(tx, read); again == read || again == nil || err != nil {
			t.Errorf("a record written elsewhere was read as %v, %v", again, err)
		}
		if _, err := books.Change(tx, table.Key{"b1"}, func(b *book) bool { b.Year = 5; return true }); err != nil {
			return err
		}
		if other, err := books.Reread(tx, mine); other == mine || other.Year != 5 || err != nil {
			t.Errorf("a changed record was read as %v, %v", other, err)
		}
		return tx.Set(storage.Key("book", "b1"), []byte{7}, time.Time{})
	})
	if err := s.View(t.Context(), func(r storage.Reader) error {
		_, err := books.Reread(r, &book{ISBN: "b1"})
		return err
	}); !errors.Is(err, storage.ErrUnreadable) {
		t.Errorf("a damaged record: %v", err)
	}
}

// TestKeysAreReadWithoutTheirRecords reads the keys in pages.
func TestKeysAreReadWithoutTheirRecords(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	if err := s.View(t.Context(), func(r storage.Reader) error {
		in := byYear.Under()
		for _, want := range []string{"b1 b3", "b2 b4", ""} {
			keys, err := in.Keys(r, 2)
			if err != nil {
				return err
			}
			var found []string
			for _, key := range keys {
				found = append(found, string(key[len(key)-2:]))
				in = in.FromKey(append(key, 0))
			}
			if got := strings.Join(found, " "); got != want {
				t.Errorf("read %q, want %q", got, want)
			}
		}
		none, err := byYear.Under().Keys(r, 0)
		if lo, hi := byYear.Under(int64(2000)).Bounds(); len(none) > 0 || string(hi) <= string(lo) {
			t.Errorf("read %q; the bounds are %q and %q", none, lo, hi)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
