package factor

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
)

// codeOf returns the code that an authenticator app shows at a time.
func codeOf(t testing.TB, seed []byte, at time.Time) string {
	t.Helper()
	code, err := totp.GenerateCode(seedText(seed), at)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestCodesMatchRFC6238 has the rows of SHA-1 in RFC 6238, appendix B. Our codes are the last six of
// its eight digits.
func TestCodesMatchRFC6238(t *testing.T) {
	t.Parallel()
	seed := []byte("12345678901234567890")
	for at, code := range map[int64]string{
		59: "287082", 1111111109: "081804", 1111111111: "050471",
		1234567890: "005924", 2000000000: "279037", 20000000000: "353130",
	} {
		if step, ok := matchStep(seed, code, time.Unix(at, 0), 0); !ok || step != at/30 {
			t.Errorf("at %d: %d, %v", at, step, ok)
		}
	}
}

func TestAMissingSeedNeverMatches(t *testing.T) {
	t.Parallel()
	now := time.Unix(1900000000, 0)
	for _, seed := range [][]byte{nil, {}, make([]byte, 19)} {
		code := codeOf(t, seed, now) // the code of the library
		if _, ok := matchStep(seed, code, now, 1); ok {
			t.Errorf("a code of a seed of %d bytes is accepted", len(seed))
		}
	}
}

// TestTheQRCodeHasAQuietZoneAndItsCorners checks what a scanner needs: a quiet zone of four modules
// around the code, and the three corners.
func TestTheQRCodeHasAQuietZoneAndItsCorners(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ann", strings.Repeat("名", 64)} { // the longest
		url, err := qrImage(enrolmentURI(strings.Repeat("G", 64), name, make([]byte, seedSize)))
		if err != nil {
			t.Fatal(err)
		}
		file, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(url, "data:image/png;base64,"))
		if err != nil {
			t.Fatal(err)
		}
		code, err := png.Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		dark := func(x, y int) bool { r, _, _, _ := code.At(x, y).RGBA(); return r < 0x8000 }
		size := code.Bounds().Dx()
		first, last, corner := size, 0, 0
		for x := range size {
			for y := range size {
				if dark(x, y) {
					first, last = min(first, x, y), max(last, x, y)
				}
			}
		}
		for first+corner < size && dark(first+corner, first) { // seven modules
			corner++
		}
		if corner == 0 || corner%7 != 0 || min(first, size-1-last) < 4*corner/7 {
			t.Fatalf("the code of %q goes from %d to %d of %d, its corner is %d wide", name, first, last, size, corner)
		}
		if !dark(last, first) || !dark(first, last) || (last+1-first)%(corner/7) != 0 {
			t.Errorf("the code of %q lacks a corner", name)
		}
	}
}

func FuzzCodeInput(f *testing.F) {
	seed := []byte("12345678901234567890")
	now := time.Unix(1900000000, 0)
	codes := drawBackupCodes()
	for _, text := range []string{"", "123456", " 123456", codes[0].Reveal(), strings.ToLower(codes[1].Reveal()), "oooo-iiii-llll", "１２３４５６", codeOf(f, seed, now)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var shown bool
		for _, steps := range []time.Duration{-1, 0, 1} {
			shown = shown || text == codeOf(t, seed, now.Add(steps*stepSeconds*time.Second))
		}
		if _, ok := matchStep(seed, text, now, 1); ok != shown {
			t.Fatalf("%q is right: %v", text, ok)
		}
		if isCode(text) && len(text) != 6 {
			t.Fatalf("%q has the form of a code", text)
		}
		if digits, ok := readBackupCode(text); ok {
			if again, ok := readBackupCode(digits); !ok || again != digits || len(digits) != 12 || isCode(text) {
				t.Fatalf("%q is read as %q, which is read as %q", text, digits, again)
			}
		}
	})
}
