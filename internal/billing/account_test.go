package billing

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

func TestAccountsAreKnownByTheirNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]ledger.Account{
		"": ledger.Wallet("u1"), "wallet": ledger.Wallet("u1"), "receivable": ledger.Receivable("u1"),
		"quota/7/1800000000": ledger.Quota("u1", 7, time.Unix(1_800_000_000, 0)),
	} {
		if got, err := AccountOf("u1", name); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"Wallet", "quota", "quota/7", "quota/7/x", "quota/x/7", "quota/7/1/2", "u/u2/wallet", "../u2/wallet", "budget/key/0"} {
		if got, err := AccountOf("u1", name); codeOf(err) != fault.InvalidParameter {
			t.Errorf("%q is %q, %v", name, got, err)
		}
	}
}
