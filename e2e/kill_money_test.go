package e2e

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// forgettable is how long before a kill a call may have ended and still be
// lost. It is gathered for 100 ms and then committed after the current commit.
// The slowest credit shows how long a commit takes on this machine; the rest is
// tolerance.
func (m *workload) forgettable(killed time.Time) time.Duration {
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
	g := newGateway(t, priced(b, shop(planPrice)), b)
	chance := imagine(t)
	balances := map[string]nano{} // of the customers of earlier rounds
	var m *workload
	var killed time.Time
	for round := range *killRounds + 1 {
		began := time.Now()
		g.start()
		g.verify()
		if m != nil {
			bound := m.forgettable(killed)
			m.finish()
			forgotten, age := m.check(killed)
			if age > bound {
				t.Errorf("a call is forgotten that had ended %v before the kill; it may be %v", age, bound)
			}
			balances[m.c.name] = g.wallet(m.c.name).Balance
			t.Logf("round %d: of %d calls %d are forgotten, ended up to %v of %v before; %d payments; checked in %v",
				round-1, len(m.calls), forgotten, age.Round(time.Millisecond), bound.Round(time.Millisecond), len(m.payments), time.Since(began).Round(time.Millisecond))
		}
		for name, balance := range balances {
			if now := g.wallet(name).Balance; now != balance {
				t.Errorf("the balance of %s was %v, and is %v after a kill", name, balance, now)
			}
		}
		g.verify()
		if round == *killRounds {
			break
		}

		// The kill comes at a random time.
		m = g.newWorkload("round-"+strconv.Itoa(round), scripts, chance)
		victim, after := g.process, int64(1+chance.IntN(1000))
		if round%3 == 1 {
			// With few calls and nothing else, calls are gathered for the
			// longest time.
			m.workers, m.pause = map[string]int{"call": 1}, 5*time.Millisecond
			after = int64(100 + chance.IntN(100))
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
