package epay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

func provisioned(t testing.TB) *Epay {
	t.Helper()
	e := &Epay{URL: "https://pay.example.com/below/", PID: "1001", Key: "hush"}
	if err := errors.Join(paymentstest.Provision(t, e), e.Validate()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestModuleIsRegistered(t *testing.T) {
	t.Parallel()
	paymentstest.Registered[payments.Provider](t, "modelgate.payments.epay")
}

func TestCaddyfileBecomesJSON(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Epay { return new(Epay) }, map[string]string{
		"epay {\nurl https://pay.example.com\npid 1001\nkey {env.KEY}\n}":                             `{"url":"https://pay.example.com","pid":"1001","key":"{env.KEY}"}`,
		"epay {\nurl https://pay.example.com\npid 1001\nkey {env.KEY}\nmethod wxpay\ncurrency HKD\n}": `{"url":"https://pay.example.com","pid":"1001","key":"{env.KEY}","method":"wxpay","currency":"HKD"}`,
		"epay https://pay.example.com":    ``,
		"epay {\nkey hush hush\n}":        ``,
		"epay {\nkey hush\nkey hush\n}":   ``,
		"epay {\ncurrency cny\n}":         ``,
		"epay {\ncurrency yuan\n}":        ``,
		"epay {\nmethod\n}":               ``,
		"epay {\nmethods alipay wxpay\n}": ``,
	})
}

func TestProvisionRefusesMissingSettings(t *testing.T) {
	t.Setenv("EMPTY", "")
	t.Setenv("PID", "1001")
	const address = "https://pay.example.com"
	for _, row := range []struct {
		name   string
		module Epay
		want   string
	}{
		{"no settings", Epay{}, "url is missing\npid is missing\nkey is missing"},
		{"no key", Epay{URL: address, PID: "1001"}, "key is missing"},
		{"a key that resolves to nothing", Epay{URL: address, PID: "1001", Key: "{env.EMPTY}"}, "key"},
		{"a relative address", Epay{URL: "/pay", PID: "1001", Key: "hush"}, "url"},
		{"an address with a query", Epay{URL: address + "?a=b", PID: "1001", Key: "hush"}, "url"},
		{"a number that cannot be signed", Epay{URL: address, PID: "1001&type=wxpay", Key: "hush"}, "pid must not contain an ampersand"},
		{"a method that cannot be signed", Epay{URL: address, PID: "1001", Key: "hush", Method: "a&b"}, "method must not contain an ampersand"},
		{"an invalid currency", Epay{URL: address, PID: "1001", Key: "hush", Currency: "yuan"}, "currency"},
		{"all that is required", Epay{URL: address, PID: "{env.PID}", Key: "hush"}, ""},
	} {
		err := paymentstest.Provision(t, &row.module)
		if err == nil {
			err = row.module.Validate()
		}
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: the error contains a secret: %v", row.name, err)
		case err == nil && (row.module.Method != "alipay" || row.module.Currency != "CNY" || row.module.PID != "1001"):
			t.Errorf("%s: provisioned as %+v", row.name, row.module)
		}
	}
}

func TestSignMatchesTheProtocol(t *testing.T) {
	t.Parallel()
	// md5("a=1&b=二&money=9.90hush"), computed with md5sum.
	const want = "103a46dfafc07a7599f89fb590745ed1"
	got := sign(map[string]string{
		"money": "9.90", "b": "二", "a": "1", "empty": "", "sign": "x", "sign_type": "MD5",
	}, "hush")
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckoutReturnsASignedURL(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	o := paymentstest.Order("CNY")
	o.Title = "充值 9.90 & more"
	page, err := e.Checkout(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Scheme + "://" + u.Host + u.Path; got != "https://pay.example.com/below/submit.php" {
		t.Errorf("the page is %s", got)
	}
	want := map[string]string{
		"pid":          "1001",
		"type":         "alipay",
		"out_trade_no": o.TradeNo,
		"notify_url":   o.NotifyURL,
		"return_url":   o.ReturnURL,
		"name":         "充值 9.90   more",
		"money":        "9.90",
	}
	want["sign"] = sign(want, "hush")
	want["sign_type"] = "MD5"
	got := make(map[string]string)
	for name, values := range u.Query() {
		got[name] = strings.Join(values, " and ")
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if strings.Contains(page.URL, "hush") {
		t.Errorf("the URL of the page contains the key: %s", page.URL)
	}
}

func TestCheckoutRefusesUnsupportedOrders(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	for name, row := range map[string]struct {
		change func(*payments.Order)
		want   string
	}{
		"a part of a cent":                {func(o *payments.Order) { o.Amount = paymentstest.Amount("9.901") }, "multiple of 0.01"},
		"a zero amount":                   {func(o *payments.Order) { o.Amount = 0 }, "positive"},
		"a negative amount":               {func(o *payments.Order) { o.Amount = -paymentstest.Amount("9.90") }, "positive"},
		"another currency":                {func(o *payments.Order) { o.Currency = "USD" }, "takes CNY, not USD"},
		"a return URL with an ampersand":  {func(o *payments.Order) { o.ReturnURL += "?a=1&trade_status=TRADE_SUCCESS" }, "ampersand"},
		"a webhook URL with an ampersand": {func(o *payments.Order) { o.NotifyURL += "?a=1&b=2" }, "ampersand"},
	} {
		o := paymentstest.Order("CNY")
		row.change(&o)
		if page, err := e.Checkout(t.Context(), o); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, %v; want %q", name, page, err, row.want)
		}
	}
	if page, err := new(Epay).Checkout(context.Background(), paymentstest.Order("")); err == nil {
		t.Errorf("without a key: got %v", page)
	}
}

func TestAcknowledgement(t *testing.T) {
	t.Parallel()
	e := new(Epay)
	if body, kind := e.Acknowledgement(); body != "success" || kind != "text/plain; charset=utf-8" {
		t.Errorf("the acknowledgement is %q of type %s", body, kind)
	}
	if got := fmt.Sprint(e.Methods()); got != "[GET POST]" {
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
