package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
)

// The form of an API key: "sk-", 43 base62 digits drawn at random (256 bit),
// and 6 base62 digits of the CRC-32 (IEEE) of all before them. The checksum
// lets junk be refused before any look-up, and lets scanners of source code
// tell a leaked key from a word that looks like one.
const (
	keyPrefix    = "sk-"
	randomDigits = 43
	sumDigits    = 6
	keyLength    = len(keyPrefix) + randomDigits + sumDigits
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Secret is a credential in clear. It prints as REDACTED everywhere; Reveal is
// the one way to its text, for the single answer that shows it to its owner.
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

// newKeySecret draws a new API key.
func newKeySecret() Secret {
	key := make([]byte, 0, keyLength)
	key = append(key, keyPrefix...)
	key = appendRandom62(key, randomDigits)
	return Secret(appendSum62(key, crc32.ChecksumIEEE(key)))
}

// hashKey checks the form of an API key and returns its hash. A key of another
// length, alphabet or checksum is refused without a look-up.
func hashKey(key string) (Hash, bool) {
	if len(key) != keyLength || key[:len(keyPrefix)] != keyPrefix {
		return Hash{}, false
	}
	var buf [keyLength]byte
	copy(buf[:], key)
	body := buf[:keyLength-sumDigits]
	for _, c := range body[len(keyPrefix):] {
		if !isBase62(c) {
			return Hash{}, false
		}
	}
	var sum [sumDigits]byte
	if string(appendSum62(sum[:0], crc32.ChecksumIEEE(body))) != key[keyLength-sumDigits:] {
		return Hash{}, false
	}
	return sha256.Sum256(buf[:]), true
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

// appendRandom62 appends n base62 digits, each equally likely: bytes that
// would favour some of them are drawn again.
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
