package billing

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestEachKeyCreditsOrDebitsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i, err := range parallel(50, func(int) error { return second(f.Credit(t.Context(), "operator", "ann", 10, "gift", "k")) }) {
		if err != nil {
			t.Fatalf("goroutine %d: %v", i, err)
		}
	}
	f.wantWallet(10)
	x, err := f.Debit(t.Context(), "operator", f.user, 4, "mistake", "k2")
	if err != nil || x.Amount != -4 || x.Balance != 6 || x.Replayed {
		t.Fatalf("Debit returned %+v, %v", x, err)
	}
	again, err := f.Debit(t.Context(), "operator", f.user, 4, "mistake", "k2")
	if x.Replayed = true; err != nil || again != x {
		t.Errorf("the same key returns %+v, %v", again, err)
	}
	if _, err := f.Credit(t.Context(), "operator", "ann", 4, "mistake", "k2"); codeOf(err) != fault.IdempotencyKeyReused {
		t.Errorf("the key of a debit was accepted for a credit: %v", err)
	}
	for range 2 {
		f.credit(1) // without a key, each is a new credit
	}
	f.wantWallet(8)
}

func TestOperatorsAndUsersHaveSeparateKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.Credit(t.Context(), "operator", "ann", 10, "gift", "k"); err != nil {
		t.Fatal(err)
	}
	if r := f.mustBuy(1, "k"); r.Replayed {
		t.Error("a purchase has replayed a credit")
	}
}

func TestADebitTakesNoMoreThanIsAvailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(10)
	call, err := f.ledger.Reserve(t.Context(), ledger.Payer{User: f.user}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Debit(t.Context(), "operator", "ann", 4, "mistake", ""); codeOf(err) != fault.InsufficientBalance {
		t.Errorf("with 3 available, a debit of 4 returned %v", err)
	}
	call.Release()
	debited := 0
	for _, err := range parallel(50, func(int) error { return second(f.Debit(t.Context(), "operator", "ann", 4, "mistake", "")) }) {
		switch {
		case err == nil:
			debited++
		case codeOf(err) != fault.InsufficientBalance:
			t.Error(err)
		}
	}
	if debited != 2 {
		t.Errorf("%d debits of 4 were made from 10", debited)
	}
	f.wantWallet(2)
}

func TestChangesOfWalletsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(10)
	for name, row := range map[string]struct {
		user, reason, key string
		amount            money.Amount
		want              fault.Code
	}{
		"no reason":                  {"ann", "", "", 1, fault.MissingParameter},
		"a long reason":              {"ann", strings.Repeat("r", 501), "", 1, fault.InvalidParameter},
		"a reason of two lines":      {"ann", "a\nb", "", 1, fault.InvalidParameter},
		"a zero amount":              {"ann", "r", "", 0, fault.InvalidParameter},
		"a negative amount":          {"ann", "r", "", -1, fault.InvalidParameter},
		"an unknown user":            {"bob", "r", "", 1, fault.NotFound},
		"an invalid key":             {"ann", "r", "ü", 1, fault.InvalidParameter},
		"the highest amount":         {"ann", "r", "", money.Max, fault.AmountOutOfRange},
		"a credit beyond the range":  {"ann", "r", "", money.Max - 9, fault.AmountOutOfRange},
		"a debit beyond the balance": {"ann", "r", "", 11, fault.InsufficientBalance},
	} {
		change := f.Credit
		if row.want == fault.InsufficientBalance {
			change = f.Debit
		}
		if _, err := change(t.Context(), "operator", row.user, row.amount, row.reason, row.key); codeOf(err) != row.want {
			t.Errorf("%s: the error is %v, want %s", name, err, row.want)
		}
	}
	f.wantWallet(10)
	if _, err := f.Clear(t.Context(), "operator", "ann", "r", ""); codeOf(err) != fault.Conflict {
		t.Errorf("Clear without an owed amount returned %v", err)
	}
}

func TestAccountOfReturnsAccountsByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]journal.Account{
		"": journal.Wallet("u1"), "wallet": journal.Wallet("u1"), "receivable": journal.Receivable("u1"),
		"quota/7/1800000000": journal.Quota("u1", 7, time.Unix(1_800_000_000, 0)),
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
