package e2e

import (
	"testing"
	"time"
)

// TestWhoWaitsForAChangeDoesNotHoldUpTheEnd ends a process while somebody waits
// for a task that goes on: he is answered with what there is.
func TestWhoWaitsForAChangeDoesNotHoldUpTheEnd(t *testing.T) {
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
	got := make(chan resource, 1)
	go func() { got <- c.look(o.task, 60) }()
	<-u.cue.await(running, 2) // by the second poll from now he waits

	began := time.Now()
	g.process.terminate()
	if task := receive(t, got, "the answer to who waits"); task.Status != "in_progress" {
		t.Errorf("he is told %s", task.text)
	}
	if code := g.process.code(patience); code != 0 || time.Since(began) > 12*time.Second {
		t.Errorf("it ends after %v with %d", time.Since(began), code)
	}
	g.process.checkLog()
}
