package demo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// provisioned returns a module with a secret. Its time is one hour before the order expires.
func provisioned(t testing.TB) *Demo {
	t.Helper()
	d := &Demo{Secret: "hush"}
	if err := paymentstest.Provision(t, d); err != nil {
		t.Fatal(err)
	}
	d.now = func() time.Time { return paymentstest.Now }
	return d
}

// order returns an order with this address of its webhook.
func order(webhook string) payments.Order {
	o := paymentstest.Order("USD")
	o.NotifyURL = webhook
	o.Expires = paymentstest.Now.Add(time.Hour)
	return o
}

func TestModuleIsRegistered(t *testing.T) {
	t.Parallel()
	paymentstest.Registered[payments.Provider](t, "modelgate.payments.demo")
	paymentstest.Registered[payments.Pager](t, "modelgate.payments.demo")
}

func TestCaddyfileBecomesJSON(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Demo { return new(Demo) }, map[string]string{
		"demo":      `{}`,
		"demo {\n}": `{}`,
		"demo {\nsecret {env.SECRET}\ndelay 1m\n}": `{"secret":"{env.SECRET}","delay":60000000000}`,
		"demo hush":                           ``,
		"demo {\nsecret\n}":                   ``,
		"demo {\nsecret hush hush\n}":         ``,
		"demo {\nsecret hush\nsecret hush\n}": ``,
		"demo {\ndelay soon\n}":               ``,
		"demo {\ndelay 0\n}":                  ``,
		"demo {\ndelay -5s\n}":                ``,
		"demo {\ndelay 601s\n}":               ``,
		"demo {\nfree on\n}":                  ``,
	})
}

func TestProvisionRefusesInvalidSettings(t *testing.T) {
	t.Setenv("EMPTY", "")
	for name, row := range map[string]struct {
		module Demo
		want   string
	}{
		"no settings":                       {Demo{}, ""},
		"the longest delay":                 {Demo{Delay: caddy.Duration(maxDelay)}, ""},
		"a secret that resolves to nothing": {Demo{Secret: "{env.EMPTY}"}, "secret"},
		"a negative delay":                  {Demo{Delay: -1}, "delay is from 1ms to 10m0s"},
		"a delay of hours":                  {Demo{Delay: caddy.Duration(time.Hour)}, "delay is from 1ms to 10m0s"},
	} {
		err := paymentstest.Provision(t, &row.module)
		if err == nil {
			err = row.module.Validate()
		}
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: got %v, want %q", name, err, row.want)
		}
	}
}

func TestARandomSecretSurvivesAReload(t *testing.T) {
	// Not parallel, because other tests use the same pool.
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	provision := func() *Demo {
		d := new(Demo)
		if err := d.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		return d
	}
	clean := func(d *Demo) {
		if err := d.Cleanup(); err != nil {
			t.Fatal(err)
		}
	}
	before := provision()
	old := delivery(before, payments.Paid, order("https://ai.example.com/webhook"), paymentstest.Now)
	after := provision() // a reload: the new module starts before the old one stops
	clean(before)
	if _, err := after.Read(old); err != nil {
		t.Errorf("after a reload: %v", err)
	}
	clean(after)
	clean(after) // as after a failed start
	fresh := provision()
	defer clean(fresh)
	if n, err := fresh.Read(old); err == nil {
		t.Errorf("the new module has the old secret: %+v", n)
	}
	if err := new(Demo).Cleanup(); err != nil {
		t.Errorf("without Provision: %v", err)
	}
}

func TestTheURLOfThePage(t *testing.T) {
	t.Parallel()
	d := provisioned(t)
	page, err := d.Checkout(t.Context(), order("https://ai.example.com/api/user/demo/webhook"))
	want := payments.Page{
		URL:       "https://ai.example.com/api/user/demo/page/" + paymentstest.TradeNo,
		Reference: "pay_" + paymentstest.TradeNo,
	}
	if err != nil || page != want {
		t.Errorf("got %+v (%v), want %+v", page, err, want)
	}
	if page, err := d.Checkout(t.Context(), order("https://ai.example.com/elsewhere")); err == nil {
		t.Errorf("got %+v", page)
	}
}

func TestAcknowledgementAndMethods(t *testing.T) {
	t.Parallel()
	d := new(Demo)
	if body, kind := d.Acknowledgement(); body == "" || kind != "application/json" {
		t.Errorf("the acknowledgement is %q of type %s", body, kind)
	}
	if got := fmt.Sprint(d.Methods()); got != "[POST]" {
		t.Errorf("the methods are %s", got)
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(format, provisioned(t)); strings.Contains(text, "hush") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestAmountsBelowACentAreRefused(t *testing.T) {
	t.Parallel()
	d := provisioned(t)
	for amount, accepted := range map[string]bool{"0.01": true, "9.90": true, "0.009": false, "5.000000001": false} {
		o := order("https://ai.example.com/api/user/demo/webhook")
		o.Amount = paymentstest.Amount(amount)
		_, err := d.Checkout(t.Context(), o)
		if accepted != (err == nil) || !accepted && !errors.Is(err, payments.ErrAmount) {
			t.Errorf("%s: %v", amount, err)
		}
	}
}
