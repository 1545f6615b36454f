package billing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// history is a random sequence of operations on ann's account, with the expected result.
// Calls are paid from the wallet, so that the result follows from the operations.
type history struct {
	*fixture
	n       int          // number of steps, for keys and ids
	balance money.Amount // expected wallet minus the owed amount
	ends    map[int64]int64
	orders  []*expectedOrder
}

// expectedOrder is the expected state of an order after its notices.
type expectedOrder struct {
	records.Order
	paid     bool
	refunded money.Amount
	disputes map[string][2]money.Amount // taken, restored
}

// left returns the part of the payment that should not have been taken back.
func (o *expectedOrder) left() money.Amount {
	if !o.paid {
		return 0
	}
	taken := o.refunded
	for _, d := range o.disputes {
		taken += max(0, d[0]-d[1])
	}
	return max(0, o.Amount-taken)
}

func TestRandomOperationsKeepTheStoreConsistent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		h := &history{fixture: newFixture(t), ends: make(map[int64]int64)}
		if err := h.SetPreference(t.Context(), h.user, records.WalletOnly); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			h.n++
			if rapid.IntRange(0, 3).Draw(r, "fails") == 0 {
				h.engine.Plan(rapid.SampledFrom([]storagetest.Fault{
					storagetest.Conflict, storagetest.UnknownCommitted, storagetest.UnknownLost, storagetest.SyncFailed, storagetest.Halted,
				}).Draw(r, "fault"))
			}
			rapid.SampledFrom([]func(*rapid.T){h.pay, h.sell, h.extend, h.end, h.call, h.order, h.notice, h.notice, h.notice, h.notice, h.clear, h.time}).Draw(r, "step")(r)
			h.useUpFaults(r)
			h.check(r)
		}
	})
}

// check checks ann's wallet and what ann owes, and verifies the store.
func (h *history) check(r *rapid.T) {
	funds := h.funds()
	if have := funds.Wallet.Balance - funds.Owed; have != h.balance || funds.Wallet.Available() < 0 || funds.Owed < 0 {
		r.Fatalf("the wallet has %d and %d is owed, want %d", funds.Wallet.Balance, funds.Owed, h.balance)
	}
	for id, end := range h.ends {
		if s := h.subscription(id); s.EndTime != end {
			r.Fatalf("subscription %d ends at %d, want %d", id, s.EndTime, end)
		}
	}
	h.checkStore()
	if h.t.Failed() {
		r.FailNow()
	}
}

// refused repeats an operation over faults and restarts of the store until it has an
// outcome. It reports whether the operation was refused with one of these codes.
func (h *history) refused(r *rapid.T, do func() error, codes ...fault.Code) bool {
	for range 20 {
		err := do()
		switch {
		case err == nil:
			return false
		case slices.Contains(codes, codeOf(err)):
			return true
		case codeOf(err) != fault.StoreUnavailable:
			r.Fatal(err)
		}
		if h.store.Err() != nil {
			h.close()
			h.open()
		}
	}
	r.Fatal("the operation was not done after 20 attempts")
	return true
}

func (h *history) key() string { return "key-" + strconv.Itoa(h.n) }

func (h *history) pay(r *rapid.T) {
	amount := money.Amount(rapid.IntRange(1, 50).Draw(r, "amount"))
	debit := rapid.Bool().Draw(r, "debit")
	refused := h.refused(r, func() error {
		if debit {
			return second(h.Debit(h.t.Context(), "operator", "ann", amount, "r", h.key()))
		}
		return second(h.Credit(h.t.Context(), "operator", "ann", amount, "r", h.key()))
	}, fault.InsufficientBalance)
	switch {
	case refused && !debit:
		r.Fatal("a credit was refused")
	case !refused && debit:
		h.balance -= amount
	case !refused:
		h.balance += amount
	}
}

func (h *history) sell(r *rapid.T) {
	plan := rapid.SampledFrom([]int64{1, 2, 5, 6}).Draw(r, "plan")
	var receipt Receipt
	if !h.refused(r, func() (err error) {
		receipt, err = h.buy(plan, h.key())
		return err
	}, fault.InsufficientBalance, fault.PurchaseLimitReached) {
		h.balance -= receipt.Wallet.Charged
		h.ends[receipt.ID] = receipt.EndTime
	}
}

func (h *history) extend(r *rapid.T) {
	if len(h.ends) == 0 {
		return
	}
	id := rapid.Int64Range(1, int64(len(h.ends))).Draw(r, "subscription")
	var receipt Receipt
	if h.refused(r, func() (err error) {
		receipt, err = h.renew(id, h.key())
		return err
	}, fault.InsufficientBalance, fault.SubscriptionCancelled) {
		return
	}
	plan, _ := h.plans.Find(receipt.PlanID)
	from := time.Unix(max(h.ends[id], h.clock.Now().Unix()), 0)
	h.balance -= plan.Price
	h.ends[id] = plan.Duration.After(from).Unix()
}

func (h *history) end(r *rapid.T) {
	if len(h.ends) > 0 {
		id := rapid.Int64Range(1, int64(len(h.ends))).Draw(r, "subscription")
		h.refused(r, func() error { return second(h.Cancel(h.t.Context(), "operator", id, "")) }, fault.SubscriptionCancelled)
	}
}

// useUpFaults uses up a planned fault that has not occurred.
func (h *history) useUpFaults(r *rapid.T) {
	h.refused(r, func() error { return fault.OfStore(h.store.Flush(h.t.Context())) })
}

func (h *history) call(r *rapid.T) {
	h.useUpFaults(r) // a call is not repeated
	cost := money.Amount(rapid.IntRange(1, 20).Draw(r, "cost"))
	if charged, err := h.spend(cost); err == nil {
		h.balance -= charged
	}
}

func (h *history) order(r *rapid.T) {
	o := h.request(h.key())
	var opened records.Order
	if !h.refused(r, func() (err error) {
		opened, _, err = h.OpenOrder(h.t.Context(), o, newMockProvider())
		return err
	}, fault.RateLimited) {
		h.orders = append(h.orders, &expectedOrder{Order: opened, disputes: make(map[string][2]money.Amount)})
	}
}

func (h *history) notice(r *rapid.T) {
	if len(h.orders) == 0 {
		return
	}
	o := rapid.SampledFrom(h.orders).Draw(r, "order")
	kind := rapid.SampledFrom([]payments.Kind{payments.Paid, payments.Paid, payments.Refunded, payments.Disputed, payments.Restored}).Draw(r, "kind")
	n := noticeOf(o.Order, kind, 100)
	n.Event = fmt.Sprintf("evt-%d", h.n)
	if kind != payments.Paid {
		n.Amount = money.Amount(rapid.IntRange(1, 120).Draw(r, "amount"))
	}
	before := o.left()
	switch kind {
	case payments.Paid:
		o.paid = true
	case payments.Refunded:
		o.refunded = max(o.refunded, n.Amount)
	default:
		n.Dispute = rapid.SampledFrom([]string{"a", "b"}).Draw(r, "dispute")
		d, side := o.disputes[n.Dispute], 0
		if kind == payments.Restored {
			side = 1
		}
		if d[side] == 0 {
			d[side] = n.Amount
		}
		o.disputes[n.Dispute] = d
		n.Dispute += o.TradeNo
	}
	h.refused(r, func() error { return second(h.Apply(h.t.Context(), "mock", n)) })
	h.balance += o.left() - before - h.borneBack()
}

// borneBack returns the part of what ann owes that the last transfer has given back to the operator.
func (h *history) borneBack() (back money.Amount) {
	err := h.store.View(h.t.Context(), func(r storage.Reader) error {
		return journal.ScanTransfers(r, func(x journal.Transfer) error {
			if x.Kind != journal.Restore || x.Time != h.clock.Now().UnixMilli() {
				return nil
			}
			for _, leg := range x.Legs {
				if leg.Account.Family() == journal.Operator {
					back += leg.Amount
				}
			}
			return nil
		})
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.clock.Set(h.clock.Now().Add(time.Millisecond)) // the next operation has another time
	return back
}

func (h *history) clear(r *rapid.T) {
	owed := h.funds().Owed
	var x WalletChange
	if !h.refused(r, func() (err error) {
		x, err = h.Clear(h.t.Context(), "operator", "ann", "r", h.key())
		return err
	}, fault.Conflict) {
		h.balance += x.WrittenOff
		if owed+x.Amount != x.WrittenOff {
			r.Fatalf("of %d that was owed, %d was collected and %d written off", owed, -x.Amount, x.WrittenOff)
		}
	}
}

func (h *history) time(r *rapid.T) {
	h.clock.Set(h.clock.Now().Add(time.Duration(rapid.IntRange(1, 60*24).Draw(r, "hours")) * time.Hour))
	if rapid.Bool().Draw(r, "sweep") {
		h.refused(r, func() error { return h.Sweep(h.t.Context()) })
	}
}

func TestEachAuditEventIsLoggedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100) // before the log is observed
	core, logs := observer.New(zap.InfoLevel)
	directory, err := identity.Open(t.Context(), f.store, nil, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	f.directory = directory
	f.mustBuy(1, "k")
	f.mustBuy(1, "k") // logged once
	f.mustRenew(1, "r")
	if _, err := f.Claim(t.Context(), f.plans, "USD", f.user, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "ann", 4, "sorry", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Cancel(t.Context(), "operator", 1, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.SetPreference(t.Context(), f.user, records.WalletFirst); err != nil {
		t.Fatal(err)
	}
	o := f.paidOrder()
	f.mustSpend(180)
	f.mustApply(noticeOf(o, payments.Disputed, 100), Applied)
	if _, err := f.Clear(t.Context(), "operator", "ann", "good will", ""); err != nil {
		t.Fatal(err)
	}
	f.mustApply(noticeOf(o, payments.Restored, 100), Applied)
	f.mustApply(noticeOf(o, payments.Refunded, 100), Applied)
	f.mustApply(payments.Notice{Mismatch: "it cannot be read"}, Mismatched)
	want := []string{
		"subscription.buy", "subscription.renew", "subscription.claim", "subscription.grant", "subscription.cancel", "subscription.preference",
		"topup.paid", "topup.disputed", "wallet.clear", "topup.restored", "topup.refunded", "topup.mismatch",
	}
	var logged, recorded []string
	for _, line := range logs.All() {
		logged = append(logged, line.Message)
	}
	err = f.store.View(t.Context(), func(r storage.Reader) error {
		add := func(_, record []byte) bool {
			var e audit.Event
			if err := storage.DecodeRecord(record, &e); err != nil {
				t.Error(err)
			}
			recorded = append(recorded, e.Action)
			if owner := map[bool]string{true: "operator", false: f.user}; e.User != f.user && e.Action != "topup.mismatch" ||
				e.Action == "subscription.buy" && e.Actor != owner[false] || e.Action == "wallet.clear" && e.Actor != owner[true] ||
				e.Action == "topup.paid" && e.Actor != "mock" {
				t.Errorf("the event is %+v", e)
			}
			return true
		}
		all := func(prefix string) error {
			lo, hi := storage.Below(prefix)
			return r.Scan(lo, hi, add)
		}
		return cmp.Or(all("activity"), all("audit"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logged, want) {
		t.Errorf("the log has %q, want %q", logged, want)
	}
	for _, action := range want {
		if n := len(slices.DeleteFunc(slices.Clone(recorded), func(have string) bool { return have != action })); n != 1 {
			t.Errorf("%s is recorded %d times", action, n)
		}
	}
}
