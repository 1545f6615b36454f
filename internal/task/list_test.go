package task

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestARemovedTaskLeavesNoKeys removes a task after its retention.
func TestARemovedTaskLeavesNoKeys(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		task := f.mustSubmit(video())
		f.waitStatus(task.ID, record.Success, time.Minute)
		for _, owner := range []record.Owner{record.Anyone, record.OfUser(ann), record.OfKey(annKey)} {
			if tasks, _, err := f.List(context.Background(), owner, Page{}); err != nil || len(tasks) != 1 {
				t.Errorf("%+v: %v, %v", owner, tasks, err)
			}
		}
		if found := f.problems(); len(found) > 0 {
			t.Error(found)
		}
		f.sleep(DefaultKept)
		if err := f.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
		err := f.store.View(context.Background(), func(r storage.Reader) error {
			for _, prefix := range []string{record.TaskPrefix, record.OfKeyPrefix, record.OfUserPrefix} {
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

// insertFinished writes failed tasks with these times of creation and end.
func (f *fixture) insertFinished(times ...[2]int64) (tasks []*record.Record) {
	f.t.Helper()
	f.damaged = true // the tasks have no holds
	for batch := range slices.Chunk(times, 500) {
		made := make([]*record.Record, len(batch))
		for i, at := range batch {
			made[i] = &record.Record{ID: record.NewID(), User: ann, Key: annKey, Backend: "works", Created: at[0], State: record.Failed, Delivery: record.None, Completed: at[1]}
		}
		err := f.store.Update(context.Background(), func(t storage.Txn) error {
			for _, rec := range made {
				if err := insert(t, rec); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			f.t.Fatal(err)
		}
		tasks = append(tasks, made...)
	}
	return tasks
}

// TestAListSkipsExpiredTasks lists more expired tasks than one page reads. They precede a
// task that ended later and is kept.
func TestAListSkipsExpiredTasks(t *testing.T) {
	withFixture(t, func(f *fixture) {
		now := f.now()
		kept := f.insertFinished([2]int64{now, now + DefaultKept.Milliseconds() - 1})[0]
		var expired [][2]int64
		for n := range int64(maxExamined) {
			expired = append(expired, [2]int64{now + 1 + n, now + 1 + n})
		}
		f.insertFinished(expired...)
		f.sleep(DefaultKept + time.Minute)
		for _, owner := range []record.Owner{record.OfKey(annKey), record.OfUser(ann), record.Anyone} {
			var got []string
			for after, more := "", true; more; more = after != "" {
				tasks, next, err := f.List(context.Background(), owner, Page{After: after})
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

// TestAListContinuesAfterACursorThatHasExpired lets the task of a cursor expire between two
// pages.
func TestAListContinuesAfterACursorThatHasExpired(t *testing.T) {
	withFixture(t, func(f *fixture) {
		now := f.now()
		two := f.insertFinished([2]int64{now, now + 5000}, [2]int64{now + 10, now + 10})
		f.sleep(DefaultKept - time.Second)
		for _, owner := range []record.Owner{record.OfKey(annKey), record.OfUser(ann), record.Anyone} {
			tasks, next, err := f.List(context.Background(), owner, Page{Limit: 1})
			if err != nil || len(tasks) != 1 || next != two[1].ID {
				t.Fatalf("%+v: %v, next %q, %v", owner, tasks, next, err)
			}
		}
		f.sleep(2 * time.Second)
		for _, owner := range []record.Owner{record.OfKey(annKey), record.OfUser(ann), record.Anyone} {
			tasks, _, err := f.List(context.Background(), owner, Page{Limit: 1, After: two[1].ID})
			if err != nil || len(tasks) != 1 || tasks[0].ID != two[0].ID {
				t.Errorf("%+v: %v, %v", owner, tasks, err)
			}
		}
		if _, _, err := f.List(context.Background(), record.OfKey(annKey2), Page{After: two[1].ID}); codeOf(err) != fault.InvalidParameter {
			t.Errorf("another owner: %v", err)
		}
		if _, err := f.Get(context.Background(), record.OfKey(annKey), two[1].ID); codeOf(err) != fault.TaskNotFound {
			t.Error(err)
		}
	})
}

// TestAListFromTheOldestIsBounded lists the tasks of a key from the oldest, up to the bound.
func TestAListFromTheOldestIsBounded(t *testing.T) {
	withFixture(t, func(f *fixture) {
		now := f.now()
		var times [][2]int64
		for n := range int64(maxExamined) {
			times = append(times, [2]int64{now + n, now + n})
		}
		all := f.insertFinished(times...)
		list := func(p Page) (ids []string, next string) {
			t.Helper()
			p.Oldest = true
			tasks, next, err := f.List(context.Background(), record.OfKey(annKey), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range tasks {
				ids = append(ids, task.ID)
			}
			return ids, next
		}
		first, next := list(Page{Limit: 2})
		if !slices.Equal(first, []string{all[0].ID, all[1].ID}) || next != all[1].ID {
			t.Errorf("listed %q, next %q", first, next)
		}
		if second, _ := list(Page{Limit: 1, After: next}); !slices.Equal(second, []string{all[2].ID}) {
			t.Errorf("listed %q, want %s", second, all[2].ID)
		}
		if last, next := list(Page{After: all[len(all)-2].ID}); !slices.Equal(last, []string{all[len(all)-1].ID}) || next != "" {
			t.Errorf("listed %q, next %q", last, next)
		}
		f.insertFinished([2]int64{now - 1, now})
		if _, _, err := f.List(context.Background(), record.OfKey(annKey), Page{Oldest: true}); codeOf(err) != fault.InvalidParameter {
			t.Errorf("more tasks than the bound: %v", err)
		}
		if after, _ := list(Page{After: all[1].ID, Limit: 1}); !slices.Equal(after, []string{all[2].ID}) { // fewer are left
			t.Errorf("listed %q, want %s", after, all[2].ID)
		}
	})
}

// TestADeletedTaskIsHiddenFromItsKeyAlone deletes a finished task, which is in the cache.
func TestADeletedTaskIsHiddenFromItsKeyAlone(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		task := f.mustSubmit(video())
		if err := f.Delete(context.Background(), record.OfKey(annKey), task.ID); codeOf(err) != fault.Conflict {
			t.Errorf("an unfinished task: %v", err)
		}
		f.waitStatus(task.ID, record.Success, time.Minute)
		for name, owner := range map[string]record.Owner{"another key": record.OfKey(annKey2), "another user": record.OfUser("user_bob"), "nobody": {}} {
			if err := f.Delete(context.Background(), owner, task.ID); codeOf(err) != fault.TaskNotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := f.Delete(context.Background(), record.OfKey(annKey), task.ID); err != nil {
			t.Fatal(err)
		}
		for _, owner := range []record.Owner{record.Anyone, record.OfUser(ann), record.OfKey(annKey)} {
			sees := owner != record.OfKey(annKey)
			_, err := f.Get(context.Background(), owner, task.ID)
			tasks, _, listErr := f.List(context.Background(), owner, Page{})
			job, jobErr := f.Job(context.Background(), owner, task.ID)
			if (err == nil) != sees || listErr != nil || (len(tasks) == 1) != sees || (jobErr == nil && job != nil) != sees {
				t.Errorf("%+v: %v, %v, %v, %v", owner, err, tasks, job, jobErr)
			}
		}
		if err := f.Delete(context.Background(), record.OfKey(annKey), task.ID); codeOf(err) != fault.TaskNotFound {
			t.Errorf("a second deletion: %v", err)
		}
		// A list may continue after a deleted task.
		if tasks, _, err := f.List(context.Background(), record.OfKey(annKey), Page{After: task.ID}); err != nil || len(tasks) != 0 {
			t.Errorf("%v, %v", tasks, err)
		}
		if found := f.problems(); len(found) > 0 {
			t.Error(found)
		}
		f.sleep(DefaultKept)
		if err := f.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Get(context.Background(), record.Anyone, task.ID); codeOf(err) != fault.TaskNotFound {
			t.Errorf("after its retention: %v", err)
		}
	})
}
