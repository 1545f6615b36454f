package ledger

import (
	"bytes"
	"encoding/binary"
)

// countEntry adds an entry of an account to the multiset of entries, and countLeg removes
// one that a transfer says the account has: in the end both are equal, if entries and legs
// agree. They are grouped by transfer.
func (v *verification) countEntry(a Account, e Entry) { v.countIn(a, e, +1) }
func (v *verification) countLeg(a Account, e Entry)   { v.countIn(a, e, -1) }

func (v *verification) countIn(a Account, e Entry, by int64) {
	b := append(v.buffer[:0], e.Transfer[:]...)
	for _, n := range [...]uint64{e.Number, uint64(kindCodes[e.Kind]), uint64(e.Amount), uint64(e.Held), uint64(e.Time.UnixMilli())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	v.buffer = append(b, a...)
	v.entries.AddTo(e.Transfer[:], v.buffer, by)
}

// before reports whether id sorts before another.
func (id ID) before(other ID) bool { return bytes.Compare(id[:], other[:]) < 0 }
