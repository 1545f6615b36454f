package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// world is a ledger over a store that goes wrong by plan, and beside it a plain
// account of what must have come of the steps taken. It lives in a bubble of
// synctest, whose time is its clock.
type world struct {
	disk   *memory.Engine // what outlives the process
	faulty *storagetest.Faulty
	gate   *gate
	store  *storage.Store
	ledger *Ledger

	pending  []chan func()   // steps that wait for the gate
	claiming map[string]bool // claims of those
	plan     int             // faults that have been planned
	trouble  bool            // some of them may not have been met yet
	ids      int
	err      error // the first thing that was not as it must be

	balance map[Account]money.Amount // without what calls have paid
	held    map[Account]money.Amount
	booked  map[ID]bool
	orders  map[string]int
	calls   []*madeCall
	holds   []*madeHold
}

// madeCall is a call that was let in.
type madeCall struct {
	Call
	reservation *Reservation
	under       []Account                  // budgets
	paid        []map[Account]money.Amount // after each settlement, in all
	durable     int                        // settlements that were seen in the store
	over        bool
	ended       usage.Ended
}

func (c *madeCall) total() (paid map[Account]money.Amount, sum money.Amount) {
	if len(c.paid) == 0 {
		return nil, 0
	}
	paid = c.paid[len(c.paid)-1]
	for _, amount := range paid {
		sum += amount
	}
	return paid, sum
}

// madeHold is a hold, and what it may have been ended for.
type madeHold struct {
	id    ID
	user  string
	parts []Leg
	costs []money.Amount
	ended bool
}

// gate is an engine whose transactions wait while it is shut.
type gate struct {
	storage.Engine
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil while it is open
}

func (g *gate) Update(ctx context.Context, fn func(storage.Txn) error) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return g.Engine.Update(ctx, fn)
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.shut == nil:
		g.shut = make(chan struct{})
	case !shut && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

// outliving is an engine that a store cannot close.
type outliving struct{ storage.Engine }

func (outliving) Close() error { return nil }

func newWorld() *world {
	w := &world{
		disk: memory.New(), balance: make(map[Account]money.Amount), held: make(map[Account]money.Amount),
		booked: make(map[ID]bool), orders: make(map[string]int), claiming: make(map[string]bool),
	}
	w.begin()
	return w
}

// begin starts the process.
func (w *world) begin() {
	w.faulty = storagetest.NewFaulty(outliving{w.disk})
	w.gate = &gate{Engine: w.faulty}
	w.plan, w.trouble = 0, false
	w.store = storage.New(w.gate, storage.Options{Gather: -1})
	var err error
	if w.ledger, err = Open(context.Background(), w.store, Options{Sources: w.sources}); err != nil {
		w.failf("opening: %v", err)
	}
}

// end ends the process in good order.
func (w *world) end() {
	w.gate.set(false)
	w.collect()
	w.ledger.Close(context.Background())
	if err := w.store.Close(); err != nil {
		w.failf("closing: %v", err)
	}
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// orders are what users want their money spent from. A quota may be that of
// today, or one that never ends.
var orders = [...]func(user string, today time.Time) []Account{
	func(user string, _ time.Time) []Account { return []Account{Wallet(user)} },
	func(user string, today time.Time) []Account { return []Account{Quota(user, 1, today), Wallet(user)} },
	func(user string, today time.Time) []Account {
		return []Account{Quota(user, 2, time.Unix(0, 0)), Quota(user, 1, today), Wallet(user)}
	},
	func(user string, today time.Time) []Account { return []Account{Wallet(user), Quota(user, 1, today)} },
	func(user string, today time.Time) []Account {
		return []Account{Quota(user, 1, today), Quota(user, 2, time.Unix(0, 0))}
	},
	func(string, time.Time) []Account { return nil },
}

func orderKey(user string) []byte { return []byte("order/" + user) }

// sources is what the ledger is told of a user.
func (w *world) sources(t storage.Txn, user string) (Sources, error) {
	var which int
	_, err := storage.GetRecord(t, orderKey(user), &which)
	now := time.Now()
	return Sources{Order: orders[which](user, calendar.Day.Start(now)), Until: calendar.Day.Next(now)}, err
}

// run takes a step that waits for the store. What came of it is noted when it
// is over: now, or when the gate opens.
func (w *world) run(take func() (note func())) {
	note := make(chan func(), 1)
	go func() { note <- take() }()
	w.pending = append(w.pending, note)
	if w.gate.isShut() {
		synctest.Wait()
	} else {
		w.collect()
	}
}

// collect waits for the steps under way.
func (w *world) collect() {
	for _, note := range w.pending {
		(<-note)()
	}
	w.pending = nil
	clear(w.claiming)
}

// calm tells whether nothing is under way and nothing goes wrong, so that what
// must come of a step is known beforehand.
func (w *world) calm() bool { return !w.trouble && !w.gate.isShut() }

// look waits until everything queued is durable, and holds the ledger against
// what must be. A process whose store has failed is started again.
func (w *world) look() {
	if w.gate.isShut() || w.err != nil {
		return
	}
	w.settle()
	if w.store.Err() != nil {
		w.crash()
	}
	if w.faulty.Commits() >= w.plan {
		w.trouble = false
	}
	if w.err == nil {
		w.check()
	}
}

// settle waits until everything queued is durable or the store has failed.
func (w *world) settle() {
	for range 100 {
		synctest.Wait()
		if w.store.Err() != nil || w.ledger.Stats().Queued == 0 {
			return
		}
		time.Sleep(retryEvery)
	}
	w.failf("settlements are stuck: %+v", w.ledger.Stats())
}

// crash ends the process without ceremony and starts it again. Calls under way
// are over; of what they have settled, the store has what was durable.
func (w *world) crash() {
	w.ledger.Close(context.Background())
	_ = w.store.Close()
	w.begin()
	w.forget()
}

// forget takes from the calls what the store does not have of them.
func (w *world) forget() {
	for _, c := range w.calls {
		if c.over && c.durable == len(c.paid) {
			continue
		}
		record := w.record(c)
		if record.Number < c.durable || record.Number > len(c.paid) {
			w.failf("call %s has %d settlements in the store, at least %d and at most %d were made", c.ID, record.Number, c.durable, len(c.paid))
			return
		}
		if record.Number < len(c.paid) || !c.over {
			c.ended = Crashed
		}
		c.paid = c.paid[:record.Number]
		c.over = true
	}
}

func (w *world) view(fn func(storage.Reader) error) {
	if err := w.disk.View(context.Background(), fn); err != nil {
		w.failf("looking: %v", err)
	}
}

func (w *world) record(c *madeCall) (record callRecord) {
	w.view(func(r storage.Reader) error {
		_, err := storage.GetRecord(r, c.key(), &record)
		return err
	})
	return record
}

// transfer returns a transfer, if it has happened.
func (w *world) transfer(id ID) (x Transfer, happened bool) {
	w.view(func(r storage.Reader) (err error) {
		x, happened, err = ReadTransfer(r, id)
		return err
	})
	return x, happened
}

// came notes what came of a transfer: it has happened when there was no error.
// When the store has gone wrong nobody knows, and it may be there or not.
func (w *world) came(what string, err error, x Transfer) (happened bool) {
	_, happened = w.transfer(x.ID)
	var f *fault.Fault
	switch {
	case err == nil && !happened:
		w.failf("%s was acknowledged, and is not there", what)
	case err != nil && (!w.trouble || !errors.As(err, &f) || f.Code != fault.StoreUnavailable):
		w.failf("%s: %v", what, err)
	}
	if happened && !w.booked[x.ID] {
		w.booked[x.ID] = true
		for _, leg := range x.Legs {
			w.balance[leg.Account] += leg.Amount
			w.held[leg.Account] += leg.Held
		}
	}
	return happened
}

// states is what the accounts of users must have.
func (w *world) states() map[Account]State {
	states := make(map[Account]State)
	change := func(a Account, balance, held money.Amount) {
		if a.Owner() != "" {
			s := states[a]
			states[a] = State{Balance: s.Balance + balance, Held: s.Held + held}
		}
	}
	for a, amount := range w.balance {
		change(a, amount, 0)
	}
	for a, amount := range w.held {
		change(a, 0, amount)
	}
	for _, c := range w.calls {
		paid, sum := c.total()
		for a, amount := range paid {
			change(a, -amount, 0)
		}
		for _, a := range c.under {
			change(a, -sum, 0)
		}
	}
	return states
}

// reserved is what open calls have reserved and not been charged, by account.
func (w *world) reserved() map[Account]money.Amount {
	reserved := make(map[Account]money.Amount)
	for _, c := range w.calls {
		if c.over {
			continue
		}
		for _, part := range c.reservation.parts {
			reserved[part.pot.account] += part.amount - part.charged
		}
		for _, a := range c.under {
			reserved[a] += c.reservation.amount - c.reservation.charged
		}
	}
	return reserved
}

// available is what may be spent of accounts.
func (w *world) available(accounts ...Account) (sum money.Amount) {
	states, reserved := w.states(), w.reserved()
	for _, a := range accounts {
		sum += states[a].Available() - reserved[a]
	}
	return sum
}

func (w *world) order(user string) []Account {
	return orders[w.orders[user]](user, calendar.Day.Start(time.Now()))
}

// check holds everything against what must be.
func (w *world) check() {
	w.checkAccounts()
	w.checkCalls()
	w.checkPurses()
	open, reserved := int64(0), money.Amount(0)
	for _, c := range w.calls {
		if !c.over && c.reservation.purse != nil {
			open++
			reserved += c.reservation.amount - c.reservation.charged
		}
	}
	stats := w.ledger.Stats()
	stats.Purses = 0
	if want := (Stats{Open: open, Reserved: reserved}); stats != want {
		w.failf("the figures are %+v, not %+v", stats, want)
	}
	var problems []string
	w.view(func(r storage.Reader) error {
		_, err := Verify(context.Background(), r, time.Now(), CallsKept, func(p Problem) {
			problems = append(problems, p.Where+": "+p.What)
		})
		return err
	})
	if len(problems) > 0 {
		w.failf("Verify found:\n%s", strings.Join(problems, "\n"))
	}
}

func (w *world) checkAccounts() {
	want := w.states()
	w.view(func(r storage.Reader) error {
		for a, s := range want {
			have, err := ReadState(r, a)
			if err != nil {
				return err
			}
			if have.Entries = 0; have != s {
				w.failf("account %s has %d with %d held, not %d with %d", a, have.Balance, have.Held, s.Balance, s.Held)
			}
			if a.kept() && have.Available() < 0 {
				w.failf("account %s has %d available", a, have.Available())
			}
		}
		return r.Scan(accountKey("u/"), storage.PrefixEnd(accountKey("u/")), func(key, _ []byte) bool {
			if _, known := want[Account(key[len(accountPrefix):])]; !known {
				w.failf("%s is there, and nothing was done that concerns it", key)
			}
			return true
		})
	})
}

func (w *world) checkCalls() {
	for _, c := range w.calls {
		record := w.record(c)
		_, sum := c.total()
		switch {
		case record.Number != len(c.paid):
			w.failf("call %s has %d settlements in the store, %d were made", c.ID, record.Number, len(c.paid))
		case record.Cost != sum:
			w.failf("call %s has cost %d in the store, it was charged %d", c.ID, record.Cost, sum)
		case record.Number > 0 && record.Ended != c.ended:
			w.failf("call %s has ended as %q in the store, not as %q", c.ID, record.Ended, c.ended)
		}
		c.durable = record.Number
	}
}

// checkPurses looks whether what stands in memory is what the store has.
func (w *world) checkPurses() {
	reserved := w.reserved()
	for _, user := range []string{"ann", "bob"} {
		p := w.ledger.purses.find(user)
		if p == nil || !p.loaded {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		w.view(func(r storage.Reader) error {
			for a, pot := range p.pots {
				state, err := ReadState(r, a)
				if err != nil {
					return err
				}
				if pot.reserved != reserved[a] {
					w.failf("the purse of %s has %d reserved of %s, not %d", user, pot.reserved, a, reserved[a])
				}
				if listed := a == Wallet(user) || slices.Contains(p.order, pot); listed && pot.durable != state.Available() {
					w.failf("the purse of %s has %d of %s, the store has %d", user, pot.durable, a, state.Available())
				}
			}
			for _, tally := range p.caps {
				state, err := ReadState(r, tally.account)
				if err != nil {
					return err
				}
				if used := state.Held - state.Balance; tally.used != used || tally.reserved != reserved[tally.account] {
					w.failf("the purse of %s counts %d and %d reserved on %s, not %d and %d",
						user, tally.used, tally.reserved, tally.account, used, reserved[tally.account])
				}
			}
			return nil
		})
	}
}
