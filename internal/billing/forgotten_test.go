package billing

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// forgetful is an engine that drops expired records when a test calls forget.
type forgetful struct {
	storage.Engine
	purges map[string]time.Time
}

func (e *forgetful) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return e.Engine.Update(ctx, func(t storage.Txn) error { return fn(forgetfulTxn{t, e.purges}) })
}

// forget drops the records that may be dropped at a time.
func (e *forgetful) forget(t *testing.T, now time.Time) {
	t.Helper()
	err := e.Engine.Update(t.Context(), func(txn storage.Txn) error {
		for key, purge := range e.purges {
			if !now.Before(purge) {
				delete(e.purges, key)
				if err := txn.Delete([]byte(key)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

type forgetfulTxn struct {
	storage.Txn
	purges map[string]time.Time
}

func (t forgetfulTxn) Set(key, val []byte, purge time.Time) error {
	delete(t.purges, string(key))
	if !purge.IsZero() {
		t.purges[string(key)] = purge
	}
	return t.Txn.Set(key, val, purge)
}

func (t forgetfulTxn) Delete(key []byte) error {
	delete(t.purges, string(key))
	return t.Txn.Delete(key)
}

// on opens everything again over another engine.
func (f *fixture) on(e storage.Engine) {
	f.t.Helper()
	f.close()
	f.base = e
	f.open()
}

func TestOrdersThatNobodyPaidAreForgottenAndNoOthers(t *testing.T) {
	t.Parallel()
	expire := func(f *fixture, o records.Order) {
		f.clock.Set(time.Unix(o.ExpiresAt, 0))
		f.must(f.Sweep(f.t.Context()))
	}
	for name, row := range map[string]struct {
		happens func(f *fixture, o records.Order)
		gone    bool
	}{
		"one that is open": {func(*fixture, records.Order) {}, false},
		"one that expired": {expire, true},
		"one that failed": {func(f *fixture, o records.Order) {
			f.tell(noticeOf(o, payments.Failed, 0), Applied)
		}, true},
		"one that was paid": {func(f *fixture, o records.Order) {
			f.tell(noticeOf(o, payments.Paid, 100), Applied)
		}, false},
		"one that failed and was paid": {func(f *fixture, o records.Order) {
			f.tell(noticeOf(o, payments.Failed, 0), Applied)
			f.tell(noticeOf(o, payments.Paid, 100), Applied)
		}, false},
		"one that expired and was paid": {func(f *fixture, o records.Order) {
			expire(f, o)
			f.tell(noticeOf(o, payments.Paid, 100), Applied)
		}, false},
		"one that expired, of which a refund was told": {func(f *fixture, o records.Order) {
			expire(f, o)
			f.tell(noticeOf(o, payments.Refunded, 10), Applied)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			engine := &forgetful{Engine: f.base, purges: make(map[string]time.Time)}
			f.on(engine)
			o, _, err := f.OpenOrder(t.Context(), f.request("k"), newMockProvider())
			f.must(err)
			row.happens(f, o)
			end := time.Unix(o.ExpiresAt, 0).Add(90 * 24 * time.Hour)

			engine.forget(t, end.Add(-time.Second))
			if _, err := f.Order(t.Context(), f.user, o.TradeNo); err != nil {
				t.Fatalf("before the time it was answered %v", err)
			}
			engine.forget(t, end)
			_, err = f.Order(t.Context(), f.user, o.TradeNo)
			if gone := codeOf(err) == fault.NotFound; gone != row.gone {
				t.Errorf("it was answered %v, gone should be %t", err, row.gone)
			}
			left := 0
			for _, prefix := range []string{records.Orders.Name, records.UserOrders.Name, records.LatestOrders.Name, records.OrderKeys.Name, records.Notices.Name} {
				left += f.countKeys(prefix)
			}
			if row.gone && left != 0 {
				t.Errorf("%d keys are left of it", left)
			}
			f.sound()
			_, replayed, err := f.OpenOrder(t.Context(), f.request("k"), newMockProvider())
			if err != nil || replayed == row.gone {
				t.Errorf("the key was answered %v, replayed %t", err, replayed)
			}
		})
	}
}

func TestAKeyThatWasFreeStaysWithTheOrderItWasGivenForLast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	engine := &forgetful{Engine: f.base, purges: make(map[string]time.Time)}
	f.on(engine)
	p := newMockProvider()
	works := p.answer
	p.answer = func(payments.Order) (payments.Page, error) { return payments.Page{}, errors.New("out of order") }
	if _, _, err := f.OpenOrder(t.Context(), f.request("k"), p); codeOf(err) != fault.UpstreamUnavailable {
		t.Fatalf("it was answered %v", err)
	}
	failed := f.wantStatus((<-p.asked).TradeNo, records.Failed)
	p.answer = works
	last, _, err := f.OpenOrder(t.Context(), f.request("k"), p)
	f.must(err)
	f.tell(noticeOf(last, payments.Paid, 100), Applied)
	f.must(f.changeOrder(t.Context(), failed.TradeNo, func(t storage.Txn, o *records.OrderRecord) error { return o.Write(t) }))
	engine.forget(t, f.clock.Now().AddDate(1, 0, 0))
	if o, replayed, err := f.OpenOrder(t.Context(), f.request("k"), p); err != nil || !replayed || o.TradeNo != last.TradeNo {
		t.Errorf("the key was answered %+v, %t, %v", o, replayed, err)
	}
	f.has(100)
}

func TestAUserBeginsSoManyOrdersADayThatHeDoesNotPay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	for i := range 2 * maxUnpaid { // paid orders do not count
		paid := noticeOf(f.mustOpen(p), payments.Paid, 100)
		paid.Event = "evt_" + strconv.Itoa(i)
		f.tell(paid, Applied)
	}
	first := f.clock.Now()
	works := p.answer
	p.answer = func(payments.Order) (payments.Page, error) { return payments.Page{}, errors.New("out of order") }
	begin := func(key string) error {
		_, _, err := f.OpenOrder(t.Context(), f.request(key), p)
		return err
	}
	for i := range maxUnpaid {
		f.clock.Set(first.Add(time.Duration(i) * time.Minute))
		if err := begin(strconv.Itoa(i)); codeOf(err) != fault.UpstreamUnavailable {
			t.Fatalf("order %d was answered %v", i, err)
		}
	}
	p.answer = works
	var refused *fault.Fault
	if err := begin("more"); !errors.As(err, &refused) || refused.Code != fault.RateLimited {
		t.Fatalf("one more was answered %v", err)
	}
	until := f.clock.Now().Add(refused.RetryAfter)
	if want := first.Truncate(time.Second).Add(24 * time.Hour); !until.Equal(want) {
		t.Errorf("the next may begin at %s, want %s", until, want)
	}
	f.clock.Set(until)
	f.must(begin("more"))
	if err := begin("and more"); codeOf(err) != fault.RateLimited {
		t.Errorf("one more was answered %v", err)
	}
	f.must(begin("more")) // this order is open already
}
