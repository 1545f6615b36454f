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

// model is a ledger over a store with planned faults, and the content that the ledger must have
// after the steps so far. It runs in a synctest bubble.
type model struct {
	disk   *memory.Engine // survives the end of the process
	faulty *storagetest.Faulty
	gate   *gate
	store  *storage.Store
	ledger *Ledger

	pending   []chan func()   // steps that wait for the gate
	keysInUse map[string]bool // their idempotency keys
	plan      int             // number of the last commit with a planned fault
	faulted   bool            // planned faults may remain
	ids       int
	err       error // the first mismatch

	balance map[journal.Account]money.Amount // without the payments of calls
	held    map[journal.Account]money.Amount
	booked  map[journal.ID]bool
	orders  map[string]int
	calls   []*modelCall
	holds   []*modelHold
}

// modelCall is an admitted call.
type modelCall struct {
	journal.Call
	reservation *Reservation
	under       []journal.Account                  // budgets
	paid        []map[journal.Account]money.Amount // in total, after each settlement
	durable     int                                // number of settlements that were seen in the store
	over        bool
	ended       usage.Ended
}

func (c *modelCall) total() (paid map[journal.Account]money.Amount, sum money.Amount) {
	if len(c.paid) == 0 {
		return nil, 0
	}
	paid = c.paid[len(c.paid)-1]
	for _, amount := range paid {
		sum += amount
	}
	return paid, sum
}

// modelHold is a hold and the costs with which steps tried to end it.
type modelHold struct {
	id    journal.ID
	user  string
	parts []journal.Leg
	costs []money.Amount
	ended bool
}

// usage returns the usage record that counts the charge of the hold.
func (h *modelHold) usage() journal.Usage {
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

// unclosed is an engine that stays open when its store is closed.
type unclosed struct{ storage.Engine }

func (unclosed) Close() error { return nil }

// Sole implements [storage.Sole], as the engine of gateways does.
func (unclosed) Sole() bool { return true }

func newModel() *model {
	m := &model{
		disk: memory.New(), balance: make(map[journal.Account]money.Amount), held: make(map[journal.Account]money.Amount),
		booked: make(map[journal.ID]bool), orders: make(map[string]int), keysInUse: make(map[string]bool),
	}
	m.start()
	return m
}

// start starts the process.
func (m *model) start() {
	m.faulty = storagetest.NewFaulty(unclosed{m.disk})
	m.gate = &gate{Engine: m.faulty}
	m.plan, m.faulted = 0, false
	m.store = storage.New(m.gate, storage.Options{Gather: -1})
	var err error
	if m.ledger, err = Open(context.Background(), m.store, Options{Sources: m.sources}); err != nil {
		m.failf("opening: %v", err)
	}
}

// stop stops the process gracefully.
func (m *model) stop() {
	m.gate.set(false)
	m.collect()
	m.ledger.Close(context.Background())
	if err := m.store.Close(); err != nil {
		m.failf("closing: %v", err)
	}
}

func (m *model) failf(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

// orders are the funding sources of a user, in the order in which they are spent.
// Quota 1 is that of today, and quota 2 never ends.
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

// dayQuota is the amount with which the quota of a day is opened.
const dayQuota = 7

// today returns the quota of a user for the current day.
func today(user string) journal.Account {
	return journal.Quota(user, 1, calendar.Day.Start(time.Now()))
}

func opening(quota journal.Account) journal.Transfer {
	return journal.Transfer{ID: journal.IDOf("open", string(quota)), Kind: journal.Grant, User: quota.Owner(), Legs: journal.LegsBetween(journal.Granted, quota, dayQuota)}
}

// sources implements Options.Sources. It opens the quota of the day.
func (m *model) sources(t storage.Txn, user string) (Sources, error) {
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

// noteOpenedQuotas adds the quotas that were opened to the model.
func (m *model) noteOpenedQuotas() {
	for _, user := range []string{"ann", "bob"} {
		var quotas []journal.Account
		m.view(func(r storage.Reader) error {
			prefix := journal.AccountKey(journal.Account("u/" + user + "/quota/1/"))
			return r.Scan(prefix, storage.PrefixEnd(prefix), func(key, _ []byte) bool {
				quotas = append(quotas, journal.Account(key[len(journal.AccountPrefix):]))
				return true
			})
		})
		for _, quota := range quotas {
			if _, opened := m.transfer(opening(quota).ID); opened {
				m.noteTransfer("an opening", nil, opening(quota))
			}
		}
	}
}

// run runs a step that waits for the store. It notes the result when the step ends: now, or when
// the gate opens.
func (m *model) run(step func() (note func())) {
	note := make(chan func(), 1)
	go func() { note <- step() }()
	m.pending = append(m.pending, note)
	if m.gate.isShut() {
		synctest.Wait()
	} else {
		m.collect()
	}
}

// collect waits for the pending steps and notes their results.
func (m *model) collect() {
	for _, note := range m.pending {
		(<-note)()
	}
	m.pending = nil
	clear(m.keysInUse)
}

// isPredictable reports whether the result of the next step is known in advance:
// no step is pending and no fault is planned.
func (m *model) isPredictable() bool { return !m.faulted && !m.gate.isShut() }

// checkWhenDurable waits until everything queued is durable and compares the
// ledger with the model. It restarts a process whose store has failed.
func (m *model) checkWhenDurable() {
	if m.gate.isShut() || m.err != nil {
		return
	}
	m.waitUntilDurable()
	if m.store.Err() != nil {
		m.crash()
	}
	if m.faulty.Commits() >= m.plan {
		m.faulted = false
	}
	if m.err == nil {
		m.noteOpenedQuotas()
		m.check()
	}
}

// waitUntilDurable waits until everything queued is durable or the store has failed.
func (m *model) waitUntilDurable() {
	for range 100 {
		synctest.Wait()
		if m.store.Err() != nil || m.ledger.Stats().Queued == 0 {
			return
		}
		time.Sleep(retryEvery)
	}
	m.failf("settlements are stuck: %+v", m.ledger.Stats())
}

// crash kills the process and starts it again. Open calls end. The store keeps
// those of their settlements that were durable.
func (m *model) crash() {
	m.ledger.Close(context.Background())
	_ = m.store.Close()
	m.start()
	m.dropUndurable()
}

// dropUndurable removes settlements that the store does not have.
func (m *model) dropUndurable() {
	for _, c := range m.calls {
		if c.over && c.durable == len(c.paid) {
			continue
		}
		record := m.record(c)
		if record.Number < c.durable || record.Number > len(c.paid) {
			m.failf("call %s has %d settlements in the store, want %d to %d", c.ID, record.Number, c.durable, len(c.paid))
			return
		}
		if record.Number < len(c.paid) || !c.over {
			c.ended = journal.Crashed
		}
		c.paid = c.paid[:record.Number]
		c.over = true
	}
}

func (m *model) view(fn func(storage.Reader) error) {
	if err := m.disk.View(context.Background(), fn); err != nil {
		m.failf("view: %v", err)
	}
}

func (m *model) record(c *modelCall) (record journal.CallRecord) {
	m.view(func(r storage.Reader) (err error) {
		record, _, err = journal.ReadCall(r, c.StoreKey(journal.CallPrefix))
		return err
	})
	return record
}

// transfer returns a transfer and whether the store has it.
func (m *model) transfer(id journal.ID) (x journal.Transfer, happened bool) {
	m.view(func(r storage.Reader) (err error) {
		x, happened, err = journal.ReadTransfer(r, id)
		return err
	})
	return x, happened
}

// noteTransfer adds a transfer to the model if the store has it. The store must
// have it if err is nil. While faults are planned, it may also have it after an
// error.
func (m *model) noteTransfer(what string, err error, x journal.Transfer) (happened bool) {
	_, happened = m.transfer(x.ID)
	var f *fault.Fault
	switch {
	case err == nil && !happened:
		m.failf("%s was acknowledged and is missing", what)
	case err != nil && (!m.faulted || !errors.As(err, &f) || f.Code != fault.StoreUnavailable):
		m.failf("%s: %v", what, err)
	}
	if happened && !m.booked[x.ID] {
		m.booked[x.ID] = true
		for _, leg := range x.Legs {
			m.balance[leg.Account] += leg.Amount
			m.held[leg.Account] += leg.Held
		}
	}
	return happened
}
