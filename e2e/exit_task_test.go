package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestWhoWaitsForAChangeIsLeftAloneByAReloadAndDoesNotHoldUpTheEnd has two wait
// for a task that goes on, one of them since before a reload, and ends the
// process: both are answered with what there is.
func TestWhoWaitsForAChangeIsLeftAloneByAReloadAndDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	u := newStudio(t)
	u.open(false)
	r := newReceiver(t, u.cue)
	g := newGateway(t, studioSite(u, r, ""), u.backend, r.backend)
	g.start()
	c := g.newCustomer("waiter")
	c.credit("1.00")
	o := &commission{model: film}
	o.place(c)

	running := moment{what: "when it is told that a job is running"}
	for c.look(o.task, 10).Status != "in_progress" {
	}
	waits := func() <-chan resource {
		got := make(chan resource, 1)
		go func() { got <- c.look(o.task, 60) }()
		receive(t, u.cue.await(running, 2), "the second poll from now, while the caller waits")
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
		t.Errorf("the reload made the gateway answer %s", task.text)
	default:
	}

	began := time.Now()
	g.process.terminate()
	for who, got := range map[string]<-chan resource{"from before the reload": before, "from after it": after} {
		if task := receive(t, got, "the answer to who waits "+who); task.Status != "in_progress" {
			t.Errorf("who waits %s is told %s", who, task.text)
		}
	}
	if code := g.process.code(patience); code != 0 || time.Since(began) > 12*time.Second {
		t.Errorf("it ends after %v with %d", time.Since(began), code)
	}
	g.process.checkLog()
}
