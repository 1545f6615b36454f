package verify

import (
	"hash/maphash"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// bloomFilter is a Bloom filter of the entries of transfers of calls, by account and transfer. Its
// memory is fixed. It never misses an entry. If one user has a million entries, the rate of false
// positives is a few percent.
type bloomFilter struct {
	seed  maphash.Seed
	words []uint64 // nil while the filter is empty
	count int      // number of entries
	buf   []byte
}

const (
	filterWords = 1 << 17 // 1 MiB
	filterBits  = 4       // per entry
)

func newBloomFilter() *bloomFilter { return &bloomFilter{seed: maphash.MakeSeed()} }

// add adds an entry.
func (f *bloomFilter) add(a journal.Account, id journal.ID) {
	if f.words == nil {
		f.words = make([]uint64, filterWords)
	}
	f.count++
	for _, bit := range f.bits(a, id) {
		f.words[bit/64] |= 1 << (bit % 64)
	}
}

// has reports whether an entry may have been added.
func (f *bloomFilter) has(a journal.Account, id journal.ID) bool {
	if f.words == nil {
		return false
	}
	for _, bit := range f.bits(a, id) {
		if f.words[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// resetIfFull empties the filter if its rate of false positives is too high. It must be called
// between the entries of two users.
func (f *bloomFilter) resetIfFull() {
	if f.count*4*filterBits > len(f.words)*64 {
		clear(f.words)
		f.count = 0
	}
}

// bits returns the numbers of the bits of an entry.
func (f *bloomFilter) bits(a journal.Account, id journal.ID) (bits [filterBits]uint64) {
	f.buf = append(append(f.buf[:0], id[:]...), a...)
	hash := maphash.Bytes(f.seed, f.buf)
	bit, step := hash, hash>>32|1
	for i := range bits {
		bits[i] = bit % (filterWords * 64)
		bit += step
	}
	return bits
}
