package billing

import (
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// How much has been taken back of a paid order follows from its record alone: what
// was refunded and what disputes keep, together at most what was paid. A notice
// changes the record; then the difference is moved. So refunds and disputes of
// the same money take it once, in whatever order they are told.

// target returns how much of the credit is to be taken back.
func (o *orderRecord) target() money.Amount {
	return o.Disputed + min(o.Refunded, o.Amount-o.Disputed)
}

// due returns what is still to be taken; below zero: to be given back.
func (o *orderRecord) due() money.Amount { return o.target() - o.TakenWallet - o.TakenOwed }

// note writes a notice of a refund or a dispute into the record, and reports whether it
// says anything new.
func (o *orderRecord) note(n payments.Notice) bool {
	switch n.Kind {
	case payments.Refunded: // in all, so that an older notice tells less
		if n.Amount <= o.Refunded {
			return false
		}
		o.Refunded = n.Amount
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
	o.Disputed = 0
	for _, x := range o.Disputes {
		o.Disputed += min(x.open(), o.Amount-o.Disputed)
	}
	return true
}

// dispute returns the dispute with this id, new if there is none.
func (o *orderRecord) dispute(id string) *dispute {
	for i := range o.Disputes {
		if o.Disputes[i].ID == id {
			return &o.Disputes[i]
		}
	}
	o.Disputes = append(o.Disputes, dispute{ID: id})
	return &o.Disputes[len(o.Disputes)-1]
}

// paidStatus returns the status of a paid order.
func (o *orderRecord) paidStatus() OrderStatus {
	switch {
	case o.Disputed > 0:
		return Disputed
	case o.Refunded >= o.Amount:
		return Refunded
	}
	return Paid
}

// settle brings an order and the money up to a notice that fits it, and returns
// whether that changed anything.
func (a *application) settle(t storage.Txn, now time.Time, o *orderRecord, expected, reserved money.Amount) (changed bool, err error) {
	switch a.notice.Kind {
	case payments.Paid:
		if o.PaidAt != 0 {
			return false, nil
		}
		return true, a.credit(t, now, o)
	case payments.Failed:
		if o.Status != Pending {
			return false, nil
		}
		return true, o.become(t, Failed)
	}
	if !o.note(a.notice) {
		return false, nil
	}
	if o.PaidAt == 0 {
		return true, o.write(t) // counts when the payment comes
	}
	if max(0, o.due()) != expected {
		return false, errOvertaken
	}
	if err := o.follow(t, now, a.notice.Kind, reserved); err != nil {
		return false, err
	}
	return true, o.become(t, o.paidStatus())
}

// credit credits an order, and takes back at once what was refunded or disputed
// before the payment was told.
func (a *application) credit(t storage.Txn, now time.Time, o *orderRecord) error {
	id := topUpID(o.TradeNo)
	_, err := journal.Book(t, now, journal.Transfer{
		ID: id, Kind: journal.TopUp, User: o.User, Reference: o.TradeNo,
		Legs: journal.LegsBetween(journal.Paid(o.Provider), journal.Wallet(o.User), o.Amount),
	})
	if err != nil {
		return err
	}
	o.PaidAt, o.Payment, o.Transfers = now.Unix(), a.notice.Payment, append(o.Transfers, id)
	// What is taken here was credited in this transaction, so no reservation has it.
	kind := payments.Refunded
	if o.Disputed > 0 {
		kind = payments.Disputed
	}
	if err := o.follow(t, now, kind, o.Amount); err != nil {
		return err
	}
	if err := a.awaited(t, now, o); err != nil {
		return err
	}
	return o.become(t, o.paidStatus())
}

// followingKinds are the kinds of the transfers that follow notices.
var followingKinds = map[payments.Kind]journal.Kind{
	payments.Refunded: journal.Refund, payments.Disputed: journal.Dispute, payments.Restored: journal.Restore,
}

// follow moves what is due. Of what is taken, at most reserved comes from the
// wallet, and the rest is a receivable; what is given back pays first what this
// order made the user owe.
func (o *orderRecord) follow(t storage.Txn, now time.Time, kind payments.Kind, reserved money.Amount) error {
	due := o.due()
	if due == 0 {
		return nil
	}
	var legs []journal.Leg
	if due > 0 {
		wallet := min(due, reserved)
		o.TakenWallet += wallet
		o.TakenOwed += due - wallet
		legs = []journal.Leg{
			{Account: journal.Wallet(o.User), Amount: -wallet},
			{Account: journal.Receivable(o.User), Amount: wallet - due},
			{Account: journal.Paid(o.Provider), Amount: due},
		}
	} else {
		var err error
		if legs, err = o.giveBack(t, -due); err != nil {
			return err
		}
	}
	id := transferID(o.TradeNo, len(o.Transfers))
	o.Transfers = append(o.Transfers, id)
	_, err := journal.Book(t, now, journal.Transfer{
		ID: id, Kind: followingKinds[kind], User: o.User, Reference: o.TradeNo, Legs: legs,
	})
	return err
}

// giveBack returns the legs that give back what was taken: to what the user owes by this order,
// to the operator as far as the operator has borne that, and to the wallet.
func (o *orderRecord) giveBack(t storage.Txn, back money.Amount) ([]journal.Leg, error) {
	owed := min(back, o.TakenOwed)
	o.TakenOwed -= owed
	o.TakenWallet -= back - owed
	open, err := owedBy(t, o.User)
	if err != nil {
		return nil, err
	}
	open = min(open, owed)
	account, err := readAccount(t, o.User)
	if err != nil {
		return nil, err
	}
	borne := min(owed-open, account.WrittenOff)
	if borne > 0 {
		account.WrittenOff -= borne
		if err := accounts.Put(t, nil, account); err != nil {
			return nil, err
		}
	}
	return []journal.Leg{
		{Account: journal.Paid(o.Provider), Amount: -back},
		{Account: journal.Receivable(o.User), Amount: open},
		{Account: journal.Operator, Amount: borne},
		{Account: journal.Wallet(o.User), Amount: back - open - borne},
	}, nil
}

// topUpID is the transfer that credits an order.
func topUpID(tradeNo string) journal.ID { return journal.IDOf("topup", tradeNo) }

// transferID is the n-th transfer of an order; the credit is the first.
func transferID(tradeNo string, n int) journal.ID {
	return journal.IDOf("order", tradeNo, strconv.Itoa(n))
}
