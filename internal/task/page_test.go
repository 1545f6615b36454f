package task

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

func TestTaskPages(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.credit("user_bob", 1000)
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
		var all, second []string
		for i := range 9 {
			key := annKey
			if i%3 == 2 {
				key = annKey2
			}
			task := f.mustSubmit(with(func(s *Submission) { s.Key = key }))
			all = append([]string{task.ID}, all...)
			if key == annKey2 {
				second = append([]string{task.ID}, second...)
			}
			f.sleep(time.Millisecond)
		}
		other := f.mustSubmit(with(func(s *Submission) { s.Key, s.Payer.User = bobKey, "user_bob" }))
		f.sleep(3 * time.Second)
		for name, row := range map[string]struct {
			user        string
			filter      Filter
			skip, limit int
			want        []string
			total       int
		}{
			"the first":                         {ann, Filter{}, 0, 4, all[:4], 9},
			"the second":                        {ann, Filter{}, 4, 4, all[4:8], 9},
			"the last":                          {ann, Filter{}, 8, 4, all[8:], 9},
			"past the end":                      {ann, Filter{}, 12, 4, nil, 9},
			"of another user":                   {"user_bob", Filter{}, 0, 4, []string{other.ID}, 1},
			"of an unknown user":                {"user_eve", Filter{}, 0, 4, nil, 0},
			"of a prefix of a user id":          {ann[:len(ann)-1], Filter{}, 0, 4, nil, 0},
			"of a key":                          {ann, Filter{Key: annKey2}, 1, 4, second[1:], 3},
			"of a key of another user":          {ann, Filter{Key: bobKey}, 0, 4, nil, 0},
			"of an unknown key":                 {ann, Filter{Key: "key_eve"}, 0, 4, nil, 0},
			"waiting":                           {ann, Filter{Status: record.Queued}, 2, 3, all[2:5], 7},
			"at the backend":                    {ann, Filter{Status: record.InProgress}, 0, 4, all[7:], 2},
			"of a key, waiting":                 {ann, Filter{Key: annKey2, Status: record.Queued}, 0, 4, second, 3},
			"of a key of another user, waiting": {ann, Filter{Key: bobKey, Status: record.Queued}, 0, 4, nil, 0},
			"a status without tasks":            {ann, Filter{Status: record.Failed}, 0, 4, nil, 0},
		} {
			tasks, total, err := f.TaskPage(f.t.Context(), row.user, row.filter, row.skip, row.limit)
			var ids []string
			for _, task := range tasks {
				ids = append(ids, task.ID)
			}
			if err != nil || !slices.Equal(ids, row.want) || total != row.total {
				t.Errorf("%s: %v of %d, %v; want %v of %d", name, ids, total, err, row.want, row.total)
			}
		}
		if _, _, err := f.TaskPage(f.t.Context(), ann, Filter{Status: "done"}, 0, 4); codeOf(err) != fault.InvalidParameter {
			t.Errorf("an invalid status: %v", err)
		}
	})
}

func TestATaskPageSkipsExpiredTasks(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		task := f.mustSubmit(video())
		f.waitStatus(task.ID, record.Success, time.Minute)
		for _, status := range []record.State{"", record.Success} {
			if tasks, total, err := f.TaskPage(f.t.Context(), ann, Filter{Status: status}, 0, 4); err != nil || len(tasks) != 1 || total != 1 {
				t.Errorf("%q: %v of %d, %v", status, tasks, total, err)
			}
		}
		f.sleep(DefaultKept)
		if tasks, _, err := f.TaskPage(f.t.Context(), ann, Filter{}, 0, 4); err != nil || len(tasks) != 0 {
			t.Errorf("%v, %v", tasks, err)
		}
		if tasks, total, err := f.TaskPage(f.t.Context(), ann, Filter{Status: record.Success}, 0, 4); err != nil || len(tasks) != 0 || total != 0 {
			t.Errorf("%v of %d, %v", tasks, total, err)
		}
	})
}

func TestCallbackPages(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		var all []string
		for range 5 {
			all = append([]string{f.finishTask(unchanged).ID}, all...)
		}
		synctest.Wait()
		for _, row := range []struct {
			user        string
			skip, limit int
			want        []string
			total       int
		}{
			{ann, 0, 2, all[:2], 5},
			{ann, 4, 2, all[4:], 5},
			{ann, 6, 2, nil, 5},
			{"user_bob", 0, 2, nil, 0},
		} {
			list, total, err := f.CallbackPage(f.t.Context(), row.user, row.skip, row.limit)
			var got []string
			for _, d := range list {
				if got = append(got, d.Task); callback.TaskOf(d.ID) != d.Task || callback.TaskOf(d.Task) != d.Task {
					t.Errorf("the callback %s is of %s", d.ID, callback.TaskOf(d.ID))
				}
			}
			if err != nil || !slices.Equal(got, row.want) || total != row.total {
				t.Errorf("%+v: %v of %d, %v", row, got, total, err)
			}
		}
	})
}

func TestAuditEventsOfTasks(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		f.service.set(func(s *mockService) { s.submit = func(backends.Job) error { return busyNow } })
		task := f.mustSubmit(video())
		if _, err := f.Cancel(f.t.Context(), record.OfKey(annKey), f.mustSubmit(video()).ID); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second call has no effect
			if _, err := f.CancelAs(f.t.Context(), "root", record.Anyone, task.ID); err != nil {
				t.Fatal(err)
			}
		}
		f.sleep(time.Millisecond) // events of the same millisecond have no order
		if _, err := f.Redeliver(f.t.Context(), ann, record.OfUser(ann), task.ID); err != nil {
			t.Fatal(err)
		}
		f.sleep(time.Millisecond)
		if _, err := f.Test(f.t.Context(), ann, ann, annKey); err != nil {
			t.Fatal(err)
		}
		want := []string{
			ann + " callback.test  of " + ann + " " + annKey,
			ann + " callback.redeliver " + task.ID + " of " + ann + " " + annKey,
			"root task.cancel " + task.ID + " of " + ann + " " + annKey,
		}
		if got := f.audit(); !slices.Equal(got, want) {
			t.Errorf("the audit log has\n%q, want\n%q", got, want)
		}
	})
}
