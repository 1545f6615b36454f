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

// The steps that a world may take, by the names of stepKinds.

var background = context.Background()

func (w *world) id() journal.ID {
	w.ids++
	return journal.IDOf("step", fmt.Sprint(w.ids))
}

// transact books a transfer by an Update.
func (w *world) transact(what string, x journal.Transfer) {
	w.run(func() func() {
		err := w.ledger.Update(background, x.User, nil, booking(w.store, x))
		return func() { w.came(what, err, x) }
	})
}

func booking(s *storage.Store, x journal.Transfer) func(*Txn) error {
	return func(t *Txn) error {
		_, err := journal.Book(t, s.Now(), x)
		return err
	}
}

func (w *world) credit(s step) {
	w.transact("a credit", journal.Transfer{ID: w.id(), Kind: journal.Credit, User: s.user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(s.user), 3*s.amount)})
}

// grant fills one of two quotas, that of today or the one that never ends.
func (w *world) grant(s step) {
	quota := today(s.user)
	if s.n%2 == 1 {
		quota = journal.Quota(s.user, 2, time.Unix(0, 0))
	}
	w.transact("a grant", journal.Transfer{ID: w.id(), Kind: journal.Grant, User: s.user, Legs: journal.LegsBetween(journal.Granted, quota, 2*s.amount)})
}

// purchase buys something once.
func (w *world) purchase(s step) {
	price, ledger := s.amount+1, w.ledger
	c := IdempotencyKey{Scope: s.user, Key: fmt.Sprint("k", s.n%3), Fingerprint: journal.IDOf(price.String())}
	x := journal.Transfer{ID: journal.IDOf("purchase", s.user, c.Key), Kind: journal.Purchase, User: s.user, Legs: journal.LegsBetween(journal.Wallet(s.user), journal.Sold, price)}
	if w.claiming[c.Scope+"/"+c.Key] {
		return // it would wait for a mutex, which is not seen as waiting in a bubble
	}
	w.claiming[c.Scope+"/"+c.Key] = true
	alone := !w.gate.isShut()
	calm, enough := w.calm(), w.available(journal.Wallet(s.user)) >= price && w.balance[journal.Receivable(s.user)] == 0
	w.run(func() func() {
		result, replayed, err := ledger.Once(background, s.user, c, func() (*Reservation, error) {
			return ledger.ReserveWallet(background, s.user, price)
		}, func(t *Txn) (any, error) {
			return price, booking(w.store, x)(t)
		})
		return func() {
			var have journal.IdempotencyRecord
			w.view(func(r storage.Reader) error {
				_, err := storage.GetRecord(r, storage.Key("idem", c.Scope, journal.IDOf(c.Key).String()), &have)
				return err
			})
			var short *Short
			var f *fault.Fault
			switch {
			case errors.As(err, &short):
				if calm && (enough || w.booked[x.ID]) {
					w.failf("a purchase for %d was refused: %v", price, err)
				}
			case errors.As(err, &f) && f.Code == fault.IdempotencyKeyReused:
				if have.By == (journal.ID{}) || have.Fingerprint == c.Fingerprint {
					w.failf("a purchase was refused: %v; the idempotency key is %+v", err, have)
				}
			case err == nil:
				var told money.Amount
				if json.Unmarshal(result, &told) != nil || told != price || have.Fingerprint != c.Fingerprint {
					w.failf("a purchase for %d was answered %s", price, result)
				}
				if alone && replayed != w.booked[x.ID] {
					w.failf("a purchase was replayed: %v", replayed)
				}
				w.came("a purchase", err, x)
			default:
				if have.By != (journal.ID{}) && have.Fingerprint != c.Fingerprint {
					return // somebody else's has happened
				}
				w.came("a purchase", err, x)
			}
		}
	})
}

// refund takes back money, as far as it is there; the rest is owed.
func (w *world) refund(s step) {
	amount, ledger := s.amount+1, w.ledger
	x := journal.Transfer{ID: w.id(), Kind: journal.Refund, User: s.user}
	calm, want := w.calm(), min(amount, w.available(journal.Wallet(s.user)))
	w.run(func() func() {
		r, err := ledger.ReserveUpTo(background, s.user, amount)
		if err == nil {
			got := r.Amount()
			if calm && got != want {
				w.failf("%d were reserved for a refund of %d, not %d", got, amount, want)
			}
			x.Legs = []journal.Leg{
				{Account: journal.Wallet(s.user), Amount: -got}, {Account: journal.Receivable(s.user), Amount: got - amount},
				{Account: journal.Paid("stripe"), Amount: amount},
			}
			err = ledger.Update(background, s.user, r, booking(w.store, x))
		}
		return func() { w.came("a refund", err, x) }
	})
}

// clear writes off what a user owes.
func (w *world) clear(s step) {
	id := w.id()
	w.run(func() func() {
		err := w.ledger.Update(background, s.user, nil, func(t *Txn) error {
			owed, err := journal.ReadState(t, journal.Receivable(s.user))
			if err != nil {
				return err
			}
			return booking(w.store, journal.Transfer{ID: id, Kind: journal.Clear, User: s.user, Legs: journal.LegsBetween(journal.Operator, journal.Receivable(s.user), -owed.Balance)})(t)
		})
		return func() {
			x, _ := w.transfer(id)
			x.ID = id
			w.came("a clear", err, x)
		}
	})
}

// reorder has a user's money spent in another order.
func (w *world) reorder(s step) {
	w.run(func() func() {
		err := w.ledger.Update(background, s.user, nil, func(t *Txn) error {
			if err := storage.SetRecord(t, orderKey(s.user), s.n); err != nil {
				return err
			}
			order, err := w.sources(t, s.user)
			t.Spend(order)
			return err
		})
		return func() {
			if err != nil && !w.trouble {
				w.failf("changing the order: %v", err)
			}
			w.view(func(r storage.Reader) error {
				which := w.orders[s.user]
				_, err := storage.GetRecord(r, orderKey(s.user), &which)
				w.orders[s.user] = which
				return err
			})
		}
	})
}

// pass lets time go by.
func (w *world) pass(s step) {
	time.Sleep([...]time.Duration{time.Minute, idle, 5 * time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 8 * 24 * time.Hour}[s.n])
}

func (w *world) fault(s step) {
	w.plan = max(w.plan, w.faulty.Commits()) + len(s.faults)
	w.trouble = true
	w.faulty.Plan(s.faults...)
}

func (w *world) shut(step) { w.gate.set(true) }

func (w *world) open(step) {
	w.gate.set(false)
	w.collect()
}

func (w *world) sweep(step) { w.ledger.Sweep() }

// restart ends the process in good order, but for the calls under way.
func (w *world) restart(s step) {
	w.open(s)
	w.settle()
	if w.store.Err() == nil {
		synctest.Wait()
		for _, c := range w.calls {
			c.durable = len(c.paid)
		}
	}
	w.crash()
}

// finish ends all that is open.
func (w *world) finish() {
	w.open(step{})
	for _, h := range w.holds {
		if !h.ended {
			h.costs = append(h.costs, 0)
			charged, err := money.Amount(0), w.ledger.Update(background, h.user, nil, func(t *Txn) error {
				_, err := journal.EndHold(t, w.store.Now(), h.usage(), h.id, 0)
				return err
			})
			w.holdEnded(h, charged, err)
		}
	}
	for c := w.openCall(0, anyCall); c != nil; c = w.openCall(0, anyCall) {
		w.charge(c, 5, usage.Complete)
	}
	w.look()
	w.ledger.Sweep()
	time.Sleep(2 * idle)
	w.ledger.Sweep()
	if stats := w.ledger.Stats(); stats != (Stats{}) {
		w.failf("in the end the figures are %+v", stats)
	}
}
