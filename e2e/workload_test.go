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

// workload moves the money of one user concurrently: calls, purchases,
// renewals, top-ups and credits.
type workload struct {
	g            *gateway
	c            *gatewayUser
	scripts      *scriptSet
	random       callGenerator
	workers      map[string]int // number of goroutines by what they do
	pause        time.Duration  // minimum interval of a goroutine; zero: none
	acknowledged func()         // called after each acknowledgement
	reopens      bool           // a connection may break although the gateway continues
	shared       bool           // the gateway refuses with 503 while it has not heard from its store for a second
	tariffs      tariffs

	mu       sync.Mutex
	payments []*payment
	calls    []*scriptedCall
	sold     []int64 // subscriptions

	purchases int // number of attempted purchases
}

// newWorkload returns a workload for a new user with money.
func (g *gateway) newWorkload(name string, scripts *scriptSet, random callGenerator) *workload {
	g.t.Helper()
	m := &workload{g: g, c: g.newGatewayUser(name), scripts: scripts, random: random, acknowledged: func() {}, tariffs: tariffs{new(atomic.Int64)}}
	m.workers = map[string]int{"call": 4, "buy": 4, "renew": 2, "fill": 4, "give": 2}
	start := m.c.operatorCredit("opening", 1000*unit)
	if err := start.attempt(); err != nil {
		g.t.Fatal(err)
	}
	m.payments = append(m.payments, start)
	return m
}

// nextCall draws a call. The caller holds the mutex.
func (m *workload) nextCall() *scriptedCall { return m.random.scriptedCall(int(m.scripts.last.Add(1))) }

// wholeCall draws a call that ends normally and whose usage is reported.
func (m *workload) wholeCall() *scriptedCall {
	return draw(m, func() *scriptedCall {
		for {
			k := m.nextCall()
			if _, _, usage := k.charge(); k.end == whole && usage == "reported" {
				return k
			}
		}
	})
}

// draw calls what with the mutex held.
func draw[T any](m *workload, what func() T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return what()
}

// run performs operations concurrently until the gateway is gone or ctx ends.
func (m *workload) run(ctx context.Context) {
	transport := newTransport(http1)
	transport.MaxIdleConnsPerHost = 64
	transport.DisableKeepAlives = m.reopens // an idle connection belongs to the servers of the configuration that accepted it
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for worker, n := range m.workers {
		for i := range n {
			all.Go(func() {
				beat := time.NewTicker(cmp.Or(m.pause, time.Hour))
				defer beat.Stop()
				for step := 0; ctx.Err() == nil && m.step(ctx, transport, worker, fmt.Sprintf("%s-%d-%d", worker, i, step)); step++ {
					if m.pause > 0 {
						<-beat.C
					}
				}
			})
		}
	}
	all.Wait()
}

// step performs one operation. It returns false if the gateway is gone.
func (m *workload) step(ctx context.Context, transport *http.Transport, worker, key string) bool {
	var err error
	switch worker {
	case "call":
		err = m.call(ctx, transport)
	case "buy", "renew":
		err = m.pay(m.sale(worker, key))
	case "fill":
		err = m.pay(m.c.topUp(key, 3*unit, draw(m, func() bool { return m.random.IntN(2) == 0 })))
	case "give":
		err = m.pay(m.c.operatorCredit(key, 1))
	}
	no := new(refusal)
	switch {
	case !errors.As(err, &no):
	case m.shared && no.status == http.StatusServiceUnavailable:
		pause(ctx, retryInterval)
		return true
	default:
		m.g.t.Errorf("%s %s: %v", worker, key, no)
		return false
	}
	return err == nil || m.reopens
}

// maxSubscriptions is the number of plans that a user buys. At most 100 may
// be active at the same time.
const maxSubscriptions = 90

// sale returns a purchase, or the renewal of an earlier one.
func (m *workload) sale(worker, key string) *payment {
	old := draw(m, func() int64 {
		if n := len(m.sold); n > 0 && (worker == "renew" || m.purchases >= maxSubscriptions) {
			return m.sold[m.random.IntN(n)]
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

// pay performs a payment, sometimes twice at the same time.
func (m *workload) pay(d *payment) error {
	twice := draw(m, func() bool {
		m.payments = append(m.payments, d)
		return m.random.IntN(2) == 0
	})
	attempt := d.attempt
	if twice {
		attempt = d.attemptTwice
	}
	d.span.from = m.tariffs.loaded()
	err := attempt()
	d.span.until = m.tariffs.loading()
	if err == nil {
		m.acknowledged()
	}
	return err
}

// call makes a scripted call.
func (m *workload) call(ctx context.Context, transport *http.Transport) error {
	k := draw(m, func() *scriptedCall {
		k := m.nextCall()
		m.calls = append(m.calls, k)
		return k
	})
	m.scripts.add(k)
	k.span.from = m.tariffs.loaded()
	err := m.g.runCall(context.WithoutCancel(ctx), transport, m.c.key, k)
	k.span.until = m.tariffs.loading()
	switch {
	case err == nil:
		if !k.endsWithoutClient() {
			k.ended = time.Now()
		}
		m.acknowledged()
	case k.id != "" && m.reopens:
		return &refusal{http.StatusOK, fmt.Sprintf("call %d, %s: %v", k.number, k.end, err)}
	}
	return err
}

// finish checks everything that was acknowledged. Then it repeats all payments
// that were not acknowledged, and some that were.
func (m *workload) finish() {
	m.g.t.Helper()
	m.c.checkPayments(m.g.ledger(m.c.name), m.payments) // before repeating, because a repetition would perform a lost payment again
	again := 0
	for _, d := range m.payments {
		if d.receipt.reference != "" {
			if again++; again > 40 {
				continue
			}
		}
		if d.receipt.reference == "" {
			d.span.until = m.tariffs.loading()
		}
		if err := d.attempt(); err != nil {
			m.g.t.Errorf("the repetition of a %s of %s: %v", d.kind, m.c.name, err)
		}
	}
}

// check compares the ledger with the records of both sides. Only calls that
// ended since killed may be missing. It returns how many are missing, and how
// long before the kill the first of them had ended.
func (m *workload) check(killed time.Time) (lost int, age time.Duration) {
	t := m.g.t
	t.Helper()
	w := m.g.walletAtRest(m.c.name)
	lines := m.g.ledger(m.c.name)
	if all := m.c.checkPayments(lines, m.payments); all != len(m.payments) {
		t.Errorf("%s made %d payments, the ledger has %d", m.c.name, len(m.payments), all)
	}
	for _, d := range m.payments {
		sale := d.kind == "purchase" || d.kind == "renewal"
		if paid := -d.receipt.amount; sale && (paid < m.tariffs.plan(d.span.from) || paid > m.tariffs.plan(d.span.until)) {
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
	var least, most nano // bounds of the uncollected amount
	for _, k := range m.calls {
		if record, found := records[k.id]; found {
			known++
			low, high := m.checkRecord(k, record)
			least, most = least+low, most+high
		} else if at, ended := k.over(); ended {
			lost++
			age = max(age, killed.Sub(at))
		}
	}
	if known != len(records) {
		t.Errorf("%d of %d recorded calls were made by %s", known, len(records), m.c.name)
	}
	var quota nano
	for _, s := range m.c.subscriptions() {
		quota += s.Used
	}
	if paid := quota - sumOf(lines, "calls"); paid != charged {
		t.Errorf("%s paid %v for calls, want %v", m.c.name, paid, charged)
	}
	if sum := total(m.g.report(m.c.name)); sum.Cost != charged || sum.Calls != len(records) || sum.Uncollected < least || sum.Uncollected > most {
		t.Errorf("the report of %s is %+v, want %d calls that cost %v, uncollected %v to %v", m.c.name, sum, len(records), charged, least, most)
	}
	if len(lines) > 0 && w.Balance != lines[len(lines)-1].Balance || w.Held != 0 || w.Owed != 0 {
		t.Errorf("the wallet of %s is %+v after the line %+v", m.c.name, w, lines[len(lines)-1])
	}
	return lost, age
}

// checkRecord checks that the record of a call agrees with both sides, at a
// price at which it may have begun. It returns the bounds of what may be
// uncollected.
func (m *workload) checkRecord(k *scriptedCall, record used) (least, most nano) {
	m.g.t.Helper()
	want, ended, usage := k.charge()
	due := false
	for tariff := k.span.from; tariff <= k.span.until; tariff++ {
		p := m.tariffs.of(k.model, tariff)
		if record.Cost != k.cost(p) {
			continue
		}
		lost := k.uncollected(p)
		if !due {
			least = lost
		}
		least, most, due = min(least, lost), max(most, lost), true
	}
	if !due || record.Tokens != want || !k.mayHaveEnded(ended, record.Ended) || record.Usage != usage {
		m.g.t.Errorf("call %d, %s after %d of %d, begun at the prices %+v, is recorded as %+v, want %s %s %+v",
			k.number, k.end, k.stop, len(k.events), k.span, record, ended, usage, want)
	}
	return least, most
}

// tariffs are prices that replace each other while a workload runs.
type tariffs struct {
	changes *atomic.Int64 // two per change: before and after it is loaded
}

// span is a range of tariffs, inclusive.
type span struct{ from, until int }

// loaded returns the oldest tariff that may still apply to a new operation.
// Caddy answers a reload before the previous servers have stopped. They still
// serve accepted connections.
func (t tariffs) loaded() int { return max(int(t.changes.Load()/2)-1, 0) }

// loading returns the newest tariff that may already apply.
func (t tariffs) loading() int { return int((t.changes.Load() + 1) / 2) }

// of returns the price of a model by a tariff. The first tariff is that of all
// other tests.
func (t tariffs) of(model string, tariff int) price {
	p := prices[model]
	p.Input = (must(parseNano(p.Input)) * nano(tariff+1)).String()
	p.Output = (must(parseNano(p.Output)) * nano(2*tariff+1)).String()
	return p
}

// plan returns the price of the plan by a tariff.
func (t tariffs) plan(tariff int) nano { return planPrice + nano(tariff) }
