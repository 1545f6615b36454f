package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// One-time codes are what a person reads to another or copies out of a log: 20
// digits of Crockford's base 32 (100 bit), in groups. They are stored as a hash;
// a fast one is enough for so many random bits.
const (
	oneTimeDigits = 20
	oneTimeGroup  = 5
)

// drawCode draws a new one-time code: XXXXX-XXXXX-XXXXX-XXXXX.
func drawCode() Secret {
	var draw [oneTimeDigits]byte
	_, _ = rand.Read(draw[:]) // never fails: it ends the process instead
	code := make([]byte, 0, oneTimeDigits+oneTimeDigits/oneTimeGroup)
	for i, b := range draw {
		if i > 0 && i%oneTimeGroup == 0 {
			code = append(code, '-')
		}
		code = append(code, crockford[b%32]) // 256 is a multiple of 32
	}
	return Secret(code)
}

// hashCode returns the hash of a one-time code of a purpose, or false for a text
// that cannot be one. It overlooks case, spaces and dashes, and takes the letters
// O, I and L for the digits that they look like.
func hashCode(purpose, text string) (Hash, bool) {
	if len(text) > 4*oneTimeDigits {
		return Hash{}, false
	}
	digits := strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(text))
	if len(digits) != oneTimeDigits || strings.Trim(digits, crockford) != "" {
		return Hash{}, false
	}
	return sha256.Sum256([]byte(purpose + ":" + digits)), true
}
