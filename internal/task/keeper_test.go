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

// bytesService is a service that returns bytes instead of URLs.
type bytesService struct{ *mockService }

func (bytesService) OnlyBytes() bool { return true }

func (bytesService) Fetch(_ context.Context, ref backends.Ref, index int) (io.ReadCloser, backends.Content, error) {
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
	withFixture(t, func(f *fixture) {
		keeper := newMockKeeper()
		keeper.delay = 10 * time.Minute // much longer than a lease
		f.serve(func(c *Config) { c.Keeper = keeper })
		task := f.mustSubmit(with(func(s *Submission) { s.Job.Output.MediaName = "cats" }))
		f.service.setStatus(task.ID, succeeded(2))
		f.sleep(9 * time.Minute)
		if task = f.wantStatus(task.ID, record.InProgress); task.Progress != "99%" {
			t.Errorf("the progress during the copy is %s", task.Progress)
		}
		polls := f.service.polled(task.ID)
		f.checkWallet(1000, 100)
		f.sleep(2 * time.Minute)
		task = f.wantStatus(task.ID, record.Success)
		if want := "https://gateway.example.com/v1/files/" + task.ID + "/0"; task.Result.URL != want || len(task.Result.URLs) != 2 {
			t.Errorf("the result is %+v", task.Result)
		}
		if keeper.kept[task.ID] != 1 || polls > 2 || keeper.last.MediaName != "cats" || keeper.last.Key != annKey || keeper.last.Fetch != nil {
			t.Errorf("copied %d times, polled %d times: %+v", keeper.kept[task.ID], polls, keeper.last)
		}
		f.checkWallet(900, 0)
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
		"for a while":                       {status: succeeded(1), fail: func(n int) error { return map[bool]error{true: errors.New("x")}[n < 5] }, after: 5 * time.Minute, want: record.Success},
		"for 59 minutes":                    {status: succeeded(1), fail: fail, after: 59 * time.Minute, want: record.InProgress},
		"for an hour, with URLs":            {status: succeeded(1), fail: fail, after: 62 * time.Minute, want: record.Success},
		"for an hour, without URLs":         {status: bytesOnly(1), fail: fail, after: 62 * time.Minute, want: record.Failed},
		"and the status becomes unknown":    {status: succeeded(1), fail: fail, later: &backends.Status{State: backends.Unknown}, after: 62 * time.Minute, want: record.Success},
		"and the backend reports a failure": {status: succeeded(1), fail: fail, later: ptr(failed(backends.ModelFailed)), after: 62 * time.Minute, want: record.Success},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				keeper := newMockKeeper()
				keeper.fail = row.fail
				f.serve(func(c *Config) { c.Keeper, c.Backends[0].Backend = keeper, bytesService{f.service} })
				task := f.mustSubmit(video())
				f.service.setStatus(task.ID, row.status)
				f.sleep(10 * time.Second)
				if row.later != nil {
					f.service.setStatus(task.ID, *row.later)
				}
				f.sleep(row.after - 10*time.Second)
				task = f.wantStatus(task.ID, row.want)
				switch row.want {
				case record.Success:
					f.checkWallet(900, 0)
				case record.Failed:
					f.checkWallet(1000, 0)
				}
				if keeper.last.Fetch == nil {
					t.Fatalf("Keep was called without Fetch: %+v", keeper.last)
				}
				body, content, err := keeper.last.Fetch(f.t.Context(), 3)
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
	withFixture(t, func(f *fixture) {
		c := Config{Backends: []Backend{{Name: "works", Backend: bytesService{f.service}}}}
		if err := f.Serve(c); err == nil {
			t.Error("accepted without a keeper")
		}
		c.Keeper = newMockKeeper()
		if err := f.Serve(c); err != nil {
			t.Error(err)
		}
	})
}

func TestAResultWithoutAURLAndAKeeperFailsTheTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.service.setStatus(task.ID, bytesOnly(1))
		task = f.waitStatus(task.ID, record.Failed, time.Minute)
		if task.Error.Reason != backends.UpstreamError {
			t.Errorf("%+v", task.Error)
		}
		f.checkWallet(1000, 0)
	})
}

func TestCopiesBeyondTheLimitRunLater(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.credit("user_bob", 100_000)
		keeper := newMockKeeper()
		keeper.delay = 20 * time.Second
		f.serve(func(c *Config) { c.Keeper, c.Backends[0].MaxRunning = keeper, 0 })
		f.service.succeed(1)
		for range 50 {
			f.mustSubmit(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey }))
		}
		f.sleep(5 * time.Minute)
		tasks, _, err := f.List(f.t.Context(), record.OfKey(bobKey), Page{Limit: 100, Status: record.Success})
		if err != nil || len(tasks) != 50 {
			t.Errorf("%d tasks succeeded, %v; want 50", len(tasks), err)
		}
	})
}

func TestACopyResumesAfterAKill(t *testing.T) {
	withFixture(t, func(f *fixture) {
		keeper := newMockKeeper()
		keeper.delay = time.Minute
		f.serve(func(c *Config) { c.Keeper = keeper })
		task := f.mustSubmit(video())
		f.service.setStatus(task.ID, succeeded(1))
		f.sleep(30 * time.Second)
		f.kill()
		f.start()
		f.waitStatus(task.ID, record.Success, 5*time.Minute)
		f.checkWallet(900, 0)
		if keeper.kept[task.ID] != 2 {
			t.Errorf("Keep was called %d times, want 2", keeper.kept[task.ID])
		}
	})
}
