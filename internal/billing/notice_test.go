package billing

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// notice is one about an order, as the service sends it.
func noticeOf(o Order, kind payments.Kind, amount money.Amount) payments.Notice {
	n := payments.Notice{
		Kind: kind, Event: "evt_" + string(kind), TradeNo: o.TradeNo, Payment: "pi_" + o.TradeNo, Amount: amount, Currency: o.Currency,
	}
	if kind == payments.Disputed || kind == payments.Restored {
		n.Dispute, n.TradeNo = "dp_1", "" // services name the payment only
	}
	return n
}

// tell applies a notice and checks what becomes of it.
func (f *desk) tell(n payments.Notice, want Result) Outcome {
	f.t.Helper()
	got, err := f.Apply(context.Background(), "till", n)
	if err != nil || got.Result != want {
		f.t.Fatalf("the notice was %s (%s), %v; want %s", got.Result, got.Reason, err, want)
	}
	return got
}

// paid is an order of ann that was paid.
func (f *desk) paid() Order {
	f.t.Helper()
	o := f.mustOpen(newTill())
	f.tell(noticeOf(o, payments.Paid, o.Amount), Applied)
	return f.stands(o.TradeNo, Paid)
}

// owes checks what is in ann's wallet and what she owes.
func (f *desk) owes(wallet, owed money.Amount) {
	f.t.Helper()
	if funds := f.funds(); funds.Wallet.Balance != wallet || funds.Owed != owed {
		f.t.Fatalf("the wallet has %d and %d is owed, want %d and %d", funds.Wallet.Balance, funds.Owed, wallet, owed)
	}
}

func TestAPaymentIsCreditedOnce(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.mustOpen(newTill())
	applied := make(chan bool, 50)
	for _, err := range parallel(50, func(int) error {
		outcome, err := f.Apply(t.Context(), "till", noticeOf(o, payments.Paid, 100))
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
		t.Errorf("%d of them were applied", len(applied))
	}
	f.has(100)
	if got := f.stands(o.TradeNo, Paid); got.PaidAt != f.clock.Now().Unix() || got.Payment != "pi_"+o.TradeNo {
		t.Errorf("the order is %+v", got)
	}
	other := noticeOf(o, payments.Paid, 100)
	other.Event = "evt_other"
	f.tell(other, Repeated)
	f.has(100)
}

func TestOneEventOfManyServicesOrOrdersIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	a, b := f.mustOpen(newTill()), f.mustOpen(newTill())
	f.tell(noticeOf(a, payments.Paid, 100), Applied)
	n := noticeOf(b, payments.Paid, 100)
	n.Event, n.Payment = "evt_b", "pi_"+a.TradeNo
	f.tell(n, Mismatched)
	n = noticeOf(a, payments.Paid, 100)
	n.Event, n.Payment = "evt_c", "pi_other"
	f.tell(n, Mismatched)
	f.has(100)
	f.stands(b.TradeNo, Pending)
}

func TestANoticeThatDoesNotFitCreditsNothingAndIsListedOnce(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.mustOpen(newTill())
	listed := 0
	for name, row := range map[string]struct {
		change   func(n *payments.Notice)
		provider string
		want     string
	}{
		"more than the order":  {func(n *payments.Notice) { n.Amount++ }, "till", "the order is over 0.0000001"},
		"less than the order":  {func(n *payments.Notice) { n.Amount-- }, "till", "the order is over 0.0000001"},
		"nothing":              {func(n *payments.Notice) { n.Amount = 0 }, "till", "not more than zero"},
		"less than nothing":    {func(n *payments.Notice) { n.Amount = -100 }, "till", "not more than zero"},
		"another currency":     {func(n *payments.Notice) { n.Currency = "EUR" }, "till", "the order is in USD"},
		"a currency in small":  {func(n *payments.Notice) { n.Currency = "usd" }, "till", "the order is in USD"},
		"another service":      {func(*payments.Notice) {}, "stripe", "the order is one of the service till"},
		"an order of nobody":   {func(n *payments.Notice) { n.TradeNo = newTradeNo() }, "till", "there is no such order"},
		"no order":             {func(n *payments.Notice) { n.TradeNo = "" }, "till", "names no order"},
		"junk for an order":    {func(n *payments.Notice) { n.TradeNo = "a/b" }, "till", "there is no such order"},
		"the test mode":        {func(n *payments.Notice) { n.Mismatch = "it is of test mode" }, "till", "it is of test mode"},
		"no event":             {func(n *payments.Notice) { n.Event = "" }, "till", "it has no id"},
		"junk for an event":    {func(n *payments.Notice) { n.Event = "a\nb" }, "till", "printable"},
		"an event too long":    {func(n *payments.Notice) { n.Event, n.Amount = strings.Repeat("e", 70_000), 1 }, "till", "printable"},
		"a payment too long":   {func(n *payments.Notice) { n.Payment = strings.Repeat("e", 70_000) }, "till", "printable"},
		"a kind of its own":    {func(n *payments.Notice) { n.Kind = "lost" }, "till", "of a kind"},
		"a dispute without id": {func(n *payments.Notice) { n.Kind = payments.Disputed }, "till", "dispute has no id"},
		"many words":           {func(n *payments.Notice) { n.Mismatch = strings.Repeat("é", 200) }, "till", "é"},
		"what cannot be read":  {func(n *payments.Notice) { *n = payments.Notice{Mismatch: "it cannot be read"} }, "till", "cannot be read"},
	} {
		n := noticeOf(o, payments.Paid, 100)
		row.change(&n)
		for range 2 {
			got, err := f.Apply(t.Context(), row.provider, n)
			if err != nil || got.Result != Mismatched || !strings.Contains(got.Reason, row.want) {
				t.Errorf("%s was answered %+v, %v", name, got, err)
			}
		}
		listed++
		mismatches, err := f.Mismatches(t.Context(), 100)
		if err != nil || len(mismatches) != listed {
			t.Errorf("after %s, %d are listed, %v; want %d", name, len(mismatches), err, listed)
		}
		f.clock.set(f.clock.Now().Add(time.Second))
	}
	f.has(0)
	f.stands(o.TradeNo, Pending)
	f.tell(noticeOf(o, payments.Paid, 100), Applied) // none of them used anything up
	f.has(100)
	if some, err := f.Mismatches(t.Context(), 3); err != nil || len(some) != 3 || some[0].Time < some[2].Time {
		t.Errorf("three of them are %v, %v", some, err)
	}
	if none, err := f.Mismatches(t.Context(), 0); err != nil || len(none) != 0 {
		t.Errorf("none of them are %v, %v", none, err)
	}
}

func TestAMismatchIsListedForAWhile(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	f.tell(payments.Notice{Mismatch: "it cannot be read"}, Mismatched)
	f.clock.set(f.clock.Now().Add(mismatchesKept))
	if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 0 {
		t.Errorf("listed are %v, %v", listed, err)
	}
}

func TestWhatCameOnceIsNotDoneAgainWhateverItSaysNow(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.paid()
	f.tell(noticeOf(o, payments.Refunded, 10), Applied)
	f.tell(noticeOf(o, payments.Refunded, 20), Repeated) // the same event
	f.owes(90, 0)
	f.tell(noticeOf(o, payments.Disputed, 30), Applied)
	again := noticeOf(o, payments.Disputed, 40)
	again.Event = "evt_other" // of the same dispute
	f.tell(again, Repeated)
	f.owes(60, 0)
}

func TestACommitThatWasInDoubtIsToldAsDone(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.mustOpen(newTill())
	f.engine.Plan(storagetest.UnknownCommitted)
	f.tell(noticeOf(o, payments.Paid, 100), Applied)
	f.engine.Plan(storagetest.None, storagetest.UnknownCommitted) // the first fills the purse
	f.tell(noticeOf(o, payments.Refunded, 30), Applied)
	f.owes(70, 0)
}

func TestWhatAServiceSaysBesideIsIgnored(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.mustOpen(newTill())
	n := noticeOf(o, payments.Ignored, 0)
	n.Event = "one"
	f.tell(n, Ignored)
	paid := noticeOf(o, payments.Paid, 100)
	paid.Event = "one" // some services have one id for all they say of a payment
	f.tell(paid, Applied)
	refunded := noticeOf(o, payments.Refunded, 40)
	refunded.Event = "one"
	f.tell(refunded, Applied)
	f.owes(60, 0)
}

func TestMoneyThatComesLateIsCredited(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		undated bool
		failed  bool
		after   time.Duration
		swept   bool
		want    Result
	}{
		"after it failed":                       {false, true, time.Hour, false, Applied},
		"after it expired":                      {false, false, 100 * time.Hour, false, Applied},
		"after it expired and was swept":        {false, false, 100 * time.Hour, true, Applied},
		"without a time, in the order's life":   {true, false, 24*time.Hour - time.Second, true, Applied},
		"without a time, failed, in its life":   {true, true, time.Hour, false, Applied},
		"without a time, at the end of it":      {true, false, 24 * time.Hour, false, Mismatched},
		"without a time, after it, and swept":   {true, false, 48 * time.Hour, true, Mismatched},
		"without a time, failed, and after it ": {true, true, 24 * time.Hour, false, Mismatched},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDesk(t)
			p := newTill()
			p.undated = row.undated
			o := f.mustOpen(p)
			if row.failed {
				f.tell(noticeOf(o, payments.Failed, 0), Applied)
				f.stands(o.TradeNo, Failed)
			}
			f.clock.set(f.clock.Now().Add(row.after))
			if row.swept {
				if err := f.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f.tell(noticeOf(o, payments.Paid, 100), row.want)
			if row.want == Applied {
				f.has(100)
				f.stands(o.TradeNo, Paid)
			} else {
				f.has(0)
			}
		})
	}
}

func TestAFailureAfterThePaymentChangesNothing(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.paid()
	f.tell(noticeOf(o, payments.Failed, 0), Repeated)
	f.stands(o.TradeNo, Paid)
	f.has(100)
}

func TestRefundsAreTakenOnceAsTheyGrow(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.paid()
	refund := func(event string, amount money.Amount, want Result) {
		t.Helper()
		n := noticeOf(o, payments.Refunded, amount)
		n.Event = event
		f.tell(n, want)
	}
	refund("a", 30, Applied)
	f.owes(70, 0)
	refund("a", 30, Repeated)
	refund("b", 50, Applied)
	f.owes(50, 0)
	refund("c", 40, Repeated) // older, told late
	f.owes(50, 0)
	if got := f.stands(o.TradeNo, Paid); got.Refunded != 50 {
		t.Errorf("refunded are %d", got.Refunded)
	}
	f.mustSpend(20)
	refund("d", 100, Applied)
	f.owes(0, 20)
	f.stands(o.TradeNo, Refunded)
	refund("e", 1000, Applied) // more than was paid takes no more
	f.owes(0, 20)
}

func TestARefundThatManyTellTakesWhatTheWalletHas(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.paid()
	for _, err := range parallel(200, func(i int) error {
		n := noticeOf(o, payments.Refunded, 90)
		n.Event = strconv.Itoa(i % 3)
		_, err := f.Apply(t.Context(), "till", n)
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	f.owes(10, 0)
}

func TestWhatWasSpentBecomesAReceivableAndPausesSpending(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	f.credit(20)
	f.mustBuy(1, "k") // quota does not help who owes
	o := f.paid()
	call, err := f.ledger.Reserve(t.Context(), ledger.Payer{User: f.user}, 82)
	if err != nil {
		t.Fatal(err)
	}
	f.tell(noticeOf(o, payments.Disputed, 100), Applied)
	f.owes(70, 60) // 12 of the quota and 70 of the wallet are the call's
	f.stands(o.TradeNo, Disputed)
	call.Release()
	if _, err := f.spend(1); err == nil {
		t.Error("who owes has spent")
	}
	x, err := f.Clear(t.Context(), "operator", "ann", "settled by mail", "k")
	if err != nil || x.Amount != -60 || x.WrittenOff != 0 || x.Owed != 0 || x.Balance != 10 {
		t.Fatalf("cleared %+v, %v", x, err)
	}
	again, err := f.Clear(t.Context(), "operator", "ann", "settled by mail", "k")
	if x.Replayed = true; err != nil || again != x {
		t.Errorf("the key was answered %+v, %v", again, err)
	}
	f.mustSpend(22)
	f.owes(0, 0)
	f.tell(noticeOf(o, payments.Restored, 100), Applied)
	f.owes(100, 0)
}

func TestADisputeIsTakenAndRestoredOnce(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.paid()
	f.mustSpend(30)
	for _, err := range parallel(20, func(i int) error {
		n := noticeOf(o, payments.Disputed, 100)
		n.Event = "evt_" + strconv.Itoa(i)
		return second(f.Apply(t.Context(), "till", n))
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	f.owes(0, 30)
	for _, err := range parallel(20, func(i int) error {
		n := noticeOf(o, payments.Restored, 100)
		n.Event = "evt_r" + strconv.Itoa(i)
		return second(f.Apply(t.Context(), "till", n))
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	f.owes(70, 0)
	f.stands(o.TradeNo, Paid)
	f.mustSpend(70)
}

// held is an engine whose transactions wait while something holds them up.
type held struct {
	storage.Engine
	by chan struct{} // nil: nothing does
}

func (e *held) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if e.by != nil {
		<-e.by
	}
	return e.Engine.Update(ctx, fn)
}

// TestADisputeToldTwiceAtOnceFindsTheWholeWallet holds that the notices of one
// order wait for each other: what one has reserved of the wallet would be missing
// to another that comes to the store before it, and become a receivable beside a
// full wallet.
func TestADisputeToldTwiceAtOnceFindsTheWholeWallet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newDesk(t)
		o := f.paid()
		engine := &held{Engine: f.base}
		f.on(engine)
		f.mustSpend(30)
		engine.by = make(chan struct{})
		f.engine.Plan(storagetest.UnknownLost) // whoever is first comes again, behind the second
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				n := noticeOf(o, payments.Disputed, 100)
				n.Event = "evt_" + strconv.Itoa(i)
				if _, err := f.Apply(t.Context(), "till", n); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(engine.by)
		both.Wait()
		f.owes(0, 30)
	})
}

func TestRefundsAndDisputesOfOnePaymentTakeItOnce(t *testing.T) {
	t.Parallel()
	type step struct {
		kind   payments.Kind
		id     string // of the dispute
		amount money.Amount
		wallet money.Amount // afterwards
		status OrderStatus
	}
	for name, steps := range map[string][]step{
		"refund, then dispute of all, then won": {
			{payments.Refunded, "", 40, 60, Paid},
			{payments.Disputed, "a", 100, 0, Disputed},
			{payments.Restored, "a", 100, 60, Paid},
		},
		"dispute, refund meanwhile, then won": {
			{payments.Disputed, "a", 100, 0, Disputed},
			{payments.Refunded, "", 100, 0, Disputed},
			{payments.Restored, "a", 100, 0, Refunded},
		},
		"two disputes": {
			{payments.Disputed, "a", 60, 40, Disputed},
			{payments.Disputed, "b", 60, 0, Disputed},
			{payments.Restored, "a", 60, 40, Disputed},
			{payments.Restored, "b", 60, 100, Paid},
		},
		"won before it was told to be lost": {
			{payments.Restored, "a", 100, 100, Paid},
			{payments.Disputed, "a", 100, 100, Paid},
		},
		"won in part": {
			{payments.Disputed, "a", 100, 0, Disputed},
			{payments.Restored, "a", 30, 30, Disputed},
			{payments.Restored, "a", 100, 30, Disputed},
		},
		"more than was paid": {
			{payments.Disputed, "a", money.Max, 0, Disputed},
			{payments.Disputed, "b", money.Max, 0, Disputed},
			{payments.Refunded, "", money.Max, 0, Disputed},
			{payments.Restored, "a", money.Max, 0, Disputed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDesk(t)
			o := f.paid()
			for i, s := range steps {
				n := noticeOf(o, s.kind, s.amount)
				n.Event, n.Dispute = strconv.Itoa(i), s.id
				if _, err := f.Apply(t.Context(), "till", n); err != nil {
					t.Fatal(err)
				}
				f.owes(s.wallet, 0)
				f.stands(o.TradeNo, s.status)
			}
		})
	}
}

func TestWhatAnOperatorHasBorneComesBackToHim(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.paid()
	f.mustSpend(70)
	f.tell(noticeOf(o, payments.Disputed, 100), Applied)
	f.owes(0, 70)
	f.credit(20)
	x, err := f.Clear(t.Context(), "operator", "ann", "good will", "")
	if err != nil || x.Amount != -20 || x.WrittenOff != 50 {
		t.Fatalf("cleared %+v, %v", x, err)
	}
	lines, _, err := f.ledger.Lines(t.Context(), ledger.Receivable(f.user), 0, 10)
	if err != nil || len(lines) != 2 || lines[0].Kind != ledger.Clear || lines[0].Amount != 70 || lines[0].Reference != "written off 0.00000005" {
		t.Errorf("the receivable shows %+v, %v", lines, err)
	}
	f.owes(0, 0)
	f.tell(noticeOf(o, payments.Restored, 100), Applied)
	f.owes(50, 0) // the 30 and the 20 that were taken; the 50 are the operator's
}

func TestWhatIsToldBeforeThePaymentCountsWhenItComes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		early func(o Order) payments.Notice
		told  Result
	}{
		"by the order":   {func(o Order) payments.Notice { return noticeOf(o, payments.Refunded, 30) }, Applied},
		"by the payment": {func(o Order) payments.Notice { return noticeOf(o, payments.Disputed, 30) }, Mismatched},
		"by the payment alone": {func(o Order) payments.Notice {
			n := noticeOf(o, payments.Refunded, 30)
			n.TradeNo = ""
			return n
		}, Mismatched},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDesk(t)
			o := f.mustOpen(newTill())
			f.tell(row.early(o), row.told)
			f.has(0)
			f.tell(noticeOf(o, payments.Paid, 100), Applied)
			f.owes(70, 0)
			f.tell(row.early(o), Repeated)
			f.owes(70, 0)
			if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 0 {
				t.Errorf("what was applied is listed: %v, %v", listed, err)
			}
			if n := f.keys(waitingPrefix); n != 0 {
				t.Errorf("%d notices wait", n)
			}
		})
	}
}

func TestAWaitingNoticeInAnotherCurrencyStaysListed(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	o := f.mustOpen(newTill())
	early := noticeOf(o, payments.Disputed, 30)
	early.Currency = "EUR"
	f.tell(early, Mismatched)
	f.tell(noticeOf(o, payments.Paid, 100), Applied)
	f.owes(100, 0)
	if listed, err := f.Mismatches(t.Context(), 10); err != nil || len(listed) != 1 {
		t.Errorf("listed are %v, %v", listed, err)
	}
}
