package credential

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// One-time codes are read aloud or copied from a log. They have 20 digits of Crockford's
// base 32 (100 bit), in groups. They are stored as a hash. A fast hash is enough for 100
// random bits.
const (
	oneTimeDigits = 20
	oneTimeGroup  = 5
)

// DrawOneTime draws a new one-time code: XXXXX-XXXXX-XXXXX-XXXXX.
func DrawOneTime() Secret { return DrawCode(oneTimeDigits, oneTimeGroup) }

// HashOneTime returns the hash of a one-time code for a purpose. For a text that is not a code, it
// returns a hash that no code has.
func HashOneTime(purpose, text string) Hash {
	digits, ok := ReadCode(text, oneTimeDigits)
	if !ok {
		digits = ""
	}
	return sha256.Sum256([]byte(purpose + ":" + digits))
}

// crockford is the alphabet of Crockford's base 32, which has no letters that look alike.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// DrawCode draws a code of random digits of Crockford's base 32, in groups with dashes between them.
func DrawCode(digits, group int) Secret {
	draw := make([]byte, digits)
	_, _ = rand.Read(draw) // never fails: it ends the process instead
	code := make([]byte, 0, digits+digits/group)
	for i, b := range draw {
		if i > 0 && i%group == 0 {
			code = append(code, '-')
		}
		code = append(code, crockford[b%32]) // 256 is a multiple of 32
	}
	return Secret(code)
}

// ReadCode returns the digits of a code as a person types it, or false for a text that cannot be one.
// It ignores case, spaces and dashes, and reads O as 0, and I and L as 1.
func ReadCode(text string, digits int) (string, bool) {
	if len(text) > 4*digits {
		return "", false
	}
	code := strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(text))
	return code, len(code) == digits && strings.Trim(code, crockford) == ""
}
