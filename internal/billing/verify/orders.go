package verify

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// orders checks each order with its transfers, and that each notice names an order.
func (v *verification) orders() error {
	err := each(v, &records.Orders, records.Orders.Under(), func(o *records.OrderRecord) error {
		if !payments.IsTradeNo(o.TradeNo) {
			v.problem("order %s: its number is not a trade number", o.TradeNo)
		}
		if changes := o.Changes(time.Unix(0, 0)); changes[len(changes)-1].Status != o.Status {
			v.problem("order %s: it is %s, but its history ends with %s", o.TradeNo, o.Status, changes[len(changes)-1].Status)
		}
		for _, id := range o.Transfers {
			v.accounted.Add(id[:], +1)
		}
		if o.PaidAt == 0 {
			return v.unpaid(o)
		}
		return v.paid(o)
	})
	return cmp.Or(err, each(v, &records.Notices, records.Notices.Under(), func(n *records.NoticeRecord) error {
		found, err := records.Orders.Has(v, n.TradeNo)
		if err == nil && !found {
			v.problem("%s: the order %s does not exist", nameOfNotice(n), n.TradeNo)
		}
		return err
	}))
}

func nameOfNotice(n *records.NoticeRecord) string {
	return fmt.Sprintf("notice %s of %s: %s", n.Event, n.Provider, n.Kind)
}

// unpaid checks that no money was moved for an order without a payment.
func (v *verification) unpaid(o *records.OrderRecord) error {
	credited, err := journal.HasTransfer(v, records.TopUpID(o.TradeNo))
	if err != nil {
		return err
	}
	paid := o.Status == records.Paid || o.Status == records.Refunded || o.Status == records.Disputed
	moved := o.TakenWallet != 0 || o.TakenOwed != 0 || o.Refunded != 0 || o.Disputed != 0 || o.Restored != 0 || len(o.Transfers) != 0
	if credited || paid || moved {
		v.problem("order %s: it is %s without a payment, but money was moved", o.TradeNo, o.Status)
	}
	return nil
}

// paid checks that an order was credited once, and that the amount taken back is the amount
// refunded and disputed.
func (v *verification) paid(o *records.OrderRecord) error {
	if o.Status != o.PaidStatus() {
		v.problem("order %s: it is %s, but should be %s", o.TradeNo, o.Status, o.PaidStatus())
	}
	if o.Due() != 0 || o.TakenWallet < 0 || o.TakenOwed < 0 {
		v.problem("order %s: of %v, %v was taken from the wallet and %v as a receivable, but in total it should be %v",
			o.TradeNo, o.Amount, o.TakenWallet, o.TakenOwed, o.Target())
	}
	if len(o.Transfers) == 0 || o.Transfers[0] != records.TopUpID(o.TradeNo) {
		v.problem("order %s: it is paid, but does not name its credit", o.TradeNo)
		return nil
	}
	err := v.transfer("order "+o.TradeNo, o.Transfers[0], expectedTransfer{journal.TopUp, o.User, o.TradeNo, map[journal.Account]money.Amount{
		journal.Paid(o.Provider): -o.Amount, journal.Wallet(o.User): o.Amount,
	}})
	if err != nil {
		return err
	}
	return v.later(o)
}

// later checks that the transfers after the credit have taken back the amount in the order.
func (v *verification) later(o *records.OrderRecord) error {
	var taken records.OrderRecord
	for i, id := range o.Transfers[1:] {
		if id != records.TransferID(o.TradeNo, i+1) {
			v.problem("order %s: the transfer %s does not belong to it", o.TradeNo, id)
		}
		x, found, err := journal.ReadTransfer(v, id)
		if errors.Is(err, storage.ErrUnreadable) {
			return nil // the verification of the ledger reports it, and its amount is unknown
		}
		if err != nil {
			return err
		}
		if !found {
			v.problem("order %s: the transfer %s does not exist", o.TradeNo, id)
			continue
		}
		if !replay(&taken, &x, o) {
			v.problem("order %s: the transfer %s does not belong to it: a %s of %v for %q, about %q", o.TradeNo, id, x.Kind, x.Legs, x.User, x.Reference)
		}
	}
	if taken.TakenWallet != o.TakenWallet || taken.TakenOwed != o.TakenOwed {
		v.problem("order %s: its transfers have taken %v from the wallet and %v as a receivable, but its record says %v and %v",
			o.TradeNo, taken.TakenWallet, taken.TakenOwed, o.TakenWallet, o.TakenOwed)
	}
	if taken.Refunded != o.Refunded || taken.Disputed != o.Disputed || taken.Restored != o.Restored {
		v.problem("order %s: its transfers have refunded %v, disputed %v and restored %v, but its record says %v, %v and %v",
			o.TradeNo, taken.Refunded, taken.Disputed, taken.Restored, o.Refunded, o.Disputed, o.Restored)
	}
	more, err := journal.HasTransfer(v, records.TransferID(o.TradeNo, len(o.Transfers)))
	if more {
		v.problem("order %s: there is a transfer that it does not name", o.TradeNo)
	}
	return err
}

// replay adds to o the amount that a transfer of the order of has taken or given back. It returns
// false if the transfer does not belong to that order.
func replay(o *records.OrderRecord, x *journal.Transfer, of *records.OrderRecord) bool {
	legs := make(map[journal.Account]money.Amount)
	for _, leg := range x.Legs {
		legs[leg.Account.Family()] += leg.Amount
	}
	paid := legs[journal.Paid(of.Provider)]
	o.AddBooked(x.Kind, paid)
	switch x.Kind {
	case journal.Refund, journal.Dispute:
		o.TakenWallet -= legs[journal.Wallet(of.User)]
		o.TakenOwed -= legs[journal.Receivable(of.User)]
	case journal.Restore:
		owed := min(-paid, o.TakenOwed)
		o.TakenOwed -= owed
		o.TakenWallet -= -paid - owed
	default:
		return false
	}
	return paid != 0 && x.User == of.User && x.Reference == of.TradeNo
}
