package gatetest

import (
	"net/http"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

// Wallet is a user's wallet as the admin endpoint returns it.
type Wallet struct {
	Balance  money.Amount `json:"balance"`
	Held     money.Amount `json:"held"`
	Reserved money.Amount `json:"reserved"`
	Owed     money.Amount `json:"owed"`
}

// Credit adds money to a user's wallet.
func (g *Gate) Credit(t testing.TB, user, amount string) {
	t.Helper()
	g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+user+"/credit", map[string]any{"amount": amount, "reason": "a test"}, nil)
}

// Wallet returns the current wallet of a user.
func (g *Gate) Wallet(t testing.TB, user string) (w Wallet) {
	t.Helper()
	g.MustAdmin(t, http.MethodGet, "/modelgate/wallets/"+user, nil, &w)
	return w
}

// WalletAtRest returns the wallet of a user after all their calls have been
// charged, which happens shortly after the caller has the answer.
func (g *Gate) WalletAtRest(t testing.TB, user string) Wallet {
	t.Helper()
	for deadline := time.Now().Add(Timeout); ; {
		if w := g.Wallet(t, user); w.Reserved == 0 {
			return w
		} else if time.Now().After(deadline) {
			t.Fatalf("%v of %s is still reserved", w.Reserved, user)
		}
		g.Verify(t) // waits until the store has committed its current batch
	}
}

// Verify verifies the ledger, and fails the test if it is inconsistent.
func (g *Gate) Verify(t testing.TB) {
	t.Helper()
	var found struct {
		Problems []struct {
			Where string `json:"where"`
			What  string `json:"what"`
		} `json:"problems"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/verify", nil, &found)
	for _, p := range found.Problems {
		t.Errorf("%s: %s", p.Where, p.What)
	}
}
