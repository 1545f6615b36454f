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
