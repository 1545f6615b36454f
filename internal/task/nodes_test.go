package task

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// connection is the connection of a node to the shared engine. A test harms it at a commit.
type connection struct {
	storage.Engine

	mu      sync.Mutex
	cut     bool
	resumes time.Time // of a node that is stopped
	commits int       // since count was called
	at      int       // the commit at which harm is done; 0: none
	harm    harm
	views   int
	harmed  time.Time
}

// harm is what happens to a node at a commit.
type harm struct {
	after bool // after the commit, otherwise before it
	stop  bool // the node is stopped and continues later, otherwise its connection is cut
}

func (harm harm) String() string {
	return map[bool]string{false: "cut", true: "stopped"}[harm.stop] + map[bool]string{false: " before", true: " after"}[harm.after]
}

// absence is how long a harmed node is away: its epoch ends meanwhile.
const absence = 12 * time.Second

func (*connection) Shared() bool { return true }
func (*connection) Sole() bool   { return false }

// reach waits while the node is stopped, and returns an error while its connection is cut.
func (c *connection) reach() error {
	c.mu.Lock()
	wait := time.Until(c.resumes)
	c.mu.Unlock()
	time.Sleep(wait)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return storage.ErrUnreachable
	}
	return nil
}

func (c *connection) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := c.reach(); err != nil {
		return err
	}
	c.mu.Lock()
	c.views++
	c.mu.Unlock()
	err := c.Engine.View(ctx, fn)
	time.Sleep(time.Until(c.resumption()))
	return err
}

func (c *connection) resumption() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumes
}

func (c *connection) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if err := c.reach(); err != nil {
		return err
	}
	c.mu.Lock()
	c.commits++
	hit := c.commits == c.at
	if hit {
		c.harmed = time.Now()
		if c.harm.stop {
			c.resumes = time.Now().Add(absence)
		} else {
			c.cut = true
		}
	}
	c.mu.Unlock()
	if hit && !c.harm.after {
		if err := c.reach(); err != nil {
			return err
		}
	}
	_ = c.Engine.View(ctx, func(r storage.Reader) error { _ = fn(rehearsal{r}); return nil })
	err := c.Engine.Update(ctx, fn)
	if hit && c.harm.after {
		if c.reach() != nil {
			return storage.ErrUnknown
		}
	}
	return err
}

// rehearsal runs a closure without effect, as an engine may do to learn which keys it reads. Some
// values are absent in it.
type rehearsal struct{ storage.Reader }

func (rehearsal) Set(_, _ []byte, _ time.Time) error { return nil }
func (rehearsal) Delete([]byte) error                { return nil }

// do harms the node at a later commit.
func (c *connection) do(h harm, at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.harm, c.at, c.commits = h, at, 0
}

// harmedAt returns when harm was done; zero: not yet.
func (c *connection) harmedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.harmed
}

func (c *connection) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}

// startNodes starts n nodes of one store with one service and one receiver.
func startNodes(t *testing.T, n int, change func(c *Config)) (nodes []*fixture, lines []*connection) {
	t.Helper()
	open := memory.NewShared()
	service, hooks := newMockService(), newReceiver()
	hooks.address[annKey] = callback.Address{URL: "https://ann.example.com/hook", Secrets: [][]byte{[]byte("current secret")}}
	for range n {
		f := &fixture{t: t, service: service, hooks: hooks, process: &process{}}
		f.config = Config{
			Backends:  []Backend{{Name: "works", Backend: finding{service}, MaxRunning: 8}},
			Callbacks: hooks, Client: &http.Client{Transport: hooks},
		}
		if change != nil {
			change(&f.config)
		}
		line := &connection{Engine: open()}
		f.store = storage.New(line, storage.Options{Gather: -1})
		if err := f.store.Join(t.Context(), storage.Node{}); err != nil {
			t.Fatal(err)
		}
		var err error
		if f.ledger, err = ledger.Open(t.Context(), f.store, ledger.Options{}); err != nil {
			t.Fatal(err)
		}
		f.Engine = Open(f.store, f.ledger, Options{Logger: zaptest.NewLogger(t, zaptest.Level(logLevel))})
		if err := f.Serve(f.config); err != nil {
			t.Fatal(err)
		}
		f.store.Follow(storage.Follower{OnTopics: f.OnTopics, OnEnded: f.EndEpoch})
		t.Cleanup(f.stop)
		nodes, lines = append(nodes, f), append(lines, line)
	}
	time.Sleep(2 * time.Second)
	for _, f := range nodes {
		if err := f.store.Ready(); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].credit(ann, 1000)
	return nodes, lines
}

// funds returns the balance of ann's wallet and what is held, by the store.
func (f *fixture) funds() (balance, held money.Amount) {
	f.t.Helper()
	if err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		state, err := journal.ReadState(r, journal.Wallet(ann))
		balance, held = state.Balance, state.Held
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return balance, held
}

// TestAnotherNodeGoesOnWithATask harms the node of a task at each of its commits, from the submission
// to the end of the callback. The node comes back when its epoch has ended.
func TestAnotherNodeGoesOnWithATask(t *testing.T) {
	t.Parallel()
	for _, h := range []harm{{}, {after: true}, {stop: true}, {stop: true, after: true}} {
		for step, more := 1, true; more; step++ {
			t.Run(fmt.Sprintf("%v commit %d", h, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { more = goesOn(t, h, step) })
			})
		}
	}
}

// goesOn reports whether harm was done before the end of the callback.
func goesOn(t *testing.T, h harm, step int) bool {
	nodes, lines := startNodes(t, 3, nil)
	first, other := nodes[2], nodes[1] // the first does not lead
	first.service.succeed(1)
	lines[2].do(h, step)
	id := ""
	submitted := make(chan struct{})
	go func() {
		defer close(submitted)
		if task, err := first.submit(video()); err == nil {
			id = task.ID
		}
	}()
	done := time.Time{}
	for range 300 {
		first.sleep(100 * time.Millisecond)
		list, _, err := other.TaskPage(t.Context(), ann, Filter{}, 0, 10)
		if err != nil || len(list) > 1 {
			t.Fatal(list, err)
		}
		if len(list) == 1 && list[0].CompletedAt != 0 && done.IsZero() {
			done = time.Now()
		}
	}
	harmed := lines[2].harmedAt()
	lines[2].mend()
	first.sleep(absence)
	<-submitted
	list, _, err := other.TaskPage(t.Context(), ann, Filter{}, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, most := other.service.accepted(); most > 1 {
		t.Errorf("the service has accepted the job %d times", most)
	}
	balance, held := other.funds()
	switch {
	case len(list) == 0:
		if id != "" || balance != 1000 || held != 0 {
			t.Errorf("there is no task; the answer was %q, the wallet has %v, %v held", id, balance, held)
		}
	case list[0].CompletedAt == 0 || held != 0:
		t.Errorf("the task is %s, %v held", list[0].Status, held)
	default:
		if want := map[bool]money.Amount{true: 900, false: 1000}[list[0].Status == record.Success]; balance != want {
			t.Errorf("the task is %s, and the wallet has %v", list[0].Status, balance)
		}
		if took := done.Sub(harmed); !harmed.IsZero() && took > 8*time.Second {
			t.Errorf("the task has ended %v after the harm", took)
		}
		posts := len(other.hooks.requests())
		if v := other.event(list[0].ID); v == nil || v.State != record.Delivered || posts < v.Sent || int64(posts) > v.Fence {
			t.Errorf("%d callbacks were sent: %+v", posts, v)
		}
	}
	for _, problem := range other.problems() {
		t.Error(problem)
	}
	return !harmed.IsZero() && harmed.Before(done.Add(time.Second)) || done.IsZero()
}

func (f *fixture) event(task string) (v *record.Event) {
	f.t.Helper()
	if err := f.store.View(f.t.Context(), func(r storage.Reader) (err error) {
		v, err = record.Events.Get(r, task)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return v
}

// TestANodeThatWasStoppedSendsNothing stops a node between the commit after which a job may be sent and
// the request.
func TestANodeThatWasStoppedSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, lines := startNodes(t, 3, nil)
		var late []time.Time
		nodes[2].service.set(func(s *mockService) {
			s.hold = func(context.Context, backends.Job) { late = append(late, time.Now()) }
		})
		lines[2].do(harm{stop: true, after: true}, 1) // the submission, or a beat just before it
		for len(late) == 0 && lines[2].harmedAt().IsZero() {
			if _, err := nodes[2].submit(video()); err == nil {
				break
			}
		}
		nodes[2].sleep(2 * absence)
		if len(late) > 0 {
			t.Errorf("the node has sent a job after it was stopped: %v", late)
		}
	})
}

// TestNodesShareTheTasksOfABackend counts what three nodes do for the tasks of one of them.
func TestNodesShareTheTasksOfABackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, lines := startNodes(t, 3, func(c *Config) { c.Backends[0].MaxRunning = 3 })
		var ids []string
		for range 9 {
			ids = append(ids, nodes[1].mustSubmit(video()).ID)
		}
		nodes[0].sleep(30 * time.Second)
		if jobs, most := nodes[0].service.accepted(); jobs != 3 || most != 1 {
			t.Errorf("the service has %d jobs, %d for one task; 3 slots are free", jobs, most)
		}
		var before [3]int
		for i, line := range lines {
			line.mu.Lock()
			before[i], line.commits = line.views, 0
			line.mu.Unlock()
		}
		nodes[0].sleep(time.Minute)
		polls := 0
		for _, id := range ids {
			polls += nodes[0].service.polled(id)
		}
		for i, line := range lines {
			line.mu.Lock()
			// A beat is one commit and one view; the driver of an idle node looks every 5 s.
			if extra := line.commits - 240; i != 1 && extra > 5 {
				t.Errorf("node %d has %d commits more than its beats", i, extra)
			}
			if extra := line.views - before[i] - 240; i != 1 && extra > 70 {
				t.Errorf("node %d has looked %d times", i, extra)
			}
			line.mu.Unlock()
		}
		nodes[0].service.succeed(1)
		waited := time.Now()
		done, err := nodes[2].Wait(t.Context(), record.OfUser(ann), ids[0], time.Minute)
		if err != nil || done.Status == record.Queued {
			t.Error(done, err)
		}
		for _, id := range ids {
			nodes[2].waitStatus(id, record.Success, 3*time.Minute)
		}
		if jobs, most := nodes[0].service.accepted(); jobs != 9 || most != 1 {
			t.Errorf("the service has %d jobs, %d for one task, after %v", jobs, most, time.Since(waited))
		}
		for _, problem := range nodes[0].problems() {
			t.Error(problem)
		}
	})
}

var taskLong = flag.Bool("task.long", false, "run the test of nodes that lasts the whole life of a job")

// TestANodeWithoutTheBackendEndsNoTaskOfAnotherNode lasts the life of a job, with four beats a second.
func TestANodeWithoutTheBackendEndsNoTaskOfAnotherNode(t *testing.T) {
	if !*taskLong {
		t.Skip("no -task.long")
	}
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := startNodes(t, 2, nil)
		task := nodes[1].mustSubmit(video())
		if err := nodes[0].Serve(Config{}); err != nil {
			t.Fatal(err)
		}
		nodes[0].sleep(record.JobLife + time.Minute)
		for range 10 {
			if err := nodes[0].Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			nodes[0].sleep(time.Second)
		}
		if rec := nodes[0].record(task.ID); rec.Failure == nil || rec.WatchUntil == 0 && rec.Failure.Message == "" {
			t.Errorf("the task has not ended at its node: %+v", rec)
		}
	})
}

// TestANodeLeavesTasksOfOtherBackendsAlone sweeps at a node that does not have the backend.
func TestANodeLeavesTasksOfOtherBackendsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := startNodes(t, 3, nil)
		for _, i := range []int{0, 2} {
			if err := nodes[i].Serve(Config{}); err != nil {
				t.Fatal(err)
			}
		}
		second := nodes[1].mustSubmit(video())
		if _, err := nodes[0].CancelAs(t.Context(), "operator", record.Anyone, second.ID); err == nil {
			t.Error("an operator has ended a task at a node without its backend")
		}
		if err := nodes[1].Serve(Config{}); err != nil {
			t.Fatal(err)
		}
		nodes[0].sleep(orphanAfter + time.Minute)
		if _, err := nodes[0].CancelAs(t.Context(), "operator", record.Anyone, second.ID); err != nil {
			t.Errorf("an operator cannot end a task that no node processes: %v", err)
		}
	})
}

// TestADeletedTaskIsHiddenAtOtherNodes deletes a task that another node has in its cache.
func TestADeletedTaskIsHiddenAtOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := startNodes(t, 2, nil)
		nodes[0].service.succeed(1)
		task := nodes[0].mustSubmit(video())
		nodes[0].waitStatus(task.ID, record.Success, time.Minute)
		for _, f := range nodes {
			if _, err := f.Get(t.Context(), record.OfKey(annKey), task.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := nodes[0].Delete(t.Context(), record.OfKey(annKey), task.ID); err != nil {
			t.Fatal(err)
		}
		if err := nodes[0].store.WaitUntilSeen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := nodes[1].Get(t.Context(), record.OfKey(annKey), task.ID); err != ErrNotFound {
			t.Errorf("another node shows the task: %v", err)
		}
	})
}
