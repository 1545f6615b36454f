package billing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// operations are all operations of this package that change money. A caller who does not know the
// outcome can repeat each. done is the error for an operation that was already done.
var operations = map[string]struct {
	before func(f *fixture)
	do     func(f *fixture) error
	done   fault.Code
}{
	"buy":   {do: func(f *fixture) error { return second(f.buy(2, "k")) }},
	"claim": {do: func(f *fixture) error { return second(f.Claim(f.t.Context(), f.plans, "USD", f.user, 3)) }, done: fault.AlreadyClaimed},
	"grant": {do: func(f *fixture) error {
		return second(f.GrantPlan(f.t.Context(), "operator", f.plans, "USD", "ann", 1, "gift", "k"))
	}},
	"renew": {
		before: func(f *fixture) { f.mustBuy(1, "first") },
		do:     func(f *fixture) error { return second(f.renew(1, "k")) },
	},
	"cancel": {
		before: func(f *fixture) { f.mustBuy(1, "first") },
		do:     func(f *fixture) error { return second(f.Cancel(f.t.Context(), "operator", 1, "")) },
		done:   fault.SubscriptionCancelled,
	},
	"credit": {do: func(f *fixture) error { return second(f.Credit(f.t.Context(), "operator", "ann", 5, "gift", "k")) }},
	"debit":  {do: func(f *fixture) error { return second(f.Debit(f.t.Context(), "operator", "ann", 5, "mistake", "k")) }},
	"clear": {
		before: func(f *fixture) {
			o := f.paidOrder()
			f.mustSpend(170)
			f.mustApply(noticeOf(o, payments.Disputed, 100), Applied)
			f.credit(20)
		},
		do: func(f *fixture) error { return second(f.Clear(f.t.Context(), "operator", "ann", "good will", "k")) },
	},
	"order": {do: func(f *fixture) error {
		_, _, err := f.OpenOrder(f.t.Context(), f.request("k"), newMockProvider())
		return err
	}},
	"payment": {
		before: func(f *fixture) { f.mustOpen(newMockProvider()) },
		do:     func(f *fixture) error { return f.applyToOrder(payments.Paid) },
	},
	"refund": {
		before: func(f *fixture) { f.paidOrder(); f.mustSpend(150) },
		do:     func(f *fixture) error { return f.applyToOrder(payments.Refunded) },
	},
	"dispute and return": {
		before: func(f *fixture) { f.paidOrder(); f.mustSpend(150) },
		do: func(f *fixture) error {
			if err := f.applyToOrder(payments.Disputed); err != nil {
				return err
			}
			return f.applyToOrder(payments.Restored)
		},
	},
	"mismatch": {do: func(f *fixture) error {
		return second(f.Apply(f.t.Context(), "mock", payments.Notice{Mismatch: "it cannot be read"}))
	}},
	"preference": {do: func(f *fixture) error { return f.SetPreference(f.t.Context(), f.user, records.WalletFirst) }},
	"sweep": {
		before: func(f *fixture) {
			f.mustBuy(2, "first")
			f.mustOpen(newMockProvider())
			f.clock.Set(date(2026, 2, 10, 0))
		},
		do: func(f *fixture) error { return f.Sweep(f.t.Context()) },
	},
}

// applyToOrder applies a notice about ann's only order.
func (f *fixture) applyToOrder(kind payments.Kind) error {
	orders, _, err := f.Orders(f.t.Context(), f.user, 0, 1)
	if err != nil {
		return err
	}
	return second(f.Apply(f.t.Context(), "mock", noticeOf(orders[0], kind, 100)))
}

// summary returns the state that must not depend on the number of attempts.
func (f *fixture) summary() string {
	f.t.Helper()
	subscriptions, _, err := f.Subscriptions(f.t.Context(), f.user, 0, math.MaxInt64)
	if err != nil {
		f.t.Fatal(err)
	}
	text := fmt.Sprintf("%+v\n", f.funds())
	for _, s := range subscriptions {
		s.User = ""
		text += fmt.Sprintf("%+v\n", s)
	}
	orders, _, err := f.Orders(f.t.Context(), f.user, 0, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range orders {
		if o.Status != records.Failed { // a failed order is an attempt that was interrupted
			text += fmt.Sprintf("%s %d %d %d\n", o.Status, o.Amount, o.Refunded, o.Disputed)
		}
	}
	return text + fmt.Sprint(f.countKeys("audit"), f.countKeys("audit/"))
}

func TestStoreFailuresNeitherRepeatNorLoseOperations(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		prepare := func(t *testing.T) *fixture {
			f := newFixture(t)
			f.credit(100)
			if op.before != nil {
				op.before(f)
			}
			return f
		}
		for fail, faultName := range map[storagetest.Fault]string{
			storagetest.Conflict: "conflict", storagetest.UnknownCommitted: "unknown, committed", storagetest.UnknownLost: "unknown, lost",
			storagetest.LowSpace: "low space", storagetest.SyncFailed: "sync failed", storagetest.Halted: "halted",
		} {
			t.Run(name+"/"+faultName, func(t *testing.T) {
				t.Parallel()
				faultless := prepare(t)
				before := faultless.engine.Commits()
				if err := op.do(faultless); err != nil {
					t.Fatal(err)
				}
				want, commits := faultless.summary(), faultless.engine.Commits()-before
				if commits == 0 {
					t.Fatal("the operation commits nothing")
				}
				for k := range commits {
					f := prepare(t)
					f.engine.Plan(storagetest.After(k, fail)...)
					f.untilDone(op.do, op.done)
					if got := f.summary(); got != want {
						t.Errorf("after a fault in commit %d:\n%s, want\n%s", k+1, got, want)
					}
				}
			})
		}
	}
}

// untilDone repeats an operation until it is done, as a client or a payment service does. If the
// store has stopped, untilDone restarts it.
func (f *fixture) untilDone(do func(*fixture) error, done fault.Code) {
	f.t.Helper()
	for range 5 {
		err := do(f)
		if err == nil || done != "" && codeOf(err) == done {
			return
		}
		if codeOf(err) != fault.StoreUnavailable {
			f.t.Fatalf("after a fault of the store, the error is %v", err)
		}
		if f.store.Err() != nil {
			f.close()
			f.open()
		}
	}
	f.t.Fatal("the operation was not done after 5 attempts")
}

func TestARestartChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(2, "k")
	f.paidOrder()
	f.clock.Set(f.clock.Now().Add(24 * time.Hour))
	before := f.summary()
	f.close()
	f.open()
	if after := f.summary(); after != before {
		t.Errorf("after a restart:\n%s, before\n%s", after, before)
	}
	if r := f.mustBuy(2, "k"); !r.Replayed {
		t.Error("the idempotency key was lost")
	}
}
