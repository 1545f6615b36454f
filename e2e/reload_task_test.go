package e2e

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// runningTasks is the number of concurrent tasks when the configuration
	// changes.
	runningTasks = 1000

	// taskReloads is the number of reloads: while tasks are submitted, while
	// all of them run, and while they end.
	taskReloads = 3
)

func TestReloadsWithAThousandTasksLoseAndRepeatNone(t *testing.T) {
	t.Parallel()
	u := newMockService(t)
	u.open(false)
	u.pollDuration = 300 * time.Millisecond // so that many polls are under way at each moment
	r := newReceiver(t, u.checkpoints)
	s := generationSite(u, r, "media off")
	// The grace period is shorter than any request. A reload must end none of
	// them.
	s.Global = "grace_period 100ms"
	g := newGateway(t, s, u.backend, r.backend)
	g.start()
	c := g.newGatewayUser("collector")
	c.credit("1000.00")

	reloaded := 0
	reload := func(when string) {
		t.Helper()
		reloaded++
		// Adapters, credentials and rate limits are all replaced.
		g.Site.Money = strings.Replace(s.Money, "polls_per_second 150", "polls_per_second "+strconv.Itoa(150+reloaded), 1)
		if err := g.reload(); err != nil {
			t.Fatalf("the reload %s: %v", when, err)
		}
		g.verify()
	}
	orders := make([]*generation, runningTasks)
	for i := range orders {
		orders[i] = &generation{number: i, model: []string{film, picture}[i%2], words: map[bool]string{true: failsWord}[i%10 == 9]}
	}
	began := time.Now()
	half := make(chan struct{})
	var submitting sync.WaitGroup
	submitting.Go(func() {
		inParallel(32, len(orders), func(i int) {
			if i == len(orders)/2 {
				close(half)
			}
			orders[i].submit(c)
		})
	})
	receive(t, half, "half of the tasks")
	reload("while tasks are submitted")
	submitting.Wait()
	submitted := time.Since(began)
	u.awaitPolls(t, orders, 1)
	reload("while all of them run")
	u.awaitPolls(t, orders, 2)
	if all, _ := r.count(); all != 0 {
		t.Errorf("%d callbacks arrived for running tasks", all)
	}
	u.open(true)
	ending := time.Now()
	r.await(t, len(orders)/4)
	reload("while they end")
	r.await(t, len(orders))
	t.Logf("%d tasks submitted in %v, ended in %v", len(orders), submitted.Round(time.Millisecond), time.Since(ending).Round(time.Millisecond))

	b := taskTotals{ended: map[string]int{}}
	for _, o := range orders {
		b.check(c, o, u, r, c.poll(o.task, 0))
		if n := len(u.submissions(o.prompt())); n != 1 {
			t.Errorf("%s was submitted %d times", o.prompt(), n)
		}
	}
	if b.ended["failed"] != len(orders)/10 || b.ended["success"] != len(orders)-len(orders)/10 {
		t.Errorf("the tasks ended %v", b.ended)
	}
	b.checkMoney(c, 1000*unit)
	u.checkPolls()
	if all, different := r.count(); all != len(orders) || different != len(orders) {
		t.Errorf("%d callbacks, %d different ones, arrived for %d tasks", all, different, len(orders))
	}
	if n := strings.Count(g.process.log.String(), "servers shutting down"); n != taskReloads {
		t.Errorf("the servers were replaced %d times, want %d", n, taskReloads)
	}
}

// awaitPolls waits until the jobs of all tasks were polled n times.
func (u *mockService) awaitPolls(t *testing.T, orders []*generation, n int) {
	t.Helper()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(leaseLength); ; <-tick.C {
		u.mu.Lock()
		polled := 0
		for _, j := range u.jobs {
			if j.polls >= n {
				polled++
			}
		}
		u.mu.Unlock()
		if polled == len(orders) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d jobs were polled %d times", polled, len(orders), n)
		}
	}
}

// await waits until n different callbacks have arrived.
func (r *receiver) await(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * leaseLength); ; <-tick.C {
		_, different := r.count()
		if different >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d callbacks arrived", different, n)
		}
	}
}
