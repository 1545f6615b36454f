package strictjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// stride is how many bytes text looks at together, at most.
const stride = 16

// tail is text for the last bytes of b, which are too few to be looked at
// together: it goes on at i, with high as it was found before.
func tail(b []byte, i, high int) (next, lowest int) {
	i, lowest = byWords(b, i)
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

// Constants to treat eight bytes at once: the value 1, and the high bit, in
// each of them.
const (
	ones     = 0x0101010101010101
	highBits = ones << 7
)

// validUTF8 is utf8.Valid, made for text that is mostly ASCII with a letter of
// two bytes here and there; what is more than that it leaves to utf8.Valid.
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
