package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestQueuedTasksGetSlotsInOrder(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.credit("user_bob", 100_000)
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = limit })
				var want []string
				for range 30 {
					task := f.mustSubmit(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey }))
					want = append(want, backends.Token(task.ID))
					time.Sleep(time.Millisecond)
				}
				began, over := make(map[string]time.Time), 0
				f.service.set(func(s *mockService) {
					s.poll = func(j *work) (backends.Status, error) {
						s.mu.Lock()
						defer s.mu.Unlock()
						if running := len(s.jobs) - over; running > limit {
							t.Errorf("%d run at once", running)
						}
						if began[j.token].IsZero() {
							began[j.token] = time.Now()
						}
						if time.Since(began[j.token]) < time.Minute {
							return backends.Status{State: backends.Running}, nil
						}
						over++
						return succeeded(1), nil
					}
				})
				f.sleep(5 * time.Minute)
				f.stop()
				f.start()
				f.sleep(time.Hour)
				// Slots that are free at the same moment are filled at the same moment, in any order.
				for at, token := range f.service.order {
					if due := slices.Index(want, token); due-at >= limit || at-due >= limit {
						t.Errorf("task %d was sent as number %d", due, at)
					}
				}
				if len(f.service.order) != len(want) {
					t.Errorf("%d tasks were sent, want %d", len(f.service.order), len(want))
				}
			})
		})
	}
}

func (f *fixture) load() (l record.Load) {
	if err := f.store.View(context.Background(), func(r storage.Reader) (err error) {
		l, err = record.ReadLoad(r, "works")
		return err
	}); err != nil {
		f.t.Error(err)
	}
	return l
}

func TestATaskRefusedAsBusyIsSentLater(t *testing.T) {
	withFixture(t, func(f *fixture) {
		busy, attempts := true, 0
		f.service.set(func(s *mockService) {
			s.submit = func(backends.Job) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				attempts++
				if busy {
					return &backends.Error{Kind: backends.Busy, RetryAfter: 20 * time.Second}
				}
				return nil
			}
		})
		first := f.mustSubmit(video())
		if first.Status != record.Queued || f.load().Running != 0 {
			t.Fatalf("%+v, %+v", first, f.load())
		}
		second := f.mustSubmit(video())
		f.sleep(19 * time.Second)
		f.service.set(func(*mockService) {
			if attempts != 1 {
				t.Errorf("%d submissions to a busy backend in 19 s", attempts)
			}
		})
		f.sleep(10 * time.Hour) // the backend refuses all tasks, so none fails
		f.wantStatus(first.ID, record.Queued)
		f.service.set(func(*mockService) { busy = false })
		f.sleep(2 * time.Minute)
		f.wantStatus(first.ID, record.InProgress)
		f.wantStatus(second.ID, record.InProgress)
	})
}

func TestSubmissionsToABusyBackendAreLimited(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		after           time.Duration
		atLeast, atMost int // submissions in an hour
	}{
		"no Retry-After":         {0, 50, 90},
		"a short Retry-After":    {time.Millisecond, 50, 90},
		"a Retry-After of years": {40 * 365 * 24 * time.Hour, 6, 7},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				attempts := 0
				f.serve(func(c *Config) { c.Backends[0].BusyTimeout = 2 * time.Hour })
				f.service.set(func(s *mockService) {
					s.submit = func(backends.Job) error {
						s.mu.Lock()
						defer s.mu.Unlock()
						attempts++
						return &backends.Error{Kind: backends.Busy, RetryAfter: row.after}
					}
				})
				f.mustSubmit(video())
				f.sleep(time.Hour)
				if attempts < row.atLeast || attempts > row.atMost {
					t.Errorf("%d submissions in an hour", attempts)
				}
			})
		})
	}
}

func TestTasksWaitWhileTheAccountIsRefused(t *testing.T) {
	withFixture(t, func(f *fixture) {
		unpaid := true
		f.service.set(func(s *mockService) {
			s.submit = func(backends.Job) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if unpaid {
					return &backends.Error{Kind: backends.Refused, Reason: backends.UpstreamError, Status: 402, Message: "no"}
				}
				return nil
			}
		})
		task := f.mustSubmit(video())
		f.wantStatus(task.ID, record.Queued)
		f.sleep(10 * time.Hour)
		f.wantStatus(task.ID, record.Queued)
		f.service.set(func(*mockService) { unpaid = false })
		f.sleep(2 * time.Minute)
		f.wantStatus(task.ID, record.InProgress)
	})
}

func TestTasksOfARemovedBackendWait(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		running, waiting := f.mustSubmit(video()), f.mustSubmit(video())
		f.sleep(5 * time.Second)
		kept := f.config.Backends
		f.serve(func(c *Config) { c.Backends = nil })
		all, err := f.Backends(f.t.Context())
		if err != nil || len(all) != 1 || !all[0].Abandoned() || all[0].Running != 1 || all[0].Waiting != 1 || all[0].Oldest.Unix() != waiting.CreatedAt {
			t.Fatalf("%+v, %v", all, err)
		}
		before := f.service.polled(running.ID)
		f.sleep(100 * time.Hour)
		if f.service.polled(running.ID) != before {
			t.Error("a task of a removed backend was polled")
		}
		f.wantStatus(running.ID, record.InProgress)
		f.wantStatus(waiting.ID, record.Queued)
		f.service.succeed(1)
		f.serve(func(c *Config) { c.Backends = kept })
		f.waitStatus(running.ID, record.Success, time.Minute)
	})
}

func TestATaskOfARemovedBackendEndsAtItsDeadline(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
		early := []*record.Task{f.mustSubmit(video()), f.mustSubmit(video()), f.mustSubmit(video())}
		f.sleep(5 * time.Second)
		f.serve(func(c *Config) { c.Backends = nil })
		for hours, want := range []record.State{23: record.InProgress, 25: record.Failed, 71: record.Failed, 73: record.Failed} {
			if want == "" {
				continue
			}
			f.sleep(time.Duration(hours)*time.Hour - time.Since(time.Unix(early[0].CreatedAt, 0)))
			if err := f.Sweep(f.t.Context()); err != nil {
				t.Error(err)
			}
			f.wantStatus(early[0].ID, want)
			f.wantStatus(early[1].ID, want)
			if waits := f.wantStatus(early[2].ID, map[bool]record.State{true: record.Queued, false: record.Failed}[hours < 72]); hours > 72 && waits.Error.Reason != backends.TaskTimeout {
				t.Errorf("%+v", waits.Error)
			}
		}
		f.checkWallet(1000, 0)
	})
}

func TestSweepReadsAllTasksOfARemovedBackend(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.credit("user_bob", 10_000_000)
		f.serve(func(c *Config) { c.Backends[0].MaxRunning, c.Unfinished = 0, 3*maxExpired })
		f.service.set(func(s *mockService) { s.afterAccept = func(backends.Job) error { return errors.New("cut") } }) // delivery unknown, and due soon
		submission := with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey })
		for range 2*maxExpired + 100 {
			f.mustSubmit(submission)
		}
		f.sleep(transition.Grace - time.Second)
		f.service.set(func(s *mockService) { s.afterAccept = nil })
		last := f.mustSubmit(submission) // is due after all others, but its deadline is earlier
		f.serve(func(c *Config) { c.Backends = nil })
		f.sleep(25 * time.Hour)
		for range 3 {
			if err := f.Sweep(f.t.Context()); err != nil {
				t.Error(err)
			}
		}
		if now, err := f.Get(f.t.Context(), record.OfKey(bobKey), last.ID); err != nil || now.Status != record.Failed {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

func TestAnOperatorCancelsATaskOfARemovedBackend(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.sleep(5 * time.Second)
		f.wantStatus(task.ID, record.InProgress)
		f.serve(func(c *Config) { c.Backends = nil })
		if _, err := f.CancelAs(f.t.Context(), "", record.OfKey(annKey), task.ID); codeOf(err) != fault.TaskNotCancellable {
			t.Errorf("the caller: %v", err)
		}
		if _, err := f.CancelAs(f.t.Context(), "operator", record.Anyone, task.ID); err != nil {
			t.Errorf("the operator: %v", err)
		}
		f.wantStatus(task.ID, record.Failed)
		f.checkWallet(1000, 0)
	})
}

func TestAReloadLosesNoTaskAndDuplicatesNoPoll(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.credit("user_bob", 1_000_000)
		f.serve(func(c *Config) { c.Unfinished, c.Backends[0].MaxRunning = 1000, 0 })
		var ids []string
		for range 300 {
			ids = append(ids, f.mustSubmit(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey })).ID)
		}
		polling := make(map[string]int)
		f.service.set(func(s *mockService) {
			s.poll = func(j *work) (backends.Status, error) {
				s.mu.Lock()
				polling[j.token]++
				if polling[j.token] > 1 {
					t.Error("two concurrent polls of one job")
				}
				s.mu.Unlock()
				time.Sleep(500 * time.Millisecond)
				s.mu.Lock()
				polling[j.token]--
				s.mu.Unlock()
				return backends.Status{State: backends.Running}, nil
			}
		})
		for range 20 {
			f.sleep(3 * time.Second)
			f.serve(func(c *Config) { c.Backends[0].PollsPerSecond = 100 })
		}
		f.service.succeed(1)
		f.sleep(time.Minute)
		for _, id := range ids {
			if task, err := f.Get(f.t.Context(), record.OfUser("user_bob"), id); err != nil || task.Status != record.Success {
				t.Fatalf("%+v, %v", task, err)
			}
		}
	})
}

func TestAResultAfterTheLeaseDoesNotCount(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		slow := make(chan struct{})
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.set(func(s *mockService) { s.poll = nil })
				close(slow)
				time.Sleep(transition.LeaseFor + 30*time.Second) // the adapter ignores its context
				return failed(backends.ModelFailed), nil
			}
		})
		<-slow
		f.sleep(transition.LeaseFor + 10*time.Second)
		f.wantStatus(task.ID, record.InProgress) // another engine has claimed the task
		f.sleep(time.Minute)
		f.wantStatus(task.ID, record.InProgress)
		f.checkWallet(1000, 100)
		f.service.setStatus(task.ID, succeeded(1))
		f.waitStatus(task.ID, record.Success, time.Minute)
	})
}

func TestTwoDriversAndTheDeadline(t *testing.T) {
	t.Parallel()
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.listen()
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
				other := Open(f.store, f.ledger, Options{})
				if err := other.Serve(f.config); err != nil {
					t.Fatal(err)
				}
				polling := make(map[string]bool)
				f.service.set(func(s *mockService) {
					s.poll = func(j *work) (backends.Status, error) {
						s.mu.Lock()
						if polling[j.token] {
							t.Error("two concurrent polls of one job")
						}
						polling[j.token] = true
						s.mu.Unlock()
						time.Sleep(100 * time.Millisecond)
						s.mu.Lock()
						polling[j.token] = false
						s.mu.Unlock()
						if j.token[round%len(j.token)]%2 == 0 && f.now()%3 == 0 {
							return succeeded(1), nil
						}
						return backends.Status{State: backends.Running, RetryAfter: transition.MaxPause}, nil
					}
				})
				var ids []string
				for range 6 {
					ids = append(ids, f.mustSubmit(video()).ID)
				}
				f.sleep(transition.SubmissionLife + time.Minute)
				charged := 0
				for _, id := range ids {
					if task := f.get(id); task.Status == record.Success {
						charged += 100
					} else if task.Status != record.Failed {
						t.Errorf("%+v", task)
					}
				}
				synctest.Wait()
				ids2 := make(map[string]int)
				for _, got := range f.hooks.requests() {
					ids2[got.header.Get("Webhook-Id")]++
				}
				if len(ids2) != len(ids) || len(f.hooks.requests()) != len(ids) {
					t.Errorf("callbacks: %v", ids2)
				}
				if jobs, maxAccepted := f.service.accepted(); maxAccepted > 1 || jobs > len(ids) {
					t.Errorf("%d jobs, one accepted %d times", jobs, maxAccepted)
				}
				f.checkWallet(1000-moneyOf(charged), 0)
				other.Close(context.Background())
			})
		})
	}
}

func TestANewTaskDoesNotOvertakeTheQueue(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		if err := f.Drain(f.t.Context(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		first := f.mustSubmit(video())
		// A slot is free, but the driver was not nudged.
		if err := f.store.Update(context.Background(), func(t storage.Txn) error {
			l, err := record.ReadLoad(t, "works")
			l.Drained = false
			return errors.Join(err, l.Write(t, "works"))
		}); err != nil {
			t.Fatal(err)
		}
		second := f.mustSubmit(video())
		f.sleep(10 * time.Second)
		f.wantStatus(first.ID, record.InProgress)
		f.wantStatus(second.ID, record.Queued)
	})
}
