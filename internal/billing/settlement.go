package billing

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// settle brings an order and the money up to a notice that fits it, and returns
// whether that changed anything.
func (a *application) settle(t storage.Txn, now time.Time, o *records.OrderRecord, expected, reserved money.Amount) (changed bool, err error) {
	switch a.notice.Kind {
	case payments.Paid:
		if o.PaidAt != 0 {
			return false, nil
		}
		return true, a.credit(t, now, o)
	case payments.Failed:
		if o.Status != records.Pending {
			return false, nil
		}
		return true, o.Become(t, now, records.Failed)
	}
	if !o.Note(a.notice) {
		return false, nil
	}
	if o.PaidAt == 0 {
		return true, o.Write(t) // counts when the payment comes
	}
	if max(0, o.Due()) != expected {
		return false, errOvertaken
	}
	if err := follow(t, now, o, a.notice.Kind, reserved); err != nil {
		return false, err
	}
	return true, o.Become(t, now, o.PaidStatus())
}

// credit credits an order, and takes back at once what was refunded or disputed
// before the payment was told.
func (a *application) credit(t storage.Txn, now time.Time, o *records.OrderRecord) error {
	id := records.TopUpID(o.TradeNo)
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
	if err := follow(t, now, o, kind, o.Amount); err != nil {
		return err
	}
	if err := a.awaited(t, now, o); err != nil {
		return err
	}
	return o.Become(t, now, o.PaidStatus())
}

// follow moves what is due. Of what is taken, at most reserved comes from the
// wallet, and the rest is a receivable; what is given back pays first what this
// order made the user owe.
func follow(t storage.Txn, now time.Time, o *records.OrderRecord, kind payments.Kind, reserved money.Amount) error {
	due := o.Due()
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
		if legs, err = giveBack(t, o, -due); err != nil {
			return err
		}
	}
	id := records.TransferID(o.TradeNo, len(o.Transfers))
	o.Transfers = append(o.Transfers, id)
	_, err := journal.Book(t, now, journal.Transfer{
		ID: id, Kind: records.FollowingKinds[kind], User: o.User, Reference: o.TradeNo, Legs: legs,
	})
	return err
}

// giveBack returns the legs that give back what was taken: to what the user owes by this order,
// to the operator as far as the operator has borne that, and to the wallet.
func giveBack(t storage.Txn, o *records.OrderRecord, back money.Amount) ([]journal.Leg, error) {
	owed := min(back, o.TakenOwed)
	o.TakenOwed -= owed
	o.TakenWallet -= back - owed
	open, err := owedBy(t, o.User)
	if err != nil {
		return nil, err
	}
	open = min(open, owed)
	account, err := records.ReadAccount(t, o.User)
	if err != nil {
		return nil, err
	}
	borne := min(owed-open, account.WrittenOff)
	if borne > 0 {
		account.WrittenOff -= borne
		if err := records.Accounts.Put(t, nil, account); err != nil {
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
