package billing

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// orders checks each order with its transfers and indexes.
func (v *verification) orders() error {
	return each(v, orderPrefix, func(key []byte, o orderRecord) error {
		if string(key) != string(orderKey(o.TradeNo)) || !payments.IsTradeNo(o.TradeNo) {
			v.problem("order %s: it lies at the key of another, %q", o.TradeNo, key)
		}
		if err := v.exists(key, o.createdKey()); err != nil {
			return err
		}
		for _, index := range o.openKeys() {
			have, err := v.Get(index)
			if err != nil {
				return err
			}
			if (have != nil) != (o.Status == Pending) {
				v.problem("order %s: it is %s, and among those that are pending: %t", o.TradeNo, o.Status, have != nil)
			}
		}
		if err := v.begun(&o); err != nil {
			return err
		}
		for _, id := range o.Moves {
			v.accounted.Add(id[:], +1)
		}
		if o.PaidAt == 0 {
			return v.unpaid(&o)
		}
		return v.paid(&o)
	})
}

// begun checks that a paid order does not stand among those that were begun and
// not paid. That others do is not checked: the engine drops them by its own clock.
func (v *verification) begun(o *orderRecord) error {
	have, err := v.Get(o.begunKey())
	if err == nil && have != nil && o.PaidAt != 0 {
		v.problem("order %s: it is %s, and among those that were begun and not paid", o.TradeNo, o.Status)
	}
	return err
}

// unpaid checks that an order without a payment has moved nothing.
func (v *verification) unpaid(o *orderRecord) error {
	credited, err := ledger.HasTransfer(v, topUpID(o.TradeNo))
	if err != nil {
		return err
	}
	paid := o.Status == Paid || o.Status == Refunded || o.Status == Disputed
	if credited || paid || o.TakenWallet != 0 || o.TakenOwed != 0 || len(o.Moves) != 0 {
		v.problem("order %s: it is %s and without a payment, and money was moved for it", o.TradeNo, o.Status)
	}
	return nil
}

// paid checks that an order was credited once, and that what was taken of it
// since is what was refunded and disputed.
func (v *verification) paid(o *orderRecord) error {
	if o.Status != o.paidStatus() {
		v.problem("order %s: it is %s and should be %s", o.TradeNo, o.Status, o.paidStatus())
	}
	if o.due() != 0 || o.TakenWallet < 0 || o.TakenOwed < 0 {
		v.problem("order %s: of %v, %v was taken from the wallet and %v as a receivable, it should be %v in all",
			o.TradeNo, o.Amount, o.TakenWallet, o.TakenOwed, o.target())
	}
	if o.Payment != "" {
		var reference string
		if _, err := storage.GetRecord(v, storage.Key(paymentPrefix, o.Provider, o.Payment), &reference); err != nil {
			return err
		}
		if reference != o.TradeNo {
			v.problem("order %s: its payment %s of %s has credited %q", o.TradeNo, o.Payment, o.Provider, reference)
		}
	}
	if len(o.Moves) == 0 || o.Moves[0] != topUpID(o.TradeNo) {
		v.problem("order %s: it is paid and does not name its credit", o.TradeNo)
		return nil
	}
	err := v.transfer("order "+o.TradeNo, o.Moves[0], booked{ledger.TopUp, o.User, o.TradeNo, map[ledger.Account]money.Amount{
		ledger.Paid(o.Provider): -o.Amount, ledger.Wallet(o.User): o.Amount,
	}})
	if err != nil {
		return err
	}
	return v.moves(o)
}

// moves checks that the transfers of an order that follow its credit have taken
// what it says.
func (v *verification) moves(o *orderRecord) error {
	var taken orderRecord
	for i, id := range o.Moves[1:] {
		if id != moveID(o.TradeNo, i+1) {
			v.problem("order %s: the transfer %s is not one of it", o.TradeNo, id)
		}
		x, found, err := ledger.ReadTransfer(v, id)
		if errors.Is(err, storage.ErrUnreadable) {
			return nil // the ledger tells of it, and what it has taken nobody knows
		}
		if err != nil {
			return err
		}
		if !found {
			v.problem("order %s: the transfer %s does not exist", o.TradeNo, id)
			continue
		}
		if !taken.replay(&x, o) {
			v.problem("order %s: the transfer %s is not one of it: a %s of %v for %q, about %q", o.TradeNo, id, x.Kind, x.Legs, x.User, x.Reference)
		}
	}
	if taken.TakenWallet != o.TakenWallet || taken.TakenOwed != o.TakenOwed {
		v.problem("order %s: its transfers have taken %v from the wallet and %v as a receivable, its record says %v and %v",
			o.TradeNo, taken.TakenWallet, taken.TakenOwed, o.TakenWallet, o.TakenOwed)
	}
	more, err := ledger.HasTransfer(v, moveID(o.TradeNo, len(o.Moves)))
	if more {
		v.problem("order %s: there is a transfer that it does not name", o.TradeNo)
	}
	return err
}

// replay takes again what a transfer of an order has taken, or gives it back. It
// returns false for one that is of something else.
func (o *orderRecord) replay(x *ledger.Transfer, of *orderRecord) bool {
	legs := make(map[ledger.Account]money.Amount)
	for _, leg := range x.Legs {
		legs[leg.Account.Family()] += leg.Amount
	}
	paid := legs[ledger.Paid(of.Provider)]
	switch x.Kind {
	case ledger.Refund, ledger.Dispute:
		o.TakenWallet -= legs[ledger.Wallet(of.User)]
		o.TakenOwed -= legs[ledger.Receivable(of.User)]
	case ledger.Restore:
		owed := min(-paid, o.TakenOwed)
		o.TakenOwed -= owed
		o.TakenWallet -= -paid - owed
	default:
		return false
	}
	return paid != 0 && x.User == of.User && x.Reference == of.TradeNo
}

// orderIndexes checks that what points to an order points to one.
func (v *verification) orderIndexes() error {
	var err error
	for prefix, keyOfOrder := range map[string]func(orderRecord) []byte{
		userOrderPrefix: func(o orderRecord) []byte { return o.createdKey() },
		openPrefix:      func(o orderRecord) []byte { return o.openKeys()[0] },
		orderDuePrefix:  func(o orderRecord) []byte { return o.openKeys()[1] },
		begunPrefix:     func(o orderRecord) []byte { return o.begunKey() },
	} {
		err = cmp.Or(err, v.scan(prefix, func(key []byte) error {
			o, found, err := readOrder(v, string(key[bytes.LastIndexByte(key, '/')+1:]))
			if err == nil && (!found || !bytes.Equal(key, keyOfOrder(o))) {
				v.problem("key %q: there is no such order", key)
			}
			return err
		}))
	}
	return cmp.Or(err,
		each(v, paymentPrefix, func(key []byte, tradeNo string) error {
			o, _, err := readOrder(v, tradeNo)
			if err == nil && !bytes.Equal(key, storage.Key(paymentPrefix, o.Provider, o.Payment)) {
				v.problem("key %q: the order %s was paid by another, %s of %s", key, tradeNo, o.Payment, o.Provider)
			}
			return err
		}),
		each(v, eventPrefix, func(key []byte, e eventRecord) error { return v.exists(key, orderKey(e.TradeNo)) }),
		each(v, orderKeyPrefix, func(key []byte, k orderKeyRecord) error { return v.exists(key, orderKey(k.TradeNo)) }),
	)
}

// mismatches checks that a listed mismatch can be found by what it says, and the
// reverse. Those that have been listed long enough may be gone.
func (v *verification) mismatches() error {
	since := v.now.Add(-mismatchesKept).UnixMilli()
	return cmp.Or(
		each(v, mismatchPrefix, func(key []byte, m Mismatch) error {
			if m.Time <= since {
				return nil
			}
			return v.exists(key, storage.Key(mismatchOfPrefix, m.digest()))
		}),
		each(v, mismatchOfPrefix, func(key []byte, mark mismatchMark) error {
			if mark.Time <= since {
				return nil
			}
			return v.exists(key, storage.Key(mismatchPrefix, storage.Inverted(mark.Time), string(key[len(mismatchOfPrefix)+1:])))
		}),
	)
}
