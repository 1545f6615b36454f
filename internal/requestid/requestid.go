// Package requestid generates the ids of requests ([New], [At]) and reads the time in an id
// ([Time]). It stores the id of a request in a context ([With], [Of]), for the audit log. It
// imports no package of this module.
package requestid

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

// An id is "req_" and 26 digits in base32 (RFC 4648): the time in Unix milliseconds in 9 of them,
// and 85 random bits.
const (
	prefix      = "req_"
	base32      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	timeDigits  = 9
	firstDigits = 12 // of the random digits; a uint64 has 12 whole digits
	lastDigits  = 5
	size        = len(prefix) + timeDigits + firstDigits + lastDigits
)

// New returns the id of a request that arrives now.
func New() string { return At(time.Now()) }

// At returns the id of a request that arrives at t, to the millisecond. An id never comes from a
// client or a backend, because the ledger identifies a call by it. It is unique and not secret, so
// the generator of the runtime (ChaCha8) is sufficient; it costs a tenth of crypto/rand. The id
// contains the time, so that an operator finds the record of a call by its id alone. Records are
// in the order of their times, and an index would be one more record for each call.
func At(t time.Time) string {
	var id [size]byte
	rest := id[copy(id[:], prefix):]
	put(rest[:timeDigits], uint64(t.UnixMilli()))               //nolint:gosec // after 1970
	put(rest[timeDigits:timeDigits+firstDigits], rand.Uint64()) //nolint:gosec // see above
	put(rest[timeDigits+firstDigits:], rand.Uint64())           //nolint:gosec // see above
	return string(id[:])
}

// put writes the last digits of n.
func put(digits []byte, n uint64) {
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = base32[n%32]
		n /= 32
	}
}

// Time returns when the request with this id arrived, to the millisecond. ok is false if id is not
// a request id.
func Time(id string) (t time.Time, ok bool) {
	rest, found := strings.CutPrefix(id, prefix)
	if !found || len(id) != size || strings.Trim(rest, base32) != "" {
		return t, false
	}
	var ms int64
	for _, digit := range []byte(rest[:timeDigits]) {
		ms = ms*32 + int64(strings.IndexByte(base32, digit))
	}
	return time.UnixMilli(ms), true
}

type contextKey struct{}

// With returns a context of the request with this id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// Of returns the id of the request that ctx belongs to; empty if ctx has no id.
func Of(ctx context.Context) string {
	id, _ := ctx.Value(contextKey{}).(string)
	return id
}
