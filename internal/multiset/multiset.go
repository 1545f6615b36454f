// Package multiset compares multisets that are too large to keep: it holds a [Hash] of them.
// It imports nothing of this module.
package multiset

import "hash/maphash"

// Hash compares two multisets of elements without storing them: it adds the hashes of the
// elements of one, and subtracts those of the other. There is a sum for each of many sets of
// groups, so that a difference leaves few groups to be looked at. A chance match has a
// probability of 2⁻⁶⁴. It is not safe for concurrent use.
type Hash struct {
	seed maphash.Seed
	sums [1 << 12]uint64
}

// New returns a Hash of two empty multisets.
func New() *Hash { return &Hash{seed: maphash.MakeSeed()} }

// Add adds an element count times, or removes it if count is negative. Its group is the
// element itself.
func (h *Hash) Add(element []byte, count int64) { h.AddTo(element, element, count) }

// AddTo is Add for an element of a group of elements.
func (h *Hash) AddTo(group, element []byte, count int64) {
	*h.sum(group) += maphash.Bytes(h.seed, element) * uint64(count)
}

// Equal reports whether each element was added as often as it was removed.
func (h *Hash) Equal() bool { return h.sums == [len(h.sums)]uint64{} }

// EqualFor reports the same of the elements of a group, and of the groups that share its sum.
func (h *Hash) EqualFor(group []byte) bool { return *h.sum(group) == 0 }

func (h *Hash) sum(group []byte) *uint64 {
	return &h.sums[maphash.Bytes(h.seed, group)%uint64(len(h.sums))]
}
