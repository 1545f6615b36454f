package records

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// OrderStatus is the status of an order.
type OrderStatus string

// The statuses of an order. A payment credits an order also if it has failed or expired.
const (
	Pending      OrderStatus = "pending"
	Paid         OrderStatus = "paid"
	Failed       OrderStatus = "failed"
	OrderExpired OrderStatus = "expired"
	Refunded     OrderStatus = "refunded" // in full
	Disputed     OrderStatus = "disputed" // by the payer, and not decided in favour of the operator
	Review       OrderStatus = "review"   // paid, but the ledger now has another currency: an operator decides
)

// UnpaidRetention is how long an unpaid order is kept after it has expired. A later payment is
// listed as a mismatch.
const UnpaidRetention = 90 * 24 * time.Hour

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
	Payment   string       `json:"payment,omitempty"` // the service's id

	// The sums of the transfers of the ledger that followed the credit, by their kind. A refund and a
	// dispute of the same money take it once, so they may be less than what the service reports.
	Refunded money.Amount `json:"refunded,omitempty"`
	Disputed money.Amount `json:"disputed,omitempty"`
	Restored money.Amount `json:"restored,omitempty"` // given back after disputes
}

// Net returns the amount that the service has kept for the operator, before its fees.
func (o *Order) Net() money.Amount {
	if o.PaidAt == 0 {
		return 0
	}
	return o.Amount - o.Refunded - o.Disputed + o.Restored
}

// OrderRecord is an order as it is stored.
type OrderRecord struct {
	Order
	Number   int64     `json:"number"`            // among the orders of its user, from 1
	Page     string    `json:"page,omitempty"`    // the service's id of the payment page
	KeyHash  string    `json:"key,omitempty"`     // hash of the idempotency key, if any
	Undated  bool      `json:"undated,omitempty"` // its notices have no time
	Disputes []dispute `json:"disputes,omitempty"`

	// Opener is the epoch of the node of a shared store that is opening the payment at the service.
	// Opening is the Unix second until which it may take.
	Opener  int64 `json:"opener,omitempty"`
	Opening int64 `json:"opening,omitempty"`

	RefundTotal money.Amount `json:"refund_total,omitempty"` // refunded to the payer, as the service reports

	// The parts of the credit that refunds and disputes have taken back: from the wallet,
	// and as a receivable.
	TakenWallet money.Amount `json:"taken_wallet,omitempty"`
	TakenOwed   money.Amount `json:"taken_owed,omitempty"`

	// Transfers are the transfers of the order: the credit, then refunds and disputes.
	Transfers []journal.ID `json:"transfers,omitempty"`
	Moved     int64        `json:"moved,omitempty"` // time of the latest transfer, Unix seconds; 0: none

	History []StatusChange `json:"history,omitempty"` // after pending, oldest first
	Notices []OrderNotice  `json:"notices,omitempty"` // in the order in which they were applied

	stored *OrderRecord // the stored record; nil for a new order
}

// StatusChange is a status of an order and the time when it began.
type StatusChange struct {
	Time   int64       `json:"time"` // Unix seconds
	Status OrderStatus `json:"status"`
}

// OrderNotice is a notice that changed an order.
type OrderNotice struct {
	Time    int64         `json:"time"` // when it was received, in Unix seconds
	Kind    payments.Kind `json:"kind"`
	Event   string        `json:"event"`
	Payment string        `json:"payment,omitempty"`
	Dispute string        `json:"dispute,omitempty"`
	Amount  money.Amount  `json:"amount,omitempty"`
}

// dispute is a dispute over a payment. Its two notices can arrive in any order.
type dispute struct {
	ID       string       `json:"id"`
	Amount   money.Amount `json:"amount,omitempty"`   // taken from the operator; zero until the notice arrives
	Restored money.Amount `json:"restored,omitempty"` // given back; zero until the notice arrives
}

// disputedNow returns the disputed amount that was not decided in favour of the operator.
func (o *OrderRecord) disputedNow() (sum money.Amount) {
	for _, x := range o.Disputes {
		sum += min(x.open(), o.Amount-sum)
	}
	return sum
}

// open returns the amount that a dispute has taken from the operator and not given back.
func (x dispute) open() money.Amount { return max(0, x.Amount-x.Restored) }

// Create writes a new order as the latest of its user.
func (o *OrderRecord) Create(t storage.Txn) error {
	latest, _, err := Orders.Page(t, UserOrders.Under(o.User), 0, 1, 1)
	if err != nil {
		return err
	}
	o.Number = 1
	if len(latest) > 0 {
		o.Number += latest[0].Number
	}
	return o.Write(t)
}

// Become sets the status of an order, which began at the time at, and writes the order.
func (o *OrderRecord) Become(t storage.Txn, at time.Time, status OrderStatus) error {
	if o.Status != status {
		o.Status, o.History = status, append(o.History, StatusChange{at.Unix(), status})
	}
	return o.Write(t)
}

// Changes returns the statuses of an order up to now, oldest first.
func (o *OrderRecord) Changes(now time.Time) []StatusChange {
	changes := append([]StatusChange{{o.Created, Pending}}, o.History...)
	if shown := o.Show(now).Status; shown != o.Status { // the order has expired since the last sweep
		changes = append(changes, StatusChange{o.ExpiresAt, shown})
	}
	return changes
}

// AddNotice adds a notice that changed the order, with the time when it was received.
func (o *OrderRecord) AddNotice(at time.Time, n payments.Notice) {
	o.Notices = append(o.Notices, OrderNotice{at.Unix(), n.Kind, n.Event, n.Payment, n.Dispute, n.Amount})
}

// Purge returns when the engine may drop an order. It never drops an order that is pending,
// paid or in review, or that has a refund or a dispute.
func (o *OrderRecord) Purge() time.Time {
	over := o.Status == Failed || o.Status == OrderExpired
	if !over || o.RefundTotal != 0 || len(o.Disputes) > 0 {
		return time.Time{}
	}
	return time.Unix(o.ExpiresAt, 0).Add(UnpaidRetention)
}

// Read marks the present state of the order as the stored state, and returns the order.
func (o *OrderRecord) Read() *OrderRecord {
	before := *o
	before.stored = nil
	o.stored = &before
	return o
}

// Write stores the order.
func (o *OrderRecord) Write(t storage.Txn) error {
	if err := Orders.Put(t, o.stored, o); err != nil {
		return err
	}
	o.Read()
	return nil
}

// Show returns the order with its present status.
func (o *OrderRecord) Show(now time.Time) Order {
	shown := o.Order
	if shown.Status == Pending && now.Unix() >= o.ExpiresAt {
		shown.Status = OrderExpired
	}
	return shown
}

// ReadOrder returns an order, or nil if there is none.
func ReadOrder(r storage.Reader, tradeNo string) (*OrderRecord, error) {
	if !payments.IsTradeNo(tradeNo) {
		return nil, nil
	}
	o, err := Orders.Get(r, tradeNo)
	if err != nil || o == nil {
		return nil, err
	}
	return o.Read(), nil
}
