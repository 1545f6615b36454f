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
	in(t, func(w *world) {
		var at []time.Duration
		began := time.Now()
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				at = append(at, time.Since(began))
				return backends.Status{State: backends.Running}, nil
			}
		})
		w.must(video())
		w.sleep(20 * time.Minute)
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
		answer func() (backends.Status, error)
		least  time.Duration
		most   time.Duration
	}{
		"with a state": {func() (backends.Status, error) {
			return backends.Status{State: backends.Running, RetryAfter: time.Minute}, nil
		}, time.Minute, 61 * time.Second},
		"with an error": {func() (backends.Status, error) {
			return backends.Status{}, &backends.Error{Kind: backends.Busy, RetryAfter: 40 * time.Second}
		}, 40 * time.Second, 73 * time.Second},
		"for ever": {func() (backends.Status, error) {
			return backends.Status{State: backends.Running, RetryAfter: 1000 * time.Hour}, nil
		}, transition.MaxPause, transition.MaxPause + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				var at []time.Time
				w.service.set(func(s *mockService) {
					s.poll = func(*work) (backends.Status, error) { at = append(at, time.Now()); return row.answer() }
				})
				w.must(video())
				w.sleep(30 * time.Minute)
				for i := 1; i < len(at); i++ {
					if gap := at[i].Sub(at[i-1]); gap < row.least || gap > row.most {
						t.Errorf("asked again after %v", gap)
					}
				}
				if len(at) < 3 {
					t.Errorf("asked %d times", len(at))
				}
			})
		})
	}
}

func TestAnUnknownStatusChangesNothing(t *testing.T) {
	in(t, func(w *world) {
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{State: backends.Unknown, Word: "defragmenting"}, nil
			}
		})
		task := w.must(video())
		w.sleep(time.Hour)
		task = w.is(task.ID, record.Queued)
		if task.Detail.UnknownStatus != "defragmenting" || w.Stats().UnknownStatuses < 100 {
			t.Errorf("%+v, %+v", task.Detail, w.Stats())
		}
		w.has(1000, 100)
		w.service.succeed(1)
		w.until(task.ID, record.Success, time.Minute)
		w.has(900, 0)
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
		"a state beside an error": func(*work) (backends.Status, error) {
			return backends.Status{State: backends.Failed}, errors.New("cut")
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				task := w.must(video())
				w.until(task.ID, record.InProgress, time.Minute)
				w.service.set(func(s *mockService) { s.poll = poll })
				before := w.service.polled(task.ID)
				w.sleep(time.Hour)
				w.is(task.ID, record.InProgress)
				if n := w.service.polled(task.ID) - before; n < 50 || n > 200 {
					t.Errorf("asked %d times in an hour", n)
				}
				w.service.succeed(1)
				w.until(task.ID, record.Success, 2*time.Minute)
			})
		})
	}
}

func TestAJobThatStaysGoneFails(t *testing.T) {
	in(t, func(w *world) {
		gone := func(*work) (backends.Status, error) { return backends.Status{}, &backends.Error{Kind: backends.Gone} }
		task := w.must(video())
		w.until(task.ID, record.InProgress, time.Minute)
		w.service.set(func(s *mockService) { s.poll = gone })
		w.sleep(9 * time.Minute)
		w.service.set(func(s *mockService) { s.poll = nil }) // it is there again
		w.sleep(2 * time.Minute)
		w.service.set(func(s *mockService) { s.poll = gone })
		w.sleep(9 * time.Minute)
		w.is(task.ID, record.InProgress)
		w.sleep(4 * time.Minute)
		if task = w.is(task.ID, record.Failed); task.Error.Reason != backends.UpstreamError {
			t.Errorf("failed of %+v", task.Error)
		}
		w.has(1000, 0)
	})
}

func TestStatesGoForwardOnly(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.until(task.ID, record.InProgress, time.Minute)
		for _, status := range []backends.Status{
			{State: backends.Queued}, {State: backends.Running, Progress: 10}, {State: backends.Running, Progress: -3}, {State: backends.Unknown},
		} {
			w.service.tells(task.ID, status)
			w.sleep(20 * time.Second)
			if task := w.is(task.ID, record.InProgress); task.Progress != "50%" {
				t.Errorf("after %+v it is at %s", status, task.Progress)
			}
		}
		w.service.tells(task.ID, backends.Status{State: backends.Running, Progress: 4000})
		w.sleep(20 * time.Second)
		if task := w.get(task.ID); task.Progress != "99%" {
			t.Errorf("a running task is at %s", task.Progress)
		}
		w.service.tells(task.ID, succeeded(1))
		w.until(task.ID, record.Success, time.Minute)
		w.service.tells(task.ID, failed(backends.ModelFailed))
		w.sleep(time.Hour)
		w.is(task.ID, record.Success)
	})
}

func TestATaskTimesOutAfterADayAtItsBackend(t *testing.T) {
	in(t, func(w *world) {
		w.listen()
		task := w.must(video())
		w.sleep(record.JobLife - time.Second)
		w.is(task.ID, record.InProgress)
		w.sleep(2 * time.Second)
		if task = w.is(task.ID, record.Failed); task.Error.Reason != backends.TaskTimeout {
			t.Errorf("failed of %+v", task.Error)
		}
		w.has(1000, 0)
		// The job succeeds later: the user is not charged, and gets no second callback.
		w.service.tells(task.ID, succeeded(1))
		w.sleep(2 * transition.WatchEvery)
		if task = w.is(task.ID, record.Failed); task.Detail.Loss == "" || task.Error.Reason != backends.TaskTimeout {
			t.Errorf("the loss is not reported: %+v", task)
		}
		if rec := w.record(task.ID); rec.Loss == "" || rec.Due != 0 || w.Stats().Losses != 1 {
			t.Errorf("the loss is not recorded: %+v", rec)
		}
		w.has(1000, 0)
		if got := w.hooks.requests(); len(got) != 1 {
			t.Errorf("%d callbacks", len(got))
		}
	})
}

func TestATimedOutTaskIsCancelledIfTheBackendCan(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].Backend = cancelling{w.service} })
		task := w.must(video())
		w.sleep(record.JobLife + time.Second)
		w.is(task.ID, record.Failed)
		if !w.service.jobs[backends.Token(task.ID)].cancelled || w.record(task.ID).Due != 0 {
			t.Error("the job runs on, or is watched")
		}
	})
}

func TestASuccessAtTheDeadlineIsASuccess(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.sleep(record.JobLife - 20*time.Second)
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				if w.now() < w.record(task.ID).Deadline {
					return backends.Status{State: backends.Running}, nil
				}
				return succeeded(1), nil
			}
		})
		w.sleep(time.Minute)
		w.is(task.ID, record.Success)
		w.has(900, 0)
	})
}

func TestATaskThatIsNeverSentTimesOutAfterThreeDays(t *testing.T) {
	in(t, func(w *world) {
		if err := w.Drain(w.t.Context(), "operator", "works"); err != nil {
			t.Fatal(err)
		}
		task := w.must(video())
		w.sleep(transition.SubmissionLife - time.Second)
		w.is(task.ID, record.Queued)
		w.sleep(2 * time.Second)
		w.is(task.ID, record.Failed)
		w.has(1000, 0)
		if jobs, _ := w.service.accepted(); jobs != 0 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

func TestTheDeadlineIsNeverAfterThreeDays(t *testing.T) {
	in(t, func(w *world) {
		if err := w.Drain(w.t.Context(), "operator", "works"); err != nil {
			t.Fatal(err)
		}
		task := w.must(video())
		w.sleep(transition.SubmissionLife - time.Hour)
		if err := w.Enable(w.t.Context(), "operator", "works"); err != nil {
			t.Fatal(err)
		}
		w.sleep(59 * time.Minute)
		w.is(task.ID, record.InProgress)
		w.sleep(2 * time.Minute)
		w.is(task.ID, record.Failed)
	})
}

func TestPollsPerSecondAreLimited(t *testing.T) {
	in(t, func(w *world) {
		w.credit("user_bob", 1_000_000)
		w.serve(func(c *Config) { c.Unfinished, c.Backends[0].MaxRunning, c.Backends[0].PollsPerSecond = 1000, 0, 10 })
		perSecond := make(map[int64]int)
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				perSecond[time.Now().Unix()]++
				return backends.Status{State: backends.Running}, nil
			}
		})
		for range 200 {
			w.must(with(func(s *Submission) { s.Payer.User, s.Key = "user_bob", bobKey }))
		}
		w.sleep(2 * time.Minute)
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
	in(t, func(w *world) {
		task := w.must(video())
		w.sleep(10 * time.Minute)
		before := w.service.polled(task.ID)
		for _, ref := range []string{"unknown-job", "", "job-" + backends.Token(task.ID)} {
			if err := w.Wake(w.t.Context(), "works", ref); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Wake(w.t.Context(), "a/b", "x"); err != nil {
			t.Fatal(err)
		}
		w.sleep(1100 * time.Millisecond)
		if n := w.service.polled(task.ID) - before; n != 1 {
			t.Fatalf("polled %d times after the wake-up", n)
		}
		// A flood of them is not a flood of polls.
		for range 100 {
			_ = w.Wake(w.t.Context(), "works", "job-"+backends.Token(task.ID))
			w.sleep(10 * time.Millisecond)
		}
		if n := w.service.polled(task.ID) - before; n > 3 {
			t.Errorf("polled %d times in 2 s", n)
		}
		w.is(task.ID, record.InProgress)
	})
}

func TestAWakeDuringAPollIsNotLost(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.sleep(10 * time.Minute)
		var at []time.Time
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.mu.Lock()
				at = append(at, time.Now())
				first := len(at) == 1
				s.mu.Unlock()
				if first {
					time.Sleep(time.Second)
					if err := w.Wake(context.Background(), "works", "job-"+backends.Token(task.ID)); err != nil {
						t.Error(err)
					}
				}
				return backends.Status{State: backends.Running}, nil
			}
		})
		w.sleep(40 * time.Second)
		w.service.set(func(*mockService) {
			if len(at) < 2 || at[1].Sub(at[0]) > 3*time.Second {
				t.Errorf("polled at %v", at)
			}
		})
	})
}

// An unlimited list would not fit into the transaction that ends the task.
func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		asked int64
		made  int
		want  int
	}{{1, 16, 16}, {1, 17, 16}, {1, 20000, 16}, {100, 100, 100}, {100, 20000, 100}} {
		for keeps := range 2 {
			t.Run(fmt.Sprintf("%d asked for, %d made, keeper %d", row.asked, row.made, keeps), func(t *testing.T) {
				in(t, func(w *world) {
					w.listen()
					if keeps == 1 {
						w.serve(func(c *Config) { c.Keeper = newMockKeeper() })
					}
					w.service.succeed(row.made)
					task := w.must(with(func(s *Submission) { s.Quote.Asked.Count = row.asked }))
					task = w.until(task.ID, record.Success, time.Minute)
					if len(task.Result.URLs) != row.want {
						t.Errorf("it has %d results", len(task.Result.URLs))
					}
					w.has(900, 0)
				})
			})
		}
	}
}
