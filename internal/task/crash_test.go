package task

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// client does what a good client does: it asks with one idempotency key until it
// has an answer, and polls until the task is over. The operator, meanwhile,
// starts the process again whenever it is dead.
func (w *world) client() *record.Task {
	w.t.Helper()
	s := with(func(s *Submission) { s.IdempotencyKey, s.SessionID, s.SessionContext = "k", "s", "ctx" })
	var id string
	for range 4000 {
		w.revive()
		if id == "" {
			if task, err := w.submit(s); err == nil {
				id = task.ID
			} else if code := codeOf(err); code != fault.StoreUnavailable && code != fault.UpstreamUnavailable && w.store.Err() == nil && !w.power.off.Load() {
				w.t.Fatalf("the submission is refused: %v", err)
			}
			w.sleep(time.Second)
			continue
		}
		task, err := w.Get(context.Background(), record.OfKey(annKey), id)
		if err == nil && task.CompletedAt != 0 && w.settledCallbacks() {
			return task
		}
		w.sleep(time.Second)
	}
	w.t.Fatal("the task is never over")
	return nil
}

// revive starts the process again if it is dead.
func (w *world) revive() {
	if w.store.Err() != nil || w.power.off.Load() || w.store.View(context.Background(), func(storage.Reader) error { return nil }) != nil {
		w.bury()
		w.start()
	}
}

// settledCallbacks tells whether the outbox has nothing to send.
func (w *world) settledCallbacks() bool {
	none := true
	lo, hi := storage.Below(record.EventDuePrefix)
	err := w.store.View(context.Background(), func(r storage.Reader) error {
		return r.Scan(lo, hi, func(_, _ []byte) bool {
			none = false
			return false
		})
	})
	return err == nil && none
}

// whole checks that whatever happened, there was one job, one payment at most,
// and one callback of one id.
func (w *world) whole(task *record.Task) {
	w.t.Helper()
	jobs, most := w.works.accepted()
	if jobs > 1 || most > 1 {
		w.t.Errorf("the works have accepted %d jobs, one up to %d times", jobs, most)
	}
	switch task.Status {
	case record.Success:
		w.has(900, 0)
	case record.Failed:
		w.has(1000, 0)
	default:
		w.t.Errorf("the task ends %s", task.Status)
	}
	ids := make(map[string]int)
	for _, got := range w.hooks.requests() {
		ids[got.header.Get("Webhook-Id")]++
	}
	if len(ids) != 1 || ids[callback.EventID(task.ID)] == 0 {
		w.t.Errorf("the callbacks are %v", ids)
	}
	if n := w.count(Filter{Key: annKey}); n != 1 {
		w.t.Errorf("ann has %d tasks", n)
	}
}

func TestAnyCommitMayGoWrong(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]storagetest.Fault{
		"killed before": storagetest.Halted, "conflict": storagetest.Conflict,
		"committed and unknown": storagetest.UnknownCommitted, "lost and unknown": storagetest.UnknownLost,
		"low space": storagetest.LowSpace, "sync failed": storagetest.SyncFailed,
	} {
		for _, finds := range []bool{true, false} {
			for keeps := range 2 {
				const most = 24
				for commit := range most {
					t.Run(fmt.Sprintf("%s, commit %d, finds %t, keeper %d", name, commit, finds, keeps), func(t *testing.T) {
						in(t, func(w *world) {
							w.serve(func(c *Config) {
								if finds {
									c.Backends[0].Backend = finding{w.works}
								}
								if keeps == 1 {
									c.Keeper = newAttic()
								}
							})
							w.listen()
							polls := 0
							w.works.set(func(s *works) {
								s.poll = func(*work) (backends.Status, error) {
									if polls++; polls < 3 {
										return backends.Status{State: backends.Running, Progress: 10 * polls}, nil
									}
									return succeeded(1), nil
								}
							})
							before := w.faulty.Commits()
							w.faulty.Plan(storagetest.After(commit, wrong)...)
							faulty := w.faulty
							task := w.client()
							w.whole(task)
							if jobs, _ := w.works.accepted(); finds && (jobs == 1) != (task.Status == record.Success) {
								t.Errorf("there are %d jobs, and it ended %s: %+v", jobs, task.Status, task.Error)
							}
							if commit == most-1 && faulty.Commits()-before > most {
								t.Errorf("there are %d commits: not all went wrong", faulty.Commits()-before)
							}
						})
					})
				}
			}
		}
	}
}

// attic is a keeper that keeps links.
type attic struct {
	mu    sync.Mutex
	kept  map[string]int // by task
	fail  func(n int) error
	delay time.Duration
	last  Keeping
}

func newAttic() *attic { return &attic{kept: make(map[string]int)} }

func (a *attic) Keep(ctx context.Context, k Keeping) ([]string, error) {
	a.mu.Lock()
	a.kept[k.Task]++
	a.last = k
	n, fail, delay := a.kept[k.Task], a.fail, a.delay
	a.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fail != nil {
		if err := fail(n); err != nil {
			return nil, err
		}
	}
	links := make([]string, len(k.Results))
	for i := range links {
		links[i] = fmt.Sprintf("https://gateway.example.com/v1/files/%s/%d", k.Task, i)
	}
	return links, nil
}

func TestAKillAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		plan  func(w *world) // what kills it, once
		finds bool
		want  record.State
	}{
		"before the submission is durable": {plan: func(w *world) { w.faulty.Plan(storagetest.Halted) }, want: record.Success},
		"after it, before a byte has left": {plan: func(w *world) {
			w.works.set(func(s *works) {
				s.submit = w.once(func() error { w.power.off.Store(true); return context.Canceled })
			})
		}, want: record.Failed}, // nobody can know that no byte has left
		"after it, and the works can be asked": {plan: func(w *world) {
			w.works.set(func(s *works) {
				s.submit = w.once(func() error { w.power.off.Store(true); return context.Canceled })
			})
		}, finds: true, want: record.Failed}, // the works know that there is no job
		"the works have accepted it, nothing is noted": {plan: func(w *world) {
			w.works.set(func(s *works) { s.took = w.once(func() error { w.power.off.Store(true); return nil }) })
		}, want: record.Failed},
		"they have, and can be asked": {plan: func(w *world) {
			w.works.set(func(s *works) { s.took = w.once(func() error { w.power.off.Store(true); return nil }) })
		}, finds: true, want: record.Success},
		"the works have told of a success": {plan: func(w *world) {
			kill := w.once(func() error { w.power.off.Store(true); return nil })
			w.works.set(func(s *works) {
				s.poll = func(*work) (backends.Status, error) { return succeeded(1), kill(backends.Job{}) }
			})
		}, want: record.Success},
		"the end is durable, nobody has been told": {plan: func(w *world) {
			w.hooks.after = func() func() {
				kill := w.once(func() error { w.power.off.Store(true); return nil })
				return func() { _ = kill(backends.Job{}) }
			}()
		}, want: record.Success},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				if row.finds {
					w.serve(func(c *Config) { c.Backends[0].Backend = finding{w.works} })
				}
				w.listen()
				w.works.succeed(1)
				first := w.process
				row.plan(w)
				task := w.client()
				if w.process == first {
					t.Error("it was not killed")
				}
				w.whole(task)
				if task.Status != row.want {
					t.Errorf("it ended %s, want %s: %+v", task.Status, row.want, task.Error)
				}
			})
		})
	}
}

// once does something at its first call only.
func (w *world) once(fn func() error) func(backends.Job) error {
	var once sync.Once
	return func(backends.Job) (err error) {
		once.Do(func() { err = fn() })
		return err
	}
}

func TestAStartResumesEverything(t *testing.T) {
	in(t, func(w *world) {
		w.credit("user_bob", 100_000)
		const tasks, most = 60, 5
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = most })
		var ids []string
		for range tasks {
			ids = append(ids, w.must(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey })).ID)
		}
		begun := make(map[string]time.Time)
		w.works.set(func(s *works) {
			s.poll = func(j *work) (backends.Status, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if begun[j.token].IsZero() {
					begun[j.token] = time.Now()
				}
				if time.Since(begun[j.token]) < 20*time.Second {
					return backends.Status{State: backends.Running}, nil
				}
				return succeeded(1), nil
			}
		})
		for round := range 40 {
			w.sleep(7 * time.Second)
			if round%2 == 0 {
				w.stop()
			} else {
				synctest.Wait() // nothing is on its way: what is would be in doubt
				w.kill()
			}
			w.start()
		}
		w.sleep(10 * time.Minute)
		for _, id := range ids {
			task, err := w.Get(context.Background(), record.OfKey(bobKey), id)
			if err != nil || task.Status != record.Success {
				t.Fatalf("%+v, %v", task, err)
			}
		}
		if jobs, twice := w.works.accepted(); jobs != tasks || twice != 1 {
			t.Errorf("%d jobs, one up to %d times", jobs, twice)
		}
	})
}
