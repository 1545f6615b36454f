package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"strings"
)

// form is the form of a class of credentials: its prefix, 43 base62 digits drawn
// at random (256 bit), and 6 base62 digits of the CRC-32 (IEEE) of all before
// them. The checksum lets junk be refused before any look-up, and lets scanners
// of source code tell a leaked credential from a word that looks like one. The
// prefix keeps the classes apart: no word has the form of two.
type form string

// The classes of credentials that people keep in files.
const (
	keyForm   form = "sk-"   // API keys
	tokenForm form = "mgat_" // access tokens
)

const (
	randomDigits = 43
	sumDigits    = 6
	longest      = len(tokenForm) + randomDigits + sumDigits
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
// fast hash is enough because what is hashed has 256 random bits.
type Hash [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler: base64, as JSON has it for bytes.
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

// draw draws a new credential.
func (f form) draw() Secret {
	secret := make([]byte, 0, longest)
	secret = append(secret, f...)
	secret = appendRandom62(secret, randomDigits)
	return Secret(appendSum62(secret, crc32.ChecksumIEEE(secret)))
}

// hash checks the form of a credential and returns its hash. One of another prefix, length,
// alphabet or checksum is refused without a look-up.
func (f form) hash(secret string) (Hash, bool) {
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

// hint returns the prefix, the next four characters and the last four, by which a person
// recognises a credential.
func (f form) hint(secret Secret) string {
	text := secret.Reveal()
	return text[:len(f)+4] + "…" + text[len(text)-4:]
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

// appendRandom62 appends n base62 digits, each equally likely: bytes that would favour some of
// them are drawn again.
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

// newID returns a record's id: the word for its kind, "_" and 16 random base62
// digits (95 bit).
func newID(kind string) string {
	return string(appendRandom62([]byte(kind+"_"), 16))
}

// One-time codes are what a person reads to another or copies out of a log: 20
// digits of Crockford's base 32 (100 bit), in groups. They are stored as a hash;
// a fast one is enough for so many random bits.
const (
	oneTimeDigits = 20
	oneTimeGroup  = 5
)

// crockford is Crockford's base 32, which has no letter that could be taken for another.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// drawCrockford draws a code of random digits, in groups with dashes between them.
func drawCrockford(digits, group int) Secret {
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

// readCrockford returns the digits of a code as a person types it, or false for a text that cannot be
// one. It ignores case, spaces and dashes, and takes O for 0 and I and L for 1.
func readCrockford(text string, digits int) (string, bool) {
	if len(text) > 4*digits {
		return "", false
	}
	code := strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(text))
	return code, len(code) == digits && strings.Trim(code, crockford) == ""
}

// drawCode draws a new one-time code: XXXXX-XXXXX-XXXXX-XXXXX.
func drawCode() Secret { return drawCrockford(oneTimeDigits, oneTimeGroup) }

// hashCode returns the hash of a one-time code of a purpose. No code has the hash of a text that cannot
// be one.
func hashCode(purpose, text string) Hash {
	digits, ok := readCrockford(text, oneTimeDigits)
	if !ok {
		digits = ""
	}
	return sha256.Sum256([]byte(purpose + ":" + digits))
}
