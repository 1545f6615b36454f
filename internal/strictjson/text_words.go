package strictjson

import (
	"encoding/binary"
	"math/bits"
)

// byWords is text, by eight bytes at a time.
func byWords(b []byte, i int) (next, high int) {
	high = len(b)
	for ; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if m := borrows(w) &^ w & highBits; m != 0 {
			next = i + bits.TrailingZeros64(m)>>3
			return next, min(high, i+bits.TrailingZeros64(w&highBits)>>3)
		}
		if h := w & highBits; h != 0 {
			high = min(high, i+bits.TrailingZeros64(h)>>3)
		}
	}
	return i, high
}

// borrows looks at eight bytes, the first one lowest, and sets the high bit of
// every one that ends plain text, a quote, a backslash or a control character,
// and of some that are not ASCII, which &^w takes out again.
//
// Turning over the second bit exchanges the quote (0x22) with the space (0x20)
// and keeps the control characters among themselves, so that one subtraction
// borrows for all of them and for nothing else below 0x80. The borrow reaches
// into the bytes above: what is set above the lowest hit means nothing.
func borrows(w uint64) uint64 {
	return ((w ^ ones*0x02) - ones*0x21) | ((w ^ ones*'\\') - ones)
}
