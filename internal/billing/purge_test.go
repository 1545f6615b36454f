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

// purging is an engine that drops expired records when a test calls purge.
type purging struct {
	storage.Engine
	purges map[string]time.Time
}

func (e *purging) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return e.Engine.Update(ctx, func(t storage.Txn) error { return fn(purgingTxn{t, e.purges}) })
}

// purge drops the records that may be dropped at a time.
func (e *purging) purge(t *testing.T, now time.Time) {
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

type purgingTxn struct {
	storage.Txn
	purges map[string]time.Time
}

func (t purgingTxn) Set(key, val []byte, purge time.Time) error {
	delete(t.purges, string(key))
	if !purge.IsZero() {
		t.purges[string(key)] = purge
	}
	return t.Txn.Set(key, val, purge)
}

func (t purgingTxn) Delete(key []byte) error {
	delete(t.purges, string(key))
	return t.Txn.Delete(key)
}

// reopenOver opens all services again over another engine.
func (f *fixture) reopenOver(e storage.Engine) {
	f.t.Helper()
	f.close()
	f.base = e
	f.open()
}

func TestOnlyUnpaidOrdersArePurged(t *testing.T) {
	t.Parallel()
	expire := func(f *fixture, o records.Order) {
		f.clock.Set(time.Unix(o.ExpiresAt, 0))
		f.must(f.Sweep(f.t.Context()))
	}
	for name, row := range map[string]struct {
		change func(f *fixture, o records.Order)
		purged bool
	}{
		"a pending order":  {func(*fixture, records.Order) {}, false},
		"an expired order": {expire, true},
		"a failed order": {func(f *fixture, o records.Order) {
			f.mustApply(noticeOf(o, payments.Failed, 0), Applied)
		}, true},
		"a paid order": {func(f *fixture, o records.Order) {
			f.mustApply(noticeOf(o, payments.Paid, 100), Applied)
		}, false},
		"an order that failed and was paid": {func(f *fixture, o records.Order) {
			f.mustApply(noticeOf(o, payments.Failed, 0), Applied)
			f.mustApply(noticeOf(o, payments.Paid, 100), Applied)
		}, false},
		"an order that expired and was paid": {func(f *fixture, o records.Order) {
			expire(f, o)
			f.mustApply(noticeOf(o, payments.Paid, 100), Applied)
		}, false},
		"an expired order with a refund": {func(f *fixture, o records.Order) {
			expire(f, o)
			f.mustApply(noticeOf(o, payments.Refunded, 10), Applied)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			engine := &purging{Engine: f.base, purges: make(map[string]time.Time)}
			f.reopenOver(engine)
			o, _, err := f.OpenOrder(t.Context(), f.request("k"), newMockProvider())
			f.must(err)
			row.change(f, o)
			end := time.Unix(o.ExpiresAt, 0).Add(90 * 24 * time.Hour)

			engine.purge(t, end.Add(-time.Second))
			if _, err := f.Order(t.Context(), f.user, o.TradeNo); err != nil {
				t.Fatalf("before the purge time, Order returned %v", err)
			}
			engine.purge(t, end)
			_, err = f.Order(t.Context(), f.user, o.TradeNo)
			if purged := codeOf(err) == fault.NotFound; purged != row.purged {
				t.Errorf("Order returned %v, want purged: %t", err, row.purged)
			}
			left := 0
			for _, prefix := range []string{records.Orders.Name, records.UserOrders.Name, records.LatestOrders.Name, records.OrderKeys.Name, records.Notices.Name} {
				left += f.countKeys(prefix)
			}
			if row.purged && left != 0 {
				t.Errorf("%d keys of the order are left", left)
			}
			f.checkStore()
			_, replayed, err := f.OpenOrder(t.Context(), f.request("k"), newMockProvider())
			if err != nil || replayed == row.purged {
				t.Errorf("with the same key, OpenOrder returned %v, replayed %t", err, replayed)
			}
		})
	}
}

func TestPurgingAFailedOrderKeepsTheKeyOfALaterOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	engine := &purging{Engine: f.base, purges: make(map[string]time.Time)}
	f.reopenOver(engine)
	p := newMockProvider()
	works := p.answer
	p.answer = func(payments.Order) (payments.Page, error) { return payments.Page{}, errors.New("out of order") }
	if _, _, err := f.OpenOrder(t.Context(), f.request("k"), p); codeOf(err) != fault.UpstreamUnavailable {
		t.Fatalf("OpenOrder returned %v", err)
	}
	failed := f.wantStatus((<-p.calls).TradeNo, records.Failed)
	p.answer = works
	last, _, err := f.OpenOrder(t.Context(), f.request("k"), p)
	f.must(err)
	f.mustApply(noticeOf(last, payments.Paid, 100), Applied)
	f.must(f.changeOrder(t.Context(), failed.TradeNo, func(t storage.Txn, o *records.OrderRecord) error { return o.Write(t) }))
	engine.purge(t, f.clock.Now().AddDate(1, 0, 0))
	if o, replayed, err := f.OpenOrder(t.Context(), f.request("k"), p); err != nil || !replayed || o.TradeNo != last.TradeNo {
		t.Errorf("with the same key, OpenOrder returned %+v, replayed %t, %v", o, replayed, err)
	}
	f.wantWallet(100)
}

func TestUnpaidOrdersPerDayAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := newMockProvider()
	for i := range 2 * maxUnpaid { // paid orders do not count
		paid := noticeOf(f.mustOpen(p), payments.Paid, 100)
		paid.Event = "evt_" + strconv.Itoa(i)
		f.mustApply(paid, Applied)
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
			t.Fatalf("order %d returned %v", i, err)
		}
	}
	p.answer = works
	var refused *fault.Fault
	if err := begin("more"); !errors.As(err, &refused) || refused.Code != fault.RateLimited {
		t.Fatalf("one more order returned %v", err)
	}
	until := f.clock.Now().Add(refused.RetryAfter)
	if want := first.Truncate(time.Second).Add(24 * time.Hour); !until.Equal(want) {
		t.Errorf("the next order may be opened at %s, want %s", until, want)
	}
	f.clock.Set(until)
	f.must(begin("more"))
	if err := begin("and more"); codeOf(err) != fault.RateLimited {
		t.Errorf("one more order returned %v", err)
	}
	f.must(begin("more")) // this order is open already
}
