package modelcall

import (
	"bytes"
	"encoding/binary"
)

// recording is the length of a recording in seconds, rounded up.
type recording struct {
	longest int64 // the largest possible length
	exact   bool  // longest is the length
}

// recordingOf returns the length of a recording. It is exact for a WAV file with uncompressed samples.
func recordingOf(data []byte) recording {
	if seconds, exact := wavSeconds(data); exact {
		return recording{seconds, true}
	}
	return recording{ceil(int64(len(data)), lowestByteRate), false}
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }

// The formats of WAV whose samples are not compressed (RFC 2361, and WAVE_FORMAT_EXTENSIBLE).
const (
	wavPCM        = 1
	wavFloat      = 3
	wavExtensible = 0xFFFE
)

const (
	// maxWAVRate, maxWAVChannels and maxWAVBits are the largest values of the header that are accepted.
	// With larger ones, the header of a long recording could declare a short one.
	maxWAVRate     = 192_000
	maxWAVChannels = 8
	maxWAVBits     = 64

	// maxWAVOther is how many bytes of a WAV file may be something other than samples. A decoder that does
	// not read the file as WAV could find another recording there.
	maxWAVOther = 64 << 10
)

// wavSeconds returns the length of a WAV file. It counts all bytes from the beginning of the samples to
// the end of the file, because some decoders read several chunks of samples. The length is not exact if
// the header contradicts itself or the file, if too much of the file is not samples, or if the samples are a
// compressed recording, which FFmpeg and others then decode.
func wavSeconds(data []byte) (seconds int64, exact bool) {
	if len(data) < 12 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WAVE" {
		return 0, false
	}
	var byteRate int64
	for rest := data[12:]; len(rest) >= 8; {
		name, size, body := string(rest[:4]), int64(binary.LittleEndian.Uint32(rest[4:])), rest[8:]
		switch {
		case name == "data":
			left := int64(len(body))
			if byteRate == 0 || left == 0 || left-size > min(byteRate/10, maxWAVOther) || len(data)-len(body) > maxWAVOther || isCompressed(body) {
				return 0, false
			}
			return ceil(left, byteRate), true
		case name == "fmt " && size >= 16 && len(body) >= 16:
			if byteRate != 0 {
				return 0, false
			}
			if byteRate = wavByteRate(body, size); byteRate == 0 {
				return 0, false
			}
		}
		size += size % 2
		if size > int64(len(body)) {
			return 0, false
		}
		rest = body[size:]
	}
	return 0, false
}

// wavByteRate returns the number of bytes of a second of samples, by the chunk "fmt " of a WAV file of
// at least 16 bytes. It returns zero if the samples are compressed or the chunk is not accepted.
func wavByteRate(chunk []byte, size int64) int64 {
	format := binary.LittleEndian.Uint16(chunk)
	if format == wavExtensible && size >= 26 && len(chunk) >= 26 {
		format = binary.LittleEndian.Uint16(chunk[24:])
	}
	channels, bits := int64(binary.LittleEndian.Uint16(chunk[2:])), int64(binary.LittleEndian.Uint16(chunk[14:]))
	rate := int64(binary.LittleEndian.Uint32(chunk[4:]))
	byteRate, frame := int64(binary.LittleEndian.Uint32(chunk[8:])), int64(binary.LittleEndian.Uint16(chunk[12:]))
	if format != wavPCM && format != wavFloat || bits%8 != 0 || bits > maxWAVBits || channels > maxWAVChannels || rate > maxWAVRate ||
		frame != channels*bits/8 || byteRate != rate*frame {
		return 0
	}
	return byteRate
}

const (
	// probedBytes is how many bytes of the samples are searched for a compressed recording. Decoders
	// search fewer.
	probedBytes = 1 << 20

	// probedFrames is the number of consecutive frames that prove a compressed recording.
	probedFrames = 4

	// sampleRateBits are the bits of the sample rate in the third byte of a frame.
	sampleRateBits = 0x0C
)

// isCompressed reports whether the beginning of samples has a recording in an MPEG format (MP3, AAC).
func isCompressed(samples []byte) bool {
	samples = samples[:min(len(samples), probedBytes)]
	for at := 0; ; at++ {
		next := bytes.IndexByte(samples[at:], 0xFF)
		if next < 0 {
			return false
		}
		at += next
		frames, rest := 0, samples[at:]
		for frames < probedFrames {
			n := mpegFrame(rest)
			if n == 0 || n > len(rest) || rest[1] != samples[at+1] || (rest[2]^samples[at+2])&sampleRateBits != 0 {
				break // the frames of a recording have one version, one layer and one sample rate
			}
			frames, rest = frames+1, rest[n:]
		}
		if frames == probedFrames {
			return true
		}
	}
}

// The bit rates of MPEG audio in kbit/s, by version (1, or 2 and 2.5), layer and index (ISO/IEC 11172-3
// and 13818-3). mpegRates has the sample rates of version 1.
var (
	mpegBitRates = [2][3][15]int{
		{
			{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
			{0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
			{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
		},
		{
			{0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
			{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
			{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		},
	}
	mpegRates = [3]int{44100, 48000, 32000}
)

// mpegFrame returns the length of the frame of MPEG audio or of AAC (ADTS) that data begins with, or zero.
func mpegFrame(data []byte) int {
	if len(data) < 6 || data[0] != 0xFF || data[1] < 0xE0 {
		return 0
	}
	version, layer := data[1]>>3&3, data[1]>>1&3
	if layer == 0 { // ADTS
		length := int(data[3]&3)<<11 | int(data[4])<<3 | int(data[5])>>5
		if data[1]&0xF0 != 0xF0 || data[2]>>2&15 > 12 || length < 7 {
			return 0
		}
		return length
	}
	bitRate, rate := data[2]>>4, data[2]>>2&3
	if version == 1 || bitRate == 0 || bitRate == 15 || rate == 3 {
		return 0
	}
	low, halved := 0, 0
	if version != 3 {
		low, halved = 1, 1
	}
	if version == 0 {
		halved = 2
	}
	bits, samples, padding := mpegBitRates[low][3-layer][bitRate]*1000, mpegRates[rate]>>halved, int(data[2]>>1&1)
	switch {
	case layer == 3:
		return (12*bits/samples + padding) * 4
	case layer == 1 && low == 1:
		return 72*bits/samples + padding
	}
	return 144*bits/samples + padding
}
