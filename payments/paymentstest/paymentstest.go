// Package paymentstest supports the tests of payment services. It has an order,
// and checks of modules and notices. Only tests import it.
package paymentstest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// Now is the time at which webhooks are read.
var Now = time.Unix(1_800_000_000, 0)

// TradeNo is the number of the order that [Order] returns.
const TradeNo = "0123456789ABCDEFGHIJKLMNOPQRSTUv"

// Order returns an order of 9.90 in a currency, which expires in an hour.
func Order(currency string) payments.Order {
	return payments.Order{
		TradeNo:   TradeNo,
		Amount:    Amount("9.90"),
		Currency:  currency,
		Title:     "Top-up of 9.90",
		NotifyURL: "https://ai.example.com/api/user/service/webhook",
		ReturnURL: "https://ai.example.com/console/topup/" + TradeNo,
		Expires:   time.Now().Add(time.Hour),
	}
}

// Amount is [money.Parse] for a valid amount. It panics if text is invalid.
func Amount(text string) money.Amount {
	amount, err := money.Parse(text)
	if err != nil {
		panic(err)
	}
	return amount
}

// Registered checks that the module with this id is registered and is an M.
func Registered[M any](t testing.TB, id string) {
	t.Helper()
	info, err := caddy.GetModule(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := info.New().(M); !ok {
		t.Errorf("the module %s is a %T, which does not implement %s", id, info.New(), reflect.TypeFor[M]())
	}
}

// Caddyfiles adapts Caddyfile blocks with new modules and compares the JSON. If
// the wanted JSON is empty, the block must be refused with file and line, and
// without the word "hush".
func Caddyfiles[M caddyfile.Unmarshaler](t *testing.T, make func() M, blocks map[string]string) {
	t.Helper()
	for input, want := range blocks {
		tokens, err := caddyfile.Tokenize([]byte(input), "Caddyfile")
		if err != nil {
			t.Fatalf("%q: %v", input, err)
		}
		module := make()
		err = module.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens))
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "Caddyfile:") {
				t.Errorf("%q: got error %v, want one with file and line", input, err)
			} else if strings.Contains(err.Error(), "hush") {
				t.Errorf("%q: the error contains a secret: %v", input, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", input, err)
			continue
		}
		if got, err := json.Marshal(module); err != nil || string(got) != want {
			t.Errorf("%q: got %s (%v), want %s", input, got, err, want)
		}
	}
}

// Provision provisions a module as Caddy does. It cleans the module up when the
// test ends, even if provisioning failed.
func Provision(t testing.TB, module caddy.Provisioner) error {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(func() {
		if cleaner, ok := module.(caddy.CleanerUpper); ok {
			if err := cleaner.Cleanup(); err != nil {
				t.Errorf("cleanup: %v", err)
			}
		}
		cancel()
	})
	return module.Provision(ctx)
}

// kinds maps each kind to true if its notices have an amount.
var kinds = map[payments.Kind]bool{
	payments.Ignored:  false,
	payments.Failed:   false,
	payments.Paid:     true,
	payments.Refunded: true,
	payments.Disputed: true,
	payments.Restored: true,
}

// CheckNotice checks the rules that hold for every notice.
func CheckNotice(t *testing.T, n payments.Notice) {
	t.Helper()
	hasAmount, known := kinds[n.Kind]
	if !known {
		t.Errorf("the kind %q is unknown", n.Kind)
	}
	if n.TradeNo != "" && !payments.IsTradeNo(n.TradeNo) {
		t.Errorf("%q is not the number of an order", n.TradeNo)
	}
	for name, id := range map[string]string{"payment": n.Payment, "dispute": n.Dispute} {
		if id != "" && !payments.IsReference(id) {
			t.Errorf("the %s %q is not a reference", name, id)
		}
	}
	if n.Kind == payments.Ignored {
		return
	}
	if !payments.IsReference(n.Event) {
		t.Errorf("the event %q is not a reference", n.Event)
	}
	if n.TradeNo == "" && n.Payment == "" && n.Mismatch == "" {
		t.Errorf("%+v has no order, no payment and no mismatch", n)
	}
	if (n.Kind == payments.Disputed || n.Kind == payments.Restored) && n.Dispute == "" {
		t.Errorf("%+v has no dispute", n)
	}
	if hasAmount && (n.Amount <= 0 || len(n.Currency) != 3 || n.Currency != strings.ToUpper(n.Currency)) {
		t.Errorf("%s %q is not an amount of money", n.Amount, n.Currency)
	}
}
