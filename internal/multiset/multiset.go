// Package multiset compares multisets that are too large for memory, by a [Hash]. It imports no other
// package of this module.
package multiset

import "hash/maphash"

// Hash compares two multisets without storing them: it adds the hashes of the elements of one, and
// subtracts those of the other. The elements are spread over many sums by group, so after a
// difference only few groups must be examined. Different multisets match with a probability of
// 2⁻⁶⁴. A Hash must not be used concurrently.
type Hash struct {
	seed maphash.Seed
	sums [1 << 12]uint64
}

// New returns a Hash of two empty multisets.
func New() *Hash { return &Hash{seed: maphash.MakeSeed()} }

// Add adds an element count times. A negative count removes it. The group is the element itself.
func (h *Hash) Add(element []byte, count int64) { h.AddTo(element, element, count) }

// AddTo is [Hash.Add] for an element of the given group.
func (h *Hash) AddTo(group, element []byte, count int64) {
	*h.sum(group) += maphash.Bytes(h.seed, element) * uint64(count)
}

// Equal reports whether each element was added as often as it was removed.
func (h *Hash) Equal() bool { return h.sums == [len(h.sums)]uint64{} }

// EqualFor is [Hash.Equal] for the elements of a group and of the groups that share its sum.
func (h *Hash) EqualFor(group []byte) bool { return *h.sum(group) == 0 }

func (h *Hash) sum(group []byte) *uint64 {
	return &h.sums[maphash.Bytes(h.seed, group)%uint64(len(h.sums))]
}
