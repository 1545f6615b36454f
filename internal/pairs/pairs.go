// Package pairs holds two sides against each other that are too many to keep:
// whether each name on the one side has its like on the other.
package pairs

import "hash/maphash"

// Sums hold two sides against each other, name by name, and keep neither: they
// are sums of hashes in which a name counts up on the one side, and down on the
// other. There are many sums, so that one that is not zero in the end leaves a few
// names to be looked at.
type Sums struct {
	seed maphash.Seed
	sums [1 << 10]uint64
}

// New returns sums in which nothing has been counted.
func New() *Sums { return &Sums{seed: maphash.MakeSeed()} }

// Count counts a name so often, or down when that is below zero.
func (s *Sums) Count(name []byte, by int64) {
	hash := maphash.Bytes(s.seed, name)
	s.sums[hash%uint64(len(s.sums))] += hash * uint64(by)
}

// Even tells whether each name was counted up as often as down.
func (s *Sums) Even() bool { return s.sums == [len(s.sums)]uint64{} }

// EvenFor tells whether that is so of a name and of those in one sum with it.
func (s *Sums) EvenFor(name []byte) bool {
	return s.sums[maphash.Bytes(s.seed, name)%uint64(len(s.sums))] == 0
}
