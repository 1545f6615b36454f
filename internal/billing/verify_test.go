package billing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/billing/verify"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// newRichFixture returns a fixture with every kind of record. Of ann's subscriptions, 1 was bought
// and renewed, 2 has a quota that resets, 3 was claimed, and 4 was cancelled. The first order is
// paid and partly refunded; the second is pending.
func newRichFixture(t *testing.T) (f *fixture, paid, pending records.Order) {
	f = newFixture(t)
	f.credit(1000)
	f.mustBuy(1, "a")
	f.mustRenew(1, "b")
	f.mustBuy(2, "c")
	if _, err := f.Claim(t.Context(), f.plans, "USD", f.user, 3); err != nil {
		t.Fatal(err)
	}
	f.mustBuy(1, "d")
	if _, err := f.Cancel(t.Context(), "operator", 4, "asked for it"); err != nil {
		t.Fatal(err)
	}
	f.clock.Set(date(2026, 2, 10, 0))
	f.mustSpend(9)
	paid = f.paidOrder()
	f.mustApply(noticeOf(paid, payments.Refunded, 30), Applied)
	pending = f.mustOpen(newMockProvider())
	f.mustApply(payments.Notice{Mismatch: "it cannot be read"}, Mismatched)
	return f, paid, pending
}

// damage changes a record without its indexes.
func damage[T any](key []byte, change func(*T)) func(storage.Txn) error {
	return func(t storage.Txn) error {
		var record T
		if found, err := storage.GetRecord(t, key, &record); err != nil || !found {
			return fmt.Errorf("%q: found %t, %w", key, found, err)
		}
		change(&record)
		return storage.SetRecord(t, key, record)
	}
}

func remove(key []byte) func(storage.Txn) error {
	return func(t storage.Txn) error {
		if have, err := t.Get(key); err != nil || have == nil {
			return fmt.Errorf("%q does not exist, %w", key, err)
		}
		return t.Delete(key)
	}
}

func putRecord(key []byte, record any) func(storage.Txn) error {
	return func(t storage.Txn) error { return storage.SetRecord(t, key, record) }
}

func set(key, value []byte) func(storage.Txn) error {
	return func(t storage.Txn) error { return t.Set(key, value, time.Time{}) }
}

func TestVerifyReportsEachContradiction(t *testing.T) {
	t.Parallel()
	bought := date(2026, 1, 31, 12).Unix()
	other := strings.Repeat("A", 32)
	for name, row := range map[string]struct {
		damage func(f *fixture, paid, pending records.Order) func(storage.Txn) error
		want   string
	}{
		"a counter that is too low": {func(*fixture, records.Order, records.Order) func(storage.Txn) error {
			return damage(records.CounterKey, func(n *int64) { *n = 3 })
		}, "subscription 4: the counter is 3"},
		"a subscription that is not in the summary": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.Remove(2) })
		}, "subscription 2: it is active; in the summary: false"},
		"a cancelled subscription in the summary": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.Add(records.Running{ID: 4, End: bought}) })
		}, "subscription 4: it is cancelled; in the summary: true"},
		"a wrong end in the summary": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.Running[0].End++ })
		}, "its end in the summary is"},
		"a missing subscription in the summary": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.Add(records.Running{ID: 9, End: bought}) })
		}, "does not exist"},
		"a summary out of order": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.Running[0], r.Running[1] = r.Running[1], r.Running[0] })
		}, "the summary is not in order"},
		"a missing summary": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.Summaries.Name, f.user))
		}, "subscription 2: it is active; in the summary: false"},
		"a damaged summary": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return func(t storage.Txn) error {
				return t.Set(storage.Key(records.Summaries.Name, f.user), []byte{storage.RecordVersion}, time.Time{})
			}
		}, "a record of subsummary cannot be read"},
		"a subscription whose end differs from its last sale": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(1)), func(s *records.SubscriptionRecord) { s.End++ })
		}, "subscription 1: its last sale has another end or other terms"},
		"an only sale with another duration": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(2)), func(s *records.SubscriptionRecord) { s.Duration.Count = 9 })
		}, "subscription 2: the purchase from 1769860800 is for 9 months and ends at"},
		"a cancelled subscription whose only sale has another end": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(4)), func(s *records.SubscriptionRecord) { s.End -= 3600 })
		}, "subscription 4: the purchase from"},
		"a subscription whose only sale has another end": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(2)), func(s *records.SubscriptionRecord) { s.End++ })
		}, "subscription 2: its end in the summary is"},
		"another price": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Sales.Name, f.user, int64(1), storage.Inverted(bought)), func(s *records.Sale) { s.Price++ })
		}, "subscription 1: the transfer"},
		"another price of an only sale": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(2)), func(s *records.SubscriptionRecord) { s.Price++ })
		}, "subscription 2: the transfer"},
		"a sale without a transfer": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Sales.Name, f.user, int64(1), storage.Inverted(bought)), func(s *records.Sale) { s.Transfer[0]++ })
		}, "does not exist"},
		"an only sale without a transfer": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(2)), func(s *records.SubscriptionRecord) { s.First.Transfer[0]++ })
		}, "does not exist"},
		"a missing sale": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Subscriptions.Name, f.user, int64(2)), func(s *records.SubscriptionRecord) { s.First = nil })
		}, "subscription 2: it has no sale"},
		"a second sale beside an only sale": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.Sales.Name, f.user, int64(2), storage.Inverted(bought)), records.Sale{User: f.user, Subscription: 2, From: bought})
		}, "subscription 2: it has more than one sale, but its record says one"},
		"a missing first sale": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.Sales.Name, f.user, int64(1), storage.Inverted(bought)))
		}, "subscription 1: its first sale is a renewal"},
		"a renewal that begins later": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Sales.Name, f.user, int64(1), storage.Inverted(date(2026, 2, 28, 12).Unix())), func(s *records.Sale) { s.From++ })
		}, "sale of subscription 1 from 1772280001: it is stored under the key of another record"},
		"a sale of a missing subscription": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.Sales.Name, f.user, int64(9), storage.Inverted(bought)), records.Sale{User: f.user, Subscription: 9, From: bought})
		}, "it does not exist, but has a sale"},
		"a period with a wrong grant": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Periods.Name, f.user, int64(1), bought), func(p *records.PeriodRecord) { p.Granted-- })
		}, "subscription 1: the period from"},
		"a grant that is only in the ledger": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return func(t storage.Txn) error {
				_, err := journal.Book(t, f.clock.Now(), journal.Transfer{
					ID: journal.IDOf("theft"), Kind: journal.Grant, Legs: journal.LegsBetween(journal.Granted, records.QuotaAccount(f.user, 1, bought), 5),
				})
				return err
			}
		}, "the ledger has 0.000000029, but 0.000000024 was sold"},
		"a grant for the period of an only sale that is only in the ledger": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return func(t storage.Txn) error {
				_, err := journal.Book(t, f.clock.Now(), journal.Transfer{
					ID: journal.IDOf("theft"), Kind: journal.Grant, Legs: journal.LegsBetween(journal.Granted, records.QuotaAccount(f.user, 2, bought), 3),
				})
				return err
			}
		}, "subscription 2: for its only sale the ledger has 0.000000008, but 0.000000005 was sold"},
		"a period that does not begin at a reset": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.Periods.Name, f.user, int64(2), bought+60), records.PeriodRecord{User: f.user, Subscription: 2, Start: bought + 60, Granted: 5})
		}, "subscription 2: the period from"},
		"a quota that was not granted": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.Periods.Name, f.user, int64(1), bought))
		}, "subscription 1: the quota of 0.000000024"},
		"a count of purchases that is too high": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.CountPurchase(1) })
		}, "plan 1 was bought 2 times, but 3 are counted"},
		"a missing count of purchases": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { delete(r.Purchases, 1) })
		}, "the purchase of plan 1 is not counted"},
		"a claim without an index key": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.ClaimedPlans.Name, f.user, int64(3)))
		}, "subscription 3: its key of claimed is missing"},
		"an index key without a claim": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.ClaimedPlans.Name, f.user, int64(9)), int64(9))
		}, "a key of claimed matches no record"},
		"a summary that is never due": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return f.changeSummary(func(r *records.Summary) { r.Due = 0 })
		}, "no sweep is due when it ends"},
		"a summary without a key in the index of due summaries": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.DueSummaries.Name, date(2026, 2, 28, 12).Unix(), f.user))
		}, "its key of subdue is missing"},
		"a second key in the index of due summaries": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.DueSummaries.Name, bought, f.user), nil)
		}, "a key of subdue matches no record"},
		"an invalid key": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord([]byte(records.Sales.Name+"/x"), records.Sale{})
		}, "it is stored under the key of another record"},

		"an order that is not in the list of its user": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.UserOrders.Name, f.user, storage.Inverted(1), paid.TradeNo))
		}, "its key of userorder is missing"},
		"a pending order that never expires": {func(f *fixture, _, pending records.Order) func(storage.Txn) error {
			return remove(storage.Key(records.DueOrders.Name, pending.ExpiresAt, pending.TradeNo))
		}, "its key of orderdue is missing"},
		"a paid order in the index of pending orders": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.OpenOrders.Name, f.user, paid.TradeNo), nil)
		}, "a key of orderopen matches no record"},
		"a paid order without a credit": {func(f *fixture, _, pending records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Orders.Name, pending.TradeNo), func(o *records.OrderRecord) { o.PaidAt = 1 })
		}, "does not name its credit"},
		"a credit without a payment": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.PaidAt = 0 })
		}, "without a payment, but money was moved"},
		"another amount": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.Amount++ })
		}, "has wrong content"},
		"a refund that was not taken": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.RefundTotal = 40 })
		}, "in total it should be 0.00000004"},
		"a refund taken without a transfer": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.Transfers = o.Transfers[:1] })
		}, "its transfers have taken 0.00 from the wallet"},
		"another status": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.Status = records.Refunded })
		}, "it is refunded, but should be paid"},
		"a payment of two orders": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return set(storage.Key(records.OrderPayments.Name, "mock", paid.Payment), []byte(other))
		}, ": its key of payref is missing"},
		"a payment in the index without its order": {func(f *fixture, paid, _ records.Order) func(storage.Txn) error {
			return set(storage.Key(records.OrderPayments.Name, "mock", "pi_x"), []byte(paid.TradeNo))
		}, "a key of payref matches no record"},
		"a notice of a missing order": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.Notices.Name, "mock", "paid", "evt_x"), records.NoticeRecord{Provider: "mock", Kind: payments.Paid, Event: "evt_x", TradeNo: other})
		}, "does not exist"},
		"an idempotency key of a missing order": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return set(storage.Key(records.OrderKeys.Name, f.user, "x"), []byte(other))
		}, "a key of orderkey matches no record"},
		"a missing order in the list of a user": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			return putRecord(storage.Key(records.UserOrders.Name, f.user, int64(1), other), nil)
		}, "a key of userorder matches no record"},
		"a mismatch that is not listed": {func(f *fixture, _, _ records.Order) func(storage.Txn) error {
			m := mismatchOf("mock", payments.Notice{Mismatch: "it cannot be read"}, "it cannot be read")
			return remove(storage.Key(records.LatestMismatches.Name, storage.Inverted(f.clock.Now().UnixMilli()), m.Digest()))
		}, "its key of mismatchat is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, paid, pending := newRichFixture(t)
			if problems := f.problems(); len(problems) != 0 {
				t.Fatalf("before the damage: %q", problems)
			}
			f.damaged = true
			if err := f.store.Update(t.Context(), row.damage(f, paid, pending)); err != nil {
				t.Fatal(err)
			}
			problems := f.problems()
			if !strings.Contains(strings.Join(problems, "\n"), row.want) {
				t.Errorf("Check reports %q, want %q", problems, row.want)
			}
		})
	}
}

// problems returns the problems that Check reports.
func (f *fixture) problems() (found []string) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		return verify.Check(r, f.clock.Now(), func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

// TestVerifyContinuesAfterAnUnreadableRecord damages each record of a store in turn, and also a
// second record. The second problem must be reported each time.
func TestVerifyContinuesAfterAnUnreadableRecord(t *testing.T) {
	t.Parallel()
	f, _, _ := newRichFixture(t)
	f.damaged = true
	f.must(f.store.Update(t.Context(), damage(records.CounterKey, func(n *int64) { *n = 3 })))
	const second = "subscription 4: the counter is 3"
	storagetest.DamageEach(t, f.store, func(key string) {
		var found []string
		report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
		err := f.store.View(t.Context(), func(r storage.Reader) error {
			_, err := ledgerverify.Verify(t.Context(), r, f.clock.Now(), func(p ledgerverify.Problem) { report("%s: %s", p.Where, p.What) },
				func(r storage.Reader, _ func(ledgerverify.Problem)) error {
					return verify.Check(r, f.clock.Now(), report)
				})
			return err
		})
		itself := key == string(records.CounterKey) || key == string(storage.Key(records.Subscriptions.Name, f.user, int64(4)))
		if err != nil || !slices.Contains(found, second) && !itself {
			t.Errorf("with %q damaged: %v, found\n%s", key, err, strings.Join(found, "\n"))
		}
	})
}
