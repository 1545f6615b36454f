// Package film generates a video from a seed as a file that any player opens:
// H.264 in MP4, in pure Go.
//
// The stream has the constrained baseline profile of ITU-T H.264. Its first
// picture contains raw samples (macroblocks of type I_PCM). Later pictures skip
// unchanged macroblocks. Every decoder supports this, and the encoder needs no
// transform, prediction or entropy tables. bits.go writes bits, avc.go writes
// pictures, mp4.go writes the file, and scene.go generates the content. The
// package imports only the standard library.
package film

import "math/bits"

// bitstream builds a raw byte sequence payload (RBSP).
type bitstream struct {
	bytes []byte
	free  uint // unused bits at the end of the last byte
}

// u writes the n low bits of v, the highest first.
func (b *bitstream) u(n uint, v uint32) {
	for ; n > 0; n-- {
		if b.free == 0 {
			b.bytes = append(b.bytes, 0)
			b.free = 8
		}
		b.free--
		b.bytes[len(b.bytes)-1] |= byte(v>>(n-1)&1) << b.free
	}
}

// ue writes an unsigned Exp-Golomb code (section 9.1).
func (b *bitstream) ue(v uint32) {
	length := uint(bits.Len32(v + 1))
	b.u(length-1, 0)
	b.u(length, v+1)
}

// align writes zero bits up to the next byte.
func (b *bitstream) align() { b.free = 0 }

// raw writes whole bytes. The stream must be aligned.
func (b *bitstream) raw(samples []byte) { b.bytes = append(b.bytes, samples...) }

// end writes the trailing bits (section 7.3.2.11).
func (b *bitstream) end() {
	b.u(1, 1)
	b.align()
}

// unit returns the payload as a NAL unit with this header byte. An emulation
// prevention byte precedes each byte up to 3 that follows two zero bytes
// (section 7.4.1).
func (b *bitstream) unit(head byte) []byte {
	unit := make([]byte, 1, len(b.bytes)+len(b.bytes)/64+1)
	unit[0] = head
	zeros := 0
	for _, c := range b.bytes {
		if zeros >= 2 && c <= 3 {
			unit = append(unit, 3)
			zeros = 0
		}
		unit = append(unit, c)
		if c == 0 {
			zeros++
		} else {
			zeros = 0
		}
	}
	return unit
}
