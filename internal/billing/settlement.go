package billing

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// settle applies a notice to its order and moves the money. It reports whether anything
// changed.
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
		return true, o.Write(t) // it counts when the payment arrives
	}
	if max(0, o.Due()) != expected {
		return false, errChanged
	}
	if a.service.store.Shared() { // all that is reserved there is held in the store
		wallet, err := journal.ReadState(t, journal.Wallet(o.User))
		if err != nil {
			return false, err
		}
		reserved = max(0, wallet.Balance-wallet.Held)
	}
	if err := moveDue(t, now, o, a.notice.Kind, reserved); err != nil {
		return false, err
	}
	return true, o.Become(t, now, o.PaidStatus())
}

// credit credits an order, and takes back at once the refunds and disputes that arrived
// before the payment.
func (a *application) credit(t storage.Txn, now time.Time, o *records.OrderRecord) error {
	id := records.TopUpID(o.TradeNo)
	_, err := journal.Book(t, now, journal.Transfer{
		ID: id, Kind: journal.TopUp, User: o.User, Reference: o.TradeNo,
		Legs: journal.LegsBetween(journal.Paid(o.Provider), journal.Wallet(o.User), o.Amount),
	})
	if err != nil {
		return err
	}
	o.PaidAt, o.Payment, o.Transfers, o.Moved = now.Unix(), a.notice.Payment, append(o.Transfers, id), now.Unix()
	// The amount was credited in this transaction, so no reservation can contain it.
	if err := moveDue(t, now, o, o.EarlyKind(), o.Amount); err != nil {
		return err
	}
	if err := a.applyWaiting(t, now, o); err != nil {
		return err
	}
	return o.Become(t, now, o.PaidStatus())
}

// moveDue moves the amount that is due. If it is taken, at most reserved comes from the
// wallet, and the rest becomes a receivable. If it is given back, it first pays what the user
// owes because of this order.
func moveDue(t storage.Txn, now time.Time, o *records.OrderRecord, kind payments.Kind, reserved money.Amount) error {
	due := o.Due()
	if due == 0 {
		return nil
	}
	o.AddBooked(records.FollowingKinds[kind], due)
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
		if legs, err = returnLegs(t, o, -due); err != nil {
			return err
		}
	}
	id := records.TransferID(o.TradeNo, len(o.Transfers))
	o.Transfers, o.Moved = append(o.Transfers, id), now.Unix()
	_, err := journal.Book(t, now, journal.Transfer{
		ID: id, Kind: records.FollowingKinds[kind], User: o.User, Reference: o.TradeNo, Legs: legs,
	})
	return err
}

// returnLegs returns the legs that give back an amount. It first pays what the user owes because
// of this order. The part that the operator has borne goes to the operator, the rest to the wallet.
func returnLegs(t storage.Txn, o *records.OrderRecord, back money.Amount) ([]journal.Leg, error) {
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
