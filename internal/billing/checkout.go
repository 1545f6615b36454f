package billing

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderRequest is what a user wants to pay in.
type OrderRequest struct {
	User     string
	Provider string // the name of the payment service
	Amount   money.Amount
	Min, Max money.Amount // bounds of Amount
	Currency string
	Title    string // for the page
	Key      string // of idempotency; may be empty
	URLs     URLs
}

// URLs are addresses for an order, absolute.
type URLs struct {
	Notify func(tradeNo string) string // of the webhook
	Return func(tradeNo string) string // where the page sends people afterwards
}

// checkoutPatience is how long a service may take to open a payment. It goes on
// when the user leaves: a second request with the same key then has the page.
const checkoutPatience = 30 * time.Second

// orderKeyRecord is what an idempotency key was given for.
type orderKeyRecord struct {
	Fingerprint ledger.ID `json:"fingerprint"`
	TradeNo     string    `json:"trade_no"`
}

// OpenOrder opens the payment of an order at a service. The order is durable
// before the service hears of it. The same key answers the same order, and
// replayed is true; the key of an order that the service did not open is free
// again. While it is open, an order counts against a bound for its user, and
// against another for a day when it is not paid.
func (d *Desk) OpenOrder(ctx context.Context, o OrderRequest, p payments.Provider) (_ Order, replayed bool, err error) {
	if o.Amount <= 0 || o.Amount < o.Min || o.Amount > o.Max {
		return Order{}, false, fault.At(fault.AmountOutOfRange, "amount", "an amount lies between %v and %s, this is %v", o.Min, amountOf(o.Max, o.Currency), o.Amount)
	}
	if o.Key != "" {
		if refused := (ledger.IdempotencyKey{Key: o.Key}).Validate("idempotency_key"); refused != nil {
			return Order{}, false, refused
		}
		done, err := d.locks.Lock(ctx, "key/"+o.User+"/"+o.Key)
		if err != nil {
			return Order{}, false, err
		}
		defer done()
	}
	order, replayed, err := d.beginOrder(ctx, o, p)
	if err != nil {
		return Order{}, false, err
	}
	if replayed {
		return order.show(d.store.Now()), true, nil
	}
	ctx = context.WithoutCancel(ctx)
	page, err := checkout(ctx, o, order, p)
	if err != nil {
		d.log.Warn("a payment service did not open an order", zap.String("provider", o.Provider),
			zap.String("trade_no", order.TradeNo), zap.Error(err))
		if err := d.closeOrder(ctx, order.TradeNo); err != nil {
			return Order{}, false, err
		}
		if errors.Is(err, payments.ErrAmount) {
			return Order{}, false, fault.At(fault.AmountOutOfRange, "amount", "%v", err)
		}
		refused := fault.New(fault.UpstreamUnavailable, "the payment service %s did not open the payment; nothing was charged", o.Provider)
		return Order{}, false, refused.After(5 * time.Second)
	}
	err = d.changeOrder(ctx, order.TradeNo, func(t storage.Txn, have *orderRecord) error {
		have.PayURL, have.Page = page.URL, page.Reference
		order = *have
		return have.write(t)
	})
	if err != nil {
		return Order{}, false, err
	}
	return order.show(d.store.Now()), false, nil
}

// checkout has the service open the payment of an order.
func checkout(ctx context.Context, o OrderRequest, order orderRecord, p payments.Provider) (payments.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, checkoutPatience)
	defer cancel()
	page, err := p.Checkout(ctx, payments.Order{
		TradeNo: order.TradeNo, Amount: o.Amount, Currency: o.Currency, Title: o.Title,
		NotifyURL: o.URLs.Notify(order.TradeNo), ReturnURL: o.URLs.Return(order.TradeNo),
		Expires: time.Unix(order.ExpiresAt, 0),
	})
	if err == nil && page.URL == "" {
		err = errors.New("it named no page")
	}
	return page, err
}

// beginOrder writes an order that is pending, or returns the one that the key
// was given for.
func (d *Desk) beginOrder(ctx context.Context, o OrderRequest, p payments.Provider) (order orderRecord, replayed bool, err error) {
	undated, _ := p.(payments.Undated)
	now := d.store.Now()
	fresh := orderRecord{
		Order: Order{
			TradeNo: newTradeNo(), User: o.User, Provider: o.Provider, Amount: o.Amount, Currency: o.Currency, Title: o.Title,
			Status: Pending, Created: now.Unix(), ExpiresAt: now.Add(OrderLife).Unix(),
		},
		Undated: undated != nil && undated.Undated(),
	}
	fingerprint := ledger.IDOf("topup", o.Provider, o.Amount.String(), o.Currency)
	if o.Key != "" {
		fresh.KeyHash = ledger.IDOf(o.Key).String()
	}
	key := storage.Key(orderKeyPrefix, o.User, fresh.KeyHash)
	err = d.ledger.Update(ctx, o.User, nil, func(t *ledger.Txn) error {
		replayed = false
		have, found, err := readOrder(t, fresh.TradeNo)
		if order = have; err != nil || found {
			return err // a run before this one was committed
		}
		if o.Key != "" {
			if order, replayed, err = replay(t, key, fingerprint); err != nil || replayed {
				return err
			}
			if err := storage.SetRecord(t, key, orderKeyRecord{fingerprint, fresh.TradeNo}); err != nil {
				return err
			}
		}
		if err := roomForOrder(t, o.User, now); err != nil {
			return err
		}
		order = fresh
		return order.create(t)
	})
	return order, replayed, err
}

// replay returns the order that a key was given for. A key is free when there is
// none, and when its order was not opened by the service: the attempt failed, or
// was cut off by the end of a process, and nobody was sent to pay.
func replay(t storage.Txn, key []byte, fingerprint ledger.ID) (order orderRecord, replayed bool, err error) {
	var have orderKeyRecord
	found, err := storage.GetRecord(t, key, &have)
	if err != nil || !found {
		return order, false, err
	}
	order, _, err = readOrder(t, have.TradeNo)
	switch opened := order.PayURL != "" || order.PaidAt != 0; {
	case err != nil:
		return order, false, err
	case opened && have.Fingerprint != fingerprint:
		return order, false, fault.At(fault.IdempotencyKeyReused, "idempotency_key", "this idempotency key was used for another order; take a new one")
	case opened:
		return order, true, nil
	case order.Status == Pending:
		err = order.become(t, Failed)
	}
	return order, false, err
}

// roomForOrder refuses a user who has begun too many orders, and one who has too
// many open.
func roomForOrder(t storage.Txn, user string, now time.Time) error {
	lo := storage.Key(begunPrefix, user, storage.Inverted(now.Unix()))
	begun, err := keysBetween(t, lo, storage.Key(begunPrefix, user, storage.Inverted(now.Add(-OrderLife).Unix())), maxUnpaid)
	if err != nil {
		return err
	}
	if len(begun) == maxUnpaid {
		oldest := storage.Inverted(integer(begun[maxUnpaid-1], len(lo)-8))
		return fault.New(fault.RateLimited, "%d orders were opened within %v and not paid: wait before you open another", maxUnpaid, OrderLife).
			After(time.Unix(oldest, 0).Add(OrderLife).Sub(now))
	}
	prefix, hi := storage.Below(openPrefix, user)
	keys, err := keysBetween(t, prefix, hi, 0)
	if err != nil {
		return err
	}
	open, soonest := 0, now.Add(OrderLife).Unix()
	for _, key := range keys {
		o, _, err := readOrder(t, string(key[len(prefix):]))
		if err != nil {
			return err
		}
		if o.ExpiresAt > now.Unix() {
			open++
			soonest = min(soonest, o.ExpiresAt)
		}
	}
	if open < maxOpen {
		return nil
	}
	return fault.New(fault.RateLimited, "%d orders wait to be paid already: pay one of them, or wait until one expires", open).
		After(time.Unix(soonest, 0).Sub(now))
}

// changeOrder changes the record of an order, once or more often.
func (d *Desk) changeOrder(ctx context.Context, tradeNo string, fn func(storage.Txn, *orderRecord) error) error {
	for try := 0; ; try++ {
		err := d.store.Update(ctx, func(t storage.Txn) error {
			o, found, err := readOrder(t, tradeNo)
			if err != nil || !found {
				return err
			}
			return fn(t, &o)
		})
		if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrStopped) || try == unknownTries {
			return unavailable(err)
		}
	}
}

// unknownTries is how often a change is run again whose outcome the store does
// not know.
const unknownTries = 8

// closeOrder ends an order that the service did not open.
func (d *Desk) closeOrder(ctx context.Context, tradeNo string) error {
	return d.changeOrder(ctx, tradeNo, func(t storage.Txn, o *orderRecord) error {
		if o.Status != Pending {
			return nil
		}
		return o.become(t, Failed)
	})
}
