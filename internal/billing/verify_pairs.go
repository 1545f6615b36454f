package billing

import "hash/maphash"

// pairs hold two sides against each other, name by name, and keep neither: they
// are sums of hashes in which a name counts up on the one side, and down on the
// other. There are many sums, so that one that is not zero in the end leaves a few
// names to be looked at.
type pairs struct {
	seed maphash.Seed
	sums [1 << 10]uint64
}

func newPairs() *pairs { return &pairs{seed: maphash.MakeSeed()} }

// count counts a name so often, or down when that is below zero.
func (p *pairs) count(name []byte, by int64) {
	hash := maphash.Bytes(p.seed, name)
	p.sums[hash%uint64(len(p.sums))] += hash * uint64(by)
}

// even tells whether each name was counted up as often as down.
func (p *pairs) even() bool { return p.sums == [len(p.sums)]uint64{} }

// evenFor tells whether that is so of a name and of those in one sum with it.
func (p *pairs) evenFor(name []byte) bool {
	return p.sums[maphash.Bytes(p.seed, name)%uint64(len(p.sums))] == 0
}
