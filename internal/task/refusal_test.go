package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

var (
	tooMany   = &backends.Error{Kind: backends.Busy, Reason: backends.UpstreamBusy, Status: 429, Message: "busy"}
	forbidden = &backends.Error{Kind: backends.Refused, Reason: backends.UpstreamError, Status: 403, Message: "no"}
	unpaid    = &backends.Error{Kind: backends.Refused, Reason: backends.UpstreamError, Status: 402, Message: "no"}
)

// submissions has the times of submissions, by prompt.
type submissions struct {
	mu sync.Mutex
	at map[string][]time.Time
}

// of returns the times of one prompt.
func (s *submissions) of(prompt string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at[prompt])
}

// total returns the number of submissions of all prompts.
func (s *submissions) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.at {
		n += len(at)
	}
	return n
}

// refuses makes the service refuse jobs with a prompt that begins with "no". It returns the
// times of all submissions.
func (s *mockService) refuses(with error) *submissions {
	sent := &submissions{at: make(map[string][]time.Time)}
	s.set(func(s *mockService) {
		s.submit = func(job backends.Job) error {
			sent.mu.Lock()
			defer sent.mu.Unlock()
			sent.at[job.Prompt] = append(sent.at[job.Prompt], time.Now())
			if strings.HasPrefix(job.Prompt, "no") {
				return with
			}
			return nil
		}
	})
	return sent
}

// of returns the submission of another user.
func (s Submission) of(user string) Submission {
	s.Payer.User, s.Key = "user_"+user, "key_"+user
	return s
}

func prompted(format string, args ...any) Submission {
	return with(func(s *Submission) { s.Job.Prompt, s.Quote = fmt.Sprintf(format, args...), flat(1) })
}

// pauses are the minimum pauses after refusals of a task in a row (docs/reference/tasks.md).
var pauses = []time.Duration{0, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

func TestARepeatedlyRefusedTaskDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		refusal    *backends.Error
		retryAfter time.Duration
		refused    int           // number of refused tasks
		within     time.Duration // time until the backend has all other tasks
		reason     backends.Reason
	}{
		"429":                  {refusal: tooMany, refused: 1, within: 10 * time.Second, reason: backends.UpstreamBusy},
		"429 with Retry-After": {refusal: tooMany, retryAfter: 20 * time.Second, refused: 1, within: 40 * time.Second, reason: backends.UpstreamBusy},
		"403":                  {refusal: forbidden, refused: 1, within: 20 * time.Second, reason: backends.UpstreamError},
		"429 of several tasks": {refusal: tooMany, refused: 5, within: 5 * time.Minute, reason: backends.UpstreamBusy},
		"403 of many tasks":    {refusal: forbidden, refused: 12, within: 10 * time.Minute, reason: backends.UpstreamError},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = 100 })
				refusal := *row.refusal
				refusal.RetryAfter = row.retryAfter
				sent := f.service.refuses(&refusal)
				var refused, accepted []string
				for n := range row.refused {
					refused = append(refused, f.mustSubmit(prompted("no %d", n)).ID)
				}
				for n := range 55 {
					accepted = append(accepted, f.mustSubmit(prompted("yes %d", n)).ID)
				}
				f.sleep(row.within)
				for _, id := range accepted {
					if now := f.record(id); now.Delivery != record.Accepted {
						t.Fatalf("after %v another task is %+v", row.within, now)
					}
				}
				if l := f.load(); int(l.Waiting) != row.refused || int(l.Deferred) > row.refused {
					t.Errorf("the backend has %+v", l)
				}
				f.sleep(20*time.Minute - row.within)
				for _, id := range refused {
					f.wantStatus(id, record.Queued)
				}
				f.sleep(22 * time.Minute)
				for n, id := range refused {
					end := f.wantStatus(id, record.Failed)
					if end.Error.Reason != row.reason || end.Error.Message == "" {
						t.Errorf("the error is %+v", end.Error)
					}
					at := sent.of(fmt.Sprintf("no %d", n))
					if len(at) < 3 || len(at) > 50 {
						t.Errorf("the job was submitted %d times", len(at))
					}
					for i := 1; i < len(at); i++ {
						if minimum := pauses[min(i-1, len(pauses)-1)]*4/5 - time.Millisecond; at[i].Sub(at[i-1]) < minimum {
							t.Errorf("submission %d was sent %v after the previous one, want at least %v", i+1, at[i].Sub(at[i-1]), minimum)
						}
					}
				}
				f.checkWallet(1000, 55)
			})
		})
	}
}

// TestForbiddenTasksOfOneUserDoNotDelayOthers checks that tasks of one user that are refused with
// 403 do not delay tasks of another user. A 403 may concern only the job.
func TestForbiddenTasksOfOneUserDoNotDelayOthers(t *testing.T) {
	for name, slow := range map[string]time.Duration{"refused at once": 0, "refused after a while": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = 100 })
				f.credit("user_bob", 1000)
				sent := f.service.refuses(forbidden)
				f.service.set(func(s *mockService) {
					s.hold = func(_ context.Context, job backends.Job) {
						if strings.HasPrefix(job.Prompt, "no") {
							time.Sleep(slow)
						}
					}
				})
				for n := range 20 {
					f.mustSubmit(prompted("no %d", n))
				}
				for n := range 20 {
					begun := time.Now()
					task := f.mustSubmit(prompted("yes %d", n).of("bob"))
					for f.record(task.ID).Delivery != record.Accepted && time.Since(begun) < time.Minute {
						f.sleep(100 * time.Millisecond)
					}
					if elapsed := time.Since(begun); elapsed > time.Second {
						t.Fatalf("the task of another user was accepted after %v", elapsed)
					}
					f.sleep(time.Second)
				}
				if all, err := f.Backends(context.Background()); err != nil || all[0].Busy {
					t.Errorf("%+v, %v", all, err)
				}
				if total := sent.total() - 20; total > 50 {
					t.Errorf("%d submissions were refused", total)
				}
				f.service.succeed(1)
				f.sleep(2 * time.Hour) // each refused task fails 30 minutes after its first refusal
				f.checkWallet(1000, 0)
			})
		})
	}
}

// TestAThirdUserIsServedWhileTheAccountIsSuspected refuses tasks of two users with 403 and
// accepts tasks of a third user.
func TestAThirdUserIsServedWhileTheAccountIsSuspected(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 100 })
		f.credit("user_bob", 1000)
		f.credit("user_cid", 1000)
		f.service.refuses(forbidden)
		for n := range 20 {
			f.mustSubmit(prompted("no %d", n))
			f.mustSubmit(prompted("no %d", n).of("bob"))
		}
		for n := range 5 {
			f.sleep(3 * time.Minute) // their pauses have reached the maximum
			begun := time.Now()
			task := f.mustSubmit(prompted("yes %d", n).of("cid"))
			for f.record(task.ID).Delivery != record.Accepted && time.Since(begun) < time.Minute {
				f.sleep(100 * time.Millisecond)
			}
			if elapsed := time.Since(begun); elapsed > 5*time.Second {
				t.Fatalf("the task of a third user was accepted after %v", elapsed)
			}
		}
	})
}

// TestARefusalOfTheAccountFailsNoTask lets the backend refuse all tasks. The log must have an
// error.
func TestARefusalOfTheAccountFailsNoTask(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		refusal *backends.Error
		tasks   int
		users   []string
	}{
		"402 of one task": {unpaid, 1, nil}, "402 of all": {unpaid, 3, nil}, "403 of all": {forbidden, 4, []string{"bob", "cid"}},
	} {
		t.Run(name, func(t *testing.T) {
			withLog(t, func(f *fixture, log *observer.ObservedLogs) {
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = 100 })
				sent := f.service.refuses(row.refusal)
				var ids []string
				for n := range row.tasks {
					ids = append(ids, f.mustSubmit(prompted("no %d", n)).ID)
					for _, user := range row.users {
						if n == 0 {
							f.credit("user_"+user, 1000)
						}
						f.mustSubmit(prompted("no %s %d", user, n).of(user))
					}
				}
				f.sleep(time.Minute)
				if total := sent.total(); total > 10*(1+len(row.users)) {
					t.Errorf("%d submissions in the first minute", total)
				}
				f.sleep(10 * time.Hour)
				if total := sent.total(); total > 10*60*2*(1+len(row.users)) {
					t.Errorf("%d submissions in 10 hours", total)
				}
				if log.FilterLevelExact(zapcore.ErrorLevel).FilterMessageSnippet("does not accept the gateway's account").Len() == 0 {
					t.Error("the log has no error")
				}
				f.service.set(func(s *mockService) { s.submit = nil })
				f.sleep(3 * time.Minute)
				for _, id := range ids {
					f.wantStatus(id, record.InProgress)
				}
			})
		})
	}
}

func TestATaskThatIsRefusedAloneFailsAfterTheBusyTimeout(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*backends.Error{tooMany, forbidden} {
		t.Run(fmt.Sprint(refusal.Status), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.serve(func(c *Config) { c.Backends[0].BusyTimeout = 5 * time.Minute })
				f.service.refuses(refusal)
				task := f.mustSubmit(prompted("no"))
				f.sleep(5*time.Minute - time.Second)
				f.wantStatus(task.ID, record.Queued)
				f.checkWallet(1000, 1)
				f.sleep(90 * time.Second) // the task fails at the end of its current pause
				f.wantStatus(task.ID, record.Failed)
				f.checkWallet(1000, 0)
			})
		})
	}
}

// TestADeferredTaskSurvivesAKill checks that the pause, the count and the times are in the store.
func TestADeferredTaskSurvivesAKill(t *testing.T) {
	withFixture(t, func(f *fixture) {
		sent := f.service.refuses(tooMany)
		task := f.mustSubmit(prompted("no"))
		for range 29 {
			f.sleep(time.Minute)
			f.kill()
			f.start()
			f.wantStatus(task.ID, record.Queued)
		}
		if n := len(sent.of("no")); n > 60 {
			t.Errorf("the job was submitted %d times", n)
		}
		f.sleep(2 * time.Minute)
		f.wantStatus(task.ID, record.Failed)
		if jobs, _ := f.service.accepted(); jobs != 0 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

func TestADeferredTaskIsCancelledRetriedAndDrained(t *testing.T) {
	withFixture(t, func(f *fixture) {
		sent := f.service.refuses(&backends.Error{Kind: backends.Busy, Status: 429, RetryAfter: 5 * time.Minute})
		one, two := f.mustSubmit(prompted("no 1")), f.mustSubmit(prompted("no 2"))
		f.sleep(time.Second)
		all, err := f.Backends(context.Background())
		if err != nil || all[0].Waiting != 2 || all[0].Deferred != 1 || !all[0].Busy {
			t.Fatalf("%+v, %v", all, err)
		}
		if _, err := f.Cancel(context.Background(), record.OfKey(annKey), one.ID); err != nil {
			t.Error(err)
		}
		f.checkWallet(1000, 1)
		f.sleep(5*time.Minute + 10*time.Second) // the second task is deferred now
		f.service.set(func(s *mockService) { s.submit = nil })
		before := len(sent.of("no 2"))
		if _, err := f.Retry(context.Background(), "root", two.ID); err != nil {
			t.Error(err)
		}
		f.sleep(6 * time.Minute)
		f.wantStatus(two.ID, record.InProgress)
		if len(sent.of("no 2")) != before {
			t.Error("the task was refused again")
		}
	})
}

// TestSearchesForAnUnknownDeliveryAreLimited checks the number of searches. At many services a
// search submits the job again under its token.
func TestSearchesForAnUnknownDeliveryAreLimited(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].Backend = finding{f.service} })
		var at []time.Time
		f.service.set(func(s *mockService) {
			s.afterAccept = func(backends.Job) error { return &backends.Error{Kind: backends.Unconfirmed, Status: 500} }
			s.find = func(*work) (backends.Ref, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				at = append(at, time.Now())
				return backends.Ref{}, errors.New("500")
			}
		})
		task := f.mustSubmit(video())
		f.sleep(time.Minute)
		f.kill() // the count is in the store
		f.start()
		f.sleep(transition.Grace)
		f.wantStatus(task.ID, record.Failed)
		f.checkWallet(1000, 0)
		if len(at) < 4 || len(at) > transition.MaxSearches {
			t.Errorf("%d searches", len(at))
		}
		pauses := make([]time.Duration, 0, len(at))
		for i := 1; i < len(at); i++ {
			pauses = append(pauses, at[i].Sub(at[i-1]))
		}
		if !slices.IsSorted(pauses) {
			t.Errorf("the pauses between the searches are %v", pauses)
		}
	})
}
