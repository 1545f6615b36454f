package billing

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// pairs hold what is named against what names it, and keep neither: they are sums
// of hashes in which a transfer counts up where it is named, and down where it
// is. There are many sums, so that one that is not zero in the end leaves a few
// transfers to be looked at.
type pairs struct {
	seed maphash.Seed
	sums [1 << 10]uint64
}

func newPairs() *pairs { return &pairs{seed: maphash.MakeSeed()} }

// count counts a transfer up or down by one.
func (p *pairs) count(id ledger.ID, by int) {
	*p.sum(id) += uint64(by) * maphash.Bytes(p.seed, id[:])
}

// even tells whether each transfer was counted up as often as down.
func (p *pairs) even() bool { return p.sums == [len(p.sums)]uint64{} }

// evenFor tells whether that is so of a transfer and those in one sum with it.
func (p *pairs) evenFor(id ledger.ID) bool { return *p.sum(id) == 0 }

func (p *pairs) sum(id ledger.ID) *uint64 {
	return &p.sums[int(binary.BigEndian.Uint16(id[14:]))%len(p.sums)]
}
