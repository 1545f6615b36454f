package billing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// mockProvider is a payment service that opens a page for every order.
type mockProvider struct {
	payments.Provider
	calls   chan payments.Order
	answer  func(o payments.Order) (payments.Page, error)
	undated bool
}

func newMockProvider() *mockProvider {
	return &mockProvider{calls: make(chan payments.Order, 1000), answer: func(o payments.Order) (payments.Page, error) {
		return payments.Page{URL: "https://pay.example.com/" + o.TradeNo, Reference: "cs_" + o.TradeNo}, nil
	}}
}

func (p *mockProvider) Checkout(_ context.Context, o payments.Order) (payments.Page, error) {
	p.calls <- o
	return p.answer(o)
}

func (p *mockProvider) Undated() bool { return p.undated }

// request returns a request of ann for an order of 100.
func (f *fixture) request(key string) OrderRequest {
	return OrderRequest{
		User: f.user, Provider: "mock", Amount: 100, Min: 10, Max: 1000, Currency: "USD", Title: "Top-up", Key: key,
		URLs: URLs{
			Notify: func(string) string { return "https://ai.example.com/api/user/mock/webhook" },
			Return: func(no string) string { return "https://ai.example.com/console/topup/" + no },
		},
	}
}

func (f *fixture) mustOpen(p payments.Provider) records.Order {
	f.t.Helper()
	o, _, err := f.OpenOrder(f.t.Context(), f.request(""), p)
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// wantStatus checks the status of an order.
func (f *fixture) wantStatus(tradeNo string, want records.OrderStatus) records.Order {
	f.t.Helper()
	o, err := f.Order(f.t.Context(), f.user, tradeNo)
	if err != nil {
		f.t.Fatal(err)
	}
	if o.Status != want {
		f.t.Fatalf("the order is %s, want %s", o.Status, want)
	}
	return o
}

func TestAnOrderIsDurableBeforeTheServiceIsCalled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	page := p.answer
	p.answer = func(o payments.Order) (payments.Page, error) {
		f.wantStatus(o.TradeNo, records.Pending)
		return page(o)
	}
	o := f.mustOpen(p)
	sent := <-p.calls
	want := payments.Order{
		TradeNo: o.TradeNo, Amount: 100, Currency: "USD", Title: "Top-up",
		NotifyURL: "https://ai.example.com/api/user/mock/webhook", ReturnURL: "https://ai.example.com/console/topup/" + o.TradeNo,
		Expires: f.clock.Now().Add(24 * time.Hour),
	}
	if !sent.Expires.Equal(want.Expires) {
		t.Errorf("the order expires %s, want %s", sent.Expires, want.Expires)
	}
	if sent.Expires = want.Expires; sent != want {
		t.Errorf("the service was called with %+v, want %+v", sent, want)
	}
	if !payments.IsTradeNo(o.TradeNo) || o.PayURL != "https://pay.example.com/"+o.TradeNo {
		t.Errorf("the order is %+v", o)
	}
	f.clock.Set(f.clock.Now().Add(24 * time.Hour))
	f.wantStatus(o.TradeNo, records.OrderExpired)
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(o.TradeNo, records.OrderExpired)
}

func TestAnAmountOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for amount, want := range map[money.Amount]fault.Code{
		money.Max: fault.AmountOutOfRange, 1001: fault.AmountOutOfRange, 9: fault.AmountOutOfRange,
		0: fault.AmountOutOfRange, -10: fault.AmountOutOfRange, 10: "", 1000: "",
	} {
		o := f.request("")
		o.Amount = amount
		if _, _, err := f.OpenOrder(t.Context(), o, newMockProvider()); codeOf(err) != want {
			t.Errorf("for the amount %d OpenOrder returned %v, want %q", amount, err, want)
		}
	}
}

func TestOneKeyOpensOneOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	orders := make([]records.Order, 50)
	fresh := make(chan bool, len(orders))
	for i, err := range parallel(len(orders), func(i int) error {
		o, replayed, err := f.OpenOrder(t.Context(), f.request("k"), p)
		orders[i] = o
		if !replayed {
			fresh <- true
		}
		return err
	}) {
		if err != nil || orders[i] != orders[0] {
			t.Errorf("goroutine %d got %+v, %v; goroutine 0 %+v", i, orders[i], err, orders[0])
		}
	}
	if len(fresh) != 1 || len(p.calls) != 1 {
		t.Errorf("%d orders were new, the service was called %d times", len(fresh), len(p.calls))
	}
	other := f.request("k")
	other.Amount = 200
	if _, _, err := f.OpenOrder(t.Context(), other, p); codeOf(err) != fault.IdempotencyKeyReused {
		t.Errorf("the key with another amount: %v", err)
	}
	if _, _, err := f.OpenOrder(t.Context(), f.request(strings.Repeat("k", 256)), p); codeOf(err) != fault.InvalidParameter {
		t.Errorf("a key that is too long: %v", err)
	}
}

func TestAnIdempotencyKeyCanBeUsedAgainAfterAFailedCheckout(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(payments.Order) (payments.Page, error){
		"an error": func(payments.Order) (payments.Page, error) { return payments.Page{}, errors.New("out of order") },
		"no page":  func(payments.Order) (payments.Page, error) { return payments.Page{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := newMockProvider()
			works := p.answer
			p.answer = answer
			if _, _, err := f.OpenOrder(t.Context(), f.request("k"), p); codeOf(err) != fault.UpstreamUnavailable {
				t.Fatalf("OpenOrder returned %v", err)
			}
			failed := (<-p.calls).TradeNo
			f.wantStatus(failed, records.Failed)
			p.answer = works
			again := f.request("k")
			again.Amount++ // the same key for another request
			o, replayed, err := f.OpenOrder(t.Context(), again, p)
			if err != nil || replayed || o.TradeNo == failed || o.Amount != again.Amount {
				t.Errorf("the second attempt: %+v, %t, %v", o, replayed, err)
			}
		})
	}
}

func TestADisconnectedClientFindsItsOrderAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	page := p.answer
	ctx, disconnect := context.WithCancel(t.Context())
	p.answer = func(o payments.Order) (payments.Page, error) {
		disconnect()
		return page(o)
	}
	first, _, err := f.OpenOrder(ctx, f.request("k"), p)
	if err != nil {
		t.Fatal(err)
	}
	again, replayed, err := f.OpenOrder(t.Context(), f.request("k"), p)
	if err != nil || !replayed || again != first {
		t.Errorf("got %+v, %t, %v; want %+v", again, replayed, err, first)
	}
}

func TestAnInterruptedCheckoutIsRepeatedAsANewOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	page := p.answer
	p.answer = func(o payments.Order) (payments.Page, error) {
		f.engine.Plan(storagetest.LowSpace) // the page cannot be stored
		return page(o)
	}
	if _, _, err := f.OpenOrder(t.Context(), f.request("k"), p); codeOf(err) != fault.StoreUnavailable {
		t.Fatalf("OpenOrder returned %v", err)
	}
	interrupted := (<-p.calls).TradeNo
	p.answer = page
	o, replayed, err := f.OpenOrder(t.Context(), f.request("k"), p)
	if err != nil || replayed || o.TradeNo == interrupted {
		t.Errorf("the second attempt: %+v, %t, %v", o, replayed, err)
	}
	f.wantStatus(interrupted, records.Failed)
}

func TestOpenOrdersPerUserAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	first := f.mustOpen(p)
	f.clock.Set(f.clock.Now().Add(time.Hour))
	for range maxOpen - 1 {
		f.mustOpen(p)
	}
	_, _, err := f.OpenOrder(t.Context(), f.request("k"), p)
	var refused *fault.Fault
	if !errors.As(err, &refused) || refused.Code != fault.RateLimited || refused.RetryAfter != 23*time.Hour {
		t.Errorf("one more order: %v", err)
	}
	f.clock.Set(time.Unix(first.ExpiresAt, 0))
	f.mustOpen(p)
	if _, _, err := f.OpenOrder(t.Context(), f.request("k"), p); codeOf(err) != fault.RateLimited {
		t.Errorf("one more order: %v", err)
	}
}

func TestOrdersAreListedLatestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	var want []string
	for range 5 { // within one second
		want = append([]string{f.mustOpen(p).TradeNo}, want...)
	}
	for _, row := range []struct {
		skip, limit int64
		from, to    int
	}{{0, 10, 0, 5}, {0, 2, 0, 2}, {2, 2, 2, 4}, {4, 2, 4, 5}, {5, 2, 5, 5}} {
		orders, total, err := f.Orders(t.Context(), f.user, row.skip, row.limit)
		var got []string
		for _, o := range orders {
			got = append(got, o.TradeNo)
		}
		if err != nil || total != 5 || fmt.Sprint(got) != fmt.Sprint(want[row.from:row.to]) {
			t.Errorf("skip %d, limit %d: %v of %d orders, %v", row.skip, row.limit, got, total, err)
		}
	}
}

func TestTheOrderOfAnotherUserIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.mustOpen(newMockProvider())
	_, foreign := f.Order(t.Context(), "usr_other", o.TradeNo)
	_, missing := f.Order(t.Context(), "usr_other", newTradeNo())
	_, invalid := f.Order(t.Context(), "usr_other", "../x")
	if codeOf(foreign) != fault.NotFound || foreign.Error() != missing.Error() || invalid.Error() != missing.Error() {
		t.Errorf("the errors differ: %v, %v, %v", foreign, missing, invalid)
	}
	if _, err := f.Order(t.Context(), "", o.TradeNo); err != nil {
		t.Errorf("the order without a user: %v", err)
	}
}

// countKeys returns how many keys begin with a prefix.
func (f *fixture) countKeys(prefix string) (n int) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		lo, hi := storage.Below(prefix)
		return r.Scan(lo, hi, func(_, _ []byte) bool {
			n++
			return true
		})
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}
