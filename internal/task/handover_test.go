package task

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
)

func TestDoubt(t *testing.T) {
	t.Parallel()
	doubtful := errors.New("the connection was cut")
	for name, row := range map[string]struct {
		took  error // after it was accepted
		lost  bool  // before it was
		finds bool
		find  func(w *world) func(*work) (backends.Ref, error)
		after time.Duration
		want  State
	}{
		"nobody can ask":                  {took: doubtful, after: grace + time.Second, want: Failed},
		"nobody can ask, before the time": {took: doubtful, after: grace - time.Second, want: Pending},
		"it is found":                     {took: doubtful, finds: true, after: 10 * time.Second, want: InProgress},
		"there is surely none":            {lost: true, finds: true, after: 10 * time.Second, want: Failed},
		"it is found late": {took: doubtful, finds: true, find: func(w *world) func(*work) (backends.Ref, error) {
			began := time.Now()
			return func(j *work) (backends.Ref, error) {
				if time.Since(began) < grace-time.Minute {
					return backends.Ref{}, errors.New("not now")
				}
				return backends.Ref{ID: "job-" + j.token}, nil
			}
		}, after: grace + time.Second, want: InProgress},
		"it is never known": {took: doubtful, finds: true, find: func(*world) func(*work) (backends.Ref, error) {
			return func(*work) (backends.Ref, error) { return backends.Ref{}, errors.New("not now") }
		}, after: grace + 20*time.Second, want: Failed},
		"a panic while it is looked for": {took: doubtful, finds: true, find: func(*world) func(*work) (backends.Ref, error) {
			return func(*work) (backends.Ref, error) { panic("bug") }
		}, after: grace - time.Second, want: Pending},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				if row.finds {
					w.serve(func(c *Config) { c.Backends[0].Backend = finding{w.works} })
				}
				w.works.set(func(s *works) {
					if row.lost {
						s.submit = func(backends.Job) error { return doubtful }
					}
					s.took = func(backends.Job) error { return row.took }
					if row.find != nil {
						s.find = row.find(w)
					}
				})
				task := w.must(video())
				if task.Status != Pending || task.Progress != "0%" {
					t.Fatalf("in doubt it is shown as %+v", task)
				}
				w.sleep(row.after)
				w.is(task.ID, row.want)
				if jobs, twice := w.works.accepted(); jobs+twice > 2 {
					t.Errorf("%d jobs, one up to %d times", jobs, twice)
				}
				if row.want == Failed {
					w.has(1000, 0)
				}
			})
		})
	}
}

func TestAnAdapterThatBreaksItsWordLeavesDoubt(t *testing.T) {
	t.Parallel()
	for name, submit := range map[string]func(backends.Job) error{
		"a panic": func(backends.Job) error { panic("bug") },
		"no time": nil,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				w.works.set(func(s *works) {
					s.submit = submit
					if submit == nil {
						s.hold = func(ctx context.Context, _ backends.Job) { <-ctx.Done() }
						s.took = func(backends.Job) error { return context.DeadlineExceeded }
					}
				})
				task := w.must(video())
				w.sleep(submitTimeout)
				w.is(task.ID, Pending)
			})
		})
	}
}

func TestAnAcceptanceThatComesLateCounts(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].Backend = finding{w.works} })
		w.works.set(func(s *works) {
			s.hold = func(context.Context, backends.Job) { time.Sleep(90 * time.Second) } // an adapter that does not keep its time
			s.find = func(*work) (backends.Ref, error) {
				time.Sleep(28600 * time.Millisecond) // until just after the acceptance has come
				return backends.Ref{}, &backends.Error{Kind: backends.Gone}
			}
		})
		task := w.must(video())
		w.sleep(65*time.Second - handoverWait)
		w.is(task.ID, Pending)
		w.sleep(time.Minute)
		w.is(task.ID, InProgress)
		w.works.succeed(1)
		w.until(task.ID, Success, time.Minute)
		w.has(900, 0)
	})
}

func TestAnAcceptanceThatComesTooLateIsALoss(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].Backend = cancelling{w.works} })
		w.works.set(func(s *works) { s.hold = func(context.Context, backends.Job) { time.Sleep(20 * time.Minute) } })
		task := w.must(video())
		w.sleep(30 * time.Minute)
		w.is(task.ID, Failed)
		w.has(1000, 0)
		if w.Figures().Losses != 1 || !w.works.jobs[backends.Token(task.ID)].cancelled {
			t.Errorf("%+v", w.Figures())
		}
	})
}
