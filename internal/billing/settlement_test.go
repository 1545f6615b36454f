package billing

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestAGrowingRefundTakesOnlyTheDifference(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	refund := func(event string, amount money.Amount, want Result) {
		t.Helper()
		n := noticeOf(o, payments.Refunded, amount)
		n.Event = event
		f.mustApply(n, want)
	}
	refund("a", 30, Applied)
	f.wantFunds(70, 0)
	refund("a", 30, Repeated)
	refund("b", 50, Applied)
	f.wantFunds(50, 0)
	refund("c", 40, Repeated) // an older notice that arrives late
	f.wantFunds(50, 0)
	if got := f.wantStatus(o.TradeNo, records.Paid); got.Refunded != 50 {
		t.Errorf("the order has %d refunded", got.Refunded)
	}
	f.mustSpend(20)
	refund("d", 100, Applied)
	f.wantFunds(0, 20)
	f.wantStatus(o.TradeNo, records.Refunded)
	refund("e", 1000, Applied) // a refund takes at most the payment
	f.wantFunds(0, 20)
}

func TestConcurrentNoticesOfARefundTakeItOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	for _, err := range parallel(200, func(i int) error {
		n := noticeOf(o, payments.Refunded, 90)
		n.Event = strconv.Itoa(i % 3)
		_, err := f.Apply(t.Context(), "mock", n)
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	f.wantFunds(10, 0)
}

func TestADisputeOfSpentMoneyBecomesAReceivable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(1, "k") // a quota does not pay what is owed
	o := f.paidOrder()
	call, err := f.ledger.Reserve(t.Context(), ledger.Payer{User: f.user}, 82)
	if err != nil {
		t.Fatal(err)
	}
	f.mustApply(noticeOf(o, payments.Disputed, 100), Applied)
	f.wantFunds(70, 60) // the call has reserved 12 of the quota and 70 of the wallet
	f.wantStatus(o.TradeNo, records.Disputed)
	call.Release()
	if _, err := f.spend(1); err == nil {
		t.Error("a user who owes has spent money")
	}
	x, err := f.Clear(t.Context(), "operator", "ann", "settled by mail", "k")
	if err != nil || x.Amount != -60 || x.WrittenOff != 0 || x.Owed != 0 || x.Balance != 10 {
		t.Fatalf("Clear returned %+v, %v", x, err)
	}
	again, err := f.Clear(t.Context(), "operator", "ann", "settled by mail", "k")
	if x.Replayed = true; err != nil || again != x {
		t.Errorf("the same key returns %+v, %v", again, err)
	}
	f.mustSpend(22)
	f.wantFunds(0, 0)
	f.mustApply(noticeOf(o, payments.Restored, 100), Applied)
	f.wantFunds(100, 0)
}

func TestADisputeIsTakenAndRestoredOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	f.mustSpend(30)
	for _, err := range parallel(20, func(i int) error {
		n := noticeOf(o, payments.Disputed, 100)
		n.Event = "evt_" + strconv.Itoa(i)
		return second(f.Apply(t.Context(), "mock", n))
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	f.wantFunds(0, 30)
	for _, err := range parallel(20, func(i int) error {
		n := noticeOf(o, payments.Restored, 100)
		n.Event = "evt_r" + strconv.Itoa(i)
		return second(f.Apply(t.Context(), "mock", n))
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	f.wantFunds(70, 0)
	f.wantStatus(o.TradeNo, records.Paid)
	f.mustSpend(70)
}

// held is an engine whose transactions wait until a channel is closed.
type held struct {
	storage.Engine
	by chan struct{} // nil: transactions do not wait
}

// Sole implements [storage.Sole], as the engine of gateways does.
func (e *held) Sole() bool { return true }

func (e *held) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if e.by != nil {
		<-e.by
	}
	return e.Engine.Update(ctx, fn)
}

// TestConcurrentNoticesOfADisputeDoNotCauseDebt checks that the notices of one order are applied one
// after another. Otherwise the reservation of one would be missing for the other, and would become a
// receivable although the wallet has enough.
func TestConcurrentNoticesOfADisputeDoNotCauseDebt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		o := f.paidOrder()
		engine := &held{Engine: f.base}
		f.reopenOver(engine)
		f.mustSpend(30)
		engine.by = make(chan struct{})
		f.engine.Plan(storagetest.UnknownLost) // the first notice is repeated after the second
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				n := noticeOf(o, payments.Disputed, 100)
				n.Event = "evt_" + strconv.Itoa(i)
				if _, err := f.Apply(t.Context(), "mock", n); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(engine.by)
		both.Wait()
		f.wantFunds(0, 30)
	})
}

func TestRefundsAndDisputesOfOnePaymentTakeItOnce(t *testing.T) {
	t.Parallel()
	type step struct {
		kind   payments.Kind
		id     string // of the dispute
		amount money.Amount
		wallet money.Amount // afterwards
		status records.OrderStatus
	}
	for name, steps := range map[string][]step{
		"refund, then dispute of all, then won": {
			{payments.Refunded, "", 40, 60, records.Paid},
			{payments.Disputed, "a", 100, 0, records.Disputed},
			{payments.Restored, "a", 100, 60, records.Paid},
		},
		"dispute, refund meanwhile, then won": {
			{payments.Disputed, "a", 100, 0, records.Disputed},
			{payments.Refunded, "", 100, 0, records.Disputed},
			{payments.Restored, "a", 100, 0, records.Refunded},
		},
		"two disputes": {
			{payments.Disputed, "a", 60, 40, records.Disputed},
			{payments.Disputed, "b", 60, 0, records.Disputed},
			{payments.Restored, "a", 60, 40, records.Disputed},
			{payments.Restored, "b", 60, 100, records.Paid},
		},
		"won before the notice of the dispute": {
			{payments.Restored, "a", 100, 100, records.Paid},
			{payments.Disputed, "a", 100, 100, records.Paid},
		},
		"won in part": {
			{payments.Disputed, "a", 100, 0, records.Disputed},
			{payments.Restored, "a", 30, 30, records.Disputed},
			{payments.Restored, "a", 100, 30, records.Disputed},
		},
		"more than was paid": {
			{payments.Disputed, "a", money.Max, 0, records.Disputed},
			{payments.Disputed, "b", money.Max, 0, records.Disputed},
			{payments.Refunded, "", money.Max, 0, records.Disputed},
			{payments.Restored, "a", money.Max, 0, records.Disputed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			o := f.paidOrder()
			for i, s := range steps {
				n := noticeOf(o, s.kind, s.amount)
				n.Event, n.Dispute = strconv.Itoa(i), s.id
				if _, err := f.Apply(t.Context(), "mock", n); err != nil {
					t.Fatal(err)
				}
				f.wantFunds(s.wallet, 0)
				f.wantStatus(o.TradeNo, s.status)
			}
		})
	}
}

func TestARestoredDisputePaysTheOperatorFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	f.mustSpend(70)
	f.mustApply(noticeOf(o, payments.Disputed, 100), Applied)
	f.wantFunds(0, 70)
	f.credit(20)
	x, err := f.Clear(t.Context(), "operator", "ann", "good will", "")
	if err != nil || x.Amount != -20 || x.WrittenOff != 50 {
		t.Fatalf("Clear returned %+v, %v", x, err)
	}
	lines, _, err := f.ledger.Entries(t.Context(), journal.Receivable(f.user), 0, 10)
	if err != nil || len(lines) != 2 || lines[0].Kind != journal.Clear || lines[0].Amount != 70 || lines[0].Reference != "written off 0.00000005" {
		t.Errorf("the entries of the receivable are %+v, %v", lines, err)
	}
	f.wantFunds(0, 0)
	f.mustApply(noticeOf(o, payments.Restored, 100), Applied)
	f.wantFunds(50, 0) // the 30 and the 20 that were taken are returned; the operator gets the 50
}

func TestANoticeBeforeThePaymentCountsWhenItArrives(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		early  func(o records.Order) payments.Notice
		result Result
	}{
		"by the order":   {func(o records.Order) payments.Notice { return noticeOf(o, payments.Refunded, 30) }, Applied},
		"by the payment": {func(o records.Order) payments.Notice { return noticeOf(o, payments.Disputed, 30) }, Mismatched},
		"by the payment alone": {func(o records.Order) payments.Notice {
			n := noticeOf(o, payments.Refunded, 30)
			n.TradeNo = ""
			return n
		}, Mismatched},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			o := f.mustOpen(newMockProvider())
			f.mustApply(row.early(o), row.result)
			f.wantWallet(0)
			f.mustApply(noticeOf(o, payments.Paid, 100), Applied)
			f.wantFunds(70, 0)
			f.mustApply(row.early(o), Repeated)
			f.wantFunds(70, 0)
			if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 0 {
				t.Errorf("an applied notice is listed: %v, %v", listed, err)
			}
			if n := f.countKeys(records.WaitingMismatches.Name); n != 0 {
				t.Errorf("%d notices wait", n)
			}
		})
	}
}

func TestAWaitingNoticeInAnotherCurrencyStaysListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	early := noticeOf(o, payments.Disputed, 30)
	early.Currency = "EUR"
	f.mustApply(early, Mismatched)
	f.mustApply(noticeOf(o, payments.Paid, 100), Applied)
	f.wantFunds(100, 0)
	if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 1 {
		t.Errorf("the mismatches are %v, %v", listed, err)
	}
}
