package billing

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestAPurchaseChargesThePriceAndGrantsTheQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(15)
	receipt := f.mustBuy(1, "k")
	f.wantWallet(5)
	got, err := json.Marshal(receipt)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"subscription_id":1,"user":"` + f.user + `","plan_id":1,"title":"Starter","status":"active",` +
		`"quota_total":"0.000000012","quota_used":"0.00","start_time":1769860800,"end_time":1772280000,` +
		`"price":"0.00000001","currency":"USD","duration":{"count":1,"unit":"month"},"quota":"0.000000012","quota_reset":"never",` +
		`"order":"` + receipt.Order + `","wallet":{"balance":"0.000000005","charged":"0.00000001"},"replayed":false}`
	if string(got) != want {
		t.Errorf("the receipt is\n%s, want\n%s", got, want)
	}
	f.mustSpend(13) // 12 of the quota, 1 of the wallet
	f.wantWallet(4)
	if s := f.subscription(1); s.QuotaUsed != 12 {
		t.Errorf("%d of the quota are used, want 12", s.QuotaUsed)
	}
}

func TestConcurrentRequestsWithOneKeyChargeOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	receipts := make([]Receipt, 200)
	for i, err := range parallel(200, func(i int) (err error) {
		receipts[i], err = f.buy(1, "k")
		return err
	}) {
		if err != nil {
			t.Fatalf("goroutine %d: %v", i, err)
		}
	}
	f.wantWallet(90)
	fresh := 0
	first := receipts[0]
	first.Replayed = false
	for i, r := range receipts {
		if !r.Replayed {
			fresh++
		}
		r.Replayed = false
		if r != first {
			t.Errorf("goroutine %d got %+v, goroutine 0 %+v", i, r, first)
		}
	}
	if fresh != 1 {
		t.Errorf("%d receipts are not replayed, want 1", fresh)
	}
	f.clock.Set(date(2027, 1, 1, 0))
	f.plans = plansOf(t, testPlans[1])
	again, err := f.buy(1, "k")
	if again.Replayed = false; err != nil || again != first {
		t.Errorf("a year later and without the plan, the key returns %+v, %v", again, err)
	}
}

func TestMoneyForThreePurchasesPaysThree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(35)
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
				if funds, err := f.ledger.Funds(t.Context(), f.user); err == nil && funds.Wallet.Available() < 0 {
					t.Errorf("the wallet was seen at %d", funds.Wallet.Available())
				}
			}
		}
	}()
	bought := 0
	for i, err := range parallel(200, func(i int) error {
		_, err := f.buy(1, strconv.Itoa(i))
		return err
	}) {
		switch {
		case err == nil:
			bought++
		case codeOf(err) != fault.InsufficientBalance:
			t.Errorf("goroutine %d: %v", i, err)
		}
	}
	close(stop)
	<-watched
	if bought != 3 {
		t.Errorf("%d purchases were made with money for three", bought)
	}
	f.wantWallet(5)
	if _, err := f.buy(1, "late"); err == nil || !strings.Contains(err.Error(), "0.00000001 is needed, the wallet has 0.000000005") {
		t.Errorf("the error does not have the needed and the available amount: %v", err)
	}
	f.credit(5)
	if again := f.mustBuy(1, "late"); again.Replayed {
		t.Error("an insufficient balance was stored as the result of the key")
	}
}

func TestAKeyOfAnotherOperationIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(1, "k")
	for name, err := range map[string]error{
		"another plan": second(f.buy(2, "k")),
		"a renewal":    second(f.renew(1, "k")),
	} {
		if codeOf(err) != fault.IdempotencyKeyReused {
			t.Errorf("the key of a purchase was accepted for %s: %v", name, err)
		}
	}
	f.mustRenew(1, "r")
	if _, err := f.buy(1, "r"); codeOf(err) != fault.IdempotencyKeyReused {
		t.Errorf("the key of a renewal was accepted for a purchase: %v", err)
	}
	f.wantWallet(80)
}

func second[T any](_ T, err error) error { return err }

func TestPurchasesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(1, "mine")
	bob, err := f.directory.CreateUser(t.Context(), "operator", "bob")
	if err != nil {
		t.Fatal(err)
	}
	buy := func(plan int64, key string) func() error {
		return func() error { return second(f.buy(plan, key)) }
	}
	claim := func(plan int64) func() error {
		return func() error { return second(f.Claim(t.Context(), f.plans, "USD", f.user, plan)) }
	}
	for name, row := range map[string]struct {
		do   func() error
		want fault.Code
	}{
		"no key":                         {buy(1, ""), fault.MissingParameter},
		"a key that is too long":         {buy(1, strings.Repeat("k", 256)), fault.InvalidParameter},
		"a key that cannot be printed":   {buy(1, "k\n"), fault.InvalidParameter},
		"plan 0":                         {buy(0, "a"), fault.InvalidParameter},
		"a negative plan":                {buy(-1, "a"), fault.InvalidParameter},
		"an unknown plan":                {buy(99, "a"), fault.PlanNotFound},
		"a plan that is not on sale":     {buy(4, "a"), fault.PlanDisabled},
		"a plan that is free":            {buy(3, "a"), fault.PlanFree},
		"a claim of plan 0":              {claim(0), fault.InvalidParameter},
		"a claim of an unknown plan":     {claim(99), fault.PlanNotFound},
		"a claim of a disabled plan":     {claim(4), fault.PlanDisabled},
		"a claim of a plan with a price": {claim(1), fault.PlanNotFree},
		"a renewal without a key":        {func() error { return second(f.renew(1, "")) }, fault.MissingParameter},
		"a renewal of nothing sold":      {func() error { return second(f.renew(7, "a")) }, fault.SubscriptionNotFound},
		"a renewal by another user":      {func() error { return second(f.Renew(t.Context(), f.plans, "USD", bob.ID, 1, "a")) }, fault.SubscriptionNotFound},
		"a renewal of a removed plan":    {func() error { return second(f.Renew(t.Context(), plansOf(t), "USD", f.user, 1, "a")) }, fault.PlanDisabled},
		"a renewal of a disabled plan": {func() error {
			plan := testPlans[0]
			plan.Disabled = true
			return second(f.Renew(t.Context(), plansOf(t, plan), "USD", f.user, 1, "a"))
		}, fault.PlanDisabled},
		"a renewal of a plan that is now free": {func() error {
			plan := testPlans[0]
			plan.Price = 0
			return second(f.Renew(t.Context(), plansOf(t, plan), "USD", f.user, 1, "a"))
		}, fault.PlanFree},
	} {
		if err := row.do(); codeOf(err) != row.want {
			t.Errorf("%s: the error is %v, want %s", name, err, row.want)
		}
	}
	f.wantWallet(90)
}

func TestTheSubscriptionOfAnotherUserIsRefusedLikeAMissingOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(1, "k")
	_, foreign := f.Renew(t.Context(), f.plans, "USD", "usr_other", 1, "a")
	_, missing := f.Renew(t.Context(), f.plans, "USD", "usr_other", 2, "a")
	if strings.ReplaceAll(foreign.Error(), " 1", "") != strings.ReplaceAll(missing.Error(), " 2", "") {
		t.Errorf("the errors differ: %v, %v", foreign, missing)
	}
}

func TestThePurchaseLimitCountsPurchasesOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	if _, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "ann", 5, "a gift", ""); err != nil {
		t.Fatal(err)
	}
	f.mustBuy(5, "a")
	f.mustRenew(2, "r")
	sold := 0
	for _, err := range parallel(50, func(i int) error { return second(f.buy(5, strconv.Itoa(i))) }) {
		switch {
		case err == nil:
			sold++
		case codeOf(err) != fault.PurchaseLimitReached:
			t.Error(err)
		}
	}
	if sold != 1 {
		t.Errorf("%d purchases were made, but one was left", sold)
	}
	f.mustRenew(2, "r2")
	f.wantWallet(96)
}

func TestThePurchaseLimitIsReportedBeforeAnEmptyWallet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(2)
	f.mustBuy(5, "a")
	f.mustBuy(5, "b")
	f.wantWallet(0)
	if _, err := f.buy(5, "c"); codeOf(err) != fault.PurchaseLimitReached {
		t.Errorf("a third purchase: %v", err)
	}
}

func TestAFreePlanIsClaimedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	claimed := 0
	for _, err := range parallel(100, func(int) error { return second(f.Claim(t.Context(), f.plans, "USD", f.user, 3)) }) {
		switch {
		case err == nil:
			claimed++
		case codeOf(err) != fault.AlreadyClaimed:
			t.Error(err)
		}
	}
	if claimed != 1 {
		t.Errorf("the plan was claimed %d times", claimed)
	}
	if all, _, err := f.Subscriptions(t.Context(), f.user, 0, math.MaxInt64); err != nil || len(all) != 1 || all[0].QuotaTotal != 3 {
		t.Errorf("the subscriptions are %v, %v", all, err)
	}
	f.clock.Set(date(2030, 1, 1, 0))
	if _, err := f.Claim(t.Context(), f.plans, "USD", f.user, 3); codeOf(err) != fault.AlreadyClaimed {
		t.Errorf("a claim years later: %v", err)
	}
}

func TestAnOperatorGrantsAPlanThatIsNotOnSale(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	receipt, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "ANN", 4, "sorry for the outage", "k")
	if err != nil || receipt.Wallet.Charged != 0 || receipt.Price != 0 || receipt.QuotaTotal != 1 {
		t.Fatalf("granted %+v, %v", receipt, err)
	}
	again, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", f.user, 4, "sorry for the outage", "k")
	if err != nil || !again.Replayed || again.ID != receipt.ID {
		t.Errorf("the same key returns %+v, %v", again, err)
	}
	if _, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "carl", 4, "", ""); codeOf(err) != fault.NotFound {
		t.Errorf("a missing user was granted a plan: %v", err)
	}
	if _, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "ann", 99, "", ""); codeOf(err) != fault.PlanNotFound {
		t.Errorf("an unknown plan was granted: %v", err)
	}
}

func TestAUserWhoOwesCannotBuy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.paidOrder()
	f.mustSpend(5)
	f.mustApply(noticeOf(o, payments.Disputed, 100), Applied)
	f.credit(100)
	f.wantFunds(100, 5)
	if _, err := f.buy(1, "k"); codeOf(err) != fault.InsufficientBalance || !strings.Contains(err.Error(), "paused") {
		t.Errorf("the purchase of a user who owes: %v", err)
	}
}

func TestRunningSubscriptionsPerUserAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.damaged = true // the added subscriptions were never sold
	end := f.clock.Now().Unix() + 3600
	err := f.store.Update(t.Context(), f.changeSummary(func(r *records.Summary) {
		for id := range int64(maxRunning - 1) {
			r.Add(records.Running{ID: 1000 + id, End: end})
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	f.mustBuy(1, "k")
	if _, err := f.buy(1, "l"); codeOf(err) != fault.PurchaseLimitReached {
		t.Errorf("one more subscription: %v", err)
	}
	f.wantWallet(90)
}

// TestAReplayNeedsNoCommit blocks all commits. A replay reserves no money and writes nothing.
func TestAReplayNeedsNoCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(30)
	first, err := f.buy(2, "k")
	f.must(err)
	begun, goOn := make(chan struct{}), make(chan struct{})
	f.must(f.store.Post(t.Context(), func(storage.Txn) error { close(begun); <-goOn; return nil }, nil))
	f.store.CommitNow()
	<-begun
	defer close(goOn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	again, err := f.Buy(ctx, f.plans, "USD", f.user, 2, "k")
	f.must(err)
	if !again.Replayed || again.Order != first.Order {
		t.Errorf("the replay is %+v, the first result %+v", again, first)
	}
}
