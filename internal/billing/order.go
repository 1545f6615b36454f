package billing

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderStatus is where an order stands.
type OrderStatus string

// The statuses of an order. One that has failed or expired is paid all the same
// when the money comes.
const (
	Pending  OrderStatus = "pending"
	Paid     OrderStatus = "paid"
	Failed   OrderStatus = "failed"
	Lapsed   OrderStatus = "expired"
	Refunded OrderStatus = "refunded" // in full
	Disputed OrderStatus = "disputed" // by the payer, and not decided for us so far
	Review   OrderStatus = "review"   // paid in a currency that the ledger has no more: an operator decides
)

// OrderLife is how long an order waits to be paid.
const OrderLife = 24 * time.Hour

// maxOpen is how many orders of one user may be pending.
const maxOpen = 20

// maxUnpaid is how many orders of one user that were not paid may have begun in
// OrderLife: those too that a service did not open, of which it was asked.
const maxUnpaid = 100

// unpaidKept is how long an order is kept after its life when it was not paid.
// Money that comes later fits no order, and is listed for operators.
const unpaidKept = 90 * 24 * time.Hour

// Order is money that a user wants to pay in, by a payment service. Times are
// Unix seconds.
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
	Disputed  money.Amount `json:"disputed,omitempty"` // and not decided for us
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

	// Moves are the transfers of the order: the credit and what followed.
	Moves []ledger.ID `json:"moves,omitempty"`
}

// dispute is a dispute over a payment. Its two notices can come in any order.
type dispute struct {
	ID       string       `json:"id"`
	Amount   money.Amount `json:"amount,omitempty"`   // taken from the operator; zero until that is told
	Restored money.Amount `json:"restored,omitempty"` // come back; zero until that is told
}

// open is what a dispute has taken from the operator and not brought back.
func (x dispute) open() money.Amount { return max(0, x.Amount-x.Restored) }

func orderKey(tradeNo string) []byte { return storage.Key(orderPrefix, tradeNo) }

// createdKey is where an order stands among those of its user: by its number,
// since many may be opened within a second.
func (o *orderRecord) createdKey() []byte {
	return storage.Key(userOrderPrefix, o.User, storage.Inverted(o.Number), o.TradeNo)
}

// begunKey is where it stands among those that were not paid.
func (o *orderRecord) begunKey() []byte {
	return storage.Key(begunPrefix, o.User, storage.Inverted(o.Created), o.TradeNo)
}

// openKeys are the keys that an order has while it is pending.
func (o *orderRecord) openKeys() [][]byte {
	return [][]byte{storage.Key(openPrefix, o.User, o.TradeNo), storage.Key(orderDuePrefix, o.ExpiresAt, o.TradeNo)}
}

// create writes an order that is new, as the latest of its user.
func (o *orderRecord) create(t storage.Txn) error {
	lo, hi := storage.Below(userOrderPrefix, o.User)
	latest, err := keysBetween(t, lo, hi, 1)
	if err != nil {
		return err
	}
	o.Number = 1
	if len(latest) > 0 {
		o.Number += storage.Inverted(integer(latest[0], len(lo)))
	}
	if err := storage.Reindex(t, nil, o.openKeys()); err != nil {
		return err
	}
	if err := t.Set(o.begunKey(), nil, time.Unix(o.Created, 0).Add(OrderLife)); err != nil {
		return err
	}
	return o.write(t)
}

// become changes the status of an order and writes it.
func (o *orderRecord) become(t storage.Txn, status OrderStatus) error {
	var gone [][]byte
	if o.Status == Pending && status != Pending {
		gone = o.openKeys()
	}
	if o.PaidAt != 0 {
		gone = append(gone, o.begunKey())
	}
	if err := storage.Reindex(t, gone, nil); err != nil {
		return err
	}
	o.Status = status
	return o.write(t)
}

// purge is when the engine may forget an order: never while it waits to be paid,
// and never one that was paid or is in review, or of which money was told.
func (o *orderRecord) purge() time.Time {
	over := o.Status == Failed || o.Status == Lapsed
	if !over || o.Refunded != 0 || len(o.Disputes) > 0 {
		return never
	}
	return time.Unix(o.ExpiresAt, 0).Add(unpaidKept)
}

// write writes the record of an order, and what goes when it goes.
func (o *orderRecord) write(t storage.Txn) error {
	purge := o.purge()
	if err := t.Set(orderKey(o.TradeNo), storage.EncodeRecord(*o), purge); err != nil {
		return err
	}
	if err := t.Set(o.createdKey(), nil, purge); err != nil || o.KeyHash == "" {
		return err
	}
	key := storage.Key(orderKeyPrefix, o.User, o.KeyHash)
	var have orderKeyRecord
	if _, err := storage.GetRecord(t, key, &have); err != nil || have.TradeNo != o.TradeNo {
		return err // it was free, and has been given for another order
	}
	return t.Set(key, storage.EncodeRecord(have), purge)
}

// show returns the order as it stands now.
func (o *orderRecord) show(now time.Time) Order {
	shown := o.Order
	if shown.Status == Pending && now.Unix() >= o.ExpiresAt {
		shown.Status = Lapsed
	}
	return shown
}

func readOrder(r storage.Reader, tradeNo string) (o orderRecord, found bool, err error) {
	if !payments.IsTradeNo(tradeNo) {
		return o, false, nil
	}
	found, err = storage.GetRecord(r, orderKey(tradeNo), &o)
	return o, found, err
}

// newTradeNo draws the number of an order: 160 random bits in 32 characters.
func newTradeNo() string {
	return (rand.Text() + rand.Text())[:32]
}

// Order returns an order of a user; of anybody when user is empty. One that is
// not there and one of somebody else are refused alike.
func (d *Desk) Order(ctx context.Context, user, tradeNo string) (Order, error) {
	var o orderRecord
	err := d.view(ctx, func(r storage.Reader) error {
		var found bool
		var err error
		o, found, err = readOrder(r, tradeNo)
		if err == nil && (!found || user != "" && o.User != user) {
			err = fault.At(fault.NotFound, "trade_no", "there is no such order")
		}
		return err
	})
	if err != nil {
		return Order{}, err
	}
	return o.show(d.store.Now()), nil
}

// Orders returns the orders of a user, the latest first: at most limit after the
// first skip, and how many there are.
func (d *Desk) Orders(ctx context.Context, user string, skip, limit int) (orders []Order, total int, err error) {
	orders = []Order{}
	err = d.view(ctx, func(r storage.Reader) error {
		var wanted []string
		lo, hi := storage.Below(userOrderPrefix, user)
		err := r.Scan(lo, hi, func(key, _ []byte) bool {
			if total >= skip && len(wanted) < limit {
				wanted = append(wanted, string(key[len(lo)+9:]))
			}
			total++
			return true
		})
		if err != nil {
			return err
		}
		for _, tradeNo := range wanted {
			o, found, err := readOrder(r, tradeNo)
			if err != nil {
				return err
			}
			if found { // else it goes at this moment
				orders = append(orders, o.show(d.store.Now()))
			}
		}
		return nil
	})
	return orders, total, err
}
