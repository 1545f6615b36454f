package strictjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// stride is the maximum number of bytes that text compares at a time.
const stride = 16

// textTail is text for the last bytes of b, which are fewer than stride. It continues at i,
// with the high that text returned.
func textTail(b []byte, i, high int) (next, lowest int) {
	i, lowest = textByWords(b, i)
	for high = min(high, lowest); i < len(b); i++ {
		c := b[i]
		if c == '"' || c == '\\' || c < ' ' {
			break
		}
		if c >= utf8.RuneSelf {
			high = min(high, i)
		}
	}
	return i, high
}

// The value 1, and the high bit, in each of eight bytes.
const (
	ones     = 0x0101010101010101
	highBits = ones << 7
)

// textByWords is text with eight bytes at a time.
func textByWords(b []byte, i int) (next, high int) {
	high = len(b)
	for ; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if m := stopBits(w) &^ w & highBits; m != 0 {
			next = i + bits.TrailingZeros64(m)>>3
			return next, min(high, i+bits.TrailingZeros64(w&highBits)>>3)
		}
		if h := w & highBits; h != 0 {
			high = min(high, i+bits.TrailingZeros64(h)>>3)
		}
	}
	return i, high
}

// stopBits compares eight bytes, the first one lowest. It sets the high bit of each byte that
// ends plain text: a quote, a backslash or a control character. It also sets that of some
// bytes that are not ASCII, which the caller removes by &^w.
//
// Inverting the second bit exchanges the quote (0x22) with the space (0x20) and maps the
// control characters to control characters. So one subtraction borrows for exactly these
// among the bytes below 0x80. The borrow continues into the next bytes: only the lowest bit
// that is set is valid.
func stopBits(w uint64) uint64 {
	return ((w ^ ones*0x02) - ones*0x21) | ((w ^ ones*'\\') - ones)
}

// validUTF8 is utf8.Valid, but faster for ASCII with a few characters of two bytes. It calls
// utf8.Valid at the first longer character.
func validUTF8(p []byte) bool {
	for len(p) >= 8 {
		w := binary.LittleEndian.Uint64(p) & highBits
		if w == 0 {
			p = p[8:]
			continue
		}
		p = p[bits.TrailingZeros64(w)>>3:]
		if len(p) < 2 || p[0] < 0xC2 || p[0] > 0xDF || p[1]&0xC0 != 0x80 {
			break
		}
		p = p[2:]
	}
	return utf8.Valid(p)
}
