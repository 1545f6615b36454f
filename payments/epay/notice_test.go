package epay

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// success returns the parameters of a notice about a paid order.
func success() map[string]string {
	return map[string]string{
		"pid":          "1001",
		"trade_no":     "2026112012345678",
		"out_trade_no": paymentstest.TradeNo,
		"type":         "alipay",
		"name":         "Top-up of 9.90",
		"money":        "9.90",
		"trade_status": "TRADE_SUCCESS",
		"sign_type":    "MD5",
	}
}

// changed returns the parameters with changes, which are pairs of name and value. An empty value
// removes the parameter.
func changed(params map[string]string, changes ...string) map[string]string {
	params = maps.Clone(params)
	for change := range slices.Chunk(changes, 2) {
		if params[change[0]] = change[1]; change[1] == "" {
			delete(params, change[0])
		}
	}
	return params
}

// signedForm signs parameters and returns them as a form.
func signedForm(params map[string]string, key string) url.Values {
	form := make(url.Values)
	for name, value := range params {
		form.Set(name, value)
	}
	form.Set("sign", sign(params, key))
	return form
}

func get(form url.Values) payments.Webhook {
	return payments.Webhook{Method: http.MethodGet, Query: form, Now: paymentstest.Now}
}

func post(body string) payments.Webhook {
	return payments.Webhook{
		Method: http.MethodPost,
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=UTF-8"}},
		Body:   []byte(body),
		Now:    paymentstest.Now,
	}
}

func TestNoticesReportPayments(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	paid := payments.Notice{
		Kind: payments.Paid, Event: "2026112012345678", Payment: "2026112012345678",
		TradeNo: paymentstest.TradeNo, Amount: paymentstest.Amount("9.90"), Currency: "CNY",
	}
	foreign, unknown, more := paid, paid, paid
	foreign.Mismatch = "pid is that of another merchant"
	unknown.TradeNo, unknown.Mismatch = "", "out_trade_no names no order of this gateway"
	more.Amount = paymentstest.Amount("9.905")
	ignored := payments.Notice{Kind: payments.Ignored, Event: "2026112012345678"}
	for _, row := range []struct {
		name    string
		changes []string
		want    payments.Notice
	}{
		{"paid", nil, paid},
		{"paid, with one decimal place", []string{"money", "9.9"}, paid},
		{"paid, with three decimal places", []string{"money", "9.905"}, more},
		{"paid, with unknown parameters", []string{"param", "x", "buyer", "a=b"}, paid},
		{"paid, with an empty parameter", []string{"param", ""}, paid},
		{"waiting", []string{"trade_status", "WAIT_BUYER_PAY"}, ignored},
		{"closed", []string{"trade_status", "TRADE_CLOSED"}, ignored},
		{"in lower case", []string{"trade_status", "trade_success"}, ignored},
		{"without a status", []string{"trade_status", ""}, ignored},
		{"another merchant", []string{"pid", "1002"}, foreign},
		{"without a merchant", []string{"pid", ""}, foreign},
		{"the order of another shop", []string{"out_trade_no", "USR1NO2"}, unknown},
	} {
		form := signedForm(changed(success(), row.changes...), "hush")
		for method, w := range map[string]payments.Webhook{"GET": get(form), "POST": post(form.Encode())} {
			got, err := e.Read(w)
			if err != nil || got != row.want {
				t.Errorf("%s %s:\n got %+v (%v)\nwant %+v", method, row.name, got, err, row.want)
			}
			paymentstest.CheckNotice(t, got)
		}
	}
	capitals := signedForm(success(), "hush")
	capitals.Set("sign", strings.ToUpper(capitals.Get("sign")))
	if got, err := e.Read(get(capitals)); err != nil || got != paid {
		t.Errorf("an upper-case signature: got %+v (%v)", got, err)
	}
}

func TestOnlySignedNoticesAreRead(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	good := signedForm(success(), "hush")
	with := func(name string, values ...string) url.Values {
		form := maps.Clone(good)
		if form[name] = values; len(values) == 0 {
			delete(form, name)
		}
		return form
	}
	many := maps.Clone(good)
	for i := range maxParams {
		many.Set(fmt.Sprint("x", i), "")
	}
	mixed := post(good.Encode())
	mixed.Query = url.Values{"money": {"990.00"}}
	untyped := post(good.Encode())
	untyped.Header = nil
	multipart := post(good.Encode())
	multipart.Header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
	bodied := get(good)
	bodied.Body = []byte("money=990.00")
	for name, w := range map[string]payments.Webhook{
		"another key":                      get(signedForm(success(), "other")),
		"an empty key":                     get(signedForm(success(), "")),
		"another amount":                   get(with("money", "990.00")),
		"another order":                    get(with("out_trade_no", strings.Repeat("x", 32))),
		"an additional parameter":          get(with("param", "x")),
		"a missing parameter":              get(with("type")),
		"no signature":                     get(with("sign")),
		"an empty signature":               get(with("sign", "")),
		"half a signature":                 get(with("sign", good.Get("sign")[:16])),
		"no signature type":                get(with("sign_type")),
		"another signature type":           get(with("sign_type", "RSA")),
		"an amount that is given twice":    get(with("money", "9.90", "9.90")),
		"a signature that is given twice":  get(with("sign", good.Get("sign"), good.Get("sign"))),
		"an order twice in a form":         post(good.Encode() + "&out_trade_no=" + paymentstest.TradeNo),
		"an amount in the query of a POST": mixed,
		"a GET with a body":                bodied,
		"a form without a content type":    untyped,
		"a multipart form":                 multipart,
		"JSON":                             post(`{"money":"9.90"}`),
		"a form that cannot be read":       post(good.Encode() + "&%zz"),
		"a form with a semicolon":          post(good.Encode() + ";a=b"),
		"too many parameters":              get(many),
		"an empty query":                   get(nil),
		"an empty form":                    post(""),
	} {
		if n, err := e.Read(w); !errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: got %+v, %v", name, n, err)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error contains the key: %v", name, err)
		}
	}
	withoutKey := provisioned(t)
	withoutKey.Key = ""
	if n, err := withoutKey.Read(get(signedForm(success(), ""))); !errors.Is(err, payments.ErrSignature) {
		t.Errorf("without a key: got %+v, %v", n, err)
	}
}

// TestASignedOrderIsNotANotice checks orders whose signature could also fit a notice. The URL of the
// page is signed with the same key, and a user controls parts of it.
func TestASignedOrderIsNotANotice(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	const injected = "&trade_no=1&trade_status=TRADE_SUCCESS"

	o := paymentstest.Order("CNY")
	o.Title += injected
	page, err := e.Checkout(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	if name := u.Query().Get("name"); strings.Contains(name, "&") {
		t.Errorf("the title %q contains a separator", name)
	}

	// Both have the same signed text. In the first, the parameters are inside a value.
	inside := changed(success(), "trade_no", "", "trade_status", "", "return_url", "https://x"+injected)
	apart := changed(success(), "trade_no", "1", "return_url", "https://x")
	if sign(inside, "hush") != sign(apart, "hush") {
		t.Fatal("the signatures differ, so this test checks nothing")
	}
	if n, err := e.Read(get(signedForm(inside, "hush"))); !errors.Is(err, payments.ErrSignature) {
		t.Errorf("a value with a separator was read: %+v, %v", n, err)
	}
	invalidName := changed(success(), "money=1&a", "b")
	if n, err := e.Read(get(signedForm(invalidName, "hush"))); !errors.Is(err, payments.ErrSignature) {
		t.Errorf("a name with a separator was read: %+v, %v", n, err)
	}
}

func TestSignedInvalidBodiesAreNotSignatureErrors(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	for name, changes := range map[string][]string{
		"no trade number":                  {"trade_no", ""},
		"a trade number that is too long":  {"trade_no", strings.Repeat("1", 256)},
		"a trade number with a line break": {"trade_no", "1\n2"},
		"no amount":                        {"money", ""},
		"an amount that is a word":         {"money", "ten"},
		"a zero amount":                    {"money", "0.00"},
		"a negative amount":                {"money", "-9.90"},
		"an amount with an exponent":       {"money", "1e3"},
		"an amount out of range":           {"money", "99999999999999"},
		"an amount with ten places":        {"money", "0.0000000001"},
	} {
		n, err := e.Read(get(signedForm(changed(success(), changes...), "hush")))
		if err == nil || errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: got %+v, %v", name, n, err)
		}
	}
}

// FuzzForm checks that a form made without the key is refused.
func FuzzForm(f *testing.F) {
	f.Add(signedForm(success(), "other").Encode())
	f.Add("sign=&sign_type=MD5")
	f.Add("sign=%00&sign=&;")
	e := provisioned(f)
	f.Fuzz(func(t *testing.T, body string) {
		if n, err := e.Read(post(body)); !errors.Is(err, payments.ErrSignature) {
			t.Errorf("Read(%q) returned %+v, %v", body, n, err)
		}
	})
}

// FuzzSignedForm checks the notices for arbitrary signed values.
func FuzzSignedForm(f *testing.F) {
	f.Add("1001", "2026", paymentstest.TradeNo, "9.90", "TRADE_SUCCESS", "x")
	f.Add("", "\x00", "é", "-0", "TRADE_SUCCESS", "&=")
	e := provisioned(f)
	f.Fuzz(func(t *testing.T, pid, tradeNo, order, money, status, more string) {
		form := signedForm(map[string]string{
			"pid": pid, "trade_no": tradeNo, "out_trade_no": order, "money": money,
			"trade_status": status, "sign_type": "MD5", "more": more,
		}, "hush")
		n, err := e.Read(post(form.Encode()))
		ampersand := strings.Contains(pid+tradeNo+order+money+status+more, "&")
		if errors.Is(err, payments.ErrSignature) != ampersand {
			t.Errorf("%v: %v", form, err)
		}
		if err == nil {
			paymentstest.CheckNotice(t, n)
		}
	})
}
