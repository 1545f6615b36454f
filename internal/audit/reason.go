package audit

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// MaxReason is the maximum length of a reason, in characters.
const MaxReason = 500

// CheckReason returns a fault if a reason is too long, is not UTF-8, has control characters, or is
// empty although required.
func CheckReason(reason string, required bool) error {
	switch n := utf8.RuneCountInString(reason); {
	case strings.TrimSpace(reason) == "" && required:
		return fault.At(fault.MissingParameter, "reason", "reason is required; the audit records it")
	case n > MaxReason:
		return fault.At(fault.InvalidParameter, "reason", "reason has at most %d characters, this has %d", MaxReason, n)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		return fault.At(fault.InvalidParameter, "reason", "reason must be UTF-8 without control characters")
	}
	return nil
}

type (
	reasonKey  struct{}
	addressKey struct{}
)

// WithReason returns a context in which [Record] gives every event this reason.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

// WithAddress returns a context in which [Record] gives every event this address of the caller,
// unless the event has one.
func WithAddress(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

func addressOf(ctx context.Context) string {
	address, _ := ctx.Value(addressKey{}).(string)
	return address
}

func reasonOf(ctx context.Context) string {
	reason, _ := ctx.Value(reasonKey{}).(string)
	return reason
}
