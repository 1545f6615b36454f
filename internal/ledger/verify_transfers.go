package ledger

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// transfers checks every transfer by itself.
func (v *verification) transfers() error {
	return eachTransfer(v.Reader, func(x Transfer, err error) error {
		v.Transfers++
		where := x.where()
		if err != nil {
			v.tell(where, "its record cannot be read: %v", err)
			return nil
		}
		v.shape(&x)
		var sum sum
		for _, leg := range x.Legs {
			if !leg.Account.memo() {
				sum.add(leg.Amount)
			}
			v.leg(&x, leg)
		}
		if !sum.zero() {
			v.tell(where, "the sum of its legs is %v, not zero", &sum)
		}
		return v.holdOf(x)
	})
}

// leg counts a leg where it must have its like: on an account of a user among the
// entries; on a system account in what the account's record says.
func (v *verification) leg(x *Transfer, leg Leg) {
	if leg.Account.system() {
		v.system.leg(leg)
		return
	}
	v.count(leg.Account, x.entry(leg), -1)
}

// ScanTransfers calls fn for every transfer but those of calls, which are most of
// what there is, in the order of ids. What cannot be read is left out: [Verify]
// tells of that.
func ScanTransfers(r storage.Reader, fn func(Transfer) error) error {
	return eachRecord(r, transferPrefix, func(key, record []byte) error {
		if isOfCalls(record) {
			return nil
		}
		x, err := decodeTransfer(key, record)
		if err != nil {
			return nil
		}
		return fn(x)
	})
}

// eachTransfer calls fn for every transfer, in the order of ids. One that cannot
// be read has its id only, and comes with the reason.
func eachTransfer(r storage.Reader, fn func(x Transfer, err error) error) error {
	return eachRecord(r, transferPrefix, func(key, record []byte) error {
		x, err := decodeTransfer(key, record)
		return fn(x, err)
	})
}

func (x *Transfer) where() string { return "transfer " + x.ID.String() }

// entry is what a leg became.
func (x *Transfer) entry(leg Leg) Entry {
	return Entry{
		Number: leg.Number, Kind: x.Kind, Transfer: x.ID,
		Amount: leg.Amount, Held: leg.Held, Time: time.UnixMilli(x.Time),
	}
}

// unmatched finds the transfers and the entries that do not belong together, among the few for
// which the multiset differs.
func (v *verification) unmatched() error {
	if v.entries.Equal() {
		return nil
	}
	err := eachTransfer(v.Reader, func(x Transfer, err error) error {
		if err != nil || v.entries.EqualFor(x.ID[:]) {
			return nil
		}
		for i, leg := range x.Legs {
			if leg.Account.system() {
				continue
			}
			if slices.ContainsFunc(x.Legs[:i], func(other Leg) bool { return other.Account == leg.Account && other.Number == leg.Number }) {
				v.tell(x.where(), "two of its legs are entry %d of %s", leg.Number, leg.Account)
				continue
			}
			if err := v.entryOf(x, leg); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return eachRecord(v.Reader, entryPrefix, func(key, val []byte) error {
		e, account, err := decodeEntry(key, val)
		if err != nil || account.system() || v.entries.EqualFor(e.Transfer[:]) {
			return nil // told already, or well
		}
		return v.legOf(account, e)
	})
}

// entryOf looks for the entry of a leg. One that cannot be read was told of.
func (v *verification) entryOf(x Transfer, leg Leg) error {
	key := entryKey(leg.Account, leg.Number)
	val, err := v.Get(key)
	if err != nil {
		return err
	}
	if val == nil {
		v.tell(x.where(), "its leg on %s is entry %d there, which is missing", leg.Account, leg.Number)
		return nil
	}
	have, _, err := decodeEntry(key, val)
	if err != nil {
		return nil
	}
	if have.Transfer != x.ID {
		v.tell(x.where(), "its leg on %s is entry %d there, which is of transfer %v", leg.Account, leg.Number, have.Transfer)
		return nil
	}
	want := x.entry(leg)
	if have.Amount != want.Amount || have.Held != want.Held {
		v.tell(x.where(), "its leg on %s is %s, entry %d there is %s", leg.Account,
			funds(State{Balance: want.Amount, Held: want.Held}), leg.Number, funds(State{Balance: have.Amount, Held: have.Held}))
	}
	if have.Kind != want.Kind || !have.Time.Equal(want.Time) {
		v.tell(x.where(), "it is a %s of %s, entry %d of %s is a %s of %s",
			want.Kind, moment(want.Time), leg.Number, leg.Account, have.Kind, moment(have.Time))
	}
	return nil
}

// legOf looks for the leg of an entry.
func (v *verification) legOf(account Account, e Entry) error {
	where := "account " + string(account)
	x, found, err := v.transfer(e.Transfer)
	switch {
	case err != nil:
		return err
	case !found:
		v.tell(where, "entry %d is of transfer %v, which is missing", e.Number, e.Transfer)
	case x != nil && !slices.ContainsFunc(x.Legs, func(leg Leg) bool { return leg.Account == account && leg.Number == e.Number }):
		v.tell(where, "entry %d is of transfer %v, which has no such leg", e.Number, e.Transfer)
	}
	return nil
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// count adds an entry of an account to the multiset of entries by times +1, and a leg that must
// have become one by -1: in the end the multiset is empty, if entries and legs agree. They are
// grouped by transfer.
func (v *verification) count(a Account, e Entry, by int64) {
	b := append(v.buffer[:0], e.Transfer[:]...)
	for _, n := range [...]uint64{e.Number, uint64(kindCodes[e.Kind]), uint64(e.Amount), uint64(e.Held), uint64(e.Time.UnixMilli())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	v.buffer = append(b, a...)
	v.entries.AddTo(e.Transfer[:], v.buffer, by)
}

// before reports whether id sorts before another.
func (id ID) before(other ID) bool { return bytes.Compare(id[:], other[:]) < 0 }
