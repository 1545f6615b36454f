package verify

import (
	"fmt"
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
			v.report("the holds", "%q is not the key of a hold", key)
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
			if h.Day >= v.completeFrom {
				b.addUsage(h.Usage())
			}
		}
		v.hold(where, h)
	}
}

// callHolds adds up the holds of a user's open calls by account. A lone store has none.
func (v *verification) callHolds(records *cursor, b *totals) {
	for key, val := range records.of(b.user) {
		h, err := journal.DecodeCallHold(key, val)
		if err != nil {
			v.report(fmt.Sprintf("the hold of a call of %s, %q", b.user, key), "its record cannot be read: %v", err)
			continue
		}
		for _, part := range h.Parts {
			if part.Held < 0 {
				v.report(fmt.Sprintf("hold %d of a call of epoch %d of %s", h.Number, h.Epoch, b.user), "it holds %v of %s", part.Held, part.Account)
			}
			add(b.reserved, part.Account, part.Held)
		}
	}
}

// hold compares a record with the transfer that ended the hold. holdOf compares that transfer with
// the one that began the hold.
func (v *verification) hold(where string, h journal.HoldRecord) {
	end, ended := v.transfer(journal.EndOf(h.ID))
	kind, known := endings[h.State]
	switch {
	case !known:
		v.report(where, "%q is not a state of an ended hold", h.State)
	case !ended:
		v.report(where, "it is %s, but transfer %v, which ends it, is missing", h.State, journal.EndOf(h.ID))
	case end == nil: // reported by transfers
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

// holdOf checks the hold that a transfer begins or ends. The transfer that ends a hold has the id
// [journal.EndOf], has a [journal.HoldRecord], and releases the whole held amount. So the held
// amount of an account is the sum of its open holds.
func (v *verification) holdOf(x *journal.Transfer) {
	switch x.Kind {
	case journal.Hold:
		v.Holds++
		v.checkBegin(x)
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
	case begin == nil: // reported by transfers
	case begin.Kind != journal.Hold || begin.User != x.User:
		v.report(whereTransfer(x.ID), "it ends hold %v of %q, which is a %s of %q", id, x.User, begin.Kind, begin.User)
	default:
		v.checkRelease(x, begin)
	}
}

// checkBegin checks the transfer that begins a hold. It must set the same amount aside under each
// budget and in the sources. Only a transfer that ends the hold may have the id for its end;
// otherwise the hold could never end.
func (v *verification) checkBegin(x *journal.Transfer) {
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
			v.report(whereTransfer(x.ID), "it sets %v aside under %s, but %v in sources", leg.Held, leg.Account, sources)
		}
	}
	end, _ := v.transfer(journal.EndOf(x.ID))
	if end != nil && end.Kind != journal.Settle && end.Kind != journal.Void {
		v.report(whereTransfer(x.ID), "transfer %v must be its end, but is a %s", end.ID, end.Kind)
	}
}

// checkRelease checks that the transfer that ends a hold releases the whole held amount, and takes
// no more than that.
func (v *verification) checkRelease(end, begin *journal.Transfer) {
	left := make(map[journal.Account]money.Amount)
	for _, leg := range slices.Concat(begin.Legs, end.Legs) {
		add(left, leg.Account, leg.Held)
	}
	for _, leg := range end.Legs {
		if leg.Account.Owner() != "" && leg.Amount < leg.Held {
			v.report(whereTransfer(end.ID), "it takes %v from %s, but releases %v", -leg.Amount, leg.Account, -leg.Held)
		}
	}
	for _, a := range slices.Sorted(maps.Keys(left)) {
		v.report(whereTransfer(end.ID), "the hold that it ends leaves %v held on %s", left[a], a)
	}
}
