package ledger

import (
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// holds goes through the holds of a user.
func (v *verification) holds(records *cursor, b *books) error {
	for {
		key, val, err := records.take(b.user)
		if err != nil || key == nil {
			return err
		}
		v.Holds++
		var id ID
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
		if err := v.hold(where, h, b); err != nil {
			return err
		}
	}
}

// hold holds a record against the transfers that began and ended it.
func (v *verification) hold(where string, h holdRecord, b *books) error {
	begin, began, err := v.transfer(h.ID)
	if err != nil {
		return err
	}
	switch {
	case !began:
		v.tell(where, "its transfer %v is missing", h.ID)
	case begin != nil && (begin.Kind != Hold || begin.User != h.User):
		v.tell(where, "its transfer is a %s of %q", begin.Kind, begin.User)
	}
	end, ended, err := v.transfer(endOf(h.ID))
	if err != nil {
		return err
	}
	kind, known := endings[h.State]
	switch {
	case !known:
		v.tell(where, "%q is no state of a hold", h.State)
	case h.State == Held:
		for _, part := range h.Parts {
			add(b.held, part.Account, -part.Held)
		}
		if ended {
			v.tell(where, "it is open, but transfer %v has ended it", endOf(h.ID))
		}
	case !ended:
		v.tell(where, "it is %s, but transfer %v, which ends it, is missing", h.State, endOf(h.ID))
	case end == nil: // told of as a transfer
	case end.Kind != kind:
		v.tell(where, "it is %s, but was ended by a %s", h.State, end.Kind)
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

// endings are the kinds of transfers that lead to the states of a hold.
var endings = map[HoldState]Kind{Held: Hold, Settled: Settle, Voided: Void}

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

// holdOf looks for the hold that a transfer begins or ends. One that ends it has
// the only id for that.
func (v *verification) holdOf(x Transfer) error {
	id := x.ID
	switch x.Kind {
	case Hold:
	case Settle, Void:
		if err := id.UnmarshalText([]byte(x.Reference)); err != nil {
			v.tell(x.where(), "it ends no hold: %v", err)
			return nil
		}
		if x.ID != endOf(id) {
			v.tell(x.where(), "it ends hold %v, which only transfer %v may do: a hold ends once", id, endOf(id))
		}
	default:
		return nil
	}
	record, err := v.Get(holdKey(x.User, id))
	if err == nil && record == nil {
		v.tell(x.where(), "it is a %s of hold %v of %s, which is missing", x.Kind, id, x.User)
	}
	return err
}

// endOf is the id of the transfer that ends a hold.
func endOf(hold ID) ID { return IDOf("end", hold.String()) }
