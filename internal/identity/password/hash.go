// Package password hashes the passwords of users with Argon2id and checks new passwords. A [Hasher]
// computes few hashes at a time, so that log-ins cannot take the memory or all cores of the
// process. A [Hash] is one hash with its parameters. The package imports neither users nor the store.
package password

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Cost is the cost of one Argon2id hash (RFC 9106).
type Cost struct {
	Time    uint32 // passes over the memory
	Memory  uint32 // KiB
	Threads uint8
}

// currentCost is the cost of new hashes.
var currentCost = Cost{Time: 2, Memory: 19 * 1024, Threads: 1}

// maxCost limits the cost of a stored hash, so that a damaged record cannot use up the memory of
// the process.
var maxCost = Cost{Time: 16, Memory: 256 * 1024, Threads: 16}

// Outdated reports whether a hash costs less than a new one. It is replaced when its user logs in.
func (c Cost) Outdated() bool {
	return c.Time < currentCost.Time || c.Memory < currentCost.Memory || c.Threads < currentCost.Threads
}

// Hash is the hash of a password. Its text is the PHC string format
// ($argon2id$v=19$m=…,t=…,p=…$salt$hash, base64 without padding).
type Hash struct {
	Cost
	Salt, Sum []byte
}

// None is the hash to compare with if there is no user or no password, so that the refusal takes the
// same time. No password matches it.
var None = Hash{Cost: currentCost, Salt: make([]byte, 16), Sum: make([]byte, 32)}

// String implements fmt.Stringer.
func (h Hash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.Memory, h.Time, h.Threads,
		base64.RawStdEncoding.EncodeToString(h.Salt), base64.RawStdEncoding.EncodeToString(h.Sum))
}

// Parse reads what [Hash.String] wrote. It refuses a hash above [maxCost].
func Parse(text string) (Hash, error) {
	var h Hash
	parts := strings.Split(text, "$")
	if len(parts) != 6 {
		return h, errHash
	}
	_, cost := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.Memory, &h.Time, &h.Threads)
	salt, notSalt := base64.RawStdEncoding.DecodeString(parts[4])
	sum, notSum := base64.RawStdEncoding.DecodeString(parts[5])
	h.Salt, h.Sum = salt, sum
	switch {
	case cost != nil || notSalt != nil || notSum != nil,
		h.Time < 1 || h.Time > maxCost.Time, h.Threads < 1 || h.Threads > maxCost.Threads, h.Memory > maxCost.Memory,
		len(h.Salt) < 8, len(h.Sum) < 16 || len(h.Sum) > 64, h.String() != text: // the comparison also refuses other algorithms
		return h, errHash
	}
	return h, nil
}

// errHash does not quote the text, which is a secret.
var errHash = errors.New("a stored password is not an argon2id hash in the PHC format")
