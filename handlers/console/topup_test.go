package console_test

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/payments/demo"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// order is a top-up as the console shows it.
type order struct {
	TradeNo   string `json:"trade_no"`
	Provider  string `json:"provider"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"`
	PayURL    string `json:"pay_url"`
	ExpiresAt int64  `json:"expires_at"`
	Replayed  bool   `json:"replayed"`
}

const fromThePage = "Content-Type: application/x-www-form-urlencoded\nSec-Fetch-Site: same-origin"

func TestTheWholeWayOfADemoTopUp(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	_, e := a.ask(t, "GET", "/api/user/topup/info", "")
	if want := `{"providers":["demo"],"currency":"USD","min":"1.00","max":"500.00"}`; string(e.Data) != want {
		t.Errorf("topup/info is %s, want %s", e.Data, want)
	}

	answer, e := a.ask(t, "POST", "/api/user/demo/pay", `{"amount":"25.00","idempotency_key":"one"}`)
	o := data[order](t, answer, e)
	if len(o.TradeNo) != 32 || o.Provider != "demo" || o.Amount != "25.00" || o.Currency != "USD" || o.Status != "pending" ||
		o.PayURL != g.URL("/api/user/demo/page/"+o.TradeNo) || e.URL != o.PayURL || o.ExpiresAt < time.Now().Add(23*time.Hour).Unix() {
		t.Errorf("the order is %+v, url %s", o, e.URL)
	}
	answer, e = a.ask(t, "POST", "/api/user/demo/pay", `{"amount":"25.00","idempotency_key":"one"}`)
	again := data[order](t, answer, e)
	if o.Replayed || !again.Replayed {
		t.Errorf("the first says it is replayed: %t, the second: %t", o.Replayed, again.Replayed)
	}
	if again.Replayed = false; again != o || answer.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("asked again: %+v", again)
	}

	pagePath := strings.TrimPrefix(o.PayURL, g.URL(""))
	shown := g.Do(t, "GET", pagePath, "", "")
	if shown.Status != 200 || !strings.Contains(shown.Body, "25.00 USD") || !strings.Contains(shown.Header.Get("Content-Security-Policy"), "default-src 'none'") ||
		!strings.HasPrefix(shown.RequestID(), "req_") || shown.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page: %d %v\n%s", shown.Status, shown.Header, shown.Body)
	}
	if balance := a.balance(t); balance != "0.00" {
		t.Errorf("looking at the page has paid: %s", balance)
	}
	refused(t, "the form of another site", g.Do(t, "POST", pagePath, "Content-Type: application/x-www-form-urlencoded\nSec-Fetch-Site: cross-site", "action=pay"), 403, "CROSS_ORIGIN")
	refused(t, "no form", g.Do(t, "POST", pagePath, "Content-Type: text/plain", "action=pay"), 415, "UNSUPPORTED_MEDIA_TYPE")

	for _, step := range []struct {
		action, balance, status string
		answer                  int
		says                    string // when the page is opened again
	}{
		{"decline", "0.00", "failed", 200, "The payment was declined."},
		{"pay", "25.00", "paid", 200, "The order is paid."},
		{"pay", "25.00", "paid", 200, "The order is paid."},
		{"decline", "25.00", "paid", 409, "The order is paid."},
		{"dispute", "0.00", "disputed", 200, "The payer disputes the payment"},
		{"restore", "25.00", "paid", 200, "The order is paid."},
		{"refund", "0.00", "refunded", 200, "The money was given back"},
		{"refund", "0.00", "refunded", 200, "The money was given back"},
		{"decline", "0.00", "refunded", 409, "The money was given back"},
	} {
		if got := g.Do(t, "POST", pagePath, fromThePage, "action="+step.action); got.Status != step.answer {
			t.Fatalf("%s: %d %s", step.action, got.Status, got.Body)
		}
		if got := g.Do(t, "GET", pagePath, "", ""); !strings.Contains(got.Body, step.says) || strings.Contains(got.Body, `value="pay"`) != (step.status == "failed") {
			t.Errorf("after %s the page is %s", step.action, got.Body)
		}
		if balance := a.balance(t); balance != step.balance {
			t.Errorf("after %s the balance is %s, want %s", step.action, balance, step.balance)
		}
		if got := get[order](t, a, "/api/user/topup/"+o.TradeNo); got.Status != step.status {
			t.Errorf("after %s the order is %+v", step.action, got)
		}
	}
	if list := get[page[order]](t, a, "/api/user/topup/self/"); list.Total != 1 || list.Items[0].TradeNo != o.TradeNo {
		t.Errorf("the orders are %+v", list)
	}
	g.Verify(t)
}

func TestOrdersAreShownToTheirUserAlone(t *testing.T) {
	g := start(t)
	a, other := newAccount(t, g), newAccount(t, g)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"1.00"}`)
	theirs, _ := other.ask(t, "GET", "/api/user/topup/"+o.TradeNo, "")
	none, _ := other.ask(t, "GET", "/api/user/topup/"+strings.Repeat("A", 32), "")
	if theirs.Status != 404 || theirs.Body != none.Body {
		t.Errorf("another user's order: %d %s, none: %s", theirs.Status, theirs.Body, none.Body)
	}
	if list := get[page[order]](t, other, "/api/user/topup/self"); list.Total != 0 || list.Items == nil {
		t.Errorf("the orders are %+v", list)
	}
}

func TestOrdersThatCannotBePaidAreRefused(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	post[order](t, a, "/api/user/demo/pay", `{"amount":"2.00","idempotency_key":"used"}`)
	for name, c := range map[string]struct {
		path, body string
		status     int
		code       string
	}{
		"too little":           {"/api/user/demo/pay", `{"amount":"0.99"}`, 400, "AMOUNT_OUT_OF_RANGE"},
		"too much":             {"/api/user/demo/pay", `{"amount":"500.01"}`, 400, "AMOUNT_OUT_OF_RANGE"},
		"nothing":              {"/api/user/demo/pay", `{"amount":"0"}`, 400, "AMOUNT_OUT_OF_RANGE"},
		"less than nothing":    {"/api/user/demo/pay", `{"amount":"-5.00"}`, 400, "AMOUNT_OUT_OF_RANGE"},
		"a number":             {"/api/user/demo/pay", `{"amount":5.00}`, 400, "INVALID_PARAMETER"},
		"no amount":            {"/api/user/demo/pay", `{}`, 400, "MISSING_PARAMETER"},
		"no decimal":           {"/api/user/demo/pay", `{"amount":"5e0"}`, 400, "INVALID_PARAMETER"},
		"out of all range":     {"/api/user/demo/pay", `{"amount":"99999999999999999999"}`, 400, "INVALID_PARAMETER"},
		"a key used otherwise": {"/api/user/demo/pay", `{"amount":"3.00","idempotency_key":"used"}`, 422, "IDEMPOTENCY_KEY_REUSED"},
		"finer than a cent":    {"/api/user/demo/pay", `{"amount":"5.001"}`, 400, "AMOUNT_OUT_OF_RANGE"},
		"finer than a nano":    {"/api/user/demo/pay", `{"amount":"5.0000000001"}`, 400, "INVALID_PARAMETER"},
		"an unknown service":   {"/api/user/paypal/pay", `{"amount":"5.00"}`, 404, "PROVIDER_NOT_FOUND"},
		"one not configured":   {"/api/user/stripe/pay", `{"amount":"5.00"}`, 404, "PROVIDER_NOT_FOUND"},
	} {
		if got, e := a.ask(t, "POST", c.path, c.body); got.Status != c.status || e.Code != c.code || e.Message == "" {
			t.Errorf("%s: answered %d %s, want %d %s", name, got.Status, got.Body, c.status, c.code)
		}
	}
	// One order was opened; the service refused the other.
	if list := get[page[order]](t, a, "/api/user/topup/self"); list.Total != 2 || list.Items[0].Status != "failed" || list.Items[1].Status != "pending" {
		t.Errorf("the orders are %+v", list)
	}
}

func init() {
	caddy.RegisterModule(new(otherPages))
}

// otherPages is a second service with pages of its own.
type otherPages struct{ demo.Demo }

// CaddyModule returns the Caddy module information.
func (*otherPages) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.payments.other", New: func() caddy.Module { return new(otherPages) }}
}

func TestThereIsNoPageButThatOfAnOrderAtItsOwnService(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app + `
		payment other
		payment epay {
			url http://BACKEND
			pid 1
			key secret
			currency USD
		}
	`, Site: site})
	a := newAccount(t, g)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"1.00"}`)
	first := ""
	for _, path := range []string{"/api/user/demo/page/" + strings.Repeat("A", 32), "/api/user/demo/page/x", "/api/user/epay/page/" + o.TradeNo, "/api/user/other/page/" + o.TradeNo, "/api/user/paypal/page/" + o.TradeNo} {
		got := g.Do(t, "GET", path, "", "")
		refused(t, path, got, 404, "NOT_FOUND")
		if first == "" {
			first = got.Body
		}
		if got.Body != first {
			t.Errorf("%s: %s, want the same as all others: %s", path, got.Body, first)
		}
	}
}

func TestAServiceThatCallsItsWebhookByGETIsAnswered(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: strings.Replace(app, "payment demo", `payment epay {
		url https://pay.example
		pid 1001
		key hush
		currency USD
	}`, 1), Site: site})
	a := newAccount(t, g)
	answer, e := a.ask(t, "POST", "/api/user/epay/pay", `{"amount":"12.50"}`)
	o := data[order](t, answer, e)
	if !strings.HasPrefix(o.PayURL, "https://pay.example/submit.php?") || !strings.Contains(o.PayURL, "&") {
		t.Errorf("paid at %s", o.PayURL)
	}
	if !strings.Contains(answer.Body, `"`+o.PayURL+`"`) {
		t.Errorf("pay_url cannot be copied from %s", answer.Body)
	}
	params := "money=12.50&name=x&out_trade_no=" + o.TradeNo + "&pid=1001&trade_no=77&trade_status=TRADE_SUCCESS&type=alipay"
	sign := fmt.Sprintf("%x", md5.Sum([]byte(params+"hush")))
	query := "?" + params + "&sign_type=MD5&sign="
	refused(t, "another signature", g.Do(t, "GET", "/api/user/epay/webhook"+query+strings.Repeat("0", 32), "", ""), 400, "INVALID_PARAMETER")
	_, page, _ := strings.Cut(o.PayURL, "?") // signed with the same key
	refused(t, "pay_url by GET", g.Do(t, "GET", "/api/user/epay/webhook?"+page, "", ""), 400, "INVALID_PARAMETER")
	refused(t, "pay_url by POST", g.Do(t, "POST", "/api/user/epay/webhook", "Content-Type: application/x-www-form-urlencoded", page), 400, "INVALID_PARAMETER")
	var mismatches struct{ Items []any }
	if g.MustAdmin(t, http.MethodGet, "/modelgate/mismatches", nil, &mismatches); len(mismatches.Items) != 0 {
		t.Errorf("mismatches are listed: %v", mismatches.Items)
	}
	refused(t, "a doubled amount", g.Do(t, "GET", "/api/user/epay/webhook"+query+sign+"&money=1250", "", ""), 400, "INVALID_PARAMETER")
	for range 2 {
		got := g.Do(t, "GET", "/api/user/epay/webhook"+query+sign, "", "")
		if got.Status != 200 || got.Body != "success" || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("answered %d %s %v", got.Status, got.Body, got.Header)
		}
		if balance := a.balance(t); balance != "12.50" {
			t.Errorf("the balance is %s", balance)
		}
	}
	g.Verify(t)
}

// secret signs the notices that tests send.
const secret = "a secret of the tests"

var signing = strings.Replace(app, "payment demo", "payment demo {\n secret `"+secret+"`\n}", 1)

// signed returns the headers of a notice of the demo service that is signed at a time.
func signed(id, body string, at time.Time) (headers string) {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
	return fmt.Sprintf("Content-Type: application/json\nWebhook-Id: %s\nWebhook-Timestamp: %d\nWebhook-Signature: v1,%s",
		id, at.Unix(), base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

func paidNotice(id, tradeNo, amount, currency string) string {
	return fmt.Sprintf(`{"id":%q,"type":"paid","data":{"trade_no":%q,"payment":"pay_%s","amount":%q,"currency":%q}}`, id, tradeNo, id, amount, currency)
}

const hook = "/api/user/demo/webhook"

func TestAWebhookSentFiftyTimesAtOnceCreditsOnce(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: site})
	a := newAccount(t, g)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"40.00"}`)
	body := paidNotice("evt_1", o.TradeNo, "40.00", "USD")
	headers := signed("evt_1", body, time.Now())
	for _, answer := range inParallel(50, func(int) gatetest.Answer { return g.Do(t, "POST", hook, headers, body) }) {
		if answer.Status != 200 || answer.Body != `{"received":true}` || answer.Header.Get("Content-Type") != "application/json" {
			t.Errorf("answered %d %s", answer.Status, answer.Body)
		}
	}
	if balance := a.balance(t); balance != "40.00" {
		t.Errorf("the balance is %s", balance)
	}
	g.Verify(t)
}

func TestWebhooksThatAreNotProvedAreRefusedAndOthersAcknowledged(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: site})
	a := newAccount(t, g)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"40.00"}`)
	good := paidNotice("evt", o.TradeNo, "40.00", "USD")
	now := time.Now()
	for name, c := range map[string]struct {
		method, path, headers, body string
		status                      int
		code                        string // empty: acknowledged
	}{
		"no signature":              {"POST", hook, "", good, 400, "INVALID_PARAMETER"},
		"another body":              {"POST", hook, signed("evt", good, now), strings.Replace(good, "40.00", "41.00", 1), 400, "INVALID_PARAMETER"},
		"another id":                {"POST", hook, strings.Replace(signed("evt", good, now), "Id: evt", "Id: evt2", 1), good, 400, "INVALID_PARAMETER"},
		"out of time":               {"POST", hook, signed("evt", good, now.Add(-310*time.Second)), good, 400, "INVALID_PARAMETER"},
		"from the future":           {"POST", hook, signed("evt", good, now.Add(310*time.Second)), good, 400, "INVALID_PARAMETER"},
		"an access token":           {"POST", hook, a.auth, good, 400, "INVALID_PARAMETER"},
		"an unknown service":        {"POST", "/api/user/paypal/webhook", signed("evt", good, now), good, 404, "PROVIDER_NOT_FOUND"},
		"a service that is not set": {"POST", "/api/user/stripe/webhook", signed("evt", good, now), good, 404, "PROVIDER_NOT_FOUND"},
		"GET":                       {"GET", hook, signed("evt", good, now), "", 405, "METHOD_NOT_ALLOWED"},
		"PUT":                       {"PUT", hook, signed("evt", good, now), good, 405, "METHOD_NOT_ALLOWED"},
		"compressed":                {"POST", hook, signed("evt", good, now) + "\nContent-Encoding: gzip", good, 415, "UNSUPPORTED_MEDIA_TYPE"},

		"another amount":   {"POST", hook, signed("a", paidNotice("a", o.TradeNo, "4000.00", "USD"), now), paidNotice("a", o.TradeNo, "4000.00", "USD"), 200, ""},
		"another currency": {"POST", hook, signed("b", paidNotice("b", o.TradeNo, "40.00", "EUR"), now), paidNotice("b", o.TradeNo, "40.00", "EUR"), 200, ""},
		"another order": {
			"POST", hook, signed("c", paidNotice("c", strings.Repeat("A", 32), "40.00", "USD"), now), paidNotice("c", strings.Repeat("A", 32), "40.00", "USD"), 200, "",
		},
		"no notice, again": {"POST", hook, signed("d", "hello", now), "hello", 200, ""},
		"no notice":        {"POST", hook, signed("d", "hello", now), "hello", 200, ""},
		"an unknown kind":  {"POST", hook, signed("e", `{"id":"e","type":"party"}`, now), `{"id":"e","type":"party"}`, 200, ""},
	} {
		got := g.Do(t, c.method, c.path, c.headers, c.body)
		if c.code != "" {
			refused(t, name, got, c.status, c.code)
			if c.status == 405 && got.Header.Get("Allow") != "POST" {
				t.Errorf("%s: allows %q", name, got.Header.Get("Allow"))
			}
		} else if got.Status != c.status || got.Body != `{"received":true}` {
			t.Errorf("%s: answered %d %s", name, got.Status, got.Body)
		}
		if balance := a.balance(t); balance != "0.00" {
			t.Fatalf("%s has paid: %s", name, balance)
		}
	}
	wire := g.Dial(t)
	wire.Send(t, "POST "+hook+" HTTP/1.1\nHost: gate\n"+signed("evt", good, now)+fmt.Sprintf("\nContent-Length: %d\n\n", 256<<10+1))
	refused(t, "far too large", wire.Receive(t, "POST"), 413, "PAYLOAD_TOO_LARGE")

	var list struct {
		Items []struct {
			Event  string `json:"event"`
			Reason string `json:"reason"`
		} `json:"items"`
	}
	g.MustAdmin(t, http.MethodGet, "/modelgate/mismatches", nil, &list)
	listed := make(map[string]int)
	for _, m := range list.Items {
		event, _, _ := strings.Cut(m.Event, "-")
		listed[event]++
	}
	if want := map[string]int{"a": 1, "b": 1, "c": 1, "unreadable": 1}; !maps.Equal(listed, want) {
		t.Errorf("listed for the operator are %+v, want %v", list.Items, want)
	}
	if got := g.Do(t, "POST", hook, signed("evt", good, now)+"\nSec-Fetch-Site: cross-site\nOrigin: https://pay.example", good); got.Status != 200 {
		t.Errorf("the good notice is answered %d %s", got.Status, got.Body)
	}
	if balance := a.balance(t); balance != "40.00" {
		t.Errorf("the balance is %s", balance)
	}
	g.Verify(t)
}

func TestAWebhookThatCannotBeKeptIsAskedForAgain(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: site})
	a := newAccount(t, g)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"40.00"}`)
	body := paidNotice("evt", o.TradeNo, "40.00", "USD")
	engine, _ := gatetest.Engine(g.Store)
	engine.Plan(storagetest.LowSpace)
	got := g.Do(t, "POST", hook, signed("evt", body, time.Now()), body)
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Fatalf("answered %d %s, and nothing was kept", got.Status, got.Body)
	}
	if got := g.Do(t, "POST", hook, signed("evt", body, time.Now()), body); got.Status != 200 {
		t.Errorf("sent again it is answered %d %s", got.Status, got.Body)
	}
	if balance := a.balance(t); balance != "40.00" {
		t.Errorf("the balance is %s", balance)
	}
	g.Verify(t)
}

func TestWithoutAPaymentServiceThereIsNoneToPayBy(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: site})
	a := newAccount(t, g)
	_, e := a.ask(t, "GET", "/api/user/topup/info", "")
	if want := `{"providers":[],"currency":"USD","min":"1.00","max":"10000.00"}`; string(e.Data) != want {
		t.Errorf("topup/info is %s, want %s", e.Data, want)
	}
	refused(t, "a webhook", g.Do(t, "POST", hook, "", `{}`), 404, "PROVIDER_NOT_FOUND")
}
