package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// latestFirst sorts tasks in the order of lists.
func latestFirst(tasks []*Record) {
	slices.SortFunc(tasks, func(a, b *Record) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID))
	})
}

func idsOf(tasks []*Record) (ids []string) {
	for _, rec := range tasks {
		ids = append(ids, rec.ID)
	}
	return ids
}

// idsBehind returns the ids of a list that follow its first tasks.
func idsBehind(store *storage.Store, owner Owner, first []*Record) (ids []string, err error) {
	var from []byte
	if len(first) > 0 {
		from = append(first[len(first)-1].Tail(), 0)
	}
	err = store.View(context.Background(), func(r storage.Reader) error {
		for id, err := range Latest(r, owner, from) {
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// TestListsHaveTheSameOrder creates tasks of several users and keys. Many have the same time,
// and one list has more tasks than are read at once. Some keys are not valid.
func TestListsHaveTheSameOrder(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	defer store.Close()
	random := rand.New(rand.NewPCG(1, 2))
	var tasks []*Record
	err := store.Update(context.Background(), func(t storage.Txn) error {
		for n := range 5 * maxAhead {
			user := random.IntN(1 + n%7) // the first user has the most tasks
			rec := &Record{ID: NewID(), User: fmt.Sprint("user_", user), Key: fmt.Sprint("key_", user, "_", n%2), Created: random.Int64N(500)}
			tasks = append(tasks, rec)
			if err := Tasks.Put(t, nil, rec); err != nil {
				return err
			}
		}
		for _, fields := range [][]any{
			{OfUserPrefix, "x"}, {OfUserPrefix, "user_1", "x"}, {OfUserPrefix, "user_0", "x", "y"}, {OfUserPrefix, "", "x"},
			{OfUserPrefix, "user_2", int64(1), "x"}, {OfUserPrefix, "user_9", "x"}, {OfKeyPrefix, "key_0_0", "x"},
		} {
			if err := t.Set(storage.Key(fields...), nil, time.Time{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	latestFirst(tasks)
	for _, owner := range []Owner{
		Anyone, OfUser("user_0"), OfUser("user_3"), OfUser("user_"), OfUser("user_9"), OfKey("key_0_0"), OfKey("key_1_1"), OfKey("key_0_"), OfKey("key_9_9"),
	} {
		var all []*Record
		for _, rec := range tasks {
			if owner.Owns(rec.Key, rec.User) {
				all = append(all, rec)
			}
		}
		for begin := 0; begin <= len(all); begin += 1 + random.IntN(150) {
			want := idsOf(all[begin:])
			got, err := idsBehind(store, owner, all[:begin])
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%+v from the %dth: %d tasks, %v; want %d", owner, begin, len(got), err, len(want))
			}
		}
	}
}

// read returns the number of ids of the tasks of an owner. It stops after the first id unless more
// is set, and at an error of the store.
func read(r storage.Reader, owner Owner, from []byte, more bool) (n int, err error) {
	for _, err := range Latest(r, owner, from) {
		if err != nil {
			return n, err
		}
		if n++; !more {
			break
		}
	}
	return n, nil
}

// TestAListStopsWithItsReaderAndReportsErrors ends the iteration by the reader and by an error of the store.
func TestAListStopsWithItsReaderAndReportsErrors(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	defer store.Close()
	err := store.Update(context.Background(), func(t storage.Txn) (err error) {
		for range 3 {
			err = cmp.Or(err, Tasks.Put(t, nil, &Record{ID: NewID(), User: "user_ann", Key: "key_ann1"}))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for owner, scans := range map[Owner]int{OfKey("key_ann1"): 1, OfUser("user_ann"): 1, Anyone: 2} { // Anyone: one scan for all lists, one for the rest of this list
		err := store.View(context.Background(), func(r storage.Reader) error {
			for more, want := range map[bool]int{true: 3, false: 1} {
				if n, err := read(r, owner, nil, more); n != want || err != nil {
					t.Errorf("%+v, %t: %d ids were read, %v", owner, more, n, err)
				}
			}
			for n := range scans + 2 {
				if _, err := read(&breaking{r, n}, owner, nil, true); (err != nil) != (n < scans) {
					t.Errorf("%+v in a store that fails after %d scans: %v", owner, n, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// breaking is a reader that fails after a number of scans.
type breaking struct {
	storage.Reader
	scans int
}

func (b *breaking) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	if b.scans--; b.scans < 0 {
		return errors.New("input/output error")
	}
	return b.Reader.Scan(lo, hi, fn)
}

// TestLatestOfAllStartsFewScans checks the number of scans. To start a scan costs as much as
// reading some tens of keys, and a hundred thousand users may have a few tasks each. Many
// invalid keys must not hide a task.
func TestLatestOfAllStartsFewScans(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	defer store.Close()
	const users = 300
	var middle *Record
	err := store.Update(context.Background(), func(t storage.Txn) error {
		for n := range 2 * users {
			rec := &Record{ID: NewID(), User: fmt.Sprint("user_", n%users), Key: "key", Created: int64(n)}
			if err := Tasks.Put(t, nil, rec); err != nil {
				return err
			}
			if n == users {
				middle = rec
			}
		}
		for n := range 3 * maxPassed {
			if err := t.Set(storage.Key(OfUserPrefix, "user_7", fmt.Sprintf("\x00%d", n)), nil, time.Time{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		from []byte
		want int
	}{{nil, 2 * users}, {middle.Tail(), users + 1}} {
		begun := &breaking{nil, 1 << 20}
		err := store.View(context.Background(), func(r storage.Reader) error {
			begun.Reader = r
			found, err := listsOfUsers(begun, row.from)
			if len(found) != users {
				t.Errorf("%d lists, want %d", len(found), users)
			}
			return err
		})
		if scans := 1<<20 - begun.scans; err != nil || scans > 10 {
			t.Errorf("%d scans were started, %v", scans, err)
		}
		err = store.View(context.Background(), func(r storage.Reader) error {
			n, err := read(r, Anyone, row.from, true)
			if n != row.want {
				t.Errorf("%d tasks, want %d", n, row.want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
