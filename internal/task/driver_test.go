package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

func TestPollIntervalsGrowWithAge(t *testing.T) {
	withFixture(t, func(f *fixture) {
		var at []time.Duration
		began := time.Now()
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				at = append(at, time.Since(began))
				return backends.Status{State: backends.Running}, nil
			}
		})
		f.mustSubmit(video())
		f.sleep(20 * time.Minute)
		for i := 1; i < len(at); i++ {
			gap, want := at[i]-at[i-1], 15*time.Second
			switch {
			case at[i-1] < 30*time.Second:
				want = 2 * time.Second
			case at[i-1] < 5*time.Minute:
				want = 5 * time.Second
			}
			if gap < want*4/5 || gap > want*6/5+10*time.Millisecond {
				t.Errorf("at %v the next poll came after %v, want about %v", at[i-1], gap, want)
			}
		}
		if len(at) < 100 || slices.Max(gaps(at)) == slices.Min(gaps(at)) {
			t.Errorf("%d polls without jitter", len(at))
		}
	})
}

func gaps(at []time.Duration) (all []time.Duration) {
	for i := 1; i < len(at); i++ {
		all = append(all, at[i]-at[i-1])
	}
	return all
}

func TestRetryAfterOfAPollIsHonored(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer  func() (backends.Status, error)
		atLeast time.Duration
		atMost  time.Duration
	}{
		"with a state": {func() (backends.Status, error) {
			return backends.Status{State: backends.Running, RetryAfter: time.Minute}, nil
		}, time.Minute, 61 * time.Second},
		"with an error": {func() (backends.Status, error) {
			return backends.Status{}, &backends.Error{Kind: backends.Busy, RetryAfter: 40 * time.Second}
		}, 40 * time.Second, 73 * time.Second},
		"of 1000 hours": {func() (backends.Status, error) {
			return backends.Status{State: backends.Running, RetryAfter: 1000 * time.Hour}, nil
		}, transition.MaxPause, transition.MaxPause + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				var at []time.Time
				f.service.set(func(s *mockService) {
					s.poll = func(*work) (backends.Status, error) { at = append(at, time.Now()); return row.answer() }
				})
				f.mustSubmit(video())
				f.sleep(30 * time.Minute)
				for i := 1; i < len(at); i++ {
					if gap := at[i].Sub(at[i-1]); gap < row.atLeast || gap > row.atMost {
						t.Errorf("the next poll came after %v", gap)
					}
				}
				if len(at) < 3 {
					t.Errorf("%d polls", len(at))
				}
			})
		})
	}
}

func TestAnUnknownStatusChangesNothing(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{State: backends.Unknown, Word: "defragmenting"}, nil
			}
		})
		task := f.mustSubmit(video())
		f.sleep(time.Hour)
		task = f.wantStatus(task.ID, record.Queued)
		if task.Detail.UnknownStatus != "defragmenting" || f.Stats().UnknownStatuses < 100 {
			t.Errorf("%+v, %+v", task.Detail, f.Stats())
		}
		f.checkWallet(1000, 100)
		f.service.succeed(1)
		f.waitStatus(task.ID, record.Success, time.Minute)
		f.checkWallet(900, 0)
	})
}

func TestPollErrorsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]func(*work) (backends.Status, error){
		"refused": func(*work) (backends.Status, error) {
			return backends.Status{}, &backends.Error{Kind: backends.Refused}
		},
		"busy":        func(*work) (backends.Status, error) { return backends.Status{}, &backends.Error{Kind: backends.Busy} },
		"unconfirmed": func(*work) (backends.Status, error) { return backends.Status{}, errors.New("cut") },
		"a panic":     func(*work) (backends.Status, error) { panic("bug") },
		"a success without results": func(*work) (backends.Status, error) {
			return backends.Status{State: backends.Succeeded}, nil
		},
		"a state with an error": func(*work) (backends.Status, error) {
			return backends.Status{State: backends.Failed}, errors.New("cut")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				task := f.mustSubmit(video())
				f.waitStatus(task.ID, record.InProgress, time.Minute)
				f.service.set(func(s *mockService) { s.poll = poll })
				before := f.service.polled(task.ID)
				f.sleep(time.Hour)
				f.wantStatus(task.ID, record.InProgress)
				if n := f.service.polled(task.ID) - before; n < 50 || n > 200 {
					t.Errorf("%d polls in an hour", n)
				}
				f.service.succeed(1)
				f.waitStatus(task.ID, record.Success, 2*time.Minute)
			})
		})
	}
}

func TestAJobThatStaysGoneFails(t *testing.T) {
	withFixture(t, func(f *fixture) {
		gone := func(*work) (backends.Status, error) { return backends.Status{}, &backends.Error{Kind: backends.Gone} }
		task := f.mustSubmit(video())
		f.waitStatus(task.ID, record.InProgress, time.Minute)
		f.service.set(func(s *mockService) { s.poll = gone })
		f.sleep(9 * time.Minute)
		f.service.set(func(s *mockService) { s.poll = nil }) // the service knows the job again
		f.sleep(2 * time.Minute)
		f.service.set(func(s *mockService) { s.poll = gone })
		f.sleep(9 * time.Minute)
		f.wantStatus(task.ID, record.InProgress)
		f.sleep(4 * time.Minute)
		if task = f.wantStatus(task.ID, record.Failed); task.Error.Reason != backends.UpstreamError {
			t.Errorf("the error is %+v", task.Error)
		}
		f.checkWallet(1000, 0)
	})
}

func TestStatesGoForwardOnly(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.waitStatus(task.ID, record.InProgress, time.Minute)
		for _, status := range []backends.Status{
			{State: backends.Queued}, {State: backends.Running, Progress: 10}, {State: backends.Running, Progress: -3}, {State: backends.Unknown},
		} {
			f.service.setStatus(task.ID, status)
			f.sleep(20 * time.Second)
			if task := f.wantStatus(task.ID, record.InProgress); task.Progress != "50%" {
				t.Errorf("after %+v the progress is %s", status, task.Progress)
			}
		}
		f.service.setStatus(task.ID, backends.Status{State: backends.Running, Progress: 4000})
		f.sleep(20 * time.Second)
		if task := f.get(task.ID); task.Progress != "99%" {
			t.Errorf("the progress of a running task is %s", task.Progress)
		}
		f.service.setStatus(task.ID, succeeded(1))
		f.waitStatus(task.ID, record.Success, time.Minute)
		f.service.setStatus(task.ID, failed(backends.ModelFailed))
		f.sleep(time.Hour)
		f.wantStatus(task.ID, record.Success)
	})
}

func TestATaskTimesOutAfterADayAtItsBackend(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		task := f.mustSubmit(video())
		f.sleep(record.JobLife - time.Second)
		f.wantStatus(task.ID, record.InProgress)
		f.sleep(2 * time.Second)
		if task = f.wantStatus(task.ID, record.Failed); task.Error.Reason != backends.TaskTimeout {
			t.Errorf("the error is %+v", task.Error)
		}
		f.checkWallet(1000, 0)
		// The job succeeds later: the user is not charged, and gets no second callback.
		f.service.setStatus(task.ID, succeeded(1))
		f.sleep(2 * transition.WatchEvery)
		if task = f.wantStatus(task.ID, record.Failed); task.Detail.Loss == "" || task.Error.Reason != backends.TaskTimeout {
			t.Errorf("the loss is not reported: %+v", task)
		}
		if rec := f.record(task.ID); rec.Loss == "" || rec.Due != 0 || f.Stats().Losses != 1 {
			t.Errorf("the loss is not recorded: %+v", rec)
		}
		f.checkWallet(1000, 0)
		if got := f.hooks.requests(); len(got) != 1 {
			t.Errorf("%d callbacks", len(got))
		}
	})
}

func TestATimedOutTaskIsCancelledIfTheBackendCan(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].Backend = cancelling{f.service} })
		task := f.mustSubmit(video())
		f.sleep(record.JobLife + time.Second)
		f.wantStatus(task.ID, record.Failed)
		if !f.service.jobs[backends.Token(task.ID)].cancelled || f.record(task.ID).Due != 0 {
			t.Error("the job was not cancelled, or is still polled")
		}
	})
}

func TestASuccessAtTheDeadlineIsASuccess(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.sleep(record.JobLife - 20*time.Second)
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				if f.now() < f.record(task.ID).Deadline {
					return backends.Status{State: backends.Running}, nil
				}
				return succeeded(1), nil
			}
		})
		f.sleep(time.Minute)
		f.wantStatus(task.ID, record.Success)
		f.checkWallet(900, 0)
	})
}

func TestATaskThatIsNeverSentTimesOutAfterThreeDays(t *testing.T) {
	withFixture(t, func(f *fixture) {
		if err := f.Drain(f.t.Context(), "operator", "works"); err != nil {
			t.Fatal(err)
		}
		task := f.mustSubmit(video())
		f.sleep(transition.SubmissionLife - time.Second)
		f.wantStatus(task.ID, record.Queued)
		f.sleep(2 * time.Second)
		f.wantStatus(task.ID, record.Failed)
		f.checkWallet(1000, 0)
		if jobs, _ := f.service.accepted(); jobs != 0 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

func TestTheDeadlineIsNeverAfterThreeDays(t *testing.T) {
	withFixture(t, func(f *fixture) {
		if err := f.Drain(f.t.Context(), "operator", "works"); err != nil {
			t.Fatal(err)
		}
		task := f.mustSubmit(video())
		f.sleep(transition.SubmissionLife - time.Hour)
		if err := f.Enable(f.t.Context(), "operator", "works"); err != nil {
			t.Fatal(err)
		}
		f.sleep(59 * time.Minute)
		f.wantStatus(task.ID, record.InProgress)
		f.sleep(2 * time.Minute)
		f.wantStatus(task.ID, record.Failed)
	})
}

func TestPollsPerSecondAreLimited(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.credit("user_bob", 1_000_000)
		f.serve(func(c *Config) { c.Unfinished, c.Backends[0].MaxRunning, c.Backends[0].PollsPerSecond = 1000, 0, 10 })
		perSecond := make(map[int64]int)
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				perSecond[time.Now().Unix()]++
				return backends.Status{State: backends.Running}, nil
			}
		})
		for range 200 {
			f.mustSubmit(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey }))
		}
		f.sleep(2 * time.Minute)
		total := 0
		for second, n := range perSecond {
			total += n
			if n > 20 {
				t.Errorf("%d polls in second %d", n, second)
			}
		}
		if total < 1100 || total > 1220 {
			t.Errorf("%d polls in two minutes, at 10 a second", total)
		}
	})
}

func TestWakeBringsThePollForward(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.sleep(10 * time.Minute)
		before := f.service.polled(task.ID)
		for _, ref := range []string{"unknown-job", "", "job-" + backends.Token(task.ID)} {
			if err := f.Wake(f.t.Context(), "works", ref); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Wake(f.t.Context(), "a/b", "x"); err != nil {
			t.Fatal(err)
		}
		f.sleep(1100 * time.Millisecond)
		if n := f.service.polled(task.ID) - before; n != 1 {
			t.Fatalf("polled %d times after the wake-up", n)
		}
		// Many webhooks do not cause many polls.
		for range 100 {
			_ = f.Wake(f.t.Context(), "works", "job-"+backends.Token(task.ID))
			f.sleep(10 * time.Millisecond)
		}
		if n := f.service.polled(task.ID) - before; n > 3 {
			t.Errorf("polled %d times in 2 s", n)
		}
		f.wantStatus(task.ID, record.InProgress)
	})
}

func TestAWakeDuringAPollIsNotLost(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.sleep(10 * time.Minute)
		var at []time.Time
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.mu.Lock()
				at = append(at, time.Now())
				first := len(at) == 1
				s.mu.Unlock()
				if first {
					time.Sleep(time.Second)
					if err := f.Wake(context.Background(), "works", "job-"+backends.Token(task.ID)); err != nil {
						t.Error(err)
					}
				}
				return backends.Status{State: backends.Running}, nil
			}
		})
		f.sleep(40 * time.Second)
		f.service.set(func(*mockService) {
			if len(at) < 2 || at[1].Sub(at[0]) > 3*time.Second {
				t.Errorf("polled at %v", at)
			}
		})
	})
}

// TestResultsAreBounded checks the maximum number of results: an unlimited list would not fit into
// the transaction that ends the task.
func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		requested int64
		delivered int
		want      int
	}{{1, 16, 16}, {1, 17, 16}, {1, 20000, 16}, {100, 100, 100}, {100, 20000, 100}} {
		for keeps := range 2 {
			t.Run(fmt.Sprintf("%d requested, %d delivered, keeper %d", row.requested, row.delivered, keeps), func(t *testing.T) {
				withFixture(t, func(f *fixture) {
					f.listen()
					if keeps == 1 {
						f.serve(func(c *Config) { c.Keeper = newMockKeeper() })
					}
					f.service.succeed(row.delivered)
					task := f.mustSubmit(with(func(s *Submission) { s.Quote.Asked.Count = row.requested }))
					task = f.waitStatus(task.ID, record.Success, time.Minute)
					if len(task.Result.URLs) != row.want {
						t.Errorf("the task has %d results", len(task.Result.URLs))
					}
					f.checkWallet(900, 0)
				})
			})
		}
	}
}
