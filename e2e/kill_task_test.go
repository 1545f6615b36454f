package e2e

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// steps are the checkpoints of a task at which a gateway is killed, as its mock
// service and its receiver see them. Kills at random times cover everything
// between them.
var steps = []checkpoint{
	{"before a job is accepted", platform},
	{"before a job is accepted", generic},
	{"when a job is accepted and not confirmed", platform},
	{"when a job is accepted and not confirmed", generic},
	{"when a job is accepted and the answer is out", platform},
	{"when a job is accepted and the answer is out", generic},
	{what: "before the gateway reads that a job is running"},
	{what: "before the gateway reads that a job is done"},
	{what: "after the gateway has read that a job is done"},
	{what: "after the gateway has read that a job is failed"},
	{what: "in the middle of a file"},
	{what: "at the end of a file"},
	{what: "before a callback is acknowledged"},
	{what: "when a callback is acknowledged"},
}

// TestAKillAtAnyStepOfATaskLosesAndRepeatsNothing kills one gateway
// repeatedly, at each step of its tasks and every third time at a random time,
// while its user submits more tasks. Tasks that were being processed wait
// for the length of a lease.
func TestAKillAtAnyStepOfATaskLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	u := newMockService(t)
	r := newReceiver(t, u.checkpoints)
	g := newGateway(t, generationSite(u, r, "media {\nallow "+u.address()+"\n}"), u.backend, r.backend)
	g.start()
	c := g.newGatewayUser("collector")
	c.credit("100.00")
	random := newCallGenerator(t)

	var orders []*generation
	var submitting sync.WaitGroup
	order := func(model, words string) {
		o := &generation{number: len(orders), model: model, words: words}
		orders = append(orders, o)
		submitting.Go(func() { o.submit(c) })
	}
	rounds := *killRounds + *killRounds/3
	first := random.IntN(len(steps)) // if there are fewer rounds than steps
	for round := range rounds {
		at, nth := steps[(first+round-(round+1)/3)%len(steps)], 1
		switch {
		case round == rounds/2 && rounds > 2*len(steps):
			// From here on there are also tasks of killed processes.
			at = repeatedSubmission
		case round%3 == 2:
			at, nth = anything, 1+random.IntN(40)
		}
		began := time.Now()
		reached := u.checkpoints.await(at, nth)
		order(film, "")
		order(picture, "")
		order(clip, "")
		order(reel, "")
		order(film, failsWord)
		order(picture, slowWord)
		select {
		case <-reached:
		case <-time.After(leaseLength + waitLimit):
			t.Fatalf("the checkpoint was not reached: %s", at.what)
		}
		took := time.Since(began)
		g.process.kill()
		g.process.checkLog()
		g.start()
		g.verify()
		t.Logf("round %d: killed %s %s after %v", round, at.what, at.by, took.Round(time.Millisecond))
	}
	submitting.Wait()
	if t.Failed() {
		return
	}

	ends := make([]resource, len(orders))
	inParallel(8, len(orders), func(i int) { ends[i] = c.outcome(orders[i]) })
	var over []string
	for i, end := range ends {
		if end.Completed != 0 {
			over = append(over, orders[i].task)
		}
	}
	r.awaitAll(t, over)
	b := taskTotals{ended: map[string]int{}}
	tasks := map[string]int{}
	for i, o := range orders {
		tasks[o.task]++
		b.check(c, o, u, r, ends[i])
		if ends[i].Status == "success" {
			link := ends[i].Result.URL
			if file := c.fetch(link); !strings.HasPrefix(link, g.url("/v1/files/")) || !bytes.Equal(file, u.made(o.prompt())) {
				t.Errorf("the file of %s at %s differs from the result: %d bytes", o.prompt(), link, len(file))
			}
		}
	}
	if len(tasks) != len(orders) {
		t.Errorf("%d submissions created %d tasks", len(orders), len(tasks))
	}
	b.checkMoney(c, 100*unit)
	all, different := r.count()
	if different != len(over) {
		t.Errorf("%d tasks ended, %d different callbacks arrived", len(over), different)
	}
	t.Logf("%d kills; %d tasks ended %v; %d callbacks arrived, %d different ones", rounds, len(orders), b.ended, all, different)
}
