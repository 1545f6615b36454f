package ledger

import "hash/maphash"

// traces tell which transfers of calls have entries of which accounts, in memory
// that does not grow: each entry sets a few bits of many. What has left no trace
// is not there for certain; what is not there is taken for there rarely, a few
// times in a hundred where one user has a million of them.
type traces struct {
	seed  maphash.Seed
	words []uint64 // made when there is something to trace
	left  int      // by how many entries
	buf   []byte
}

const (
	traceWords = 1 << 17 // a MiB
	traceBits  = 4       // of each entry
)

func newTraces() *traces { return &traces{seed: maphash.MakeSeed()} }

// leave leaves the trace of an entry.
func (t *traces) leave(a Account, id ID) {
	if t.words == nil {
		t.words = make([]uint64, traceWords)
	}
	t.left++
	for _, bit := range t.bits(a, id) {
		t.words[bit/64] |= 1 << (bit % 64)
	}
}

// found tells whether there is the trace of an entry.
func (t *traces) found(a Account, id ID) bool {
	if t.words == nil {
		return false
	}
	for _, bit := range t.bits(a, id) {
		if t.words[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// fade forgets the traces of one user before those of the next, when they have
// become so many that they hide what is not there.
func (t *traces) fade() {
	if t.left*4*traceBits > len(t.words)*64 {
		clear(t.words)
		t.left = 0
	}
}

// bits are those of an entry.
func (t *traces) bits(a Account, id ID) (bits [traceBits]uint64) {
	t.buf = append(append(t.buf[:0], id[:]...), a...)
	hash := maphash.Bytes(t.seed, t.buf)
	bit, step := hash, hash>>32|1
	for i := range bits {
		bits[i] = bit % (traceWords * 64)
		bit += step
	}
	return bits
}
