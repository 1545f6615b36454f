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
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			in(t, func(w *world) {
				w.credit("user_bob", 100_000)
				w.serve(func(c *Config) { c.Backends[0].MaxRunning = most })
				var want []string
				for range 30 {
					task := w.must(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey }))
					want = append(want, backends.Token(task.ID))
					time.Sleep(time.Millisecond)
				}
				began, over := make(map[string]time.Time), 0
				w.service.set(func(s *mockService) {
					s.poll = func(j *work) (backends.Status, error) {
						s.mu.Lock()
						defer s.mu.Unlock()
						if running := len(s.jobs) - over; running > most {
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
				w.sleep(5 * time.Minute)
				w.stop()
				w.start()
				w.sleep(time.Hour)
				if !slices.Equal(w.service.order, want) {
					t.Errorf("they were sent in the order\n%v, want\n%v", w.service.order, want)
				}
			})
		})
	}
}

func (w *world) load() (l record.Load) {
	if err := w.store.View(context.Background(), func(r storage.Reader) (err error) {
		l, err = record.ReadLoad(r, "works")
		return err
	}); err != nil {
		w.t.Error(err)
	}
	return l
}

func TestATaskRefusedAsBusyIsSentLater(t *testing.T) {
	in(t, func(w *world) {
		busy, asked := true, 0
		w.service.set(func(s *mockService) {
			s.submit = func(backends.Job) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				asked++
				if busy {
					return &backends.Error{Kind: backends.Busy, RetryAfter: 20 * time.Second}
				}
				return nil
			}
		})
		first := w.must(video())
		if first.Status != record.Queued || w.load().Running != 0 {
			t.Fatalf("%+v, %+v", first, w.load())
		}
		second := w.must(video())
		w.sleep(19 * time.Second)
		w.service.set(func(*mockService) {
			if asked != 1 {
				t.Errorf("a busy backend was asked %d times in 19 s", asked)
			}
		})
		w.sleep(10 * time.Hour) // the backend refuses all tasks, so none fails
		w.is(first.ID, record.Queued)
		w.service.set(func(*mockService) { busy = false })
		w.sleep(2 * time.Minute)
		w.is(first.ID, record.InProgress)
		w.is(second.ID, record.InProgress)
	})
}

func TestABusyBackendIsAskedAtIntervals(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		after       time.Duration
		least, most int // times in an hour
	}{
		"that names no time":     {0, 50, 90},
		"that names an instant":  {time.Millisecond, 50, 90},
		"that names half a life": {40 * 365 * 24 * time.Hour, 6, 7},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				asked := 0
				w.serve(func(c *Config) { c.Backends[0].BusyTimeout = 2 * time.Hour })
				w.service.set(func(s *mockService) {
					s.submit = func(backends.Job) error {
						s.mu.Lock()
						defer s.mu.Unlock()
						asked++
						return &backends.Error{Kind: backends.Busy, RetryAfter: row.after}
					}
				})
				w.must(video())
				w.sleep(time.Hour)
				if asked < row.least || asked > row.most {
					t.Errorf("asked %d times in an hour", asked)
				}
			})
		})
	}
}

func TestTasksWaitWhileTheAccountIsRefused(t *testing.T) {
	in(t, func(w *world) {
		broke := true
		w.service.set(func(s *mockService) {
			s.submit = func(backends.Job) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if broke {
					return &backends.Error{Kind: backends.Refused, Reason: backends.UpstreamError, Status: 402, Message: "no"}
				}
				return nil
			}
		})
		task := w.must(video())
		w.is(task.ID, record.Queued)
		w.sleep(10 * time.Hour)
		w.is(task.ID, record.Queued)
		w.service.set(func(*mockService) { broke = false })
		w.sleep(2 * time.Minute)
		w.is(task.ID, record.InProgress)
	})
}

func TestTasksOfARemovedBackendWait(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		running, waiting := w.must(video()), w.must(video())
		w.sleep(5 * time.Second)
		kept := w.config.Backends
		w.serve(func(c *Config) { c.Backends = nil })
		all, err := w.Backends(w.t.Context())
		if err != nil || len(all) != 1 || !all[0].Abandoned() || all[0].Running != 1 || all[0].Waiting != 1 || all[0].Oldest.Unix() != waiting.CreatedAt {
			t.Fatalf("%+v, %v", all, err)
		}
		before := w.service.polled(running.ID)
		w.sleep(100 * time.Hour)
		if w.service.polled(running.ID) != before {
			t.Error("it was polled")
		}
		w.is(running.ID, record.InProgress)
		w.is(waiting.ID, record.Queued)
		w.service.succeed(1)
		w.serve(func(c *Config) { c.Backends = kept })
		w.until(running.ID, record.Success, time.Minute)
	})
}

func TestATaskOfARemovedBackendEndsAtItsDeadline(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
		early := []*record.Task{w.must(video()), w.must(video()), w.must(video())}
		w.sleep(5 * time.Second)
		w.serve(func(c *Config) { c.Backends = nil })
		for hours, want := range []record.State{23: record.InProgress, 25: record.Failed, 71: record.Failed, 73: record.Failed} {
			if want == "" {
				continue
			}
			w.sleep(time.Duration(hours)*time.Hour - time.Since(time.Unix(early[0].CreatedAt, 0)))
			if err := w.Sweep(w.t.Context()); err != nil {
				t.Error(err)
			}
			w.is(early[0].ID, want)
			w.is(early[1].ID, want)
			if waits := w.is(early[2].ID, map[bool]record.State{true: record.Queued, false: record.Failed}[hours < 72]); hours > 72 && waits.Error.Reason != backends.TaskTimeout {
				t.Errorf("%+v", waits.Error)
			}
		}
		w.has(1000, 0)
	})
}

func TestSweepReadsAllTasksOfARemovedBackend(t *testing.T) {
	in(t, func(w *world) {
		w.credit("user_bob", 10_000_000)
		w.serve(func(c *Config) { c.Backends[0].MaxRunning, c.Unfinished = 0, 3*maxExpired })
		w.service.set(func(s *mockService) { s.took = func(backends.Job) error { return errors.New("cut") } }) // delivery unknown, and due soon
		bobs := with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey })
		for range 2*maxExpired + 100 {
			w.must(bobs)
		}
		w.sleep(transition.Grace - time.Second)
		w.service.set(func(s *mockService) { s.took = nil })
		last := w.must(bobs) // processed after all of those; its deadline is before theirs
		w.serve(func(c *Config) { c.Backends = nil })
		w.sleep(25 * time.Hour)
		for range 3 {
			if err := w.Sweep(w.t.Context()); err != nil {
				t.Error(err)
			}
		}
		if now, err := w.Get(w.t.Context(), record.OfKey(bobKey), last.ID); err != nil || now.Status != record.Failed {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

func TestAnOperatorCancelsATaskOfARemovedBackend(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.sleep(5 * time.Second)
		w.is(task.ID, record.InProgress)
		w.serve(func(c *Config) { c.Backends = nil })
		if _, err := w.CancelAs(w.t.Context(), "", record.OfKey(annKey), task.ID); codeOf(err) != fault.TaskNotCancellable {
			t.Errorf("the caller: %v", err)
		}
		if _, err := w.CancelAs(w.t.Context(), "operator", record.Anyone, task.ID); err != nil {
			t.Errorf("the operator: %v", err)
		}
		w.is(task.ID, record.Failed)
		w.has(1000, 0)
	})
}

func TestAReloadLosesNoTaskAndDuplicatesNoPoll(t *testing.T) {
	in(t, func(w *world) {
		w.credit("user_bob", 1_000_000)
		w.serve(func(c *Config) { c.Unfinished, c.Backends[0].MaxRunning = 1000, 0 })
		var ids []string
		for range 300 {
			ids = append(ids, w.must(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey })).ID)
		}
		asked := make(map[string]int)
		w.service.set(func(s *mockService) {
			s.poll = func(j *work) (backends.Status, error) {
				s.mu.Lock()
				asked[j.token]++
				if asked[j.token] > 1 {
					t.Error("two ask at once")
				}
				s.mu.Unlock()
				time.Sleep(500 * time.Millisecond)
				s.mu.Lock()
				asked[j.token]--
				s.mu.Unlock()
				return backends.Status{State: backends.Running}, nil
			}
		})
		for range 20 {
			w.sleep(3 * time.Second)
			w.serve(func(c *Config) { c.Backends[0].PollsPerSecond = 100 })
		}
		w.service.succeed(1)
		w.sleep(time.Minute)
		for _, id := range ids {
			if task, err := w.Get(w.t.Context(), record.OfUser("user_bob"), id); err != nil || task.Status != record.Success {
				t.Fatalf("%+v, %v", task, err)
			}
		}
	})
}

func TestAResultAfterTheLeaseDoesNotCount(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		slow := make(chan struct{})
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.set(func(s *mockService) { s.poll = nil })
				close(slow)
				time.Sleep(transition.LeaseFor + 30*time.Second) // the adapter ignores its context
				return failed(backends.ModelFailed), nil
			}
		})
		<-slow
		w.sleep(transition.LeaseFor + 10*time.Second)
		w.is(task.ID, record.InProgress) // another engine has claimed the task
		w.sleep(time.Minute)
		w.is(task.ID, record.InProgress)
		w.has(1000, 100)
		w.service.tells(task.ID, succeeded(1))
		w.until(task.ID, record.Success, time.Minute)
	})
}

func TestTwoDriversAndTheDeadline(t *testing.T) {
	t.Parallel()
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			in(t, func(w *world) {
				w.listen()
				w.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
				other := Open(w.store, w.ledger, Options{})
				if err := other.Serve(w.config); err != nil {
					t.Fatal(err)
				}
				asking := make(map[string]bool)
				w.service.set(func(s *mockService) {
					s.poll = func(j *work) (backends.Status, error) {
						s.mu.Lock()
						if asking[j.token] {
							t.Error("both ask at once")
						}
						asking[j.token] = true
						s.mu.Unlock()
						time.Sleep(100 * time.Millisecond)
						s.mu.Lock()
						asking[j.token] = false
						s.mu.Unlock()
						if j.token[round%len(j.token)]%2 == 0 && w.now()%3 == 0 {
							return succeeded(1), nil
						}
						return backends.Status{State: backends.Running, RetryAfter: transition.MaxPause}, nil
					}
				})
				var ids []string
				for range 6 {
					ids = append(ids, w.must(video()).ID)
				}
				w.sleep(transition.SubmissionLife + time.Minute)
				charged := 0
				for _, id := range ids {
					if task := w.get(id); task.Status == record.Success {
						charged += 100
					} else if task.Status != record.Failed {
						t.Errorf("%+v", task)
					}
				}
				synctest.Wait()
				ids2 := make(map[string]int)
				for _, got := range w.hooks.requests() {
					ids2[got.header.Get("Webhook-Id")]++
				}
				if len(ids2) != len(ids) || len(w.hooks.requests()) != len(ids) {
					t.Errorf("callbacks: %v", ids2)
				}
				if jobs, twice := w.service.accepted(); twice > 1 || jobs > len(ids) {
					t.Errorf("%d jobs, one up to %d times", jobs, twice)
				}
				w.has(1000-moneyOf(charged), 0)
				other.Close(context.Background())
			})
		})
	}
}

func TestANewTaskDoesNotOvertakeTheQueue(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		if err := w.Drain(w.t.Context(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		first := w.must(video())
		// A slot is free, but the driver was not nudged.
		if err := w.store.Update(context.Background(), func(t storage.Txn) error {
			l, err := record.ReadLoad(t, "works")
			l.Drained = false
			return errors.Join(err, l.Write(t, "works"))
		}); err != nil {
			t.Fatal(err)
		}
		second := w.must(video())
		w.sleep(10 * time.Second)
		w.is(first.ID, record.InProgress)
		w.is(second.ID, record.Queued)
	})
}
