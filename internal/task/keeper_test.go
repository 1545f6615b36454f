package task

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// giving is a service that returns bytes instead of URLs.
type giving struct{ *mockService }

func (giving) OnlyBytes() bool { return true }

func (giving) Fetch(_ context.Context, ref backends.Ref, index int) (io.ReadCloser, backends.Content, error) {
	return io.NopCloser(strings.NewReader(ref.ID)), backends.Content{Type: "video/mp4", Size: int64(index)}, nil
}

func bytesOnly(n int) backends.Status {
	status := succeeded(n)
	for i := range status.Results {
		status.Results[i].URL = ""
	}
	return status
}

func TestSuccessIsReportedAfterTheCopies(t *testing.T) {
	in(t, func(w *world) {
		keeper := newMockKeeper()
		keeper.delay = 10 * time.Minute // much longer than a lease
		w.serve(func(c *Config) { c.Keeper = keeper })
		task := w.must(with(func(s *Submission) { s.Job.Output.MediaName = "cats" }))
		w.service.tells(task.ID, succeeded(2))
		w.sleep(9 * time.Minute)
		if task = w.is(task.ID, record.InProgress); task.Progress != "99%" {
			t.Errorf("while it is copied it is at %s", task.Progress)
		}
		polls := w.service.polled(task.ID)
		w.has(1000, 100)
		w.sleep(2 * time.Minute)
		task = w.is(task.ID, record.Success)
		if want := "https://gateway.example.com/v1/files/" + task.ID + "/0"; task.Result.URL != want || len(task.Result.URLs) != 2 {
			t.Errorf("the links are %+v", task.Result)
		}
		if keeper.kept[task.ID] != 1 || polls > 2 || keeper.last.MediaName != "cats" || keeper.last.Key != annKey || keeper.last.Fetch != nil {
			t.Errorf("copied %d times, polled %d times: %+v", keeper.kept[task.ID], polls, keeper.last)
		}
		w.has(900, 0)
	})
}

func TestFailingCopies(t *testing.T) {
	t.Parallel()
	fail := func(int) error { return errors.New("disk full") }
	for name, row := range map[string]struct {
		status backends.Status
		fail   func(n int) error
		later  *backends.Status // status after the success
		after  time.Duration
		want   record.State
	}{
		"for a while":                         {status: succeeded(1), fail: func(n int) error { return map[bool]error{true: errors.New("x")}[n < 5] }, after: 5 * time.Minute, want: record.Success},
		"for 59 minutes":                      {status: succeeded(1), fail: fail, after: 59 * time.Minute, want: record.InProgress},
		"for an hour, with links":             {status: succeeded(1), fail: fail, after: 62 * time.Minute, want: record.Success},
		"for an hour, without":                {status: bytesOnly(1), fail: fail, after: 62 * time.Minute, want: record.Failed},
		"and the backend forgets":             {status: succeeded(1), fail: fail, later: &backends.Status{State: backends.Unknown}, after: 62 * time.Minute, want: record.Success},
		"and the backend says that it failed": {status: succeeded(1), fail: fail, later: ptr(failed(backends.ModelFailed)), after: 62 * time.Minute, want: record.Success},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				keeper := newMockKeeper()
				keeper.fail = row.fail
				w.serve(func(c *Config) { c.Keeper, c.Backends[0].Backend = keeper, giving{w.service} })
				task := w.must(video())
				w.service.tells(task.ID, row.status)
				w.sleep(10 * time.Second)
				if row.later != nil {
					w.service.tells(task.ID, *row.later)
				}
				w.sleep(row.after - 10*time.Second)
				task = w.is(task.ID, row.want)
				switch row.want {
				case record.Success:
					w.has(900, 0)
				case record.Failed:
					w.has(1000, 0)
				}
				if keeper.last.Fetch == nil {
					t.Fatalf("nothing was asked to be copied: %+v", keeper.last)
				}
				body, content, err := keeper.last.Fetch(w.t.Context(), 3)
				text, _ := io.ReadAll(body)
				if err != nil || content.Size != 3 || string(text) != "job-"+backends.Token(task.ID) {
					t.Errorf("fetched %q, %+v, %v", text, content, err)
				}
			})
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestABackendWithoutURLsNeedsAKeeper(t *testing.T) {
	in(t, func(w *world) {
		c := Config{Backends: []Backend{{Name: "works", Backend: giving{w.service}}}}
		if err := w.Serve(c); err == nil {
			t.Error("taken without a keeper")
		}
		c.Keeper = newMockKeeper()
		if err := w.Serve(c); err != nil {
			t.Error(err)
		}
	})
}

func TestAResultWithoutAURLAndAKeeperFailsTheTask(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.service.tells(task.ID, bytesOnly(1))
		task = w.until(task.ID, record.Failed, time.Minute)
		if task.Error.Reason != backends.UpstreamError {
			t.Errorf("%+v", task.Error)
		}
		w.has(1000, 0)
	})
}

func TestCopiesBeyondTheLimitRunLater(t *testing.T) {
	in(t, func(w *world) {
		w.credit("user_bob", 100_000)
		keeper := newMockKeeper()
		keeper.delay = 20 * time.Second
		w.serve(func(c *Config) { c.Keeper, c.Backends[0].MaxRunning = keeper, 0 })
		w.service.succeed(1)
		for range 50 {
			w.must(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey }))
		}
		w.sleep(5 * time.Minute)
		tasks, _, err := w.List(w.t.Context(), record.OfKey(bobKey), Page{Limit: 100, Status: record.Success})
		if err != nil || len(tasks) != 50 {
			t.Errorf("%d are over, %v", len(tasks), err)
		}
	})
}

func TestACopyResumesAfterAKill(t *testing.T) {
	in(t, func(w *world) {
		keeper := newMockKeeper()
		keeper.delay = time.Minute
		w.serve(func(c *Config) { c.Keeper = keeper })
		task := w.must(video())
		w.service.tells(task.ID, succeeded(1))
		w.sleep(30 * time.Second)
		w.kill()
		w.start()
		w.until(task.ID, record.Success, 5*time.Minute)
		w.has(900, 0)
		if keeper.kept[task.ID] != 2 {
			t.Errorf("asked %d times", keeper.kept[task.ID])
		}
	})
}
