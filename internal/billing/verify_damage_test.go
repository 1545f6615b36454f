package billing

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// book books a valid transfer of ann that belongs to no record.
func (f *fixture) book(kind journal.Kind, reference string, legs []journal.Leg) func(storage.Txn) error {
	return func(t storage.Txn) error {
		_, err := journal.Book(t, f.clock.Now(), journal.Transfer{
			ID: journal.IDOf("planted"), Kind: kind, User: f.user, Reference: reference, Legs: legs,
		})
		return err
	}
}

// storeResult stores a result under an idempotency key of ann.
func (f *fixture) storeResult(a any) func(storage.Txn) error {
	_, _, err := f.ledger.Once(context.Background(), f.user, ledger.IdempotencyKey{Scope: f.user, Key: "planted"}, nil,
		func(*ledger.Txn) (any, error) { return a, nil })
	return func(storage.Txn) error { return err }
}

// keyWith returns the key of the only record that contains a text.
func (f *fixture) keyWith(text string) (key []byte) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		return r.Scan([]byte{0}, []byte{0xff}, func(have, val []byte) bool {
			if bytes.Contains(val, []byte(text)) {
				if key != nil {
					f.t.Fatalf("%s is in the records %q and %q", text, key, have)
				}
				key = bytes.Clone(have)
			}
			return true
		})
	})
	if err != nil || key == nil {
		f.t.Fatalf("%s is in no record, %v", text, err)
	}
	return key
}

// transferOf returns the id of the transfer of the sale that begins at from.
func (f *fixture) transferOf(id, from int64) journal.ID {
	f.t.Helper()
	var s records.Sale
	err := f.store.View(f.t.Context(), func(r storage.Reader) (err error) {
		subscription, err := readSubscription(r, f.user, id)
		if err == nil {
			s, _, err = subscription.SaleAt(r, from)
		}
		return err
	})
	if err != nil || s.From != from {
		f.t.Fatalf("the sale is %+v, %v", s, err)
	}
	return s.Transfer
}

// damages are transfers without their records, and records without their transfer, period or
// result. The ledger itself stays valid.
var damages = map[string]struct {
	damage func(f *fixture, paid records.Order) func(storage.Txn) error
	want   string // % is the added transfer
}{
	"an order that was credited a second time": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return f.book(journal.TopUp, paid.TradeNo, journal.LegsBetween(journal.Paid("mock"), journal.Wallet(f.user), 100))
	}, "transfer %: it is a topup of order"},
	"a top-up of an unknown order": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.TopUp, strings.Repeat("A", 32), journal.LegsBetween(journal.Paid("mock"), journal.Wallet(f.user), 100))
	}, "transfer %: it is a topup of order"},
	"a top-up without a reference": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.TopUp, "", journal.LegsBetween(journal.Paid("mock"), journal.Wallet(f.user), 100))
	}, "transfer %: it is a topup of order"},
	"a refund without a notice": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return f.book(journal.Refund, paid.TradeNo, journal.LegsBetween(journal.Wallet(f.user), journal.Paid("mock"), 1))
	}, "transfer %: it is a refund of order"},
	"a dispute without a notice": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return f.book(journal.Dispute, paid.TradeNo, journal.LegsBetween(journal.Receivable(f.user), journal.Paid("mock"), 1))
	}, "transfer %: it is a dispute of order"},
	"a restored dispute without a notice": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return f.book(journal.Restore, paid.TradeNo, journal.LegsBetween(journal.Paid("mock"), journal.Wallet(f.user), 30))
	}, "transfer %: it is a restore of order"},
	"an order that names a transfer of another kind": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.Transfers[1] = f.transferOf(2, date(2026, 1, 31, 12).Unix()) })
	}, "does not belong to it: a purchase of"},
	"an order with wrong amounts that were taken": {func(_ *fixture, paid records.Order) func(storage.Txn) error {
		return damage(storage.Key(records.Orders.Name, paid.TradeNo), func(o *records.OrderRecord) { o.TakenWallet, o.TakenOwed = o.TakenWallet-10, o.TakenOwed+10 })
	}, "its transfers have taken 0.00000003 from the wallet and 0.00 as a receivable, but its record says 0.00000002 and 0.00000001"},
	"a paid order in the index of unpaid orders": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return putRecord(storage.Key(records.UnpaidOrders.Name, f.user, storage.Inverted(paid.Created), paid.TradeNo), nil)
	}, "a key of orderunpaid matches no record"},
	"a missing order in the index of unpaid orders": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return putRecord(storage.Key(records.UnpaidOrders.Name, f.user, int64(1), strings.Repeat("A", 32)), nil)
	}, "a key of orderunpaid matches no record"},

	"a written-off amount without a transfer": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return putRecord(storage.Key(records.Accounts.Name, f.user), records.AccountRecord{User: f.user, WrittenOff: 5})
	}, "operators have borne 0.00 of the debt, but the record says 0.000000005"},
	"a written-off amount that is too low": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		f.mustSpend(f.funds().Wallet.Balance)
		f.mustApply(noticeOf(paid, payments.Disputed, 100), Applied)
		if _, err := f.Clear(f.t.Context(), "operator", "ann", "good will", ""); err != nil {
			f.t.Fatal(err)
		}
		return damage(storage.Key(records.Accounts.Name, f.user), func(a *records.AccountRecord) { a.WrittenOff -= 5 })
	}, "operators have borne 0.000000047 of the debt, but the record says 0.000000042"},
	"a written-off amount without a record": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		f.mustSpend(f.funds().Wallet.Balance)
		f.mustApply(noticeOf(paid, payments.Disputed, 100), Applied)
		if _, err := f.Clear(f.t.Context(), "operator", "ann", "good will", ""); err != nil {
			f.t.Fatal(err)
		}
		return remove(storage.Key(records.Accounts.Name, f.user))
	}, "operators have borne 0.000000047 of the debt, but there is no record"},

	"a purchase without a sale": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.Purchase, records.Reference(1), journal.LegsBetween(journal.Wallet(f.user), journal.Sold, 10))
	}, "transfer %: it is a purchase of subscription/1, but 0 of its sales and periods name this transfer"},
	"a renewal of an unknown subscription": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.Renewal, records.Reference(99), journal.LegsBetween(journal.Wallet(f.user), journal.Sold, 10))
	}, "transfer %: it is a renewal of subscription/99, but 0 of its sales and periods name this transfer"},
	"a purchase with an invalid reference": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.Purchase, "subscription/+1", journal.LegsBetween(journal.Wallet(f.user), journal.Sold, 10))
	}, `transfer %: it is a purchase of "subscription/+1", which is not a subscription`},
	"two sales by one transfer": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		renewed := f.mustRenew(2, "again")
		return func(t storage.Txn) error {
			s, err := readSubscription(t, f.user, 2)
			if err != nil {
				return err
			}
			last, _, err := s.SaleAt(t, s.End)
			if err != nil {
				return err
			}
			last.From, last.Until = s.End, s.Duration.After(date(2026, 7, 30, 12)).Unix()
			if last.From != renewed.EndTime {
				return fmt.Errorf("the subscription ends at %d", last.From)
			}
			s.End = last.Until
			for _, change := range []func(storage.Txn) error{
				putRecord(storage.Key(records.Subscriptions.Name, f.user, s.ID), s),
				putRecord(storage.Key(records.Sales.Name, f.user, s.ID, storage.Inverted(last.From)), last),
				f.changeSummary(func(r *records.Summary) {
					i := slices.IndexFunc(r.Running, func(x records.Running) bool { return x.ID == 2 })
					x := r.Running[i]
					x.End = s.End
					r.Remove(2)
					r.Add(x)
				}),
			} {
				if err := change(t); err != nil {
					return err
				}
			}
			return nil
		}
	}, ": it is a renewal of subscription/2, but 2 of its sales and periods name this transfer"},
	"a sale by a transfer about another subscription": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		other := f.transferOf(1, date(2026, 1, 31, 12).Unix())
		return damage(storage.Key(records.Subscriptions.Name, f.user, int64(2)), func(s *records.SubscriptionRecord) { s.First.Transfer = other })
	}, "has wrong content: a purchase of"},
	"a transfer of a sale with the reference of another subscription": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		id := f.transferOf(2, date(2026, 1, 31, 12).Unix())
		return func(t storage.Txn) error {
			key := append([]byte("xfer/"), id[:]...)
			record, err := t.Get(key)
			if err != nil || !bytes.Contains(record, []byte(records.Reference(2))) {
				return fmt.Errorf("the transfer is %q, %w", record, err)
			}
			record = bytes.Replace(record, []byte(records.Reference(2)), []byte(records.Reference(1)), 1)
			// The record ends with the CRC-32 (Castagnoli) of its key and of what precedes the sum.
			end, castagnoli := len(record)-crc32.Size, crc32.MakeTable(crc32.Castagnoli)
			sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record[:end])
			return t.Set(key, binary.BigEndian.AppendUint32(record[:end], sum), time.Time{})
		}
	}, "has wrong content: a purchase of"},
	"a missing period, which could be granted again": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return remove(storage.Key(records.Periods.Name, f.user, int64(2), date(2026, 2, 1, 0).Unix()))
	}, ": it is a grant of subscription/2, but 0 of its sales and periods name this transfer"},
	"a missing period with a sale": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return remove(storage.Key(records.Periods.Name, f.user, int64(1), date(2026, 1, 31, 12).Unix()))
	}, "subscription 1: the quota of 0.000000024 from 1769860800 was not granted"},
	"a period without a grant": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return putRecord(storage.Key(records.Periods.Name, f.user, int64(2), date(2026, 3, 1, 0).Unix()), records.PeriodRecord{User: f.user, Subscription: 2, Start: date(2026, 3, 1, 0).Unix(), Granted: 5})
	}, "subscription 2: the transfer " + records.GrantID(2, date(2026, 3, 1, 0).Unix()).String() + " does not exist"},
	"a quota of a subscription that does not exist": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.Grant, records.Reference(99), journal.LegsBetween(journal.Granted, records.QuotaAccount(f.user, 99, 1), 5))
	}, "transfer %: it is a grant of subscription/99, but 0 of its sales and periods name this transfer"},
	"a quota of a period that does not exist": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.book(journal.Grant, records.Reference(2), journal.LegsBetween(journal.Granted, records.QuotaAccount(f.user, 2, date(2026, 3, 1, 0).Unix()), 5))
	}, "transfer %: it is a grant of subscription/2, but 0 of its sales and periods name this transfer"},
	"a quota of a user who has no subscription": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return func(t storage.Txn) error {
			_, err := journal.Book(t, f.clock.Now(), journal.Transfer{
				ID: journal.IDOf("planted"), Kind: journal.Grant, User: "usr_x", Reference: records.Reference(2),
				Legs: journal.LegsBetween(journal.Granted, records.QuotaAccount("usr_x", 2, date(2026, 2, 1, 0).Unix()), 5),
			})
			return err
		}
	}, "transfer %: it is a grant of subscription/2, but 0 of its sales and periods name this transfer"},
	"the period of a sale, opened a second time": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		bought := date(2026, 1, 31, 12).Unix()
		return func(t storage.Txn) error {
			_, err := journal.Book(t, f.clock.Now(), journal.Transfer{
				ID: records.GrantID(1, bought), Kind: journal.Grant, User: f.user, Reference: records.Reference(1),
				Legs: journal.LegsBetween(journal.Granted, records.QuotaAccount(f.user, 1, bought), 5),
			})
			return err
		}
	}, ": it is a grant of subscription/1, but 0 of its sales and periods name this transfer"},
	"a subscription with a past period in the summary": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.changeSummary(func(r *records.Summary) {
			i := slices.IndexFunc(r.Running, func(x records.Running) bool { return x.ID == 2 })
			r.Running[i].Presence = records.Presence{From: date(2026, 1, 31, 12).Unix(), Until: date(2026, 3, 1, 0).Unix(), Start: date(2026, 1, 31, 12).Unix()}
		})
	}, "subscription 2: the summary has the period from 1769860800"},

	"an idempotency key with a missing transfer": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.storeResult(WalletChange{User: f.user, Order: journal.IDOf("planted").String(), Amount: 5})
	}, "its result names the transfer %, which does not exist"},
	"an idempotency key with an invalid transfer": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return f.storeResult(WalletChange{User: f.user, Order: "x"})
	}, `its result has the order "x": a transfer id has 32 hexadecimal digits`},
	"an idempotency key with the credit of an order": {func(f *fixture, paid records.Order) func(storage.Txn) error {
		return f.storeResult(WalletChange{User: f.user, Order: records.TopUpID(paid.TradeNo).String(), Amount: 100})
	}, "which does not match: a topup of"},
	"an idempotency key of another user": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return damage(f.keyWith(`"amount":"0.000001"`), func(c *map[string]any) { (*c)["result"].(map[string]any)["user"] = "usr_x" })
	}, "which does not match: a credit of"},
	"an idempotency key with another amount": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return damage(f.keyWith(`"amount":"0.000001"`), func(c *map[string]any) { (*c)["result"].(map[string]any)["amount"] = "0.000002" })
	}, "which does not match: a credit of"},
	"an idempotency key with another price": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		id := f.transferOf(2, date(2026, 1, 31, 12).Unix())
		return damage(f.keyWith(`"order":"`+id.String()), func(c *map[string]any) {
			(*c)["result"].(map[string]any)["wallet"].(map[string]any)["charged"] = "0.00"
		})
	}, "which does not match: a purchase of"},
	"an idempotency key with another subscription": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		id := f.transferOf(2, date(2026, 1, 31, 12).Unix())
		return damage(f.keyWith(`"order":"`+id.String()), func(c *map[string]any) { (*c)["result"].(map[string]any)["subscription_id"] = 1 })
	}, "which does not match: a purchase of"},
	"a sale without a result": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		return remove(f.keyWith(`"order":"` + f.transferOf(2, date(2026, 1, 31, 12).Unix()).String()))
	}, "is the result of 0 idempotency keys"},
	"a sale with two results": {func(f *fixture, _ records.Order) func(storage.Txn) error {
		id := f.transferOf(2, date(2026, 1, 31, 12).Unix())
		return f.storeResult(Receipt{Order: id.String(), Subscription: Subscription{ID: 2, User: f.user}, Wallet: WalletCharge{Charged: 20}})
	}, "is the result of 2 idempotency keys"},
}

func TestVerifyReportsMissingCounterparts(t *testing.T) {
	t.Parallel()
	for name, row := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, paid, _ := newRichFixture(t)
			if problems := f.problems(); len(problems) != 0 {
				t.Fatalf("before the damage: %q", problems)
			}
			f.damaged = true
			if err := f.store.Update(t.Context(), row.damage(f, paid)); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(row.want, "%", journal.IDOf("planted").String())
			if problems := f.problems(); !strings.Contains(strings.Join(problems, "\n"), want) {
				t.Errorf("Check reports %q, want %q", problems, want)
			}
		})
	}
}

func TestVerifyFindsNoProblemInALongHistory(t *testing.T) {
	t.Parallel()
	f, paid, _ := newRichFixture(t)
	f.mustRenew(2, "e")
	if _, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "ann", 4, "sorry", ""); err != nil {
		t.Fatal(err)
	}
	left := f.funds().Wallet.Balance
	if _, err := f.Debit(t.Context(), "operator", "ann", left, "all of it", "key"); err != nil {
		t.Fatal(err)
	}
	f.mustApply(noticeOf(paid, payments.Disputed, money.Amount(100)), Applied)
	if _, err := f.Clear(t.Context(), "operator", "ann", "good will", ""); err != nil {
		t.Fatal(err)
	}
	f.mustApply(noticeOf(paid, payments.Restored, money.Amount(100)), Applied)
	f.clock.Set(date(2026, 5, 1, 1))
	f.mustSpend(1)
	f.checkStore()
	f.clock.Set(date(2027, 5, 1, 1))
	f.credit(100)
	f.mustRenew(2, "f")
	f.checkStore()
}
