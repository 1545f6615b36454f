package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// latestFirst sorts tasks as lists have them.
func latestFirst(tasks []*record) {
	slices.SortFunc(tasks, func(a, b *record) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID))
	})
}

func idsOf(tasks []*record) (ids []string) {
	for _, rec := range tasks {
		ids = append(ids, rec.ID)
	}
	return ids
}

// idsBehind reads what a list has behind the first tasks of it.
func idsBehind(store *storage.Store, owner Owner, first []*record) (ids []string, err error) {
	var from []byte
	if len(first) > 0 {
		from = append(first[len(first)-1].tail(), 0)
	}
	err = store.View(context.Background(), func(r storage.Reader) error {
		return latest(r, owner, from, func(id string) (bool, error) {
			ids = append(ids, id)
			return true, nil
		})
	})
	return ids, err
}

// TestListsAreReadInOneOrder makes tasks of several users and keys, many at the same
// moments, and more in one list than are read at once; among them keys that are
// none of a task.
func TestListsAreReadInOneOrder(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	defer store.Close()
	chance := rand.New(rand.NewPCG(1, 2))
	var tasks []*record
	err := store.Update(context.Background(), func(t storage.Txn) error {
		for n := range 5 * maxAhead {
			user := chance.IntN(1 + n%7) // of the first as many as of all others
			rec := &record{ID: newID(), User: fmt.Sprint("user_", user), Key: fmt.Sprint("key_", user, "_", n%2), Created: chance.Int64N(500)}
			tasks = append(tasks, rec)
			if err := insert(t, rec); err != nil {
				return err
			}
		}
		for _, fields := range [][]any{
			{ofUserPrefix, "x"}, {ofUserPrefix, "user_1", "x"}, {ofUserPrefix, "user_0", "x", "y"}, {ofUserPrefix, "", "x"},
			{ofUserPrefix, "user_2", int64(1), "x"}, {ofUserPrefix, "user_9", "x"}, {ofKeyPrefix, "key_0_0", "x"},
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
		var all []*record
		for _, rec := range tasks {
			if owner.owns(rec.Key, rec.User) {
				all = append(all, rec)
			}
		}
		for begin := 0; begin <= len(all); begin += 1 + chance.IntN(150) {
			want := idsOf(all[begin:])
			got, err := idsBehind(store, owner, all[:begin])
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%+v from the %dth: %d tasks, %v; want %d", owner, begin, len(got), err, len(want))
			}
		}
	}
}

// TestAListTellsWhatItsReaderSays has the walk ended by who reads and by the store.
func TestAListTellsWhatItsReaderSays(t *testing.T) {
	in(t, func(w *world) {
		for range 3 {
			w.must(video())
		}
		broken := errors.New("broken")
		for owner, scans := range map[Owner]int{OfKey(annKey): 1, OfUser(ann): 1, Anyone: 2} { // of all: the first of each list, the rest of this one
			for _, row := range []struct {
				more bool
				err  error
				want int
			}{{true, nil, 3}, {false, nil, 1}, {true, broken, 1}} {
				read := 0
				err := w.store.View(context.Background(), func(r storage.Reader) error {
					return latest(r, owner, nil, func(string) (bool, error) { read++; return row.more, row.err })
				})
				if read != row.want || !errors.Is(err, row.err) {
					t.Errorf("%+v, %+v: %d were read, %v", owner, row, read, err)
				}
			}
			for n := range scans + 2 {
				err := w.store.View(context.Background(), func(r storage.Reader) error {
					return latest(&breaking{r, n}, owner, nil, func(string) (bool, error) { return true, nil })
				})
				if (err != nil) != (n < scans) {
					t.Errorf("%+v of a store that breaks after %d scans: %v", owner, n, err)
				}
			}
		}
	})
}

// breaking is a reader that fails after so many scans.
type breaking struct {
	storage.Reader
	scans int
}

func (b *breaking) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	if b.scans--; b.scans < 0 {
		return errors.New("the disk is gone")
	}
	return b.Reader.Scan(lo, hi, fn)
}

// TestARemovedTaskLeavesNoKey lists a task until its time is over.
func TestARemovedTaskLeavesNoKey(t *testing.T) {
	in(t, func(w *world) {
		w.works.succeed(1)
		task := w.must(video())
		w.until(task.ID, Success, time.Minute)
		for _, owner := range []Owner{Anyone, OfUser(ann), OfKey(annKey)} {
			if tasks, _, err := w.List(context.Background(), owner, Page{}); err != nil || len(tasks) != 1 {
				t.Errorf("%+v: %v, %v", owner, tasks, err)
			}
		}
		if found := w.problems(); len(found) > 0 {
			t.Error(found)
		}
		w.sleep(DefaultKept)
		if err := w.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
		err := w.store.View(context.Background(), func(r storage.Reader) error {
			for _, prefix := range []string{taskPrefix, ofKeyPrefix, ofUserPrefix} {
				lo, hi := storage.Below(prefix)
				if err := r.Scan(lo, hi, func(key, _ []byte) bool {
					t.Errorf("%q is left", key)
					return true
				}); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// passed writes tasks that have failed: of each, when it was created and when it
// was completed.
func (w *world) passed(times ...[2]int64) (tasks []*record) {
	w.t.Helper()
	w.damaged = true // they have held no money
	for batch := range slices.Chunk(times, 500) {
		made := make([]*record, len(batch))
		for i, at := range batch {
			made[i] = &record{ID: newID(), User: ann, Key: annKey, Backend: "works", Created: at[0], State: Failed, Delivery: None, Completed: at[1]}
		}
		err := w.store.Update(context.Background(), func(t storage.Txn) error {
			for _, rec := range made {
				if err := insert(t, rec); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		tasks = append(tasks, made...)
	}
	return tasks
}

// TestAListGoesOnBehindTasksThatAreNotKeptAnyMore: more of them than one page looks
// at, not removed yet, before one that took longer and is kept.
func TestAListGoesOnBehindTasksThatAreNotKeptAnyMore(t *testing.T) {
	in(t, func(w *world) {
		now := w.now()
		kept := w.passed([2]int64{now, now + DefaultKept.Milliseconds() - 1})[0]
		var gone [][2]int64
		for n := range int64(maxExamined) {
			gone = append(gone, [2]int64{now + 1 + n, now + 1 + n})
		}
		w.passed(gone...)
		w.sleep(DefaultKept + time.Minute)
		for _, owner := range []Owner{OfKey(annKey), OfUser(ann), Anyone} {
			var got []string
			for after, more := "", true; more; more = after != "" {
				tasks, next, err := w.List(context.Background(), owner, Page{After: after})
				if err != nil {
					t.Fatal(err)
				}
				for _, task := range tasks {
					got = append(got, task.ID)
				}
				after = next
			}
			if !slices.Equal(got, []string{kept.ID}) {
				t.Errorf("%+v: %q; want %s", owner, got, kept.ID)
			}
		}
	})
}

// TestAListGoesOnBehindATaskWhoseTimeIsOverMeanwhile, between two pages.
func TestAListGoesOnBehindATaskWhoseTimeIsOverMeanwhile(t *testing.T) {
	in(t, func(w *world) {
		now := w.now()
		two := w.passed([2]int64{now, now + 5000}, [2]int64{now + 10, now + 10})
		w.sleep(DefaultKept - time.Second)
		for _, owner := range []Owner{OfKey(annKey), OfUser(ann), Anyone} {
			tasks, next, err := w.List(context.Background(), owner, Page{Limit: 1})
			if err != nil || len(tasks) != 1 || next != two[1].ID {
				t.Fatalf("%+v: %v, next %q, %v", owner, tasks, next, err)
			}
		}
		w.sleep(2 * time.Second)
		for _, owner := range []Owner{OfKey(annKey), OfUser(ann), Anyone} {
			tasks, _, err := w.List(context.Background(), owner, Page{Limit: 1, After: two[1].ID})
			if err != nil || len(tasks) != 1 || tasks[0].ID != two[0].ID {
				t.Errorf("%+v: %v, %v", owner, tasks, err)
			}
		}
		if _, _, err := w.List(context.Background(), OfKey(annKey2), Page{After: two[1].ID}); codeOf(err) != fault.InvalidParameter {
			t.Errorf("another's: %v", err)
		}
		if _, err := w.Get(context.Background(), OfKey(annKey), two[1].ID); codeOf(err) != fault.TaskNotFound {
			t.Error(err)
		}
	})
}

// TestAListOfAllBeginsFewScans: one that begins costs as much as some tens of keys,
// and there may be a hundred thousand users who have made a task or two. Keys that
// are none of a task, and many of them, keep none from being found.
func TestAListOfAllBeginsFewScans(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	defer store.Close()
	const users = 300
	var middle *record
	err := store.Update(context.Background(), func(t storage.Txn) error {
		for n := range 2 * users {
			rec := &record{ID: newID(), User: fmt.Sprint("user_", n%users), Key: "key", Created: int64(n)}
			if err := insert(t, rec); err != nil {
				return err
			}
			if n == users {
				middle = rec
			}
		}
		for n := range 3 * maxPassed {
			if err := t.Set(storage.Key(ofUserPrefix, "user_7", fmt.Sprintf("\x00%d", n)), nil, time.Time{}); err != nil {
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
	}{{nil, 2 * users}, {middle.tail(), users + 1}} {
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
			t.Errorf("%d scans have begun, %v", scans, err)
		}
		read := 0
		err = store.View(context.Background(), func(r storage.Reader) error {
			return latest(r, Anyone, row.from, func(string) (bool, error) { read++; return true, nil })
		})
		if err != nil || read != row.want {
			t.Errorf("%d tasks, %v; want %d", read, err, row.want)
		}
	}
}
