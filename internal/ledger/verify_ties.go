package ledger

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
)

// ties hold entries against the legs of transfers and keep neither: they are sums
// of hashes in which an entry counts up and its leg counts down. There are many
// sums, by the ids of transfers, so that one that is not zero in the end leaves a
// few of them to be looked at.
type ties struct {
	seed maphash.Seed
	sums [1 << 12]uint64
	buf  []byte
}

func newTies() *ties { return &ties{seed: maphash.MakeSeed()} }

func (t *ties) entry(a Account, e Entry) { *t.sum(e.Transfer) += t.hash(a, e) }
func (t *ties) leg(a Account, e Entry)   { *t.sum(e.Transfer) -= t.hash(a, e) }

// match tells whether all entries have their legs, and the legs that were counted
// their entries.
func (t *ties) match() bool {
	for _, sum := range t.sums {
		if sum != 0 {
			return false
		}
	}
	return true
}

// matches tells whether the entries and the legs of a transfer have each other.
func (t *ties) matches(id ID) bool { return *t.sum(id) == 0 }

// sum is the one that a transfer counts in. The end of an id is as good as
// random.
func (t *ties) sum(id ID) *uint64 {
	return &t.sums[int(binary.BigEndian.Uint16(id[14:]))%len(t.sums)]
}

// hash is of all that an entry and its leg both say.
func (t *ties) hash(a Account, e Entry) uint64 {
	t.buf = append(t.buf[:0], e.Transfer[:]...)
	for _, n := range [...]uint64{e.Number, uint64(kindCodes[e.Kind]), uint64(e.Amount), uint64(e.Held), uint64(e.Time.UnixMilli())} {
		t.buf = binary.BigEndian.AppendUint64(t.buf, n)
	}
	t.buf = append(t.buf, a...)
	return maphash.Bytes(t.seed, t.buf)
}

// before tells whether id sorts before another.
func (id ID) before(other ID) bool { return bytes.Compare(id[:], other[:]) < 0 }
