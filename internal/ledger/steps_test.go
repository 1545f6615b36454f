package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// This file has the steps of stepKinds, except those of calls and holds.

var background = context.Background()

func (m *model) id() journal.ID {
	m.ids++
	return journal.IDOf("step", fmt.Sprint(m.ids))
}

// transact books a transfer by an Update.
func (m *model) transact(what string, x journal.Transfer) {
	m.run(func() func() {
		err := m.ledger.Update(background, x.User, nil, booking(m.store, x))
		return func() { m.noteTransfer(what, err, x) }
	})
}

func booking(s *storage.Store, x journal.Transfer) func(*Txn) error {
	return func(t *Txn) error {
		_, err := journal.Book(t, s.Now(), x)
		return err
	}
}

func (m *model) credit(s step) {
	m.transact("a credit", journal.Transfer{ID: m.id(), Kind: journal.Credit, User: s.user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(s.user), 3*s.amount)})
}

// grant adds to the quota of today or to the one that never ends.
func (m *model) grant(s step) {
	quota := today(s.user)
	if s.n%2 == 1 {
		quota = journal.Quota(s.user, 2, time.Unix(0, 0))
	}
	m.transact("a grant", journal.Transfer{ID: m.id(), Kind: journal.Grant, User: s.user, Legs: journal.LegsBetween(journal.Granted, quota, 2*s.amount)})
}

// purchase makes a purchase with an idempotency key that may have been used before.
func (m *model) purchase(s step) {
	price, ledger := s.amount+1, m.ledger
	c := IdempotencyKey{Scope: s.user, Key: fmt.Sprint("k", s.n%3), Fingerprint: journal.IDOf(price.String())}
	x := journal.Transfer{ID: journal.IDOf("purchase", s.user, c.Key), Kind: journal.Purchase, User: s.user, Legs: journal.LegsBetween(journal.Wallet(s.user), journal.Sold, price)}
	if m.keysInUse[c.Scope+"/"+c.Key] {
		return // it would wait for a mutex, which synctest does not count as blocked
	}
	m.keysInUse[c.Scope+"/"+c.Key] = true
	alone := !m.gate.isShut()
	predictable, enough := m.isPredictable(), m.available(journal.Wallet(s.user)) >= price && m.balance[journal.Receivable(s.user)] == 0
	m.run(func() func() {
		result, replayed, err := ledger.Once(background, s.user, c, func() (*Reservation, error) {
			return ledger.ReserveWallet(background, s.user, price)
		}, func(t *Txn) (any, error) {
			return price, booking(m.store, x)(t)
		})
		return func() {
			var have journal.IdempotencyRecord
			m.view(func(r storage.Reader) error {
				_, err := storage.GetRecord(r, storage.Key("idem", c.Scope, journal.IDOf(c.Key).String()), &have)
				return err
			})
			var shortfall *Shortfall
			var f *fault.Fault
			switch {
			case errors.As(err, &shortfall):
				if predictable && (enough || m.booked[x.ID]) {
					m.failf("a purchase for %d was refused: %v", price, err)
				}
			case errors.As(err, &f) && f.Code == fault.IdempotencyKeyReused:
				if have.By == (journal.ID{}) || have.Fingerprint == c.Fingerprint {
					m.failf("a purchase was refused: %v; the idempotency key is %+v", err, have)
				}
			case err == nil:
				var returned money.Amount
				if json.Unmarshal(result, &returned) != nil || returned != price || have.Fingerprint != c.Fingerprint {
					m.failf("the result of a purchase for %d is %s", price, result)
				}
				if alone && replayed != m.booked[x.ID] {
					m.failf("replayed is %t for a purchase", replayed)
				}
				m.noteTransfer("a purchase", err, x)
			default:
				if have.By != (journal.ID{}) && have.Fingerprint != c.Fingerprint {
					return // the key belongs to another purchase
				}
				m.noteTransfer("a purchase", err, x)
			}
		}
	})
}

// refund takes money back, up to the balance. The user owes the rest.
func (m *model) refund(s step) {
	amount, ledger := s.amount+1, m.ledger
	x := journal.Transfer{ID: m.id(), Kind: journal.Refund, User: s.user}
	predictable, want := m.isPredictable(), min(amount, m.available(journal.Wallet(s.user)))
	m.run(func() func() {
		r, err := ledger.ReserveUpTo(background, s.user, amount)
		if err == nil {
			got := r.Amount()
			if predictable && got != want {
				m.failf("%d were reserved for a refund of %d, not %d", got, amount, want)
			}
			x.Legs = []journal.Leg{
				{Account: journal.Wallet(s.user), Amount: -got}, {Account: journal.Receivable(s.user), Amount: got - amount},
				{Account: journal.Paid("stripe"), Amount: amount},
			}
			err = ledger.Update(background, s.user, r, booking(m.store, x))
		}
		return func() { m.noteTransfer("a refund", err, x) }
	})
}

// clear writes off what a user owes.
func (m *model) clear(s step) {
	id := m.id()
	m.run(func() func() {
		err := m.ledger.Update(background, s.user, nil, func(t *Txn) error {
			owed, err := journal.ReadState(t, journal.Receivable(s.user))
			if err != nil {
				return err
			}
			return booking(m.store, journal.Transfer{ID: id, Kind: journal.Clear, User: s.user, Legs: journal.LegsBetween(journal.Operator, journal.Receivable(s.user), -owed.Balance)})(t)
		})
		return func() {
			x, _ := m.transfer(id)
			x.ID = id
			m.noteTransfer("a clear", err, x)
		}
	})
}

// reorder changes the order in which a user's money is spent.
func (m *model) reorder(s step) {
	m.run(func() func() {
		err := m.ledger.Update(background, s.user, nil, func(t *Txn) error {
			if err := storage.SetRecord(t, orderKey(s.user), s.n); err != nil {
				return err
			}
			order, err := m.sources(t, s.user)
			t.Spend(order)
			return err
		})
		return func() {
			if err != nil && !m.faulted {
				m.failf("changing the order: %v", err)
			}
			m.view(func(r storage.Reader) error {
				which := m.orders[s.user]
				_, err := storage.GetRecord(r, orderKey(s.user), &which)
				m.orders[s.user] = which
				return err
			})
		}
	})
}

// pass lets time pass.
func (m *model) pass(s step) {
	time.Sleep([...]time.Duration{time.Minute, idle, 5 * time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 8 * 24 * time.Hour}[s.n])
}

func (m *model) fault(s step) {
	m.plan = max(m.plan, m.faulty.Commits()) + len(s.faults)
	m.faulted = true
	m.faulty.Plan(s.faults...)
}

func (m *model) shut(step) { m.gate.set(true) }

func (m *model) open(step) {
	m.gate.set(false)
	m.collect()
}

func (m *model) sweep(step) { m.ledger.Sweep() }

// restart restarts the process after everything is durable. Open calls end.
func (m *model) restart(s step) {
	m.open(s)
	m.waitUntilDurable()
	if m.store.Err() == nil {
		synctest.Wait()
		for _, c := range m.calls {
			c.durable = len(c.paid)
		}
	}
	m.crash()
}

// finish ends all open calls and holds, and checks that nothing remains.
func (m *model) finish() {
	m.open(step{})
	for _, h := range m.holds {
		if !h.ended {
			h.costs = append(h.costs, 0)
			charged, err := money.Amount(0), m.ledger.Update(background, h.user, nil, func(t *Txn) error {
				_, err := journal.EndHold(t, m.store.Now(), h.usage(), h.id, 0)
				return err
			})
			m.holdEnded(h, charged, err)
		}
	}
	for c := m.openCall(0, anyCall); c != nil; c = m.openCall(0, anyCall) {
		m.charge(c, 5, usage.Complete)
	}
	m.checkWhenDurable()
	m.ledger.Sweep()
	time.Sleep(2 * idle)
	m.ledger.Sweep()
	if stats := m.ledger.Stats(); stats != (Stats{}) {
		m.failf("at the end the stats are %+v", stats)
	}
}
