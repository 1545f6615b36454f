package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A market is everything that moves the money of one customer at the same time:
// calls, purchases, renewals, top-ups and credits.
type market struct {
	g       *gateway
	c       *customer
	scripts *repertoire
	chance  imagination
	workers map[string]int // how many do each thing
	pause   time.Duration  // between things of one kind, at least; zero: none
	moved   func()         // called after everything that was acknowledged
	reopens bool           // a connection may break without the end of all
	tariffs tariffs

	mu    sync.Mutex
	deeds []*deed
	talks []*talk
	sold  []int64 // subscriptions

	purchases int // asked for
}

// newMarket opens a market for a new customer with money.
func (g *gateway) newMarket(name string, scripts *repertoire, chance imagination) *market {
	g.t.Helper()
	m := &market{g: g, c: g.newCustomer(name), scripts: scripts, chance: chance, moved: func() {}, tariffs: tariffs{new(atomic.Int64)}}
	m.workers = map[string]int{"call": 4, "buy": 4, "renew": 2, "fill": 4, "give": 2}
	start := m.c.gift("opening", 1000*unit)
	if err := start.ask(); err != nil {
		g.t.Fatal(err)
	}
	m.deeds = append(m.deeds, start)
	return m
}

// nextTalk makes up a call. The mutex is held.
func (m *market) nextTalk() *talk { return m.chance.talk(int(m.scripts.last.Add(1))) }

// wholeTalk makes up a call that nobody breaks off, and whose usage is reported.
func (m *market) wholeTalk() *talk {
	return draw(m, func() *talk {
		for {
			k := m.nextTalk()
			if _, _, usage := k.charge(); k.end == whole && usage == "reported" {
				return k
			}
		}
	})
}

// draw has something made up, one after another.
func draw[T any](m *market, what func() T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return what()
}

// trade does everything at once until the gateway is gone or ctx ends.
func (m *market) trade(ctx context.Context) {
	transport := newTransport(http1)
	transport.MaxIdleConnsPerHost = 64
	transport.DisableKeepAlives = m.reopens // a connection that waits unused is of the servers that have accepted it
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for worker, n := range m.workers {
		for i := range n {
			all.Go(func() {
				beat := time.NewTicker(cmp.Or(m.pause, time.Hour))
				defer beat.Stop()
				for turn := 0; ctx.Err() == nil && m.turn(ctx, transport, worker, fmt.Sprintf("%s-%d-%d", worker, i, turn)); turn++ {
					if m.pause > 0 {
						<-beat.C
					}
				}
			})
		}
	}
	all.Wait()
}

// turn does one thing, and returns false when there is nobody to do it with.
func (m *market) turn(ctx context.Context, transport *http.Transport, worker, key string) bool {
	var err error
	switch worker {
	case "call":
		err = m.call(ctx, transport)
	case "buy", "renew":
		err = m.deal(m.sale(worker, key))
	case "fill":
		err = m.deal(m.c.topUp(key, 3*unit, draw(m, func() bool { return m.chance.IntN(2) == 0 })))
	case "give":
		err = m.deal(m.c.gift(key, 1))
	}
	no := new(refusal)
	if errors.As(err, &no) {
		m.g.t.Errorf("%s %s: %v", worker, key, no)
		return false
	}
	return err == nil || m.reopens
}

// maxSubscriptions is how many plans a customer buys: no more than 100 of them
// may run at once.
const maxSubscriptions = 90

// sale is a purchase, or a renewal of something that was bought.
func (m *market) sale(worker, key string) *deed {
	old := draw(m, func() int64 {
		if n := len(m.sold); n > 0 && (worker == "renew" || m.purchases >= maxSubscriptions) {
			return m.sold[m.chance.IntN(n)]
		}
		m.purchases++
		return 0
	})
	if old > 0 {
		return m.c.renewal(key, old)
	}
	return m.c.purchase(key, func(id int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !slices.Contains(m.sold, id) {
			m.sold = append(m.sold, id)
		}
	})
}

// deal does a deed, now and then twice at once.
func (m *market) deal(d *deed) error {
	twice := draw(m, func() bool {
		m.deeds = append(m.deeds, d)
		return m.chance.IntN(2) == 0
	})
	ask := d.ask
	if twice {
		ask = d.askTwice
	}
	d.span.from = m.tariffs.loaded()
	err := ask()
	d.span.until = m.tariffs.loading()
	if err == nil {
		m.moved()
	}
	return err
}

// call conducts a talk.
func (m *market) call(ctx context.Context, transport *http.Transport) error {
	k := draw(m, func() *talk {
		k := m.nextTalk()
		m.talks = append(m.talks, k)
		return k
	})
	m.scripts.add(k)
	k.span.from = m.tariffs.loaded()
	err := m.g.conduct(context.WithoutCancel(ctx), transport, m.c.key, k)
	k.span.until = m.tariffs.loading()
	switch {
	case err == nil:
		if !k.outlived() {
			k.ended = time.Now()
		}
		m.moved()
	case k.id != "" && m.reopens:
		return &refusal{http.StatusOK, fmt.Sprintf("talk %d, %s: %v", k.number, k.end, err)}
	}
	return err
}

// finish looks for all that was acknowledged, and then asks again for all that
// was not, and for some of what was.
func (m *market) finish() {
	m.g.t.Helper()
	m.c.checkDeeds(m.g.ledger(m.c.name), m.deeds) // asked for again, what was lost would be done again
	again := 0
	for _, d := range m.deeds {
		if d.moved.mark != "" {
			if again++; again > 40 {
				continue
			}
		}
		if d.moved.mark == "" {
			d.span.until = m.tariffs.loading()
		}
		if err := d.ask(); err != nil {
			m.g.t.Errorf("a %s of %s, asked for again: %v", d.kind, m.c.name, err)
		}
	}
}

// check holds the books against what both sides know. Calls that ended since
// the given time may be forgotten, and nothing else. It returns how many were,
// and how long before the end the first of them had ended.
func (m *market) check(killed time.Time) (forgotten int, age time.Duration) {
	t := m.g.t
	t.Helper()
	w := m.g.walletAtRest(m.c.name)
	lines := m.g.ledger(m.c.name)
	if all := m.c.checkDeeds(lines, m.deeds); all != len(m.deeds) {
		t.Errorf("%s asked for %d deeds, and there are lines of %d", m.c.name, len(m.deeds), all)
	}
	for _, d := range m.deeds {
		sale := d.kind == "purchase" || d.kind == "renewal"
		if paid := -d.moved.amount; sale && (paid < m.tariffs.plan(d.span.from) || paid > m.tariffs.plan(d.span.until)) {
			t.Errorf("a %s of %s cost %v at the prices %+v", d.kind, m.c.name, paid, d.span)
		}
	}

	records := map[string]used{}
	var charged nano
	for _, r := range m.c.calls() {
		if _, twice := records[r.Request]; twice {
			t.Errorf("the call %s is recorded twice", r.Request)
		}
		records[r.Request] = r
		charged += r.Cost
	}
	known := 0
	var least, most nano // that was lost
	for _, k := range m.talks {
		if record, found := records[k.id]; found {
			known++
			low, high := m.checkRecord(k, record)
			least, most = least+low, most+high
		} else if at, ended := k.over(); ended {
			forgotten++
			age = max(age, killed.Sub(at))
		}
	}
	if known != len(records) {
		t.Errorf("%s has made %d of the %d calls that are recorded", m.c.name, known, len(records))
	}
	var quota nano
	for _, s := range m.c.subscriptions() {
		quota += s.Used
	}
	if paid := quota - sumOf(lines, "calls"); paid != charged {
		t.Errorf("for calls that come to %v, %s has paid %v", charged, m.c.name, paid)
	}
	if sum := total(m.g.report(m.c.name)); sum.Cost != charged || sum.Calls != len(records) || sum.Lost < least || sum.Lost > most {
		t.Errorf("the report of %s is %+v, and there are %d calls that come to %v, and to between %v and %v more", m.c.name, sum, len(records), charged, least, most)
	}
	if len(lines) > 0 && w.Balance != lines[len(lines)-1].Balance || w.Held != 0 || w.Owed != 0 {
		t.Errorf("the wallet of %s is %+v after the line %+v", m.c.name, w, lines[len(lines)-1])
	}
	return forgotten, age
}

// checkRecord wants the record of a call to be what both its sides know of it,
// at a price at which it may have begun. It returns how much may have been lost.
func (m *market) checkRecord(k *talk, record used) (least, most nano) {
	m.g.t.Helper()
	want, ended, usage := k.charge()
	due := false
	for tariff := k.span.from; tariff <= k.span.until; tariff++ {
		p := m.tariffs.of(k.model, tariff)
		if record.Cost != k.cost(p) {
			continue
		}
		lost := k.lost(p)
		if !due {
			least = lost
		}
		least, most, due = min(least, lost), max(most, lost), true
	}
	if !due || record.Tokens != want || !k.mayHaveEnded(ended, record.Ended) || record.Usage != usage {
		m.g.t.Errorf("talk %d, %s after %d of %d, begun at the prices %+v, is recorded as %+v, want %s %s %+v",
			k.number, k.end, k.stop, len(k.said), k.span, record, ended, usage, want)
	}
	return least, most
}

// tariffs are the prices that follow each other while a market is open.
type tariffs struct {
	changes *atomic.Int64 // twice for each: before and after it is loaded
}

// span is a run of tariffs, both ends included.
type span struct{ from, until int }

// loaded is the oldest tariff at which something may still begin: a reload answers
// when Caddy has told the servers before to stop, and what they accept until they
// do, or have accepted already, is theirs.
func (t tariffs) loaded() int { return max(int(t.changes.Load()/2)-1, 0) }

// loading is the newest tariff at which something may begin already.
func (t tariffs) loading() int { return int((t.changes.Load() + 1) / 2) }

// of is what a model costs by a tariff: the first is that of all other tests.
func (t tariffs) of(model string, tariff int) price {
	p := prices[model]
	p.Input = (must(parseNano(p.Input)) * nano(tariff+1)).String()
	p.Output = (must(parseNano(p.Output)) * nano(2*tariff+1)).String()
	return p
}

// plan is what the plan costs by a tariff.
func (t tariffs) plan(tariff int) nano { return planPrice + nano(tariff) }
