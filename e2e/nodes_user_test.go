package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// roamingUser is a user who sends each request to the next gateway.
type roamingUser struct {
	*gatewayUser
	nodes  []*gateway
	number int

	calls    []answered
	payments []*payment
	tasks    []*generation
}

// openingCredit is the money of a new user.
const openingCredit = 10_000 * unit

// newRoamingUser creates a user with money, whom all gateways know.
func newRoamingUser(nodes []*gateway, number int) *roamingUser {
	c := &roamingUser{gatewayUser: nodes[number%len(nodes)].newGatewayUser(fmt.Sprintf("user%d", number)), nodes: nodes, number: number}
	c.credit(openingCredit.String())
	for _, g := range nodes {
		g.awaitKey(c.key)
	}
	return c
}

// at returns the user at the gateway whose turn it is.
func (c *roamingUser) at(turn int) *gatewayUser {
	user := *c.gatewayUser
	user.g = c.nodes[(turn+c.number)%len(c.nodes)]
	return &user
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// callUntil calls until ctx ends.
func (c *roamingUser) callUntil(ctx context.Context) {
	transport := newTransport(http1)
	transport.ResponseHeaderTimeout = 10 * time.Second
	defer transport.CloseIdleConnections()
	for turn := 0; ctx.Err() == nil; turn++ {
		g := c.at(turn).g
		callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		a := g.sendOver(transport, g.request(callCtx, "/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+c.key))
		cancel()
		switch {
		case a.Err == nil && a.Status == http.StatusOK:
			c.calls = append(c.calls, answered{a.Header.Get("X-Request-Id"), slices.Index(c.nodes, g), time.Now()})
		case a.Err != nil || a.Status == http.StatusServiceUnavailable:
			pause(ctx, 5*time.Millisecond) // a gateway that is down refuses at once
		default:
			g.t.Errorf("a call got %d %.300s", a.Status, a.Body)
		}
	}
}

// payUntil makes payments of all kinds until ctx ends. One that was not acknowledged is repeated at the
// end.
func (c *roamingUser) payUntil(ctx context.Context) {
	var mu sync.Mutex
	var sold []int64
	for turn := 0; ctx.Err() == nil; turn++ {
		user, key := c.at(turn), fmt.Sprintf("payment-%d-%d", c.number, turn)
		mu.Lock()
		own := slices.Clone(sold)
		mu.Unlock()
		d := user.operatorCredit(key, 1)
		switch {
		case turn%8 == 3 && turn < 8*maxSubscriptions:
			d = user.purchase(key, func(id int64) {
				mu.Lock()
				defer mu.Unlock()
				sold = append(sold, id)
			})
		case turn%8 == 5 && len(own) > 0:
			d = user.renewal(key, own[turn%len(own)])
		case turn%4 == 2:
			d = user.topUp(key, 3*unit, false)
		}
		c.payments = append(c.payments, d)
		if turn%3 == 0 {
			_ = d.attemptTwice()
		} else {
			_ = d.attempt()
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// submitUntil submits tasks until ctx ends. An attempt that is not acknowledged is repeated at the next
// gateway.
func (c *roamingUser) submitUntil(ctx context.Context) {
	var submitting sync.WaitGroup
	for turn := 0; ctx.Err() == nil; turn++ {
		o := &generation{number: turn, model: []string{film, picture, clip, reel}[turn%4], words: []string{"", slowWord, failsWord}[turn%3]}
		c.tasks = append(c.tasks, o)
		submitting.Go(func() {
			attempt := turn
			o.submitAs(func() *gatewayUser {
				attempt++
				return c.at(attempt)
			})
		})
		pause(ctx, 150*time.Millisecond)
	}
	submitting.Wait()
}

// checkPaid checks that what was acknowledged is in the ledger once, and again when all payments are
// repeated.
func (c *roamingUser) checkPaid() {
	t := c.g.t
	c.checkPayments(c.g.ledger(c.name), c.payments)
	for _, d := range c.payments {
		if err := d.attempt(); err != nil {
			t.Errorf("the repetition of a %s of %s: %v", d.kind, c.name, err)
		}
	}
	if all := c.checkPayments(c.g.ledger(c.name), c.payments); all != len(c.payments)+1 { // the opening credit
		t.Errorf("%s made %d payments, the ledger has %d", c.name, len(c.payments), all-1)
	}
}

// checkCalls checks that each answered call is recorded once, but for those that a fault of their gateway
// explains. It returns the number of these.
func (c *roamingUser) checkCalls(h *harm) (lost int) {
	t := c.g.t
	w := c.g.walletAtRest(c.name) // when another gateway has cleared up after the last epoch that ended
	recorded := map[string]int{}
	for _, call := range c.gatewayUser.calls() {
		if recorded[call.Request]++; recorded[call.Request] > 1 {
			t.Errorf("the call %s is recorded twice", call.Request)
		}
	}
	for _, a := range c.calls {
		if recorded[a.id] == 1 {
			continue
		}
		lost++
		if !slices.ContainsFunc(h.losses, func(l harmed) bool {
			return l.node == a.node && a.at.After(l.at.Add(-maxUnwritten)) && a.at.Before(l.at.Add(maxUnwritten))
		}) {
			t.Errorf("the call %s is lost at %v, although its gateway %d had no fault then: %v", a.id, a.at, a.node, h.notes)
		}
	}
	if w.Balance < 0 || w.Held != 0 {
		t.Errorf("the wallet of %s is %+v", c.name, w)
	}
	return lost
}

// checkTasks waits for the end of all tasks and compares them with the records of the other sides. It
// returns how many there are by status.
func (c *roamingUser) checkTasks(u *mockService, r *receiver) map[string]int {
	ends := make([]resource, len(c.tasks))
	inParallel(8, len(c.tasks), func(i int) { ends[i] = c.outcome(c.tasks[i]) })
	var over []string
	for i, end := range ends {
		if end.Completed != 0 {
			over = append(over, c.tasks[i].task)
		}
	}
	r.awaitAll(c.g.t, over)
	b := taskTotals{ended: map[string]int{}}
	for i, o := range c.tasks {
		b.check(c.gatewayUser, o, u, r, ends[i])
	}
	b.checkMoney(c.gatewayUser, openingCredit)
	return b.ended
}
