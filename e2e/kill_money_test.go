package e2e

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// forgettable is how long before a kill a call may have ended that is forgotten:
// it is gathered for 100 ms and then committed, after the commit that was under
// way. How long a commit takes on this machine at this time the credits tell,
// which are one each; the rest is for a machine that has other things to do.
func (m *market) forgettable(killed time.Time) time.Duration {
	var slowest time.Duration
	for _, d := range m.deeds {
		switch {
		case d.kind != "credit":
		case d.moved.mark == "":
			slowest = max(slowest, killed.Sub(d.asked))
		default:
			slowest = max(slowest, d.took)
		}
	}
	return 350*time.Millisecond + 2*slowest
}

func TestNoMoneyIsLostOrMovedTwiceByKills(t *testing.T) {
	t.Parallel()
	scripts := new(repertoire)
	b := newBackend(t, scripts.play)
	g := newGateway(t, priced(b, shop(planPrice)), b)
	chance := imagine(t)
	balances := map[string]nano{} // of the customers of the rounds before
	var m *market
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
			t.Logf("round %d: of %d calls %d are forgotten, ended up to %v of %v before; %d deeds; checked in %v",
				round-1, len(m.talks), forgotten, age.Round(time.Millisecond), bound.Round(time.Millisecond), len(m.deeds), time.Since(began).Round(time.Millisecond))
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

		// A kill at a moment that nobody chose.
		m = g.newMarket("round-"+strconv.Itoa(round), scripts, chance)
		victim, after := g.process, int64(1+chance.IntN(1000))
		if round%3 == 1 {
			// A trickle of calls alone is gathered for longest: nothing hurries it.
			m.workers, m.pause = map[string]int{"call": 1}, 5*time.Millisecond
			after = int64(100 + chance.IntN(100))
		}
		var acknowledged atomic.Int64
		m.moved = func() {
			if acknowledged.Add(1) == after {
				killed = time.Now()
				victim.kill()
			}
		}
		m.trade(context.Background())
		receive(t, victim.exited, "the end of the process")
		victim.checkLog()
	}
}
