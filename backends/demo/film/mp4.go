package film

import "encoding/binary"

// track describes the only track of the file.
type track struct {
	width, height int
	rate          int // pictures per second
	sps, pps      []byte
	sizes         []int // in bytes, of the samples: each is the length of a NAL unit and the unit
}

// lengthBytes is the size in bytes of the length before each NAL unit.
const lengthBytes = 4

// box returns an ISO base media box (ISO/IEC 14496-12, section 4.2): its size,
// type and content.
func box(kind string, content ...[]byte) []byte {
	size := 8
	for _, c := range content {
		size += len(c)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(size))
	b = append(b, kind...)
	for _, c := range content {
		b = append(b, c...)
	}
	return b
}

// u16 and u32 return big-endian numbers.
func u16(values ...int) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return b
}

func u32(values ...int) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// matrix is the unity matrix (section 6.2.2).
var matrix = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)

// The version and flags of full boxes.
var (
	noFlags   = u32(0)
	tkhdFlags = u32(7) // the track is enabled, and is in the movie and the preview
	vmhdFlags = u32(1) // the standard requires 1
	urlFlags  = u32(1) // the samples are in this file
)

// millisecond is the time scale of the movie.
const millisecond = 1000

// undetermined is the language "und", three letters of five bits (section 8.4.2.3).
const undetermined = 0x55C4

// head returns everything in a file before its samples: ftyp, moov and the
// header of mdat. So a player can begin before it has received the whole file.
func (t track) head() []byte {
	total := 0
	for _, size := range t.sizes {
		total += size
	}
	ftyp := box("ftyp", []byte("isom"), u32(0x200), []byte("isomiso2avc1mp41"))
	// moov contains the offset of the samples. Its size does not depend on the
	// offset.
	offset := len(ftyp) + len(t.moov(0)) + 8
	head := append(ftyp, t.moov(offset)...)
	head = append(head, u32(8+total)...)
	return append(head, "mdat"...)
}

func (t track) moov(offset int) []byte {
	frames := len(t.sizes)
	length := frames * millisecond / t.rate
	return box("moov",
		box("mvhd", noFlags, u32(0, 0, millisecond, length, 0x10000), u16(0x100, 0), u32(0, 0), matrix, u32(0, 0, 0, 0, 0, 0, 2)),
		box("trak",
			box("tkhd", tkhdFlags, u32(0, 0, 1, 0, length, 0, 0), u16(0, 0, 0, 0), matrix, u32(t.width<<16, t.height<<16)),
			box("mdia",
				box("mdhd", noFlags, u32(0, 0, t.rate, frames), u16(undetermined, 0)),
				box("hdlr", noFlags, u32(0), []byte("vide"), u32(0, 0, 0), []byte("video\x00")),
				box("minf",
					box("vmhd", vmhdFlags, u16(0, 0, 0, 0)),
					box("dinf", box("dref", noFlags, u32(1), box("url ", urlFlags))),
					t.samples(offset),
				),
			),
		),
	)
}

// samples returns the sample table (section 8.5): one chunk contains all
// samples, and only the first is a sync sample.
func (t track) samples(offset int) []byte {
	return box("stbl",
		box("stsd", noFlags, u32(1), t.avc1()),
		box("stts", noFlags, u32(1, len(t.sizes), 1)),
		box("stss", noFlags, u32(1, 1)),
		box("stsc", noFlags, u32(1, 1, len(t.sizes), 1)),
		box("stsz", noFlags, u32(0, len(t.sizes)), u32(t.sizes...)),
		box("stco", noFlags, u32(1, offset)),
	)
}

// avc1 returns the sample entry (ISO/IEC 14496-15, section 5.4.2).
func (t track) avc1() []byte {
	const dpi72, depth24 = 0x480000, 0x18
	return box("avc1",
		make([]byte, 6), u16(1), // reserved, data_reference_index
		make([]byte, 16), u16(t.width, t.height), u32(dpi72, dpi72, 0), u16(1),
		make([]byte, 32), u16(depth24, 0xFFFF),
		box("avcC",
			[]byte{1}, t.sps[1:4], []byte{0xFC | (lengthBytes - 1), 0xE0 | 1},
			u16(len(t.sps)), t.sps, []byte{1}, u16(len(t.pps)), t.pps),
	)
}
