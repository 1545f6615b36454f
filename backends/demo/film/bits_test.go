package film

import (
	"bytes"
	"fmt"
	"testing"
)

func TestExpGolombCodes(t *testing.T) {
	t.Parallel()
	for value, want := range map[uint32]string{
		0: "1", 1: "010", 2: "011", 3: "00100", 6: "00111", 7: "0001000", 25: "000011010", 30: "000011111", 8159: "0000000000001111111100000",
	} {
		var b bitstream
		b.ue(value)
		got := ""
		for _, c := range b.bytes {
			got += fmt.Sprintf("%08b", c)
		}
		if got = got[:len(got)-int(b.free)]; got != want {
			t.Errorf("the code of %d is %s, want %s", value, got, want)
		}
	}
}

func TestUnitsContainNoStartCode(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		"":                         "\x65",
		"\x00\x00":                 "\x65\x00\x00",
		"\x00\x00\x00":             "\x65\x00\x00\x03\x00",
		"\x00\x00\x01":             "\x65\x00\x00\x03\x01",
		"\x00\x00\x02":             "\x65\x00\x00\x03\x02",
		"\x00\x00\x03":             "\x65\x00\x00\x03\x03",
		"\x00\x00\x04":             "\x65\x00\x00\x04",
		"\x00\x00\x00\x00\x00\x01": "\x65\x00\x00\x03\x00\x00\x03\x00\x01",
		"\x01\x00\x02\x00\x01":     "\x65\x01\x00\x02\x00\x01",
	} {
		b := bitstream{bytes: []byte(payload)}
		if got := b.unit(0x65); !bytes.Equal(got, []byte(want)) {
			t.Errorf("the unit of % x is % x, want % x", payload, got, want)
		}
	}
}
