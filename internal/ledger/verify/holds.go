package verify

import (
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// holds checks the holds of a user that have ended.
func (v *verification) holds(records *cursor, b *totals) {
	for key, val := range records.of(b.user) {
		var id journal.ID
		if len(key) != len(journal.HoldKey(b.user, id)) {
			v.report("the holds", "%q is not the key of one", key)
			continue
		}
		copy(id[:], key[len(journal.Holds.Name+"/")+len(b.user)+len("/"):])
		where := "hold " + id.String() + " of " + b.user
		var h journal.HoldRecord
		if err := storage.DecodeRecord(val, &h); err != nil {
			v.report(where, "its record cannot be read: %v", err)
			continue
		}
		if string(journal.HoldKey(h.User, h.ID)) != string(key) {
			v.report(where, "its record is that of hold %v of %s", h.ID, h.User)
			continue
		}
		if h.Day != "" {
			b.spent += h.Charged
			if h.Day >= v.wholeFrom {
				b.addUsage(h.Usage())
			}
		}
		v.hold(where, h)
	}
}

// hold compares a record with the transfer that ended the hold. That transfer is
// compared with the one that began it by itself.
func (v *verification) hold(where string, h journal.HoldRecord) {
	end, ended := v.transfer(journal.EndOf(h.ID))
	kind, known := endings[h.State]
	switch {
	case !known:
		v.report(where, "%q is no state of a hold that has ended", h.State)
	case !ended:
		v.report(where, "it is %s, but transfer %v, which ends it, is missing", h.State, journal.EndOf(h.ID))
	case end == nil: // told of as a transfer
	case end.Kind != kind:
		v.report(where, "it is %s, but was ended by a %s", h.State, end.Kind)
	case end.User != h.User:
		v.report(where, "it was ended by a %s of %q", end.Kind, end.User)
	default:
		var spent money.Amount
		for _, leg := range end.Legs {
			if leg.Account.Family() == journal.Spent {
				spent += leg.Amount
			}
		}
		if spent != h.Charged {
			v.report(where, "it was charged %v, its transfer took %v", h.Charged, spent)
		}
	}
}

// endings are the kinds of transfers that lead to the states of a hold that has ended.
var endings = map[journal.HoldState]journal.Kind{journal.Settled: journal.Settle, journal.Voided: journal.Void}

// holdOf checks the hold that a transfer begins or ends. The transfer that ends a hold has the
// id for that, leaves a record, and releases all that was held. So what is held of an account
// is what the transfers of its open holds set aside.
func (v *verification) holdOf(x *journal.Transfer) {
	switch x.Kind {
	case journal.Hold:
		v.Holds++
		v.begun(x)
		return
	case journal.Settle, journal.Void:
	default:
		return
	}
	var id journal.ID
	if err := id.UnmarshalText([]byte(x.Reference)); err != nil {
		v.report(whereTransfer(x.ID), "it ends no hold: %v", err)
		return
	}
	if x.ID != journal.EndOf(id) {
		v.report(whereTransfer(x.ID), "it ends hold %v, which only transfer %v may do: a hold ends once", id, journal.EndOf(id))
		return
	}
	if v.get(journal.HoldKey(x.User, id)) == nil {
		v.report(whereTransfer(x.ID), "it is a %s of hold %v of %s, which is missing", x.Kind, id, x.User)
	}
	switch begin, began := v.transfer(id); {
	case !began:
		v.report(whereTransfer(x.ID), "it ends hold %v, and transfer %v, which began it, is missing", id, id)
	case begin == nil: // told of
	case begin.Kind != journal.Hold || begin.User != x.User:
		v.report(whereTransfer(x.ID), "it ends hold %v of %q, which is a %s of %q", id, x.User, begin.Kind, begin.User)
	default:
		v.released(x, begin)
	}
}

// begun checks that a transfer sets aside under each budget what it does in sources, and that
// only a transfer that ends the hold has the id for that: otherwise the hold could never end.
func (v *verification) begun(x *journal.Transfer) {
	var sources sum
	for _, leg := range x.Legs {
		if !leg.Account.Memo() {
			sources.add(leg.Held)
		}
	}
	if sources == (sum{}) {
		v.report(whereTransfer(x.ID), "it sets nothing aside")
	}
	for _, leg := range x.Legs {
		if leg.Account.Memo() && sources != sumOf(leg.Held) {
			v.report(whereTransfer(x.ID), "it sets %v aside under %s, of %v", leg.Held, leg.Account, sources)
		}
	}
	end, _ := v.transfer(journal.EndOf(x.ID))
	if end != nil && end.Kind != journal.Settle && end.Kind != journal.Void {
		v.report(whereTransfer(x.ID), "transfer %v, which only its end may be, is a %s", end.ID, end.Kind)
	}
}

// released checks that a transfer releases what the one that began its hold has set aside, and
// takes no more than that.
func (v *verification) released(end, begin *journal.Transfer) {
	left := make(map[journal.Account]money.Amount)
	for _, leg := range slices.Concat(begin.Legs, end.Legs) {
		add(left, leg.Account, leg.Held)
	}
	for _, leg := range end.Legs {
		if leg.Account.Owner() != "" && leg.Amount < leg.Held {
			v.report(whereTransfer(end.ID), "it takes %v of %s, of which it releases %v", -leg.Amount, leg.Account, -leg.Held)
		}
	}
	for _, a := range slices.Sorted(maps.Keys(left)) {
		v.report(whereTransfer(end.ID), "it leaves %v held of %s by the hold that it ends", left[a], a)
	}
}
