package task

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestATaskFromSubmissionToSuccess(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		if task.Status != record.Queued || task.Progress != "0%" || task.Object != "video_task" || task.Model != "video-x-1" ||
			task.CreatedAt != time.Now().Unix() || task.CompletedAt != 0 || len(task.ID) != record.IDSize {
			t.Fatalf("the new task is %+v", task)
		}
		f.checkWallet(1000, 100)
		f.sleep(3 * time.Second)
		if task = f.wantStatus(task.ID, record.InProgress); task.Progress != "50%" {
			t.Fatalf("the running task is %+v", task)
		}
		f.service.setStatus(task.ID, succeeded(2))
		task = f.waitStatus(task.ID, record.Success, 10*time.Second)
		text, _ := json.Marshal(task)
		want := `{"task_id":"` + task.ID + `","object":"video_task","model":"video-x-1","status":"success","progress":"100%",` +
			`"created_at":` + jsonOf(task.CreatedAt) + `,"completed_at":` + jsonOf(f.record(task.ID).Completed/1000) + `,` +
			`"result":{"url":"https://cdn.example.com/0.mp4","urls":["https://cdn.example.com/0.mp4","https://cdn.example.com/1.mp4"],"type":"video"}}`
		if string(text) != want {
			t.Errorf("the task is\n%s, want\n%s", text, want)
		}
		f.checkWallet(900, 0)
	})
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestAFailureIsFreeAndHasAReason(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(with(func(s *Submission) { s.Job.Kind, s.Job.Model = backends.Image, "image-x-1" }))
		f.service.setStatus(task.ID, failed(backends.ContentRejected))
		task = f.waitStatus(task.ID, record.Failed, 10*time.Second)
		if task.Object != "image_task" || task.Progress != "0%" || task.Result != nil || task.CompletedAt == 0 ||
			*task.Error != (record.Error{Code: "TASK_FAILED", Reason: backends.ContentRejected, Message: "no cats"}) {
			t.Fatalf("the task is %+v, %+v", task, task.Error)
		}
		f.checkWallet(1000, 0)
	})
}

func TestDeliveredResultsAreCharged(t *testing.T) {
	t.Parallel()
	perSecond := catalog.Price{Second: []catalog.Variant{{Resolution: "720P", Price: 5}, {Resolution: "1080P", Price: 10}}}
	perImage := catalog.Price{Image: []catalog.Variant{{Price: 30}}}
	long := func(n int, seconds float64, width, height int) (results []backends.Result) {
		for range n {
			results = append(results, backends.Result{URL: "https://cdn.example.com/x", Duration: seconds, Width: width, Height: height})
		}
		return results
	}
	for name, row := range map[string]struct {
		price     catalog.Price
		kind      catalog.Kind
		requested catalog.Work
		results   []backends.Result
		hold      money.Amount
		charged   money.Amount
	}{
		"the service reports nothing": {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, 0, 0, 0), 40, 40},
		"as requested":                {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, 8, 1280, 720), 40, 40},
		"shorter":                     {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, 4, 1280, 720), 40, 20},
		"by tenths":                   {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "1080P"}, long(1, 4.1, 1920, 1080), 80, 41},
		"not a number":                {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, math.NaN(), 1280, 720), 40, 40},
		"infinite":                    {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, math.Inf(1), 1280, 720), 40, 40},
		"negative":                    {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, -1, 1280, 720), 40, 40},
		"longer":                      {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, 9, 1280, 720), 40, 40},
		"a huge duration":             {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P"}, long(1, 1e300, 0, 0), 40, 40},
		"smaller":                     {perSecond, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "1080P"}, long(1, 8, 704, 1280), 80, 40},
		"one of three":                {perImage, catalog.Image, catalog.Work{Count: 3}, long(1, 0, 0, 0), 90, 30},
		"four of three":               {perImage, catalog.Image, catalog.Work{Count: 3}, long(4, 0, 0, 0), 90, 90},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.service.set(func(s *mockService) {
					s.poll = func(*work) (backends.Status, error) {
						return backends.Status{State: backends.Succeeded, Results: row.results}, nil
					}
				})
				quote, refused := row.price.Quote(row.kind, row.requested)
				if refused != 0 || quote.Hold != row.hold {
					t.Fatalf("the hold is %d, %v", quote.Hold, refused)
				}
				task := f.mustSubmit(with(func(s *Submission) { s.Quote = quote }))
				f.checkWallet(1000, row.hold)
				task = f.waitStatus(task.ID, record.Success, 10*time.Second)
				if task.Detail.Charged != row.charged {
					t.Errorf("charged %d, want %d", task.Detail.Charged, row.charged)
				}
				f.checkWallet(1000-row.charged, 0)
			})
		})
	}
}

func TestATaskWithoutAPriceHoldsNothing(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		task := f.mustSubmit(with(func(s *Submission) { s.Quote = flat(0) }))
		f.waitStatus(task.ID, record.Success, 10*time.Second)
		f.checkWallet(1000, 0)
	})
}

func TestParallelSubmissionsSpendExactlyTheBalance(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 3 })
		var wait sync.WaitGroup
		var mu sync.Mutex
		created, refused := 0, 0
		for range 40 {
			wait.Go(func() {
				_, err := f.submit(video())
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					created++
				case codeOf(err) == fault.InsufficientQuota:
					refused++
				default:
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if created != 10 || refused != 30 {
			t.Errorf("%d tasks were created and %d refused, with money for 10", created, refused)
		}
		f.checkWallet(1000, 1000)
	})
}

func TestASubmissionBeyondTheBalanceIsRefused(t *testing.T) {
	withFixture(t, func(f *fixture) {
		_, err := f.submit(with(func(s *Submission) { s.Quote = flat(1001) }))
		f.checkCode(err, fault.InsufficientQuota)
		_, err = f.submit(with(func(s *Submission) { s.Payer.Budgets[0] = ledger.KeyBudget(annKey, 99, "never") }))
		f.checkCode(err, fault.InsufficientKeyQuota)
		_, err = f.submit(with(func(s *Submission) { s.Payer.Budgets[0] = ledger.UserBudget(99, "never") }))
		f.checkCode(err, fault.InsufficientQuota)
		f.mustSubmit(with(func(s *Submission) { s.Payer.Budgets[0] = ledger.KeyBudget(annKey, 100, "never") }))
		f.checkWallet(1000, 100)
	})
}

func TestSessionIDIsUsedForThreeDays(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.succeed(1)
		one := with(func(s *Submission) { s.SessionID = "s" })
		first := f.mustSubmit(one)
		accepted := time.UnixMilli(f.record(first.ID).Created)
		for name, s := range map[string]Submission{
			"the same submission":        one,
			"an image":                   with(func(s *Submission) { s.SessionID, s.Job.Kind = "s", backends.Image }),
			"a price beyond the balance": with(func(s *Submission) { s.SessionID, s.Quote = "s", flat(5000) }),
		} {
			_, err := f.submit(s)
			f.checkCode(err, fault.DuplicateSessionID)
			duplicate, ok := errors.AsType[*DuplicateSession](err)
			if !ok || duplicate.Task != first.ID || !strings.Contains(duplicate.Message, first.ID) || duplicate.Param != "session_id" {
				t.Errorf("%s: refused with %v", name, err)
			}
		}
		f.mustSubmit(with(func(s *Submission) { s.SessionID, s.Key = "s", annKey2 })) // another key of ann's
		f.sleep(time.Until(accepted.Add(259_199 * time.Second)))
		_, err := f.submit(one)
		f.checkCode(err, fault.DuplicateSessionID)
		f.sleep(time.Until(accepted.Add(259_200*time.Second - time.Millisecond)))
		_, err = f.submit(one)
		f.checkCode(err, fault.DuplicateSessionID)
		f.sleep(time.Millisecond)
		if second := f.mustSubmit(one); second.ID == first.ID {
			t.Error("the first task was returned")
		}
		_, err = f.submit(one)
		f.checkCode(err, fault.DuplicateSessionID)
	})
}

func TestSessionIDIsCountedInCharacters(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.mustSubmit(with(func(s *Submission) { s.SessionID = strings.Repeat("猫", 50) }))
		_, err := f.submit(with(func(s *Submission) { s.SessionID = strings.Repeat("猫", 51) }))
		f.checkCode(err, fault.InvalidParameter)
		f.mustSubmit(with(func(s *Submission) { s.SessionContext = strings.Repeat("猫", 1000) }))
		_, err = f.submit(with(func(s *Submission) { s.SessionContext = strings.Repeat("猫", 1001) }))
		f.checkCode(err, fault.InvalidParameter)
		a, b := f.mustSubmit(video()), f.mustSubmit(video()) // two empty session ids
		if a.ID == b.ID {
			t.Error("an empty session id prevents a second task")
		}
	})
}

func TestConcurrentDuplicatesCreateOneTask(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]bool{"the first is accepted": false, "the first is refused": true} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				var once sync.Once
				f.service.set(func(s *mockService) {
					s.hold = func(context.Context, backends.Job) { time.Sleep(time.Second) }
					s.submit = func(backends.Job) (err error) {
						if refuse {
							once.Do(func() { err = backends.Invalid("prompt", "too short") })
						}
						return err
					}
				})
				var wait sync.WaitGroup
				var mu sync.Mutex
				made := make(map[string]int)
				codes := make(map[fault.Code]int)
				for range 8 {
					wait.Go(func() {
						task, err := f.submit(with(func(s *Submission) { s.SessionID = "same" }))
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							made[task.ID]++
						}
						codes[codeOf(err)]++
					})
				}
				wait.Wait()
				want := map[fault.Code]int{"": 1, fault.DuplicateSessionID: 7}
				if refuse {
					want = map[fault.Code]int{"": 1, fault.DuplicateSessionID: 6, fault.UpstreamRejected: 1}
				}
				if jsonOf(codes) != jsonOf(want) || len(made) != 1 {
					t.Errorf("duplicates created %v, answers %v, want %v", made, codes, want)
				}
				f.checkWallet(1000, 100)
			})
		})
	}
}

func TestAReplayReturnsTheCurrentStatus(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := with(func(s *Submission) { s.IdempotencyKey, s.Fingerprint, s.SessionID = "k", journal.IDOf("a"), "s" })
		first, replayed, err := f.Submit(f.t.Context(), s)
		if err != nil || replayed {
			t.Fatal(replayed, err)
		}
		f.service.succeed(1)
		f.waitStatus(first.ID, record.Success, 10*time.Second)
		again, replayed, err := f.Submit(f.t.Context(), s)
		if err != nil || !replayed || again.ID != first.ID || again.Status != record.Success {
			t.Fatalf("replayed %t: %+v, %v", replayed, again, err)
		}
		_, err = f.submit(with(func(s *Submission) { s.IdempotencyKey, s.Fingerprint = "k", journal.IDOf("b") }))
		f.checkCode(err, fault.IdempotencyKeyReused)
		other := s
		other.Key, other.SessionID = annKey2, ""
		if task := f.mustSubmit(other); task.ID == first.ID {
			t.Error("two API keys share an idempotency key")
		}
		for _, key := range []string{strings.Repeat("k", 256), "k\n"} {
			bad := s
			bad.IdempotencyKey = key
			_, err := f.submit(bad)
			f.checkCode(err, fault.InvalidParameter)
		}
	})
}

func TestConcurrentReplaysCreateOneTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		var wait sync.WaitGroup
		var mu sync.Mutex
		made := make(map[string]int)
		for range 8 {
			wait.Go(func() {
				task, err := f.submit(with(func(s *Submission) { s.IdempotencyKey = "k" }))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				made[task.ID]++
			})
		}
		wait.Wait()
		if len(made) != 1 {
			t.Errorf("created %v", made)
		}
		f.checkWallet(1000, 100)
	})
}

func TestUnfinishedTasksOfAKeyAreLimited(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Unfinished, c.Backends[0].MaxRunning = 3, 1 })
		for range 3 {
			f.mustSubmit(video())
		}
		_, err := f.submit(video())
		f.checkCode(err, fault.TooManyTasks)
		if refused, _ := errors.AsType[*fault.Fault](err); refused.RetryAfter == 0 {
			t.Error("the fault has no Retry-After")
		}
		f.mustSubmit(with(func(s *Submission) { s.Key = annKey2 }))
		f.service.succeed(1)
		f.sleep(time.Minute)
		f.mustSubmit(video())
	})
}

func TestARefusalInTheAnswerRollsTheSubmissionBack(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.set(func(s *mockService) {
			s.submit = func(backends.Job) error { return backends.Invalid("output.duration", "4, 8 or 12 seconds, not 5") }
		})
		s := with(func(s *Submission) { s.SessionID, s.IdempotencyKey = "s", "k" })
		_, err := f.submit(s)
		f.checkCode(err, fault.UpstreamRejected)
		if refused, _ := errors.AsType[*fault.Fault](err); refused.Param != "output.duration" || refused.Message != "4, 8 or 12 seconds, not 5" {
			t.Errorf("the refusal is %+v", refused)
		}
		f.checkWallet(1000, 0)
		if n := f.count(Filter{Key: annKey}); n != 0 {
			t.Errorf("%d tasks are listed", n)
		}
		f.service.set(func(s *mockService) { s.submit = nil })
		if _, replayed, err := f.Submit(f.t.Context(), s); err != nil || replayed {
			t.Errorf("the same submission again: %t, %v", replayed, err)
		}
	})
}

func TestARefusalAfterTheAnswerFailsTheTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.set(func(s *mockService) {
			s.hold = func(context.Context, backends.Job) { time.Sleep(12 * time.Second) }
			s.submit = func(backends.Job) error { return backends.Invalid("prompt", "too long") }
		})
		began := time.Now()
		s := with(func(s *Submission) { s.SessionID = "s" })
		task := f.mustSubmit(s)
		if waited := time.Since(began); waited != deliveryWait || task.Status != record.Queued {
			t.Fatalf("answered %s after %v", task.Status, waited)
		}
		f.sleep(3 * time.Second)
		task = f.wantStatus(task.ID, record.Failed)
		if task.Error.Reason != backends.InvalidInput || task.Error.Message != "too long" {
			t.Errorf("the error is %+v", task.Error)
		}
		f.checkWallet(1000, 0)
		_, err := f.submit(s)
		f.checkCode(err, fault.DuplicateSessionID)
	})
}

func TestATaskContinuesAfterItsCallerDisconnects(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.set(func(s *mockService) { s.hold = func(context.Context, backends.Job) { time.Sleep(5 * time.Second) } })
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
		defer cancel()
		task, _, err := f.Submit(ctx, video())
		if err != nil {
			t.Fatal(err)
		}
		f.sleep(10 * time.Second)
		f.wantStatus(task.ID, record.InProgress)
	})
}

func TestASubmissionToAnUnconfiguredBackendIsRefused(t *testing.T) {
	withFixture(t, func(f *fixture) {
		_, err := f.submit(with(func(s *Submission) { s.Backend = "other" }))
		f.checkCode(err, fault.UpstreamUnavailable)
	})
}

func TestServeRefusesInvalidConfigurations(t *testing.T) {
	withFixture(t, func(f *fixture) {
		good := f.config.Backends[0]
		for name, c := range map[string]Config{
			"two with the same name": {Backends: []Backend{good, good}},
			"no name":                {Backends: []Backend{{Backend: good.Backend}}},
			"a slash":                {Backends: []Backend{{Name: "a/b", Backend: good.Backend}}},
			"a long name":            {Backends: []Backend{{Name: strings.Repeat("a", 65), Backend: good.Backend}}},
			"a short retention":      {Kept: transition.SessionWindow - time.Second},
			"no client":              {Callbacks: f.hooks},
		} {
			if err := f.Serve(c); err == nil {
				t.Errorf("%s: accepted", name)
			}
		}
		synctest.Wait()
	})
}

func TestADisconnectBeforeTheSubmissionCreatesNoTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for name, s := range map[string]Submission{
			"free":              with(func(s *Submission) { s.Quote = catalog.Quote{Kind: catalog.Video} }),
			"priced":            video(),
			"with a session id": with(func(s *Submission) { s.SessionID = "a-session" }),
		} {
			_, _, err := f.Submit(ctx, s)
			f.sleep(time.Second)
			if jobs, _ := f.service.accepted(); jobs != 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %d jobs, %v", name, jobs, err)
			}
		}
	})
}
