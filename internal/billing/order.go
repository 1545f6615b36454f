package billing

import (
	"context"
	"crypto/rand"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderStatus is the status of an order.
type OrderStatus string

// The statuses of an order. A payment credits an order also if it has failed or expired.
const (
	Pending  OrderStatus = "pending"
	Paid     OrderStatus = "paid"
	Failed   OrderStatus = "failed"
	Lapsed   OrderStatus = "expired"
	Refunded OrderStatus = "refunded" // in full
	Disputed OrderStatus = "disputed" // by the payer, and not decided for the operator so far
	Review   OrderStatus = "review"   // paid in a currency that the ledger has no more: an operator decides
)

// OrderLife is how long an order waits to be paid.
const OrderLife = 24 * time.Hour

// maxOpen is how many orders of one user may be pending.
const maxOpen = 20

// maxUnpaid is how many unpaid orders one user may begin in OrderLife. Orders that the payment
// service was asked for and did not open count too.
const maxUnpaid = 100

// unpaidKept is how long an unpaid order is kept after it has expired. Money that comes later
// fits no order, and is listed for operators.
const unpaidKept = 90 * 24 * time.Hour

// Order is a top-up of a user by a payment service. Times are Unix seconds.
type Order struct {
	TradeNo   string       `json:"trade_no"`
	User      string       `json:"user"`
	Provider  string       `json:"provider"`
	Amount    money.Amount `json:"amount"`
	Currency  string       `json:"currency"`
	Title     string       `json:"title"`
	Status    OrderStatus  `json:"status"`
	PayURL    string       `json:"pay_url,omitempty"` // empty until the service has opened the payment
	Created   int64        `json:"created_at"`
	ExpiresAt int64        `json:"expires_at"`
	PaidAt    int64        `json:"paid_at,omitempty"`
	Payment   string       `json:"payment,omitempty"`  // the service's id
	Refunded  money.Amount `json:"refunded,omitempty"` // to the payer, in all
	Disputed  money.Amount `json:"disputed,omitempty"` // and not decided for the operator
}

// orderRecord is an order as it is stored.
type orderRecord struct {
	Order
	Number   int64     `json:"number"`            // among those of its user, from 1
	Page     string    `json:"page,omitempty"`    // the service's id of the page it opened
	KeyHash  string    `json:"key,omitempty"`     // of the idempotency key it was opened with, if any
	Undated  bool      `json:"undated,omitempty"` // its notices carry no time
	Disputes []dispute `json:"disputes,omitempty"`

	// What refunds and disputes have taken of what was credited: out of the
	// wallet, and as a receivable.
	TakenWallet money.Amount `json:"taken_wallet,omitempty"`
	TakenOwed   money.Amount `json:"taken_owed,omitempty"`

	// Transfers are the transfers of the order: the credit and what followed.
	Transfers []journal.ID `json:"transfers,omitempty"`

	stored *orderRecord // as the store has it; nil for a new one
}

// dispute is a dispute over a payment. Its two notices can come in any order.
type dispute struct {
	ID       string       `json:"id"`
	Amount   money.Amount `json:"amount,omitempty"`   // taken from the operator; zero until that is told
	Restored money.Amount `json:"restored,omitempty"` // come back; zero until that is told
}

// open is what a dispute has taken from the operator and not brought back.
func (x dispute) open() money.Amount { return max(0, x.Amount-x.Restored) }

// create writes a new order as the latest of its user.
func (o *orderRecord) create(t storage.Txn) error {
	latest, _, err := orders.Page(t, userOrders.Under(o.User), 0, 1, 1)
	if err != nil {
		return err
	}
	o.Number = 1
	if len(latest) > 0 {
		o.Number += latest[0].Number
	}
	return o.write(t)
}

// become changes the status of an order and writes it.
func (o *orderRecord) become(t storage.Txn, status OrderStatus) error {
	o.Status = status
	return o.write(t)
}

// purge is when the engine may drop an order. It never drops one that is pending, paid or in
// review, or of which a refund or a dispute was told.
func (o *orderRecord) purge() time.Time {
	over := o.Status == Failed || o.Status == Lapsed
	if !over || o.Refunded != 0 || len(o.Disputes) > 0 {
		return never
	}
	return time.Unix(o.ExpiresAt, 0).Add(unpaidKept)
}

// read notes that the order is what the store has.
func (o *orderRecord) read() *orderRecord {
	before := *o
	before.stored = nil
	o.stored = &before
	return o
}

func (o *orderRecord) write(t storage.Txn) error {
	if err := orders.Put(t, o.stored, o); err != nil {
		return err
	}
	o.read()
	return nil
}

// show returns the order as it stands now.
func (o *orderRecord) show(now time.Time) Order {
	shown := o.Order
	if shown.Status == Pending && now.Unix() >= o.ExpiresAt {
		shown.Status = Lapsed
	}
	return shown
}

// readOrder returns an order, or nil if there is none.
func readOrder(r storage.Reader, tradeNo string) (*orderRecord, error) {
	if !payments.IsTradeNo(tradeNo) {
		return nil, nil
	}
	o, err := orders.Get(r, tradeNo)
	if err != nil || o == nil {
		return nil, err
	}
	return o.read(), nil
}

// newTradeNo draws the number of an order: 160 random bits in 32 characters.
func newTradeNo() string {
	return (rand.Text() + rand.Text())[:32]
}

// Order returns an order of a user; of any user if user is empty. An order of another user
// gets the same error as one that does not exist.
func (b *Service) Order(ctx context.Context, user, tradeNo string) (order Order, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		o, err := readOrder(r, tradeNo)
		if err != nil {
			return err
		}
		if o == nil || user != "" && o.User != user {
			return fault.At(fault.NotFound, "trade_no", "there is no such order")
		}
		order = o.show(b.store.Now())
		return nil
	})
	return order, err
}

// Orders returns the orders of a user, the latest first: at most limit after the
// first skip, and how many there are.
func (b *Service) Orders(ctx context.Context, user string, skip, limit int) (shown []Order, total int, err error) {
	shown = []Order{}
	err = b.view(ctx, func(r storage.Reader) error {
		list, n, err := orders.Page(r, userOrders.Under(user), int64(skip), int64(limit), math.MaxInt64)
		for _, o := range list {
			shown = append(shown, o.show(b.store.Now()))
		}
		total = int(n)
		return err
	})
	return shown, total, err
}
