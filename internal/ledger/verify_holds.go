package ledger

import (
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// holds checks the holds of a user that have ended.
func (v *verification) holds(records *cursor, b *books) error {
	for {
		key, val, err := records.take(b.user)
		if err != nil || key == nil {
			return err
		}
		var id ID
		if len(key) != len(holdKey(b.user, id)) {
			v.tell("the holds", "%q is not the key of one", key)
			continue
		}
		copy(id[:], key[len(holdPrefix)+len(b.user)+len("/"):])
		where := "hold " + id.String() + " of " + b.user
		var h holdRecord
		if err := storage.DecodeRecord(val, &h); err != nil {
			v.tell(where, "its record cannot be read: %v", err)
			continue
		}
		if string(holdKey(h.User, h.ID)) != string(key) {
			v.tell(where, "its record is that of hold %v of %s", h.ID, h.User)
			continue
		}
		if h.Day != "" {
			b.spent += h.Charged
			if h.Day >= v.wholeFrom {
				b.count(h.usage())
			}
		}
		if err := v.hold(where, h); err != nil {
			return err
		}
	}
}

// hold compares a record with the transfer that ended the hold. That transfer is
// compared with the one that began it by itself.
func (v *verification) hold(where string, h holdRecord) error {
	end, ended, err := v.transfer(endOf(h.ID))
	if err != nil {
		return err
	}
	kind, known := endings[h.State]
	switch {
	case !known:
		v.tell(where, "%q is no state of a hold that has ended", h.State)
	case !ended:
		v.tell(where, "it is %s, but transfer %v, which ends it, is missing", h.State, endOf(h.ID))
	case end == nil: // told of as a transfer
	case end.Kind != kind:
		v.tell(where, "it is %s, but was ended by a %s", h.State, end.Kind)
	case end.User != h.User:
		v.tell(where, "it was ended by a %s of %q", end.Kind, end.User)
	default:
		var spent money.Amount
		for _, leg := range end.Legs {
			if leg.Account.Family() == Spent {
				spent += leg.Amount
			}
		}
		if spent != h.Charged {
			v.tell(where, "it was charged %v, its transfer took %v", h.Charged, spent)
		}
	}
	return nil
}

// endings are the kinds of transfers that lead to the states of a hold that has ended.
var endings = map[HoldState]Kind{Settled: Settle, Voided: Void}

// transfer returns a transfer and whether there is one; nil for one that cannot
// be read, which is told of where all are read.
func (v *verification) transfer(id ID) (*Transfer, bool, error) {
	key := transferKey(id)
	val, err := v.Get(key)
	if err != nil || val == nil {
		return nil, false, err
	}
	x, err := decodeTransfer(key, val)
	if err != nil {
		return nil, true, nil
	}
	return &x, true, nil
}

// holdOf checks the hold that a transfer begins or ends. The transfer that ends a hold has the
// id for that, leaves a record, and releases all that was held. So what is held of an account
// is what the transfers of its open holds set aside.
func (v *verification) holdOf(x Transfer) error {
	switch x.Kind {
	case Hold:
		v.Holds++
		return v.begun(x)
	case Settle, Void:
	default:
		return nil
	}
	var id ID
	if err := id.UnmarshalText([]byte(x.Reference)); err != nil {
		v.tell(x.where(), "it ends no hold: %v", err)
		return nil
	}
	if x.ID != endOf(id) {
		v.tell(x.where(), "it ends hold %v, which only transfer %v may do: a hold ends once", id, endOf(id))
		return nil
	}
	record, err := v.Get(holdKey(x.User, id))
	if err != nil {
		return err
	}
	if record == nil {
		v.tell(x.where(), "it is a %s of hold %v of %s, which is missing", x.Kind, id, x.User)
	}
	begin, began, err := v.transfer(id)
	switch {
	case err != nil:
		return err
	case !began:
		v.tell(x.where(), "it ends hold %v, and transfer %v, which began it, is missing", id, id)
	case begin == nil: // told of
	case begin.Kind != Hold || begin.User != x.User:
		v.tell(x.where(), "it ends hold %v of %q, which is a %s of %q", id, x.User, begin.Kind, begin.User)
	default:
		v.released(x, *begin)
	}
	return nil
}

// begun checks that a transfer sets aside under each budget what it does in sources, and that
// only a transfer that ends the hold has the id for that: otherwise the hold could never end.
func (v *verification) begun(x Transfer) error {
	var sources sum
	for _, leg := range x.Legs {
		if !leg.Account.memo() {
			sources.add(leg.Held)
		}
	}
	if sources.zero() {
		v.tell(x.where(), "it sets nothing aside")
	}
	for _, leg := range x.Legs {
		differs := sources
		if differs.take(leg.Held); leg.Account.memo() && !differs.zero() {
			v.tell(x.where(), "it sets %v aside under %s, of %v", leg.Held, leg.Account, &sources)
		}
	}
	end, _, err := v.transfer(endOf(x.ID))
	if err == nil && end != nil && end.Kind != Settle && end.Kind != Void {
		v.tell(x.where(), "transfer %v, which only its end may be, is a %s", end.ID, end.Kind)
	}
	return err
}

// released checks that a transfer releases what the one that began its hold has set aside, and
// takes no more than that.
func (v *verification) released(end, begin Transfer) {
	left := make(map[Account]money.Amount)
	for _, leg := range slices.Concat(begin.Legs, end.Legs) {
		add(left, leg.Account, leg.Held)
	}
	for _, leg := range end.Legs {
		if leg.Account.Owner() != "" && leg.Amount < leg.Held {
			v.tell(end.where(), "it takes %v of %s, of which it releases %v", -leg.Amount, leg.Account, -leg.Held)
		}
	}
	for _, a := range slices.Sorted(maps.Keys(left)) {
		v.tell(end.where(), "it leaves %v held of %s by the hold that it ends", left[a], a)
	}
}

// endOf is the id of the transfer that ends a hold.
func endOf(hold ID) ID { return IDOf("end", hold.String()) }
