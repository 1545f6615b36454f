package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// clusterModel is a cluster of three nodes and what its store must have after the steps so far. A node
// may stop before a commit or before the answer to it, lose its line or its process, and go on after the
// others have ended its epoch. The model runs in a synctest bubble.
type clusterModel struct {
	*cluster
	present [3]*clusterNode
	epochs  map[*clusterNode]int64
	pending map[*clusterNode][]chan func() // steps that wait for a node that is stopped or cut off
	inUse   map[string]bool                // idempotency keys of purchases under way at a node

	transfers []*clusterTransfer
	calls     []*clusterCall

	mu       sync.Mutex
	problems []string
}

// clusterTransfer is an attempt to move money. Attempts to purchase with the same idempotency key have
// the same once, and at most one of them happens.
type clusterTransfer struct {
	journal.Transfer
	once string
	at   string // node and key in inUse; empty: none
	told answer
	seen bool // in the store
}

// answer is what the caller of a step was told.
type answer int

const (
	nothing answer = iota // or that the outcome is not known
	done
	failed
)

// answerOf returns what an error tells the caller. Everything that stops a store leaves the outcome open.
func answerOf(err error) answer {
	switch {
	case err == nil:
		return done
	case errors.Is(err, storage.ErrUnknown), errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
		return nothing
	}
	return failed
}

// answered is answerOf for a step, of which it reports each error that is not of the wallet or the store.
func (m *clusterModel) answered(err error) answer {
	_, short := errors.AsType[*Shortfall](err)
	if told := answerOf(err); told != failed || short || errors.Is(err, storage.ErrUnreachable) || errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrLowSpace) {
		return told
	}
	m.failf("a step got %v", err)
	return failed
}

// clusterCall is an admitted call.
type clusterCall struct {
	journal.Call
	node        *clusterNode
	reservation *Reservation
	paid        []money.Amount // in total, after each settlement
	over        bool           // settled for the last time, or released
	growing     bool           // Grow has not returned
	durable     int            // number of settlements in the store
	closed      bool           // its epoch has ended and was cleared up
	mustBeKept  bool           // its node has left after all settlements were durable
}

// clusterUsers are the users of the steps. Each begins with 20.
var clusterUsers = [...]string{"ann", "bob"}

func newClusterModel(t *testing.T, broken func(storage.Engine) storage.Engine) *clusterModel {
	t.Helper()
	m := &clusterModel{epochs: map[*clusterNode]int64{}, pending: map[*clusterNode][]chan func(){}, inUse: map[string]bool{}}
	m.cluster = startCluster(t, 0, Options{})
	m.broken = broken
	m.report = func(err error) { m.failf("a commit leaves what must not be: %v", err) }
	for i := range m.present {
		m.begin(i)
	}
	time.Sleep(time.Second)
	for _, user := range clusterUsers {
		m.credit(step{user: user, amount: 19})
	}
	return m
}

// begin starts a process in place of the one at an index.
func (m *clusterModel) begin(i int) {
	n := m.start(Options{})
	m.present[i], m.epochs[n] = n, n.store.Epoch()
}

func (m *clusterModel) failf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := fmt.Sprintf(format, args...); !slices.Contains(m.problems, p) && len(m.problems) < 10 {
		m.problems = append(m.problems, p)
	}
}

// err returns what was found, or nil.
func (m *clusterModel) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(m.problems, "\n"))
}

func (m *clusterModel) at(s step) *clusterNode { return m.present[s.node] }

// run runs a step at a node and notes its result when it ends: now, or when the node goes on.
func (m *clusterModel) run(n *clusterNode, step func() (note func())) {
	note := make(chan func(), 1)
	go func() { note <- step() }()
	m.pending[n] = append(m.pending[n], note)
	m.collect(n)
}

// collect notes the results of the steps at a node that have ended, and waits for the others if the
// node runs and reaches the store.
func (m *clusterModel) collect(n *clusterNode) {
	for {
		synctest.Wait()
		m.pending[n] = slices.DeleteFunc(m.pending[n], func(note chan func()) bool {
			select {
			case note := <-note:
				note()
				return true
			default:
				return false
			}
		})
		if len(m.pending[n]) == 0 || n.line.IsStopped() || n.line.IsCut() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (m *clusterModel) newID() journal.ID {
	return journal.IDOf("cluster step", fmt.Sprint(m.ids.Add(1)))
}

// transact books a transfer at a node by book.
func (m *clusterModel) transact(s step, x *clusterTransfer, book func(n *clusterNode) error) {
	n := m.at(s)
	m.transfers = append(m.transfers, x)
	m.run(n, func() func() {
		err := book(n)
		return func() {
			x.told = m.answered(err)
			delete(m.inUse, x.at)
		}
	})
}

func (m *clusterModel) credit(s step) {
	x := &clusterTransfer{Transfer: journal.Transfer{ID: m.newID(), Kind: journal.Credit, User: s.user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(s.user), s.amount+1)}}
	m.transact(s, x, func(n *clusterNode) error {
		return n.Update(background, s.user, nil, booking(n.store, x.Transfer))
	})
}

// purchase makes a purchase with an idempotency key that the next purchases have, too, also at other nodes.
func (m *clusterModel) purchase(s step) {
	number := len(m.transfers) / 4
	key, price := fmt.Sprint(s.user, number), money.Amount(number%8+5)
	at := fmt.Sprint(s.node, key)
	if m.inUse[at] {
		return // would wait for the first one
	}
	m.inUse[at] = true
	x := &clusterTransfer{once: key, at: at, Transfer: journal.Transfer{ID: m.newID(), Kind: journal.Purchase, User: s.user, Legs: journal.LegsBetween(journal.Wallet(s.user), journal.Sold, price)}}
	m.transact(s, x, func(n *clusterNode) error {
		_, _, err := n.Once(background, s.user, IdempotencyKey{Scope: s.user, Key: key}, func() (*Reservation, error) {
			return n.ReserveWallet(background, s.user, price)
		}, func(t *Txn) (any, error) { return price, booking(n.store, x.Transfer)(t) })
		return err
	})
}

// refund takes back what the wallet has of an amount.
func (m *clusterModel) refund(s step) {
	x := &clusterTransfer{Transfer: journal.Transfer{ID: m.newID(), Kind: journal.Refund, User: s.user}}
	m.transact(s, x, func(n *clusterNode) error {
		r, err := n.ReserveUpTo(background, s.user, s.amount+1)
		if err != nil {
			return err
		}
		return n.Update(background, s.user, r, func(t *Txn) error {
			if err := r.Confirm(t); err != nil || r.Amount() == 0 {
				return err
			}
			refund := x.Transfer
			refund.Legs = journal.LegsBetween(journal.Wallet(s.user), journal.Paid("stripe"), r.Amount())
			return booking(n.store, refund)(t)
		})
	})
}

func (m *clusterModel) reserve(s step) {
	n := m.at(s)
	m.run(n, func() func() {
		r, err := n.Reserve(background, Payer{User: s.user, Budgets: payers[s.n]}, s.amount+1)
		return func() {
			if m.answered(err) == done {
				m.calls = append(m.calls, &clusterCall{Call: m.call(s.user, ""), node: n, reservation: r})
			}
		}
	})
}

// openCall picks an open call whose process still exists, or nil if there is none.
func (m *clusterModel) openCall(n int) *clusterCall {
	var open []*clusterCall
	for _, c := range m.calls {
		if !c.over && !c.growing && slices.Contains(m.present[:], c.node) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[n%len(open)]
}

func (m *clusterModel) grow(s step) {
	c := m.openCall(s.n)
	if c == nil {
		return
	}
	c.growing = true
	m.run(c.node, func() func() {
		c.reservation.Grow(s.amount)
		return func() { c.growing = false }
	})
}

func (m *clusterModel) interim(s step) {
	if c := m.openCall(s.n); c != nil {
		m.settle(c, s.amount, "")
	}
}

func (m *clusterModel) final(s step) {
	if c := m.openCall(s.n); c != nil {
		m.settle(c, s.amount, usage.Complete)
	}
}

func (m *clusterModel) settle(c *clusterCall, cost money.Amount, ended usage.Ended) {
	call := c.Call
	call.Ended, c.over = ended, ended != ""
	want := min(cost, c.reservation.Amount())
	charged := c.reservation.Settle(call, cost, c.over)
	if charged != want {
		m.failf("call %s was charged %d, want %d", c.ID, charged, want)
	}
	c.paid = append(c.paid, charged)
}

func (m *clusterModel) release(s step) {
	if c := m.openCall(s.n); c != nil && len(c.paid) == 0 {
		c.reservation.Release()
		c.over = true
	}
}

// halt stops a process now, before its next commit, or after that, before the answer.
func (m *clusterModel) halt(s step) {
	switch line := m.at(s).line; s.n % 3 {
	case 0:
		line.Stop(true)
	case 1:
		line.StopAt(storagetest.BeforeCommit)
	case 2:
		line.StopAt(storagetest.BeforeAnswer)
	}
}

func (m *clusterModel) resume(s step) { m.goOn(m.at(s)) }

func (m *clusterModel) goOn(n *clusterNode) {
	n.line.Stop(false)
	m.collect(n)
}

// cut cuts the line of a node, or mends it.
func (m *clusterModel) cut(s step) {
	m.at(s).line.Cut(s.n%2 == 0)
	m.collect(m.at(s))
}

func (m *clusterModel) fault(s step) { m.at(s).faulty.Plan(s.faults...) }

// kill ends a process at once. A new one takes its place.
func (m *clusterModel) kill(s step) {
	n := m.at(s)
	n.line.Cut(true)
	n.kill()
	m.collect(n)
	m.begin(s.node)
}

// leave ends a process that is well after its settlements are durable. A new one takes its place.
func (m *clusterModel) leave(s step) {
	n := m.at(s)
	if n.line.IsStopped() || n.line.IsCut() {
		return
	}
	n.line.Stop(false) // also at the next commit
	n.Close(background)
	kept := n.store.Err() == nil
	for _, c := range m.calls {
		c.mustBeKept = c.mustBeKept || kept && c.node == n
	}
	n.kill()
	m.begin(s.node)
}

func (m *clusterModel) pass(s step) {
	time.Sleep([...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 4 * time.Second, 8 * time.Second}[s.n])
}

// join starts a new process in place of one whose store has failed.
func (m *clusterModel) join(s step) {
	if n := m.at(s); n.store.Err() != nil {
		m.kill(s)
	}
}

// finish lets all nodes go on, ends all calls, and checks that nothing is held afterwards.
func (m *clusterModel) finish() {
	for _, n := range m.present {
		n.line.Cut(false)
		m.goOn(n)
	}
	time.Sleep(10 * time.Second) // planned faults happen, and silent nodes are ended
	for i := range m.present {
		m.join(step{node: i})
	}
	for c := m.openCall(0); c != nil; c = m.openCall(0) {
		m.settle(c, 5, usage.Complete)
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	m.check()
	m.checkEnd()
}
