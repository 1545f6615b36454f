package billing

import (
	"context"
	"crypto/rand"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderLife is how long an order waits to be paid.
const OrderLife = 24 * time.Hour

// maxOpen is how many orders of one user may be pending.
const maxOpen = 20

// maxUnpaid is how many unpaid orders one user may begin in OrderLife. Orders that the payment
// service was asked for and did not open count too.
const maxUnpaid = 100

// newTradeNo draws the number of an order: 160 random bits in 32 characters.
func newTradeNo() string {
	return (rand.Text() + rand.Text())[:32]
}

// Order returns an order of a user; of any user if user is empty. An order of another user
// gets the same error as one that does not exist.
func (b *Service) Order(ctx context.Context, user, tradeNo string) (order records.Order, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		o, err := records.ReadOrder(r, tradeNo)
		if err != nil {
			return err
		}
		if o == nil || user != "" && o.User != user {
			return fault.At(fault.NotFound, "trade_no", "there is no such order")
		}
		order = o.Show(b.store.Now())
		return nil
	})
	return order, err
}

// Orders returns the orders of a user, the latest first: at most limit after the
// first skip, and how many there are.
func (b *Service) Orders(ctx context.Context, user string, skip, limit int64) (shown []records.Order, total int64, err error) {
	shown = []records.Order{}
	err = b.view(ctx, func(r storage.Reader) error {
		list, n, err := records.Orders.Page(r, records.UserOrders.Under(user), skip, limit, math.MaxInt64)
		for _, o := range list {
			shown = append(shown, o.Show(b.store.Now()))
		}
		total = n
		return err
	})
	return shown, total, err
}
