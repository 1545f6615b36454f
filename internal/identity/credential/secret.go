// Package credential has the secrets that authenticate callers. It draws and hashes them, and
// defines the form of each class. [Table] has those in force in memory. A [Secret] is a credential
// in clear, a [Hash] is its stored form. The package imports neither users nor the store.
package credential

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"strings"
)

// Form is the form of a class of credentials: its prefix, 43 random base62 digits
// (256 bit), and a checksum. The checksum is the CRC-32 (IEEE) of all characters
// before it, in 6 base62 digits. Because of the checksum, invalid text is refused
// before any look-up, and scanners of source code can recognise a leaked
// credential. The prefix makes the classes disjoint.
type Form string

// The classes of credentials that people keep in files.
const (
	APIKey      Form = "sk-"
	AccessToken Form = "mgat_"
)

const (
	randomDigits = 43
	sumDigits    = 6
	longest      = len(AccessToken) + randomDigits + sumDigits
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Secret is a credential in clear. It prints as REDACTED. Reveal returns its text, for the one
// answer that shows it to its owner.
type Secret string

// String implements fmt.Stringer.
func (Secret) String() string { return "REDACTED" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "REDACTED" }

// MarshalText implements encoding.TextMarshaler, for JSON and log encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("REDACTED"), nil }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// Hash is the SHA-256 of a credential, the only form in which it is stored. A
// fast hash is enough because a credential has 256 random bits.
type Hash [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler. The text is base64, like bytes in JSON.
func (h Hash) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, h[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It refuses a text of another length.
func (h *Hash) UnmarshalText(text []byte) error {
	decoded, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(decoded) != len(h) {
		return errHash
	}
	*h = Hash(decoded)
	return nil
}

var errHash = errors.New("a stored hash is not the base64 of 32 bytes")

// Draw returns a new random credential.
func (f Form) Draw() Secret {
	secret := make([]byte, 0, longest)
	secret = append(secret, f...)
	secret = appendRandom62(secret, randomDigits)
	return Secret(appendSum62(secret, crc32.ChecksumIEEE(secret)))
}

// Hash checks the form of a credential and returns its hash. It returns false for another prefix,
// length, alphabet or checksum.
func (f Form) Hash(secret string) (Hash, bool) {
	if len(secret) != len(f)+randomDigits+sumDigits || secret[:len(f)] != string(f) {
		return Hash{}, false
	}
	var buf [longest]byte
	n := copy(buf[:], secret)
	body := buf[:n-sumDigits]
	for _, c := range body[len(f):] {
		if !isBase62(c) {
			return Hash{}, false
		}
	}
	var sum [sumDigits]byte
	if string(appendSum62(sum[:0], crc32.ChecksumIEEE(body))) != secret[n-sumDigits:] {
		return Hash{}, false
	}
	return sha256.Sum256(buf[:n]), true
}

// Hint returns the prefix, the next four characters and the last four, so that a user
// can recognise a credential.
func (f Form) Hint(secret Secret) string {
	text := secret.Reveal()
	return text[:len(f)+4] + "…" + text[len(text)-4:]
}

// Shortened returns text, unless it begins as a credential does and is longer than a hint: then it
// returns the hint, or of a part of a credential the prefix, four characters and "…".
func Shortened(text string) string {
	for _, form := range []Form{APIKey, AccessToken} {
		body, ok := strings.CutPrefix(text, string(form))
		if !ok || len(body) <= 4 || len(body) <= 4+len("…")+4 && (strings.Contains(body, "…") || strings.Contains(body, "...")) {
			continue
		}
		if len(body) == randomDigits+sumDigits {
			return form.Hint(Secret(text))
		}
		return text[:len(form)+4] + "…"
	}
	return text
}

func isBase62(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

func appendSum62(dst []byte, sum uint32) []byte {
	var digits [sumDigits]byte
	for i := sumDigits - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(dst, digits[:]...)
}

// appendRandom62 appends n uniformly distributed base62 digits. Bytes that would favour some
// digits are drawn again.
func appendRandom62(dst []byte, n int) []byte {
	var draw [64]byte
	for n > 0 {
		_, _ = rand.Read(draw[:]) // never fails: it ends the process instead
		for _, b := range draw {
			if b < 62*4 && n > 0 {
				dst = append(dst, base62[b%62])
				n--
			}
		}
	}
	return dst
}

// NewID returns a record's id: the word for its kind, "_" and 16 random base62
// digits (95 bit).
func NewID(kind string) string {
	return string(appendRandom62([]byte(kind+"_"), 16))
}

// DrawPlain returns a random secret of 43 base62 digits (256 bit) for programs only: it has neither
// a prefix nor a checksum.
func DrawPlain() Secret { return Secret(appendRandom62(nil, randomDigits)) }

// HashPlain returns the hash of a secret of [DrawPlain], and false for text that cannot be one.
func HashPlain(secret string) (Hash, bool) {
	if len(secret) != randomDigits || strings.Trim(secret, base62) != "" {
		return Hash{}, false
	}
	return sha256.Sum256([]byte(secret)), true
}

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
