package billing

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderRequest is a request of a user to top up the wallet.
type OrderRequest struct {
	User     string
	Provider string // the name of the payment service
	Amount   money.Amount
	Min, Max money.Amount // bounds of Amount
	Currency string
	Title    string // for the page
	Key      string // idempotency key; may be empty
	URLs     URLs
}

// URLs return absolute URLs for an order.
type URLs struct {
	Notify func(tradeNo string) string // URL of the webhook
	Return func(tradeNo string) string // redirect target of the payment page
}

// checkoutTimeout is how long a service may take to open a payment. The call continues
// if the user disconnects: a second request with the same key then returns the page.
const checkoutTimeout = 30 * time.Second

// OpenOrder opens the payment of an order at a service. The order is durable
// before the service is called. A repeated key returns the same order, with
// replayed set. If the service does not open the order, its key can be used again.
// The number of open orders of a user is limited, and so is the number of unpaid
// orders of a day.
func (b *Service) OpenOrder(ctx context.Context, o OrderRequest, p payments.Provider) (_ records.Order, replayed bool, err error) {
	if o.Amount <= 0 || o.Amount < o.Min || o.Amount > o.Max {
		return records.Order{}, false, fault.At(fault.AmountOutOfRange, "amount", "an amount lies between %v and %s, this is %v", o.Min, amountOf(o.Max, o.Currency), o.Amount)
	}
	if o.Key != "" {
		if refused := (ledger.IdempotencyKey{Key: o.Key}).Validate("idempotency_key"); refused != nil {
			return records.Order{}, false, refused
		}
		done, err := b.locks.Lock(ctx, "key/"+o.User+"/"+o.Key)
		if err != nil {
			return records.Order{}, false, err
		}
		defer done()
	}
	order, replayed, err := b.beginOrder(ctx, o, p)
	for errors.Is(err, errOpening) { // usually the page that the other node opens is the answer
		select {
		case <-ctx.Done():
			return records.Order{}, false, ctx.Err()
		case <-time.After(openingPause):
		}
		order, replayed, err = b.beginOrder(ctx, o, p)
	}
	if err != nil {
		return records.Order{}, false, err
	}
	if replayed {
		return order.Show(b.store.Now()), true, nil
	}
	ctx = context.WithoutCancel(ctx)
	page, err := checkout(ctx, o, order, p)
	if err != nil {
		b.log.Warn("a payment service did not open an order", zap.String("provider", o.Provider),
			zap.String("trade_no", order.TradeNo), zap.Error(err))
		failed := b.changeOrder(ctx, order.TradeNo, func(t storage.Txn, o *records.OrderRecord) error {
			if o.Status != records.Pending {
				return nil
			}
			return o.Become(t, b.store.Now(), records.Failed)
		})
		if failed != nil {
			return records.Order{}, false, failed
		}
		if errors.Is(err, payments.ErrAmount) {
			return records.Order{}, false, fault.At(fault.AmountOutOfRange, "amount", "%v", err)
		}
		refused := fault.New(fault.UpstreamUnavailable, "the payment service %s did not open the payment; nothing was charged", o.Provider)
		return records.Order{}, false, refused.After(5 * time.Second)
	}
	err = b.changeOrder(ctx, order.TradeNo, func(t storage.Txn, have *records.OrderRecord) error {
		have.PayURL, have.Page, have.Opener, have.Opening = page.URL, page.Reference, 0, 0
		order = have
		return have.Write(t)
	})
	if err != nil {
		return records.Order{}, false, err
	}
	return order.Show(b.store.Now()), false, nil
}

// errOpening says that another node is opening the payment of an order with the same idempotency key.
var errOpening = errors.New("the payment is being opened")

const (
	// openingFor is how long a node may take to open a payment. It is longer than checkoutTimeout.
	openingFor = 2 * checkoutTimeout

	// openingPause is the time between two reads of an order whose page another node opens.
	openingPause = 500 * time.Millisecond
)

// checkout calls the service to open the payment of an order.
func checkout(ctx context.Context, o OrderRequest, order *records.OrderRecord, p payments.Provider) (payments.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, checkoutTimeout)
	defer cancel()
	page, err := p.Checkout(ctx, payments.Order{
		TradeNo: order.TradeNo, Amount: o.Amount, Currency: o.Currency, Title: o.Title,
		NotifyURL: o.URLs.Notify(order.TradeNo), ReturnURL: o.URLs.Return(order.TradeNo),
		Expires: time.Unix(order.ExpiresAt, 0),
	})
	if err == nil && page.URL == "" {
		err = errors.New("the answer has no payment page")
	}
	return page, err
}

// beginOrder writes a pending order, or returns the one that was opened with the same
// idempotency key.
func (b *Service) beginOrder(ctx context.Context, o OrderRequest, p payments.Provider) (order *records.OrderRecord, replayed bool, err error) {
	undated, _ := p.(payments.Undated)
	now := b.store.Now()
	fresh := records.OrderRecord{
		Order: records.Order{
			TradeNo: newTradeNo(), User: o.User, Provider: o.Provider, Amount: o.Amount, Currency: o.Currency, Title: o.Title,
			Status: records.Pending, Created: now.Unix(), ExpiresAt: now.Add(OrderLifetime).Unix(),
		},
		Undated: undated != nil && undated.Undated(),
	}
	if fresh.Opener = b.store.Epoch(); fresh.Opener != 0 {
		fresh.Opening = now.Add(openingFor).Unix()
	}
	if o.Key != "" {
		fresh.KeyHash = journal.IDOf(o.Key).String()
	}
	err = b.ledger.Update(ctx, o.User, nil, func(t *ledger.Txn) error {
		replayed = false
		if order, err = records.ReadOrder(t, fresh.TradeNo); err != nil || order != nil {
			return err // an earlier run was committed
		}
		if o.Key != "" {
			if order, replayed, err = ofSameKey(t, &fresh); err != nil || replayed {
				return err
			}
		}
		if err := checkOrderCount(t, o.User, now); err != nil {
			return err
		}
		next := fresh
		order = &next
		return order.Create(t)
	})
	return order, replayed, err
}

// ofSameKey returns the order that was opened with the idempotency key of o. If the service has
// not opened that order, it cannot have been paid: ofSameKey ends it and frees the key.
func ofSameKey(t storage.Txn, o *records.OrderRecord) (order *records.OrderRecord, replayed bool, err error) {
	order, err = records.Orders.Find(t, &records.OrderKeys, o.User, o.KeyHash)
	switch {
	case err != nil || order == nil:
		return nil, false, err
	case order.PayURL == "" && order.PaidAt == 0:
		if order.Status == records.Pending && order.Opener != 0 && order.Opener != o.Opener && o.Created < order.Opening {
			if ended, err := storage.HasEnded(t, order.Opener); err != nil || !ended {
				return nil, false, cmp.Or(err, errOpening)
			}
		}
		order.Read().KeyHash = ""
		status := order.Status
		if status == records.Pending {
			status = records.Failed
		}
		return nil, false, order.Become(t, time.Unix(o.Created, 0), status)
	case order.Provider != o.Provider || order.Amount != o.Amount || order.Currency != o.Currency:
		return nil, false, fault.At(fault.IdempotencyKeyReused, "idempotency_key", "this idempotency key was used for another order; use a new one")
	}
	return order.Read(), true, nil
}

// checkOrderCount returns an error if a user has opened too many unpaid orders or has too many
// pending orders.
func checkOrderCount(t storage.Txn, user string, now time.Time) error {
	opened := records.UnpaidOrders.Under(user).From(user, storage.Inverted(now.Unix())).Before(user, storage.Inverted(now.Add(-OrderLifetime).Unix()))
	oldest, _, err := records.Orders.Page(t, opened, maxUnpaid-1, 1, maxUnpaid)
	if err != nil {
		return err
	}
	if len(oldest) > 0 {
		return fault.New(fault.RateLimited, "%d orders were opened within %v and not paid: wait before you open another", maxUnpaid, OrderLifetime).
			After(time.Unix(oldest[0].Created, 0).Add(OrderLifetime).Sub(now))
	}
	open, soonest := 0, now.Add(OrderLifetime).Unix()
	for o, err := range records.Orders.Scan(t, records.OpenOrders.Under(user)) {
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

// changeOrder changes an order, if there is one. It runs fn again if the outcome of the
// transaction is unknown.
func (b *Service) changeOrder(ctx context.Context, tradeNo string, fn func(storage.Txn, *records.OrderRecord) error) error {
	for try := 0; ; try++ {
		err := b.store.Update(ctx, func(t storage.Txn) error {
			o, err := records.ReadOrder(t, tradeNo)
			if err != nil || o == nil {
				return err
			}
			return fn(t, o)
		})
		if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrStopped) || try == unknownTries {
			return fault.OfStore(err)
		}
	}
}

// unknownTries is how often changeOrder runs a change again.
const unknownTries = 8
