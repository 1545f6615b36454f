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

// TestATaskIsHandedOverInItsOwnTime: a task is due soon after it was sent, and yet
// nobody takes it for one in doubt while its lease holds.
func TestATaskIsHandedOverInItsOwnTime(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		takes time.Duration // the hand-over; zero: until the process is killed
		stays bool          // what leads to the task as one that is due
	}{
		"at once":            {takes: time.Millisecond, stays: true},
		"within half second": {takes: 500 * time.Millisecond, stays: true},
		"beyond a poll":      {takes: 5 * time.Second},
		"slowly":             {takes: 29 * time.Second},
		"never":              {},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				other := Open(w.store, w.ledger, Options{})
				if err := other.Serve(w.config); err != nil {
					t.Fatal(err)
				}
				defer func() { other.Close(context.Background()) }()
				sent := make(chan string, 1)
				w.works.set(func(s *works) {
					s.hold = func(ctx context.Context, job backends.Job) {
						sent <- job.Token
						if row.takes == 0 {
							<-ctx.Done()
							return
						}
						time.Sleep(row.takes)
					}
				})
				go func() { _, _ = w.submit(video()) }()
				<-sent
				const latest = 2400 * time.Millisecond // is the first poll after the hand-over
				began := time.Now()
				tasks, _, err := w.List(context.Background(), OfKey(annKey), Page{})
				if err != nil || len(tasks) != 1 {
					t.Fatalf("%v, %v", tasks, err)
				}
				id := tasks[0].ID
				due := w.record(id).Due
				if row.takes == 0 {
					other.Close(context.Background())
					w.works.set(func(s *works) { s.submit = func(backends.Job) error { return context.Canceled } })
					w.kill()
					w.start()
					other = Open(w.store, w.ledger, Options{})
					if err := other.Serve(w.config); err != nil {
						t.Fatal(err)
					}
					w.sleep(leaseFor - time.Second)
					w.is(id, Queued)
					w.sleep(2 * time.Second)
					w.is(id, Pending)
					w.sleep(grace)
					w.is(id, Failed)
					return
				}
				for time.Since(began) < row.takes-time.Second {
					if rec := w.record(id); rec.Handover != Sending || rec.Fence != 1 {
						t.Fatalf("after %v its hand-over is %s, claimed %d times", time.Since(began), rec.Handover, rec.Fence)
					}
					w.sleep(time.Second)
				}
				w.sleep(row.takes - time.Since(began))
				rec := w.record(id)
				if rec.Handover != Accepted || (rec.Due == due) != row.stays {
					t.Errorf("its hand-over is %s, due at %d, and was due at %d", rec.Handover, rec.Due, due)
				}
				if ahead := time.Duration(rec.Due-w.now()) * time.Millisecond; ahead < wakePause || ahead > latest {
					t.Errorf("it is asked for in %v", ahead)
				}
				w.sleep(latest)
				w.is(id, InProgress)
				if jobs, most := w.works.accepted(); jobs != 1 || most != 1 {
					t.Errorf("%d jobs, one up to %d times", jobs, most)
				}
			})
		})
	}
}
