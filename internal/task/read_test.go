package task

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestOwnersSeeOnlyTheirTasks(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		for _, over := range []bool{false, true} {
			task := f.mustSubmit(video())
			if over {
				f.waitStatus(task.ID, record.Success, time.Minute)
			}
			for name, row := range map[string]struct {
				owner record.Owner
				id    string
				sees  bool
			}{
				"the key":                  {record.OfKey(annKey), task.ID, true},
				"the user":                 {record.OfUser(ann), task.ID, true},
				"an operator":              {record.Anyone, task.ID, true},
				"another key of the user":  {record.OfKey(annKey2), task.ID, false},
				"a key of another user":    {record.OfKey(bobKey), task.ID, false},
				"another user":             {record.OfUser("user_bob"), task.ID, false},
				"a key named like a user":  {record.OfKey(ann), task.ID, false},
				"no owner":                 {record.Owner{}, task.ID, false},
				"an empty key":             {record.OfKey(""), task.ID, false},
				"an empty user":            {record.OfUser(""), task.ID, false},
				"an unknown id":            {record.OfKey(annKey), record.NewID(), false},
				"an empty id":              {record.OfKey(annKey), "", false},
				"a long id":                {record.OfKey(annKey), task.ID + "x", false},
				"another case":             {record.OfKey(annKey), strings.ToLower(task.ID), false},
				"an id with a slash":       {record.OfKey(annKey), task.ID[:record.IDSize-2] + "/x", false},
				"the first part of the id": {record.OfKey(annKey), task.ID[:record.IDSize-1], false},
			} {
				got, err := f.Get(f.t.Context(), row.owner, row.id)
				if row.sees {
					if err != nil || got.ID != task.ID {
						t.Errorf("%s, over %t: %+v, %v", name, over, got, err)
					}
					continue
				}
				refused, ok := err.(*fault.Fault)
				if !ok || !reflect.DeepEqual(refused, fault.New(fault.TaskNotFound, "there is no such task")) || got != nil {
					t.Errorf("%s, over %t: %+v, %#v", name, over, got, err)
				}
				if _, err := f.Cancel(f.t.Context(), row.owner, row.id); codeOf(err) != fault.TaskNotFound {
					t.Errorf("%s may cancel it: %v", name, err)
				}
			}
		}
	})
}

func TestFinishedTasksAreCached(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		task := f.mustSubmit(video())
		f.waitStatus(task.ID, record.Success, time.Minute)
		synctest.Wait()
		f.power.off.Store(true)
		for range 10_000 {
			if got, err := f.Get(f.t.Context(), record.OfKey(annKey), task.ID); err != nil || got.Status != record.Success {
				t.Fatal(got, err)
			}
		}
		for _, id := range []string{task.ID, record.NewID()} { // a task of another owner takes as long as one that does not exist
			if _, err := f.Get(f.t.Context(), record.OfKey(bobKey), id); codeOf(err) != fault.StoreUnavailable {
				t.Error(err)
			}
		}
		f.power.off.Store(false)
	})
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c cache
	for i := range 3 * cacheSize {
		c.put(&record.Record{ID: fmt.Sprint(i), State: record.Failed})
		if i%10 == 0 {
			c.get("0") // a task that is read stays
		}
		if n := len(c.young) + len(c.old); n > cacheSize {
			t.Fatalf("%d tasks are cached", n)
		}
	}
	if c.get("0") == nil || c.get("1") != nil || c.get(fmt.Sprint(3*cacheSize-1)) == nil {
		t.Error("a task that was read is not cached")
	}
	c.drop("0")
	if c.get("0") != nil {
		t.Error("a dropped task is cached")
	}
}

func TestWaitReturnsOnChange(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.service.setStatus(task.ID, queuedThere)
		wait := func(limit time.Duration) (*record.Task, time.Duration) {
			began := time.Now()
			got, err := f.Wait(context.Background(), record.OfKey(annKey), task.ID, limit)
			if err != nil {
				t.Error(err)
			}
			return got, time.Since(began)
		}
		if got, took := wait(20 * time.Second); got.Status != record.Queued || took != 20*time.Second {
			t.Errorf("%s after %v", got.Status, took)
		}
		if got, took := wait(0); got.Status != record.Queued || took != 0 {
			t.Errorf("%s after %v", got.Status, took)
		}
		if _, took := wait(time.Hour); took != MaxWait {
			t.Errorf("waited %v", took)
		}
		go func() {
			f.sleep(10 * time.Second)
			f.service.setStatus(task.ID, succeeded(1))
			_ = f.Wake(context.Background(), "works", f.record(task.ID).Ref.ID)
		}()
		if got, took := wait(MaxWait); got.Status != record.Success || took > 11*time.Second+50*time.Millisecond {
			t.Errorf("%s after %v", got.Status, took)
		}
		if _, took := wait(MaxWait); took != 0 {
			t.Errorf("waited %v for a finished task", took)
		}
		if _, err := f.Wait(context.Background(), record.OfKey(bobKey), task.ID, time.Second); codeOf(err) != fault.TaskNotFound {
			t.Error(err)
		}
		other := f.mustSubmit(video())
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if _, err := f.Wait(ctx, record.OfKey(annKey), other.ID, time.Minute); err == nil {
			t.Error("a disconnected caller got an answer")
		}
		if len(f.changes.tasks) != 0 {
			t.Errorf("remaining waiters: %v", f.changes.tasks)
		}
	})
}

// TestWaitDoesNotReadUntilTheTaskChanges checks that callers who wait are notified and do not
// read the store periodically.
func TestWaitDoesNotReadUntilTheTaskChanges(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.service.setStatus(task.ID, queuedThere)
		f.sleep(time.Minute)
		reads := func(waiters int, end func()) int64 {
			var wait sync.WaitGroup
			began := f.power.views.Load()
			for range waiters {
				wait.Go(func() {
					if _, err := f.Wait(context.Background(), record.OfKey(annKey), task.ID, MaxWait); err != nil {
						t.Error(err)
					}
				})
			}
			f.sleep(MaxWait - time.Second)
			end()
			f.sleep(time.Second)
			wait.Wait()
			return f.power.views.Load() - began
		}
		// A waiter reads when it comes and when it leaves. A read every five seconds would be
		// twelve; the third allowed here is room for the polls of the engine, which come at
		// varied intervals.
		const waiters = 100
		baseline := reads(0, func() {})
		if n := reads(waiters, func() {}); n > baseline+3*waiters {
			t.Errorf("%d reads in a minute with %d waiters, %d reads without", n, waiters, baseline)
		}
		if n := reads(waiters, func() { f.service.setStatus(task.ID, succeeded(1)) }); n > baseline+3*waiters {
			t.Errorf("%d reads with %d waiters whose task ended", n, waiters)
		}
	})
}

func TestListsAreLatestFirst(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
		var mine, all []string
		for i := range 9 {
			key := annKey
			if i%3 == 2 {
				key = annKey2
			}
			task := f.mustSubmit(with(func(s *Submission) { s.Key = key }))
			all = append([]string{task.ID}, all...)
			if key == annKey {
				mine = append([]string{task.ID}, mine...)
			}
			f.sleep(time.Millisecond)
		}
		f.sleep(3 * time.Second)
		ids := func(owner record.Owner, p Page) (ids []string, next string) {
			tasks, next, err := f.List(f.t.Context(), owner, p)
			if err != nil {
				t.Fatalf("%+v: %v", p, err)
			}
			for _, task := range tasks {
				ids = append(ids, task.ID)
			}
			return ids, next
		}
		for name, row := range map[string]struct {
			owner record.Owner
			page  Page
			want  []string
			next  string
		}{
			"of a key":               {record.OfKey(annKey), Page{}, mine, ""},
			"of a user":              {record.OfUser(ann), Page{}, all, ""},
			"of all":                 {record.Anyone, Page{}, all, ""},
			"of another user":        {record.OfKey(bobKey), Page{}, nil, ""},
			"the first page":         {record.OfKey(annKey), Page{Limit: 2}, mine[:2], mine[1]},
			"the next":               {record.OfKey(annKey), Page{Limit: 2, After: mine[1]}, mine[2:4], mine[3]},
			"the last":               {record.OfKey(annKey), Page{Limit: 2, After: mine[3]}, mine[4:], ""},
			"by status":              {record.OfUser(ann), Page{Status: record.InProgress}, all[7:], ""},
			"waiting":                {record.OfUser(ann), Page{Status: record.Queued, Limit: 3}, all[:3], all[2]},
			"a status without tasks": {record.OfUser(ann), Page{Status: record.Failed}, nil, ""},
		} {
			if got, next := ids(row.owner, row.page); !slices.Equal(got, row.want) || next != row.next {
				t.Errorf("%s: %v, next %q; want %v, next %q", name, got, next, row.want, row.next)
			}
		}
		for name, p := range map[string]Page{
			"limit": {Limit: 101}, "status": {Status: "done"}, "after": {After: record.NewID()},
		} {
			_, _, err := f.List(f.t.Context(), record.OfKey(annKey), p)
			if refused, ok := err.(*fault.Fault); !ok || refused.Code != fault.InvalidParameter || refused.Param != name {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, _, err := f.List(f.t.Context(), record.OfKey(annKey2), Page{After: mine[0]}); codeOf(err) != fault.InvalidParameter {
			t.Errorf("a task of another owner is accepted as a cursor: %v", err)
		}
		if _, _, err := f.List(f.t.Context(), record.Owner{}, Page{}); codeOf(err) != fault.TaskNotFound {
			t.Errorf("a list without an owner: %v", err)
		}
	})
}

func TestTasksAreKeptUntilTheirRetentionEnds(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		f.service.succeed(1)
		s := with(func(s *Submission) { s.IdempotencyKey, s.SessionID = "k", "s" })
		task := f.mustSubmit(s)
		f.waitStatus(task.ID, record.Success, time.Minute)
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		f.service.set(func(s *mockService) { s.submit = func(backends.Job) error { return busyNow } })
		unfinished := f.mustSubmit(video())
		completed := time.UnixMilli(f.record(task.ID).Completed)
		for _, cached := range []bool{true, false} {
			if !cached {
				f.stop()
				f.start()
			}
			_ = f.Sweep(f.t.Context())
			f.wantStatus(task.ID, record.Success)
		}
		f.sleep(time.Until(completed.Add(DefaultKept - time.Millisecond)))
		if err := f.Sweep(f.t.Context()); err != nil {
			t.Fatal(err)
		}
		f.wantStatus(task.ID, record.Success)
		f.sleep(time.Millisecond)
		_, err := f.Get(f.t.Context(), record.OfKey(annKey), task.ID)
		f.checkCode(err, fault.TaskNotFound)
		if err := f.Sweep(f.t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = f.Get(f.t.Context(), record.OfKey(annKey), task.ID)
		f.checkCode(err, fault.TaskNotFound)
		if n := f.count(Filter{}); n != 1 {
			t.Errorf("%d tasks are left", n)
		}
		if again := f.mustSubmit(s); again.ID == task.ID {
			t.Error("a removed task still has its idempotency record")
		}
		_ = unfinished
	})
}

func TestStoreErrorsAreFaults(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.faulty.Plan(storagetest.LowSpace, storagetest.LowSpace)
		_, err := f.submit(video())
		f.checkCode(err, fault.StoreUnavailable)
		f.checkWallet(1000, 100)
		f.waitStatus(task.ID, record.InProgress, time.Minute)
	})
}

// TestAnUnreadableCursorIsAStoreError checks that the answer is not a 400, after which a
// caller would not request the page again.
func TestAnUnreadableCursorIsAStoreError(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.corrupt(task.ID)
		for _, owner := range []record.Owner{record.OfKey(annKey), record.OfUser(ann), record.Anyone} {
			_, _, err := f.List(context.Background(), owner, Page{After: task.ID})
			f.checkCode(err, fault.StoreUnavailable)
		}
	})
}
