package task

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// Status results that many tests use.
var (
	busyNow     = &backends.Error{Kind: backends.Busy}
	queuedThere = backends.Status{State: backends.Queued}
)

func TestCancel(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	for name, row := range map[string]struct {
		can    bool
		before func(f *fixture) // sets up the state
		after  func(f *fixture, id string)
		code   fault.Code   // of the refusal; empty: the task is cancelled
		end    record.State // 8 seconds later
	}{
		"a waiting task": {before: func(f *fixture) {
			f.service.set(func(s *mockService) { s.submit = func(backends.Job) error { return busyNow } })
		}, end: record.Failed},
		"a task that is being sent": {before: func(f *fixture) {
			f.service.set(func(s *mockService) { s.hold = func(context.Context, backends.Job) { time.Sleep(15 * time.Second) } })
		}, can: true, code: fault.TaskNotCancellable, end: record.InProgress},
		"an unknown delivery": {before: func(f *fixture) {
			f.service.set(func(s *mockService) { s.afterAccept = func(backends.Job) error { return cut } })
		}, can: true, code: fault.TaskNotCancellable, end: record.Pending},
		"the backend confirms":      {can: true, end: record.Failed},
		"the backend cannot cancel": {code: fault.TaskNotCancellable, end: record.InProgress},
		"the backend refuses": {can: true, before: func(f *fixture) {
			f.service.set(func(s *mockService) { s.cancel = func(*work) error { return &backends.Error{Kind: backends.Refused} } })
		}, code: fault.TaskNotCancellable, end: record.InProgress},
		"an error without a kind": {can: true, before: func(f *fixture) {
			f.service.set(func(s *mockService) { s.cancel = func(*work) error { return cut } })
		}, code: fault.TaskNotCancellable, end: record.InProgress},
		"the adapter panics": {can: true, before: func(f *fixture) {
			f.service.set(func(s *mockService) { s.cancel = func(*work) error { panic("bug") } })
		}, code: fault.TaskNotCancellable, end: record.InProgress},
		"the job succeeds during the cancellation": {can: true, after: func(f *fixture, id string) {
			f.service.set(func(s *mockService) {
				s.cancel = func(*work) error {
					f.service.setStatus(id, succeeded(1))
					time.Sleep(10 * time.Second) // a poll finds the success
					return nil
				}
			})
		}, code: fault.TaskNotCancellable, end: record.Success},
		"a successful task": {can: true, after: func(f *fixture, id string) {
			f.service.setStatus(id, succeeded(1))
			f.waitStatus(id, record.Success, time.Minute)
		}, code: fault.TaskNotCancellable, end: record.Success},
		"a failed task": {can: true, after: func(f *fixture, id string) {
			f.service.setStatus(id, failed(backends.ModelFailed))
			f.waitStatus(id, record.Failed, time.Minute)
		}, code: fault.TaskNotCancellable, end: record.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				if row.can {
					f.serve(func(c *Config) { c.Backends[0].Backend = cancelling{f.service} })
				}
				f.listen()
				if row.before != nil {
					row.before(f)
				}
				task := f.mustSubmit(video())
				if row.after != nil {
					row.after(f, task.ID)
				}
				got, err := f.Cancel(f.t.Context(), record.OfKey(annKey), task.ID)
				if codeOf(err) != row.code {
					t.Fatalf("%+v, %v; want %q", got, err, row.code)
				}
				if row.code == "" {
					if got.Status != record.Failed || got.Error.Reason != backends.TaskCancelled || got.Progress != "0%" {
						t.Errorf("%+v", got)
					}
					again, err := f.Cancel(f.t.Context(), record.OfUser(ann), task.ID)
					if err != nil || again.CompletedAt != got.CompletedAt {
						t.Errorf("a second time: %+v, %v", again, err)
					}
				}
				f.sleep(8 * time.Second)
				f.wantStatus(task.ID, row.end)
				switch row.end {
				case record.Success:
					f.checkWallet(900, 0)
				case record.Failed:
					f.checkWallet(1000, 0)
					if n := len(f.hooks.requests()); n != 1 {
						t.Errorf("%d callbacks", n)
					}
				default:
					f.checkWallet(1000, 100)
				}
			})
		})
	}
}

func TestAFreeSlotGoesToTheNextTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning, c.Backends[0].Backend = 1, cancelling{f.service} })
		first, second := f.mustSubmit(video()), f.mustSubmit(video())
		f.sleep(10 * time.Second)
		f.wantStatus(second.ID, record.Queued)
		if _, err := f.Cancel(f.t.Context(), record.OfKey(annKey), first.ID); err != nil {
			t.Fatal(err)
		}
		f.sleep(10 * time.Millisecond)
		if jobs, _ := f.service.accepted(); jobs != 2 {
			t.Error("the next task was not sent")
		}
		f.sleep(4 * time.Second)
		f.wantStatus(second.ID, record.InProgress)
	})
}

func TestARunningPollDoesNotReviveACancelledTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].Backend = cancelling{f.service} })
		id := f.mustSubmit(video()).ID
		polled := make(chan struct{}, 100)
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				polled <- struct{}{}
				time.Sleep(5 * time.Second) // the answer arrives after the cancellation
				return backends.Status{State: backends.Running, Progress: 50}, nil
			}
		})
		<-polled
		if _, err := f.Cancel(context.Background(), record.OfKey(annKey), id); err != nil {
			t.Fatal(err)
		}
		f.sleep(time.Minute)
		f.wantStatus(id, record.Failed)
		f.checkConsistent()
	})
}
