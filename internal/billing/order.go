package billing

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderLifetime is the time after which an unpaid order expires.
const OrderLifetime = 24 * time.Hour

// maxOpen is the maximum number of pending orders of one user.
const maxOpen = 20

// maxUnpaid is the maximum number of unpaid orders that one user may open in OrderLifetime,
// including those that the payment service did not open.
const maxUnpaid = 100

// newTradeNo returns a random number for an order: 160 bits in 32 characters.
func newTradeNo() string {
	return (rand.Text() + rand.Text())[:32]
}

var errNoOrder = fault.At(fault.NotFound, "trade_no", "there is no such order")

// Order returns an order of a user, or of any user if user is empty. For an order of another user
// it returns the same error as for a missing order.
func (b *Service) Order(ctx context.Context, user, tradeNo string) (order records.Order, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		o, err := records.ReadOrder(r, tradeNo)
		if err != nil {
			return err
		}
		if o == nil || user != "" && o.User != user {
			return errNoOrder
		}
		order = o.Show(b.store.Now())
		return nil
	})
	return order, err
}

// OrderDetail is an order with its notices, mismatches and transfers.
type OrderDetail struct {
	*records.OrderRecord
	Mismatches []*records.MismatchRecord // notices about it that do not fit, oldest first
	Booked     []journal.Transfer        // in the order in which they were booked
}

// OrderDetail returns an order of any user with its notices, mismatches and transfers.
func (b *Service) OrderDetail(ctx context.Context, tradeNo string) (d OrderDetail, err error) {
	err = b.view(ctx, func(r storage.Reader) (err error) {
		d = OrderDetail{}
		if d.OrderRecord, err = records.ReadOrder(r, tradeNo); err != nil {
			return err
		}
		if d.OrderRecord == nil {
			return errNoOrder
		}
		for m, err := range records.Mismatches.Scan(r, records.OrderMismatches.Under(tradeNo)) {
			if err != nil {
				return err
			}
			d.Mismatches = append(d.Mismatches, m)
		}
		return readTransfers(r, d.OrderRecord, func(x *journal.Transfer) { d.Booked = append(d.Booked, *x) })
	})
	return d, err
}

// readTransfers calls fn for each transfer of an order.
func readTransfers(r storage.Reader, o *records.OrderRecord, fn func(*journal.Transfer)) error {
	for _, id := range o.Transfers {
		x, found, err := journal.ReadTransfer(r, id)
		if err == nil && !found {
			err = fmt.Errorf("billing: the transfer %s of the order %s does not exist", id, o.TradeNo)
		}
		if err != nil {
			return err
		}
		fn(&x)
	}
	return nil
}

// ScanPayments calls fn for each transfer between a payment service and a user at or after from, with its
// order. It reads only the orders for which money has moved since then.
func (b *Service) ScanPayments(ctx context.Context, from time.Time, fn func(*records.OrderRecord, *journal.Transfer)) error {
	in := records.LatestTransfers.Under()
	if !from.IsZero() {
		in = in.Before(storage.Inverted(from.Unix() - 1))
	}
	return b.view(ctx, func(r storage.Reader) error {
		for o, err := range records.Orders.Scan(r, in) {
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = readTransfers(r, o, func(x *journal.Transfer) {
					if !time.UnixMilli(x.Time).Before(from) {
						fn(o, x)
					}
				})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// OrderFilter selects the orders of a list. An empty field matches all.
type OrderFilter struct {
	User, Provider string
	Payment        string // the service's id of the payment
	Status         []records.OrderStatus
	From, Until    time.Time // of the time when the order was opened, or paid; Until is excluded
	ByPaid         bool      // From and Until are about the time when the order was paid
}

// match reports whether the filter selects an order. The status of an order may depend on now.
func (f *OrderFilter) match(o *records.OrderRecord, now time.Time) bool {
	at := o.Created
	if f.ByPaid {
		at = o.PaidAt
	}
	return (f.Provider == "" || f.Provider == o.Provider) && (f.Payment == "" || f.Payment == o.Payment) && (!f.ByPaid || at > 0) &&
		(len(f.Status) == 0 || slices.Contains(f.Status, o.Show(now).Status)) && at >= f.From.Unix() && (f.Until.IsZero() || at < f.Until.Unix())
}

// earliest returns the earliest time at which an order of the list can have been opened.
func (f *OrderFilter) earliest() time.Time {
	if f.ByPaid && !f.From.IsZero() {
		return f.From.Add(-OrderLifetime - records.UnpaidRetention - 24*time.Hour) // orders are purged within a day
	}
	return f.From
}

// maxExamined is the maximum number of records that are read for one page of a filtered list.
const maxExamined = 5000

// ListOrders returns at most limit orders, latest first, that follow the order with the number
// after. It reads at most maxExamined orders, so a page may be short although there are more. next
// is the cursor of the next page, or empty on the last page.
func (b *Service) ListOrders(ctx context.Context, f OrderFilter, after string, limit int64) (shown []records.Order, next string, err error) {
	now := b.store.Now()
	in, index := records.LatestOrders.Under(), &records.LatestOrders
	if !f.Until.IsZero() {
		in = in.From(storage.Inverted(f.Until.Unix() - 1))
	}
	if from := f.earliest(); !from.IsZero() {
		in = in.Before(storage.Inverted(from.Unix() - 1))
	}
	if f.User != "" {
		in, index = records.UserOrders.Under(f.User), &records.UserOrders
	}
	match := func(o *records.OrderRecord) bool { return (f.User == "" || f.User == o.User) && f.match(o, now) }
	shown = []records.Order{}
	err = b.view(ctx, func(r storage.Reader) error {
		if f.Payment != "" && f.Provider != "" { // one order at most
			o, err := records.Orders.Find(r, &records.OrderPayments, f.Provider, f.Payment)
			if err == nil && o != nil && match(o) {
				shown = append(shown, o.Show(now))
			}
			return err
		}
		if after != "" {
			last, err := records.ReadOrder(r, after)
			if err == nil && (last == nil || f.User != "" && last.User != f.User) {
				err = fault.At(fault.InvalidParameter, "after", "after must be the number of an order in this list")
			}
			if err != nil {
				return err
			}
			in = records.Orders.After(in, index, last)
		}
		list, last, err := records.Orders.Matching(r, in, limit, maxExamined, match)
		for _, o := range list {
			shown = append(shown, o.Show(now))
		}
		if last != nil {
			next = last.TradeNo
		}
		return err
	})
	return shown, next, err
}

// FindOrders returns at most limit orders whose numbers begin with a text, in any case of its letters, and
// whether there are more. It reads only these.
func (b *Service) FindOrders(ctx context.Context, text string, limit int64) (shown []records.Order, more bool, err error) {
	text = strings.ToUpper(text)
	err = b.view(ctx, func(r storage.Reader) error {
		in := records.Orders.Under().From(text).Before(text + "~")
		list, last, err := records.Orders.Matching(r, in, limit, limit, func(*records.OrderRecord) bool { return true })
		shown, more = make([]records.Order, len(list)), last != nil
		for i, o := range list {
			shown[i] = o.Show(b.store.Now())
		}
		return err
	})
	return shown, more, err
}

// Orders returns at most limit orders of a user, latest first, after the first skip, and the total
// number of orders.
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
