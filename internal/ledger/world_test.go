package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
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
	claiming map[string]bool // idempotencyKeys of those
	plan     int             // faults that have been planned
	trouble  bool            // some of them may not have been met yet
	ids      int
	err      error // the first thing that was not as it must be

	balance map[journal.Account]money.Amount // without what calls have paid
	held    map[journal.Account]money.Amount
	booked  map[journal.ID]bool
	orders  map[string]int
	calls   []*madeCall
	holds   []*madeHold
}

// madeCall is a call that was let in.
type madeCall struct {
	journal.Call
	reservation *Reservation
	under       []journal.Account                  // budgets
	paid        []map[journal.Account]money.Amount // after each settlement, in all
	durable     int                                // settlements that were seen in the store
	over        bool
	ended       usage.Ended
}

func (c *madeCall) total() (paid map[journal.Account]money.Amount, sum money.Amount) {
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
	id    journal.ID
	user  string
	parts []journal.Leg
	costs []money.Amount
	ended bool
}

// usage is where the charge of a hold counts: beside calls.
func (h *madeHold) usage() journal.Usage {
	return journal.Usage{User: h.user, Key: "key_1", Model: "m"}
}

// gate is an engine whose transactions wait while it is shut.
type gate struct {
	storage.Engine
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil while it is open
}

// Sole implements [storage.Sole], as the engine of gateways does.
func (g *gate) Sole() bool { return true }

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

// Sole implements [storage.Sole], as the engine of gateways does.
func (outliving) Sole() bool { return true }

func newWorld() *world {
	w := &world{
		disk: memory.New(), balance: make(map[journal.Account]money.Amount), held: make(map[journal.Account]money.Amount),
		booked: make(map[journal.ID]bool), orders: make(map[string]int), claiming: make(map[string]bool),
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
var orders = [...]func(user string, today time.Time) []journal.Account{
	func(user string, _ time.Time) []journal.Account { return []journal.Account{journal.Wallet(user)} },
	func(user string, today time.Time) []journal.Account {
		return []journal.Account{journal.Quota(user, 1, today), journal.Wallet(user)}
	},
	func(user string, today time.Time) []journal.Account {
		return []journal.Account{journal.Quota(user, 2, time.Unix(0, 0)), journal.Quota(user, 1, today), journal.Wallet(user)}
	},
	func(user string, today time.Time) []journal.Account {
		return []journal.Account{journal.Wallet(user), journal.Quota(user, 1, today)}
	},
	func(user string, today time.Time) []journal.Account {
		return []journal.Account{journal.Quota(user, 1, today), journal.Quota(user, 2, time.Unix(0, 0))}
	},
	func(string, time.Time) []journal.Account { return nil },
}

func orderKey(user string) []byte { return []byte("order/" + user) }

// dayQuota is what the quota of a day has when it is opened.
const dayQuota = 7

// today is the quota of a user that is opened each day.
func today(user string) journal.Account {
	return journal.Quota(user, 1, calendar.Day.Start(time.Now()))
}

func opening(quota journal.Account) journal.Transfer {
	return journal.Transfer{ID: journal.IDOf("open", string(quota)), Kind: journal.Grant, User: quota.Owner(), Legs: journal.LegsBetween(journal.Granted, quota, dayQuota)}
}

// sources is what the ledger is told of a user. It opens the quota of the day.
func (w *world) sources(t storage.Txn, user string) (Sources, error) {
	var which int
	if _, err := storage.GetRecord(t, orderKey(user), &which); err != nil {
		return Sources{}, err
	}
	now := time.Now()
	s := Sources{Order: orders[which](user, calendar.Day.Start(now)), Until: calendar.Day.Next(now)}
	if slices.Contains(s.Order, today(user)) {
		if _, err := journal.Book(t, now, opening(today(user))); err != nil {
			return Sources{}, err
		}
	}
	return s, nil
}

// openings notes the quotas that have been opened.
func (w *world) openings() {
	for _, user := range []string{"ann", "bob"} {
		var quotas []journal.Account
		w.view(func(r storage.Reader) error {
			prefix := journal.AccountKey(journal.Account("u/" + user + "/quota/1/"))
			return r.Scan(prefix, storage.PrefixEnd(prefix), func(key, _ []byte) bool {
				quotas = append(quotas, journal.Account(key[len(journal.AccountPrefix):]))
				return true
			})
		})
		for _, quota := range quotas {
			if _, opened := w.transfer(opening(quota).ID); opened {
				w.came("an opening", nil, opening(quota))
			}
		}
	}
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

// calm reports whether nothing is under way and nothing goes wrong, so that what
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
		w.openings()
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
			c.ended = journal.Crashed
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

func (w *world) record(c *madeCall) (record journal.CallRecord) {
	w.view(func(r storage.Reader) (err error) {
		record, _, err = journal.ReadCall(r, c.StoreKey(journal.CallPrefix))
		return err
	})
	return record
}

// transfer returns a transfer, if it has happened.
func (w *world) transfer(id journal.ID) (x journal.Transfer, happened bool) {
	w.view(func(r storage.Reader) (err error) {
		x, happened, err = journal.ReadTransfer(r, id)
		return err
	})
	return x, happened
}

// came notes what came of a transfer: it has happened when there was no error.
// When the store has gone wrong nobody knows, and it may be there or not.
func (w *world) came(what string, err error, x journal.Transfer) (happened bool) {
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
