package verify

import (
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// transfers checks each transfer on its own, and adds its legs to the system accounts and to the
// multiset of entries.
func (v *verification) transfers() {
	for x, err := range v.eachTransfer() {
		v.Transfers++
		where := whereTransfer(x.ID)
		if err != nil {
			v.report(where, "its record cannot be read: %v", err)
			continue
		}
		v.shape(x)
		var total sum
		for _, leg := range x.Legs {
			if !leg.Account.Memo() {
				total.add(leg.Amount)
			}
			// A leg on an account of a user must have an entry. The legs on a system account must add
			// up to the account's record.
			if leg.Account.System() {
				v.systemAccount(leg.Account).leg(v.seed, leg)
			} else {
				v.count(leg.Account, x.Entry(leg), -1)
			}
		}
		if total != (sum{}) {
			v.report(where, "the sum of its legs is %v, not zero", total)
		}
		v.holdOf(x)
	}
}

// eachTransfer yields every transfer, in the order of ids. If a transfer cannot be read, it yields
// one with only the id, and the error.
func (v *verification) eachTransfer() iter.Seq2[*journal.Transfer, error] {
	return func(yield func(*journal.Transfer, error) bool) {
		for key, record := range v.records(journal.TransferPrefix) {
			x, err := journal.DecodeTransfer(key, record)
			if !yield(&x, err) {
				return
			}
		}
	}
}

func whereTransfer(id journal.ID) string { return "transfer " + id.String() }

// unmatched reports the legs without an entry and the entries without a leg. It examines only the
// transfers for which the multiset differs.
func (v *verification) unmatched() {
	if v.entries.Equal() {
		return
	}
	for x, err := range v.eachTransfer() {
		if err != nil || v.entries.EqualFor(x.ID[:]) {
			continue
		}
		for i, leg := range x.Legs {
			switch {
			case leg.Account.System():
			case slices.ContainsFunc(x.Legs[:i], func(other journal.Leg) bool { return other.Account == leg.Account && other.Number == leg.Number }):
				v.report(whereTransfer(x.ID), "two of its legs name entry %d of %s", leg.Number, leg.Account)
			default:
				v.entryOf(x, leg)
			}
		}
	}
	for key, val := range v.records(journal.EntryPrefix) {
		e, account, err := journal.DecodeEntry(key, val)
		if err == nil && !account.System() && !v.entries.EqualFor(e.Transfer[:]) { // all others are correct or reported
			v.legOf(account, e)
		}
	}
}

// entryOf compares a leg with its entry. An entry that cannot be read was already reported.
func (v *verification) entryOf(x *journal.Transfer, leg journal.Leg) {
	where, key := whereTransfer(x.ID), journal.EntryKey(leg.Account, leg.Number)
	val := v.get(key)
	if val == nil {
		v.report(where, "its leg on %s names entry %d, which is missing", leg.Account, leg.Number)
		return
	}
	have, _, err := journal.DecodeEntry(key, val)
	if err != nil {
		return
	}
	if have.Transfer != x.ID {
		v.report(where, "its leg on %s names entry %d, which is of transfer %v", leg.Account, leg.Number, have.Transfer)
		return
	}
	want := x.Entry(leg)
	if have.Amount != want.Amount || have.Held != want.Held {
		v.report(where, "its leg on %s is %s, but entry %d is %s", leg.Account, funds(want.Amount, want.Held), leg.Number, funds(have.Amount, have.Held))
	}
	if have.Kind != want.Kind || !have.Time.Equal(want.Time) {
		v.report(where, "it is a %s of %s, entry %d of %s is a %s of %s",
			want.Kind, moment(want.Time), leg.Number, leg.Account, have.Kind, moment(have.Time))
	}
}

// legOf reports an entry whose transfer has no such leg.
func (v *verification) legOf(account journal.Account, e journal.Entry) {
	where := "account " + string(account)
	switch x, found := v.transfer(e.Transfer); {
	case !found:
		v.report(where, "entry %d is of transfer %v, which is missing", e.Number, e.Transfer)
	case x != nil && !slices.ContainsFunc(x.Legs, func(leg journal.Leg) bool { return leg.Account == account && leg.Number == e.Number }):
		v.report(where, "entry %d is of transfer %v, which has no such leg", e.Number, e.Transfer)
	}
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// count adds by to the count of an entry in the multiset. by is +1 for a stored entry, and -1 for
// a leg that must have an entry. If entries and legs agree, the multiset is empty in the end. It
// is grouped by transfer.
func (v *verification) count(a journal.Account, e journal.Entry, by int64) {
	b := append(v.buffer[:0], e.Transfer[:]...)
	for _, n := range [...]uint64{e.Number, uint64(len(e.Kind)), uint64(e.Amount), uint64(e.Held), uint64(e.Time.UnixMilli())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	v.buffer = append(append(b, e.Kind...), a...)
	v.entries.AddTo(e.Transfer[:], v.buffer, by)
}
