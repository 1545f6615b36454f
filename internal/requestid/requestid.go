// Package requestid makes the ids of requests ([New]) and carries the id of a request in a
// context ([With], [Of]), so that the audit can name it. It imports no package of this
// module.
package requestid

import (
	"context"
	"math/rand/v2"
)

// New returns the id of a request: "req_" and 130 random bits in base32 (RFC 4648). An id is
// never taken from a client or a backend, because the ledger names a call by it. It is unique
// and not secret, so that the generator of the runtime (ChaCha8) suffices, which costs a
// tenth of crypto/rand.
func New() string {
	const (
		prefix = "req_"
		base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
		digits = 26
	)
	var id [len(prefix) + digits]byte
	copy(id[:], prefix)
	for i := range digits / 13 {
		bits := rand.Uint64() //nolint:gosec // see above
		for j := range 13 {
			id[len(prefix)+13*i+j] = base32[bits>>(5*j)%32]
		}
	}
	return string(id[:])
}

type contextKey struct{}

// With returns a context of the request with this id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// Of returns the id of the request that ctx belongs to; empty if it belongs to
// none.
func Of(ctx context.Context) string {
	id, _ := ctx.Value(contextKey{}).(string)
	return id
}
