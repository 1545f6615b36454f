package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// step is one action on an engine.
type step struct {
	do     string
	n      int // selects a name, task, job or answer, modulo their number
	d      time.Duration
	faults []storagetest.Fault
}

// String writes the step as Go, to be copied into a test.
func (s step) String() string {
	return fmt.Sprintf("{do: %q, n: %d, d: %d, faults: %#v},", s.do, s.n, int64(s.d), s.faults)
}

// history is a fixture with the statuses seen so far.
type history struct {
	*fixture
	seen map[string]record.State // last status, by task
}

// actions are the steps by name, with the weight of each.
var actions = map[string]struct {
	weight int
	do     func(*history, step)
}{
	"submit": {8, func(h *history, s step) {
		in := with(func(in *Submission) {
			in.Quote = flat(money.Amount(1 + s.n%60))
			if s.n%5 == 0 {
				long(in)
			}
			switch s.n % 4 {
			case 1:
				in.SessionID = fmt.Sprint("s", s.n%3)
			case 2:
				in.IdempotencyKey = fmt.Sprint("k", s.n%3)
			case 3:
				in.Key = annKey2
			}
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := h.submit(in)
			switch codeOf(err) {
			case "", fault.DuplicateSessionID, fault.TooManyTasks, fault.InsufficientQuota, fault.UpstreamRejected, fault.StoreUnavailable,
				fault.IdempotencyKeyReused:
			default:
				h.t.Errorf("a submission failed: %v", err)
			}
		}()
		if s.n%2 == 0 {
			<-done
		}
	}},
	"pass":  {8, func(h *history, s step) { time.Sleep(s.d) }},
	"night": {1, func(h *history, s step) { time.Sleep(time.Duration(s.n) * 12 * time.Minute) }},
	"answer": {4, func(h *history, s step) { // the answer to later submissions
		h.service.set(func(service *mockService) {
			service.submit, service.afterAccept, service.hold = nil, nil, nil
			switch s.n % 6 {
			case 1:
				service.submit = func(backends.Job) error { return backends.Invalid("prompt", "no") }
			case 2:
				service.submit = func(backends.Job) error { return &backends.Error{Kind: backends.Busy, RetryAfter: s.d} }
			case 3:
				service.afterAccept = func(backends.Job) error { return errors.New("cut") }
			case 4:
				service.submit = func(backends.Job) error { return errors.New("cut") }
			case 5:
				service.hold = func(ctx context.Context, _ backends.Job) {
					select {
					case <-time.After(s.d):
					case <-ctx.Done():
					}
				}
			}
		})
	}},
	"job": {8, func(h *history, s step) { // the status of one job changes
		h.service.set(func(service *mockService) {
			tokens := slices.Sorted(maps.Keys(service.jobs))
			if len(tokens) == 0 {
				return
			}
			service.jobs[tokens[s.n%len(tokens)]].status = []backends.Status{
				{State: backends.Queued},
				{State: backends.Running, Progress: s.n},
				{State: backends.Unknown, Word: "other"},
				succeeded(1 + s.n%2),
				failed(backends.ModelFailed),
			}[s.n%5]
		})
	}},
	"retry": {3, func(h *history, s step) {
		if ids := slices.Sorted(maps.Keys(h.seen)); len(ids) > 0 {
			_, _ = h.Retry(context.Background(), "root", ids[s.n%len(ids)])
		}
	}},
	"clock": {2, func(h *history, s step) { // sets the clock up to 4.5 minutes ahead, or back
		h.ahead.Store(int64(time.Duration(s.n%4) * s.d))
		h.nudgeDriver("works")
	}},
	"kind": {2, func(h *history, s step) { // the optional interfaces of the backend
		all := struct {
			*mockService
			canceling
			finding
		}{h.service, canceling{cancelling{h.service}}, finding{h.service}}
		h.config.Backends = slices.Clone(h.config.Backends)
		h.config.Backends[0].Backend = []backends.Backend{all, silent{h.service}, h.service, finding{h.service}, silent{all}}[s.n%5]
		if err := h.Serve(h.config); err != nil {
			h.t.Errorf("a reload: %v", err)
		}
	}},
	"silence": {2, func(h *history, s step) {
		h.service.set(func(service *mockService) {
			service.poll = nil
			switch s.n % 3 {
			case 1:
				service.poll = func(*work) (backends.Status, error) { return backends.Status{}, errors.New("cut") }
			case 2:
				service.poll = func(*work) (backends.Status, error) { return backends.Status{}, &backends.Error{Kind: backends.Gone} }
			}
		})
	}},
	"cancel": {3, func(h *history, s step) {
		if ids := slices.Sorted(maps.Keys(h.seen)); len(ids) > 0 {
			_, _ = h.Cancel(context.Background(), record.OfUser(ann), ids[s.n%len(ids)])
		}
	}},
	"wake": {2, func(h *history, s step) {
		h.service.set(func(service *mockService) {
			for _, token := range service.order {
				go func() { _ = h.Wake(context.Background(), "works", "job-"+token) }()
			}
		})
	}},
	"drain":  {1, func(h *history, s step) { _ = h.Drain(context.Background(), "root", "works") }},
	"enable": {2, func(h *history, s step) { _ = h.Enable(context.Background(), "root", "works") }},
	"reload": {1, func(h *history, s step) {
		h.config.Backends = slices.Clone(h.config.Backends)
		h.config.Backends[0].MaxRunning = s.n % 4
		h.config.Keeper = nil
		if s.n%3 == 0 {
			keeper := newMockKeeper()
			keeper.delay = s.d
			h.config.Keeper = keeper
		}
		if err := h.Serve(h.config); err != nil {
			h.t.Errorf("a reload: %v", err)
		}
	}},
	"receiver": {1, func(h *history, s step) {
		h.hooks.mu.Lock()
		defer h.hooks.mu.Unlock()
		h.hooks.answer = func(int) int { return []int{200, 500, 0}[s.n%3] }
	}},
	"sweep":   {1, func(h *history, s step) { _ = h.Sweep(context.Background()) }},
	"fault":   {3, func(h *history, s step) { h.faulty.Plan(s.faults...) }},
	"kill":    {2, func(h *history, s step) { h.kill(); h.start() }},
	"restart": {1, func(h *history, s step) { h.stop(); h.start() }},
}

// faults are the faults of commits.
var faults = []storagetest.Fault{
	storagetest.None, storagetest.None, storagetest.Conflict, storagetest.UnknownCommitted, storagetest.UnknownLost,
	storagetest.LowSpace, storagetest.SyncFailed, storagetest.Halted,
}

// steps generates random steps.
func steps() *rapid.Generator[[]step] {
	names := []string{""}
	for _, name := range slices.Sorted(maps.Keys(actions)) {
		names = append(names, slices.Repeat([]string{name}, actions[name].weight)...)
	}
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			do:     rapid.SampledFrom(names).Draw(t, "do"),
			n:      rapid.IntRange(0, 59).Draw(t, "n"),
			d:      time.Duration(rapid.IntRange(1, 90_000).Draw(t, "d")) * time.Millisecond,
			faults: rapid.SliceOfN(rapid.SampledFrom(faults), 1, 4).Draw(t, "faults"),
		}
	})
	return rapid.Map(rapid.SliceOfN(one, 20, 60), func(all []step) []step {
		return slices.DeleteFunc(all, func(s step) bool { return s.do == "" })
	})
}

// TestTasksAreConsistentAfterRandomSteps runs random steps on an engine, with faults of
// commits and random answers of the service. It checks the store after each step.
func TestTasksAreConsistentAfterRandomSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		drawn := steps().Draw(rt, "steps")
		if err := runSteps(t, drawn); err != nil {
			var script strings.Builder
			for _, s := range drawn {
				fmt.Fprintln(&script, s)
			}
			rt.Fatalf("%v\n%s", err, script.String())
		}
	})
}

// recorder records the failures of a test, so that rapid can shrink the steps.
type recorder struct {
	testing.TB
	mu  sync.Mutex
	err error
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}
func (r *recorder) Error(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); panic(r) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); panic(r) }

func (r *recorder) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// runSteps runs steps on a new fixture and returns the first failure.
func runSteps(t *testing.T, all []step) (err error) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		h := &history{
			fixture: &fixture{t: r, disk: memory.New(), service: newMockService(), hooks: newReceiver()},
			seen:    make(map[string]record.State),
		}
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
			err = r.failed()
		}()
		h.config = Config{Backends: []Backend{{Name: "works", Backend: struct {
			*mockService
			canceling
			finding
		}{h.service, canceling{cancelling{h.service}}, finding{h.service}}, MaxRunning: 2}}}
		h.start()
		defer func() { h.stop() }()
		h.credit(ann, 1000)
		h.listen()
		for i, s := range all {
			actions[s.do].do(h, s)
			h.checkInvariants()
			if r.failed() != nil {
				r.err = fmt.Errorf("step %d, %v\n%w", i, s, r.err)
				return
			}
		}
		h.finish()
	})
	return err
}

// canceling has only the method Cancel of a service.
type canceling struct{ c cancelling }

func (c canceling) Cancel(ctx context.Context, ref backends.Ref) error { return c.c.Cancel(ctx, ref) }

// checkInvariants checks the invariants.
func (h *history) checkInvariants() {
	h.revive()
	synctest.Wait()
	if h.store.Err() != nil {
		h.revive()
		synctest.Wait()
	}
	if h.store.Err() != nil {
		return // another fault has stopped the start
	}
	h.checkConsistent()
	if _, maxAccepted := h.service.accepted(); maxAccepted > 1 {
		h.t.Errorf("a job was accepted %d times", maxAccepted)
	}
	tasks, _, err := h.List(context.Background(), record.Anyone, Page{Limit: 100})
	if err != nil {
		return
	}
	for _, task := range tasks {
		before, rank := h.seen[task.ID], map[record.State]int{"": 0, record.Pending: 1, record.Queued: 1, record.InProgress: 2, record.Success: 3, record.Failed: 3}
		if rank[task.Status] < rank[before] || rank[before] == 3 && before != task.Status {
			h.t.Errorf("task %s changed from %s to %s", task.ID, before, task.Status)
		}
		h.seen[task.ID] = task.Status
		if waited := time.Since(time.Unix(task.CreatedAt, 0)); task.Error != nil && task.Error.Reason == backends.TaskTimeout && waited < 23*time.Hour {
			h.t.Errorf("task %s has timed out after %v", task.ID, waited)
		}
	}
	ids := make(map[string]bool)
	for _, got := range h.hooks.requests() {
		ids[got.header.Get("Webhook-Id")] = true
	}
	if len(ids) > len(h.seen) {
		h.t.Errorf("%d callbacks of %d tasks", len(ids), len(h.seen))
	}
}

// finish waits until all tasks have ended. It checks that no money is held and that all
// callbacks are delivered.
func (h *history) finish() {
	h.service.set(func(s *mockService) { s.submit, s.afterAccept, s.hold, s.poll = nil, nil, nil, nil })
	h.service.succeed(1)
	h.hooks.mu.Lock()
	h.hooks.answer = nil
	h.hooks.mu.Unlock()
	h.ahead.Store(0)
	h.stop()
	h.start() // removes planned faults
	if err := h.Enable(context.Background(), "root", "works"); err != nil {
		h.t.Errorf("enable: %v", err)
	}
	h.sleep(6 * 24 * time.Hour)
	h.checkInvariants()
	spent := money.Amount(0)
	tasks, _, err := h.List(context.Background(), record.OfUser(ann), Page{Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, task := range tasks {
		if task.CompletedAt == 0 {
			h.t.Errorf("the task has not ended: %+v %+v", task, task.Detail)
		}
		spent += task.Detail.Charged
	}
	h.checkWallet(1000-spent, 0)
	if !h.settledCallbacks() {
		h.t.Errorf("callbacks are still due")
	}
}
