package records

import (
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// The amount to take back from a paid order depends only on its record: the sum of refunds and open
// disputes, at most the payment. A notice changes the record, and then the difference is moved. So a
// refund and a dispute of the same money take it once, in any order of their notices.

// Target returns the part of the credit that must be taken back.
func (o *OrderRecord) Target() money.Amount {
	disputed := o.disputedNow()
	return disputed + min(o.RefundTotal, o.Amount-disputed)
}

// Due returns the amount that must still be taken back. A negative amount must be given back.
func (o *OrderRecord) Due() money.Amount { return o.Target() - o.TakenWallet - o.TakenOwed }

// Note adds a refund or a dispute to the record, and reports whether the record has changed.
func (o *OrderRecord) Note(n payments.Notice) bool {
	switch n.Kind {
	case payments.Refunded: // the notice has the total, so an older one has less
		if n.Amount <= o.RefundTotal {
			return false
		}
		o.RefundTotal = n.Amount
	case payments.Disputed:
		x := o.dispute(n.Dispute)
		if x.Amount != 0 {
			return false
		}
		x.Amount = n.Amount
	case payments.Restored:
		x := o.dispute(n.Dispute)
		if x.Restored != 0 {
			return false
		}
		x.Restored = n.Amount
	default:
		return false
	}
	return true
}

// dispute returns the dispute with this id, and adds it if there is none.
func (o *OrderRecord) dispute(id string) *dispute {
	for i := range o.Disputes {
		if o.Disputes[i].ID == id {
			return &o.Disputes[i]
		}
	}
	o.Disputes = append(o.Disputes, dispute{ID: id})
	return &o.Disputes[len(o.Disputes)-1]
}

// PaidStatus returns the status of a paid order.
func (o *OrderRecord) PaidStatus() OrderStatus {
	switch {
	case o.disputedNow() > 0:
		return Disputed
	case o.RefundTotal >= o.Amount:
		return Refunded
	}
	return Paid
}

// EarlyKind returns the kind of the transfer that takes back what was refunded or disputed before the
// payment arrived.
func (o *OrderRecord) EarlyKind() payments.Kind {
	if o.disputedNow() > 0 {
		return payments.Disputed
	}
	return payments.Refunded
}

// AddBooked adds an amount that a transfer has taken back to the sum of its kind. A negative amount
// was given back.
func (o *Order) AddBooked(kind journal.Kind, amount money.Amount) {
	switch kind {
	case journal.Refund:
		o.Refunded += amount
	case journal.Dispute:
		o.Disputed += amount
	case journal.Restore:
		o.Restored -= amount
	}
}

// FollowingKinds are the kinds of the transfers for notices about a paid order.
var FollowingKinds = map[payments.Kind]journal.Kind{
	payments.Refunded: journal.Refund, payments.Disputed: journal.Dispute, payments.Restored: journal.Restore,
}

// TopUpID returns the id of the transfer that credits an order.
func TopUpID(tradeNo string) journal.ID { return journal.IDOf("topup", tradeNo) }

// TransferID returns the id of the transfer n of an order. The credit is transfer 0 and has
// another id, [TopUpID].
func TransferID(tradeNo string, n int) journal.ID {
	return journal.IDOf("order", tradeNo, strconv.Itoa(n))
}
