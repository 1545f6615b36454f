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

// client submits with one idempotency key until it has an answer, and polls until
// the task has ended. If the process has ended, it starts a new one.
func (f *fixture) client() *record.Task {
	f.t.Helper()
	s := with(func(s *Submission) { s.IdempotencyKey, s.SessionID, s.SessionContext = "k", "s", "ctx" })
	var id string
	for range 4000 {
		f.revive()
		if id == "" {
			if task, err := f.submit(s); err == nil {
				id = task.ID
			} else if code := codeOf(err); code != fault.StoreUnavailable && code != fault.UpstreamUnavailable && f.store.Err() == nil && !f.power.off.Load() {
				f.t.Fatalf("the submission failed: %v", err)
			}
			f.sleep(time.Second)
			continue
		}
		task, err := f.Get(context.Background(), record.OfKey(annKey), id)
		if err == nil && task.CompletedAt != 0 && f.settledCallbacks() {
			return task
		}
		f.sleep(time.Second)
	}
	f.t.Fatal("the task has not ended")
	return nil
}

// revive starts a new process if the current one has ended.
func (f *fixture) revive() {
	if f.store.Err() != nil || f.power.off.Load() || f.store.View(context.Background(), func(storage.Reader) error { return nil }) != nil {
		f.closeDead()
		f.start()
	}
}

// settledCallbacks reports whether no callback is due.
func (f *fixture) settledCallbacks() bool {
	none := true
	lo, hi := storage.Below(record.EventDuePrefix)
	err := f.store.View(context.Background(), func(r storage.Reader) error {
		return r.Scan(lo, hi, func(_, _ []byte) bool {
			none = false
			return false
		})
	})
	return err == nil && none
}

// checkOnce checks that the task has at most one job, one charge and one callback id.
func (f *fixture) checkOnce(task *record.Task) {
	f.t.Helper()
	jobs, maxAccepted := f.service.accepted()
	if jobs > 1 || maxAccepted > 1 {
		f.t.Errorf("the service accepted %d jobs, one of them %d times", jobs, maxAccepted)
	}
	switch task.Status {
	case record.Success:
		f.checkWallet(900, 0)
	case record.Failed:
		f.checkWallet(1000, 0)
	default:
		f.t.Errorf("the task ended as %s", task.Status)
	}
	ids := make(map[string]int)
	for _, got := range f.hooks.requests() {
		ids[got.header.Get("Webhook-Id")]++
	}
	if len(ids) != 1 || ids[callback.EventID(task.ID)] == 0 {
		f.t.Errorf("the callbacks are %v", ids)
	}
	if n := f.count(Filter{Key: annKey}); n != 1 {
		f.t.Errorf("ann has %d tasks", n)
	}
}

func TestAFaultAtAnyCommitIsHarmless(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]storagetest.Fault{
		"killed before": storagetest.Halted, "conflict": storagetest.Conflict,
		"committed and unknown": storagetest.UnknownCommitted, "lost and unknown": storagetest.UnknownLost,
		"low space": storagetest.LowSpace, "sync failed": storagetest.SyncFailed,
	} {
		for _, finds := range []bool{true, false} {
			for keeps := range 2 {
				const limit = 24
				for commit := range limit {
					t.Run(fmt.Sprintf("%s, commit %d, finds %t, keeper %d", name, commit, finds, keeps), func(t *testing.T) {
						withFixture(t, func(f *fixture) {
							f.serve(func(c *Config) {
								if finds {
									c.Backends[0].Backend = finding{f.service}
								}
								if keeps == 1 {
									c.Keeper = newMockKeeper()
								}
							})
							f.listen()
							polls := 0
							f.service.set(func(s *mockService) {
								s.poll = func(*work) (backends.Status, error) {
									if polls++; polls < 3 {
										return backends.Status{State: backends.Running, Progress: 10 * polls}, nil
									}
									return succeeded(1), nil
								}
							})
							before := f.faulty.Commits()
							f.faulty.Plan(storagetest.After(commit, wrong)...)
							faulty := f.faulty
							task := f.client()
							f.checkOnce(task)
							if jobs, _ := f.service.accepted(); finds && (jobs == 1) != (task.Status == record.Success) {
								t.Errorf("%d jobs, and the task ended as %s: %+v", jobs, task.Status, task.Error)
							}
							if commit == limit-1 && faulty.Commits()-before > limit {
								t.Errorf("%d commits: the test does not let all of them fail", faulty.Commits()-before)
							}
						})
					})
				}
			}
		}
	}
}

// mockKeeper is a Keeper that returns URLs.
type mockKeeper struct {
	mu    sync.Mutex
	kept  map[string]int // by task
	fail  func(n int) error
	delay time.Duration
	last  Keeping
}

func newMockKeeper() *mockKeeper { return &mockKeeper{kept: make(map[string]int)} }

func (a *mockKeeper) Keep(ctx context.Context, k Keeping) ([]string, error) {
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
		plan  func(f *fixture) // plans one kill
		finds bool
		want  record.State
	}{
		"before the submission is durable": {plan: func(f *fixture) { f.faulty.Plan(storagetest.Halted) }, want: record.Success},
		"after the submission is durable, before a byte is sent": {plan: func(f *fixture) {
			f.service.set(func(s *mockService) {
				s.submit = f.once(func() error { f.power.off.Store(true); return context.Canceled })
			})
		}, want: record.Failed}, // the gateway cannot know that no byte was sent
		"after the submission is durable, with Reconcile": {plan: func(f *fixture) {
			f.service.set(func(s *mockService) {
				s.submit = f.once(func() error { f.power.off.Store(true); return context.Canceled })
			})
		}, finds: true, want: record.Failed}, // the service has no job
		"after the acceptance, before it is durable": {plan: func(f *fixture) {
			f.service.set(func(s *mockService) { s.afterAccept = f.once(func() error { f.power.off.Store(true); return nil }) })
		}, want: record.Failed},
		"after the acceptance, with Reconcile": {plan: func(f *fixture) {
			f.service.set(func(s *mockService) { s.afterAccept = f.once(func() error { f.power.off.Store(true); return nil }) })
		}, finds: true, want: record.Success},
		"after a poll that returned a success": {plan: func(f *fixture) {
			kill := f.once(func() error { f.power.off.Store(true); return nil })
			f.service.set(func(s *mockService) {
				s.poll = func(*work) (backends.Status, error) { return succeeded(1), kill(backends.Job{}) }
			})
		}, want: record.Success},
		"after the end is durable, before the callback": {plan: func(f *fixture) {
			f.hooks.after = func() func() {
				kill := f.once(func() error { f.power.off.Store(true); return nil })
				return func() { _ = kill(backends.Job{}) }
			}()
		}, want: record.Success},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				if row.finds {
					f.serve(func(c *Config) { c.Backends[0].Backend = finding{f.service} })
				}
				f.listen()
				f.service.succeed(1)
				first := f.process
				row.plan(f)
				task := f.client()
				if f.process == first {
					t.Error("the process was not killed")
				}
				f.checkOnce(task)
				if task.Status != row.want {
					t.Errorf("the task ended as %s, want %s: %+v", task.Status, row.want, task.Error)
				}
			})
		})
	}
}

// once calls fn at the first call only.
func (f *fixture) once(fn func() error) func(backends.Job) error {
	var once sync.Once
	return func(backends.Job) (err error) {
		once.Do(func() { err = fn() })
		return err
	}
}

func TestARestartResumesAllTasks(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.credit("user_bob", 100_000)
		const tasks, limit = 60, 5
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = limit })
		var ids []string
		for range tasks {
			ids = append(ids, f.mustSubmit(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey })).ID)
		}
		begun := make(map[string]time.Time)
		f.service.set(func(s *mockService) {
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
			f.sleep(7 * time.Second)
			if round%2 == 0 {
				f.stop()
			} else {
				synctest.Wait() // no job is being sent: its delivery would be unknown
				f.kill()
			}
			f.start()
		}
		f.sleep(10 * time.Minute)
		for _, id := range ids {
			task, err := f.Get(context.Background(), record.OfKey(bobKey), id)
			if err != nil || task.Status != record.Success {
				t.Fatalf("%+v, %v", task, err)
			}
		}
		if jobs, maxAccepted := f.service.accepted(); jobs != tasks || maxAccepted != 1 {
			t.Errorf("%d jobs, one accepted %d times", jobs, maxAccepted)
		}
	})
}
