package payments_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/payments"
)

func TestASignatureIsTimelyWithinFiveMinutes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for age, want := range map[time.Duration]bool{
		0:                    true,
		300 * time.Second:    true,
		-300 * time.Second:   true,
		300*time.Second + 1:  false,
		-300*time.Second - 1: false,
		301 * time.Second:    false,
		-301 * time.Second:   false,
		math.MaxInt64:        false,
		math.MinInt64 + 1:    false,
	} {
		if got := (payments.Webhook{Now: now}).Timely(now.Add(-age)); got != want {
			t.Errorf("signed %s ago: Timely is %t", age, got)
		}
	}
}

func TestFormsOfTradeNumbersAndReferences(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text             string
		order, reference bool
	}{
		{"0123456789ABCDEFGHIJKLMNOPQRSTUv", true, true},
		{"0123456789ABCDEFGHIJKLMNOPQRSTU", false, true},
		{"0123456789ABCDEFGHIJKLMNOPQRSTUvw", false, true},
		{"0123456789ABCDEFGHIJKLMNOPQRSTU_", false, true},
		{"0123456789ABCDEFGHIJKLMNOPQRSTU ", false, false},
		{"0123456789ABCDEFGHIJKLMNOPQRSTé", false, false},
		{"", false, false},
		{"pi_3Qx~", false, true},
		{"a\x00b", false, false},
		{"a\nb", false, false},
		{"a\x7fb", false, false},
		{strings.Repeat("x", 255), false, true},
		{strings.Repeat("x", 256), false, false},
	} {
		if got := payments.IsTradeNo(row.text); got != row.order {
			t.Errorf("IsTradeNo(%q) is %t", row.text, got)
		}
		if got := payments.IsReference(row.text); got != row.reference {
			t.Errorf("IsReference(%q) is %t", row.text, got)
		}
	}
}
