package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestAWaitingRequestSurvivesAReloadAndDoesNotDelayTheExit: two
// requests wait for a change of a task, one of them since before a reload. When
// the process is stopped, both are answered with the current state.
func TestAWaitingRequestSurvivesAReloadAndDoesNotDelayTheExit(t *testing.T) {
	t.Parallel()
	u := newMockService(t)
	u.open(false)
	r := newReceiver(t, u.checkpoints)
	g := newGateway(t, generationSite(u, r, ""), u.backend, r.backend)
	g.start()
	c := g.newGatewayUser("waiter")
	c.credit("1.00")
	o := &generation{model: film}
	o.submit(c)

	running := checkpoint{what: "after the gateway has read that a job is running"}
	for c.poll(o.task, 10).Status != "in_progress" {
	}
	waits := func() <-chan resource {
		got := make(chan resource, 1)
		go func() { got <- c.poll(o.task, 60) }()
		receive(t, u.checkpoints.await(running, 2), "the second poll from now, while the request waits")
		return got
	}
	before := waits()
	g.Site.Money = strings.Replace(g.Site.Money, "polls_per_second 150", "polls_per_second 151", 1)
	if err := g.reload(); err != nil {
		t.Fatal(err)
	}
	after := waits()
	select {
	case task := <-before:
		t.Errorf("the reload ended a waiting request with %s", task.text)
	default:
	}

	began := time.Now()
	g.process.terminate()
	for who, got := range map[string]<-chan resource{"since before the reload": before, "since after the reload": after} {
		if task := receive(t, got, "the answer to the request that waits "+who); task.Status != "in_progress" {
			t.Errorf("a request that waits %s got %s", who, task.text)
		}
	}
	if code := g.process.code(waitLimit); code != 0 || time.Since(began) > 12*time.Second {
		t.Errorf("the process ended after %v: exit code %d", time.Since(began), code)
	}
	g.process.checkLog()
}
