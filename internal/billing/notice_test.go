package billing

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// noticeOf returns a notice about an order, as the service sends it.
func noticeOf(o records.Order, kind payments.Kind, amount money.Amount) payments.Notice {
	n := payments.Notice{
		Kind: kind, Event: "evt_" + string(kind), TradeNo: o.TradeNo, Payment: "pi_" + o.TradeNo, Amount: amount, Currency: o.Currency,
	}
	if kind == payments.Disputed || kind == payments.Restored {
		n.Dispute, n.TradeNo = "dp_1", "" // services name only the payment
	}
	return n
}

// mustApply applies a notice and checks the result.
func (f *fixture) mustApply(n payments.Notice, want Result) Outcome {
	f.t.Helper()
	got, err := f.Apply(context.Background(), "mock", n)
	if err != nil || got.Result != want {
		f.t.Fatalf("the result is %s (%s), %v; want %s", got.Result, got.Reason, err, want)
	}
	return got
}

// paidOrder returns a paid order of ann.
func (f *fixture) paidOrder() records.Order {
	f.t.Helper()
	o := f.mustOpen(newMockProvider())
	f.mustApply(noticeOf(o, payments.Paid, o.Amount), Applied)
	return f.wantStatus(o.TradeNo, records.Paid)
}

// wantFunds checks ann's wallet and what ann owes.
func (f *fixture) wantFunds(wallet, owed money.Amount) {
	f.t.Helper()
	if funds := f.funds(); funds.Wallet.Balance != wallet || funds.Owed != owed {
		f.t.Fatalf("the wallet has %d and %d is owed, want %d and %d", funds.Wallet.Balance, funds.Owed, wallet, owed)
	}
}

func TestAPaymentIsCreditedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	applied := make(chan bool, 50)
	for _, err := range parallel(50, func(int) error {
		outcome, err := f.Apply(t.Context(), "mock", noticeOf(o, payments.Paid, 100))
		if outcome.Result == Applied {
			applied <- true
		}
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if len(applied) != 1 {
		t.Errorf("%d of 50 notices were applied", len(applied))
	}
	f.wantWallet(100)
	if got := f.wantStatus(o.TradeNo, records.Paid); got.PaidAt != f.clock.Now().Unix() || got.Payment != "pi_"+o.TradeNo {
		t.Errorf("the order is %+v", got)
	}
	other := noticeOf(o, payments.Paid, 100)
	other.Event = "evt_other"
	f.mustApply(other, Repeated)
	f.wantWallet(100)
}

func TestAPaymentOfAnotherOrderIsAMismatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.mustOpen(newMockProvider()), f.mustOpen(newMockProvider())
	f.mustApply(noticeOf(a, payments.Paid, 100), Applied)
	n := noticeOf(b, payments.Paid, 100)
	n.Event, n.Payment = "evt_b", "pi_"+a.TradeNo
	f.mustApply(n, Mismatched)
	n = noticeOf(a, payments.Paid, 100)
	n.Event, n.Payment = "evt_c", "pi_other"
	f.mustApply(n, Mismatched)
	f.wantWallet(100)
	f.wantStatus(b.TradeNo, records.Pending)
}

func TestAKnownEventWithOtherContentIsAMismatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.mustOpen(newMockProvider()), f.mustOpen(newMockProvider())
	f.mustApply(noticeOf(a, payments.Paid, 100), Applied)
	for n, change := range []func(n *payments.Notice){
		func(n *payments.Notice) { n.Amount = 80 },
		func(n *payments.Notice) { n.TradeNo = newTradeNo() },
		func(n *payments.Notice) { n.TradeNo = b.TradeNo },
		func(n *payments.Notice) { n.TradeNo, n.Payment = b.TradeNo, "pi_"+b.TradeNo },
	} {
		changed := noticeOf(a, payments.Paid, 100)
		change(&changed)
		f.mustApply(changed, Mismatched)
		f.mustApply(changed, Mismatched)
		if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != n+1 {
			t.Errorf("after %+v, %d mismatches are listed, %v", changed, len(listed), err)
		}
	}
	f.mustApply(noticeOf(a, payments.Paid, 100), Repeated)
	f.wantWallet(100)
	f.wantStatus(b.TradeNo, records.Pending)
}

func TestAKnownEventIsNotAppliedToASecondOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []payments.Kind{payments.Refunded, payments.Disputed} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a, b := f.paidOrder(), f.mustOpen(newMockProvider())
			n := noticeOf(a, kind, 30)
			n.TradeNo = ""
			f.mustApply(n, Applied)
			n.Payment = "pi_" + b.TradeNo // not known yet
			f.mustApply(n, Mismatched)
			paid := noticeOf(b, payments.Paid, 100)
			paid.Event = "evt_b"
			f.mustApply(paid, Applied)
			f.wantFunds(170, 0)
			again := noticeOf(a, kind, 30)
			again.TradeNo = ""
			f.mustApply(again, Repeated)
		})
	}
}

func TestAWaitingEventOfTwoPaymentsIsAppliedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := newMockProvider()
	a, b := f.mustOpen(provider), f.mustOpen(provider)
	for _, o := range []records.Order{a, b} {
		early := noticeOf(o, payments.Refunded, 30)
		early.TradeNo = ""
		f.mustApply(early, Mismatched)
	}
	for _, o := range []records.Order{a, b} {
		paid := noticeOf(o, payments.Paid, 100)
		paid.Event = "evt_" + o.TradeNo
		f.mustApply(paid, Applied)
	}
	f.wantFunds(170, 0)
	if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 1 || listed[0].Payment != "pi_"+b.TradeNo {
		t.Errorf("the mismatches are %+v, %v", listed, err)
	}
}

func TestAnAppliedNoticeIsRepeatedAfterTheOrderHasChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	early := noticeOf(o, payments.Refunded, 30)
	early.Payment = "pi_first"
	f.mustApply(early, Applied)
	f.mustApply(noticeOf(o, payments.Paid, 100), Applied) // by a second payment
	f.mustApply(early, Repeated)
}

func TestANoticeThatDoesNotFitCreditsNothingAndIsListedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	listed := 0
	for name, row := range map[string]struct {
		change   func(n *payments.Notice)
		provider string
		want     string
	}{
		"more than the order":   {func(n *payments.Notice) { n.Amount++ }, "mock", "the order is for 0.0000001"},
		"less than the order":   {func(n *payments.Notice) { n.Amount-- }, "mock", "the order is for 0.0000001"},
		"a zero amount":         {func(n *payments.Notice) { n.Amount = 0 }, "mock", "not more than zero"},
		"a negative amount":     {func(n *payments.Notice) { n.Amount = -100 }, "mock", "not more than zero"},
		"another currency":      {func(n *payments.Notice) { n.Currency = "EUR" }, "mock", "the order is in USD"},
		"a lower-case currency": {func(n *payments.Notice) { n.Currency = "usd" }, "mock", "the order is in USD"},
		"another service":       {func(*payments.Notice) {}, "stripe", "the order belongs to the service mock"},
		"an unknown order":      {func(n *payments.Notice) { n.TradeNo = newTradeNo() }, "mock", "there is no such order"},
		"no order":              {func(n *payments.Notice) { n.TradeNo = "" }, "mock", "names no order"},
		"an invalid order":      {func(n *payments.Notice) { n.TradeNo = "a/b" }, "mock", "there is no such order"},
		"the test mode":         {func(n *payments.Notice) { n.Mismatch = "it is of test mode" }, "mock", "it is of test mode"},
		"no event":              {func(n *payments.Notice) { n.Event = "" }, "mock", "it has no id"},
		"an invalid event":      {func(n *payments.Notice) { n.Event = "a\nb" }, "mock", "printable"},
		"a long event":          {func(n *payments.Notice) { n.Event, n.Amount = strings.Repeat("e", 70_000), 1 }, "mock", "printable"},
		"a long payment":        {func(n *payments.Notice) { n.Payment = strings.Repeat("e", 70_000) }, "mock", "printable"},
		"an unknown kind":       {func(n *payments.Notice) { n.Kind = "lost" }, "mock", "its kind"},
		"a dispute without id":  {func(n *payments.Notice) { n.Kind = payments.Disputed }, "mock", "dispute has no id"},
		"a long reason":         {func(n *payments.Notice) { n.Mismatch = strings.Repeat("é", 200) }, "mock", "é"},
		"an unreadable notice":  {func(n *payments.Notice) { *n = payments.Notice{Mismatch: "it cannot be read"} }, "mock", "cannot be read"},
	} {
		n := noticeOf(o, payments.Paid, 100)
		row.change(&n)
		for range 2 {
			got, err := f.Apply(t.Context(), row.provider, n)
			if err != nil || got.Result != Mismatched || !strings.Contains(got.Reason, row.want) {
				t.Errorf("%s: the result is %+v, %v", name, got, err)
			}
		}
		listed++
		mismatches, err := f.Mismatches(t.Context(), 100)
		if err != nil || len(mismatches) != listed {
			t.Errorf("after %s, %d mismatches are listed, %v; want %d", name, len(mismatches), err, listed)
		}
		f.clock.Set(f.clock.Now().Add(time.Second))
	}
	f.wantWallet(0)
	f.wantStatus(o.TradeNo, records.Pending)
	f.mustApply(noticeOf(o, payments.Paid, 100), Applied) // the refused notices have not used up the order
	f.wantWallet(100)
	if some, err := f.Mismatches(t.Context(), 3); err != nil || len(some) != 3 || some[0].Time < some[2].Time {
		t.Errorf("the first three mismatches are %v, %v", some, err)
	}
	if none, err := f.Mismatches(t.Context(), 0); err != nil || len(none) != 0 {
		t.Errorf("a page without mismatches has %v, %v", none, err)
	}
}

// Mismatches returns the latest mismatches.
func (f *fixture) Mismatches(ctx context.Context, limit int64) ([]*records.MismatchRecord, error) {
	list, _, err := f.Service.Mismatches(ctx, MismatchFilter{}, "", limit)
	return list, err
}

func TestMismatchesExpire(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.mustApply(payments.Notice{Mismatch: "it cannot be read"}, Mismatched)
	f.clock.Set(f.clock.Now().Add(records.MismatchRetention))
	if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 0 {
		t.Errorf("the mismatches are %v, %v", listed, err)
	}
}

func TestARepeatedRefundOrDisputeIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	f.mustApply(noticeOf(o, payments.Refunded, 10), Applied)
	f.mustApply(noticeOf(o, payments.Refunded, 20), Mismatched) // the same event
	f.wantFunds(90, 0)
	f.mustApply(noticeOf(o, payments.Disputed, 30), Applied)
	again := noticeOf(o, payments.Disputed, 40)
	again.Event = "evt_other" // another event about the same dispute
	f.mustApply(again, Repeated)
	f.wantFunds(60, 0)
}

func TestANoticeIsAppliedAfterAnUnknownCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	f.engine.Plan(storagetest.UnknownCommitted)
	f.mustApply(noticeOf(o, payments.Paid, 100), Applied)
	f.engine.Plan(storagetest.None, storagetest.UnknownCommitted) // the first fills the balances
	f.mustApply(noticeOf(o, payments.Refunded, 30), Applied)
	f.wantFunds(70, 0)
}

func TestOtherNoticesOfAServiceAreIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	n := noticeOf(o, payments.Ignored, 0)
	n.Event = "one"
	f.mustApply(n, Ignored)
	paid := noticeOf(o, payments.Paid, 100)
	paid.Event = "one" // some services use one id for all notices about a payment
	f.mustApply(paid, Applied)
	refunded := noticeOf(o, payments.Refunded, 40)
	refunded.Event = "one"
	f.mustApply(refunded, Applied)
	f.wantFunds(60, 0)
}

func TestALatePaymentIsCredited(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		undated bool
		failed  bool
		after   time.Duration
		swept   bool
		want    Result
	}{
		"after it failed":                           {false, true, time.Hour, false, Applied},
		"after it expired":                          {false, false, 100 * time.Hour, false, Applied},
		"after it expired and was swept":            {false, false, 100 * time.Hour, true, Applied},
		"without a time, before it expired":         {true, false, 24*time.Hour - time.Second, true, Applied},
		"without a time, failed, before it expired": {true, true, time.Hour, false, Applied},
		"without a time, when it expired":           {true, false, 24 * time.Hour, false, Mismatched},
		"without a time, expired and swept":         {true, false, 48 * time.Hour, true, Mismatched},
		"without a time, failed and expired":        {true, true, 24 * time.Hour, false, Mismatched},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := newMockProvider()
			p.undated = row.undated
			o := f.mustOpen(p)
			if row.failed {
				f.mustApply(noticeOf(o, payments.Failed, 0), Applied)
				f.wantStatus(o.TradeNo, records.Failed)
			}
			f.clock.Set(f.clock.Now().Add(row.after))
			if row.swept {
				if err := f.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f.mustApply(noticeOf(o, payments.Paid, 100), row.want)
			if row.want == Applied {
				f.wantWallet(100)
				f.wantStatus(o.TradeNo, records.Paid)
			} else {
				f.wantWallet(0)
			}
		})
	}
}

func TestAFailureAfterThePaymentChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	f.mustApply(noticeOf(o, payments.Failed, 0), Repeated)
	f.wantStatus(o.TradeNo, records.Paid)
	f.wantWallet(100)
}
