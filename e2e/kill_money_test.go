package e2e

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// maxLoss returns how long before a kill a lost call may have ended. A call is
// gathered for 100 ms and then committed after the current commit. The slowest
// credit measures a commit on this machine; the rest is tolerance.
func (m *workload) maxLoss(killed time.Time) time.Duration {
	var slowest time.Duration
	for _, d := range m.payments {
		switch {
		case d.kind != "credit":
		case d.receipt.reference == "":
			slowest = max(slowest, killed.Sub(d.firstAttempt))
		default:
			slowest = max(slowest, d.took)
		}
	}
	return 350*time.Millisecond + 2*slowest
}

func TestKillsLoseNoMoneyAndMoveNoneTwice(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	g := newGateway(t, priced(b, salesOptions(planPrice)), b)
	random := newCallGenerator(t)
	balances := map[string]nano{} // of the customers of earlier rounds
	var m *workload
	var killed time.Time
	for round := range *killRounds + 1 {
		began := time.Now()
		g.start()
		g.verify()
		if m != nil {
			bound := m.maxLoss(killed)
			m.finish()
			lost, age := m.check(killed)
			if age > bound {
				t.Errorf("a call is lost that ended %v before the kill; allowed: %v", age, bound)
			}
			balances[m.c.name] = g.wallet(m.c.name).Balance
			t.Logf("round %d: %d calls, %d of them lost, ended %v before the kill, allowed %v; %d payments; checked in %v",
				round-1, len(m.calls), lost, age.Round(time.Millisecond), bound.Round(time.Millisecond), len(m.payments), time.Since(began).Round(time.Millisecond))
		}
		for name, balance := range balances {
			if now := g.wallet(name).Balance; now != balance {
				t.Errorf("the balance of %s is %v after a kill, want %v", name, now, balance)
			}
		}
		g.verify()
		if round == *killRounds {
			break
		}

		// The kill happens at a random time.
		m = g.newWorkload("round-"+strconv.Itoa(round), scripts, random)
		victim, after := g.process, int64(1+random.IntN(1000))
		if round%3 == 1 {
			// With few calls and nothing else, calls are gathered for the
			// longest time.
			m.workers, m.pause = map[string]int{"call": 1}, 5*time.Millisecond
			after = int64(100 + random.IntN(100))
		}
		var acknowledged atomic.Int64
		m.acknowledged = func() {
			if acknowledged.Add(1) == after {
				killed = time.Now()
				victim.kill()
			}
		}
		m.run(context.Background())
		receive(t, victim.exited, "the end of the process")
		victim.checkLog()
	}
}
