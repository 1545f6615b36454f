package stripe

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

const opened = `{"id":"cs_test_1","object":"checkout.session","url":"https://checkout.stripe.com/c/pay/cs_test_1"}`

// response is the response of the mock to one request.
type response struct {
	status int
	body   string
	header map[string]string
}

// mockServer simulates Stripe. It sends the responses in order, repeats the last one, and records the
// requests.
type mockServer struct {
	*httptest.Server

	mu       sync.Mutex
	requests []*http.Request
	forms    []url.Values
}

// recorded returns the requests so far and their forms.
func (d *mockServer) recorded() ([]*http.Request, []url.Values) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requests), slices.Clone(d.forms)
}

func serve(t *testing.T, responses ...response) *mockServer {
	t.Helper()
	d := new(mockServer)
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			t.Errorf("the form %q: %v", body, err)
		}
		d.mu.Lock()
		a := responses[min(len(d.requests), len(responses)-1)]
		d.requests = append(d.requests, r)
		d.forms = append(d.forms, form)
		d.mu.Unlock()
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(cmp.Or(a.status, http.StatusOK))
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(d.Close)
	return d
}

func TestCheckoutOpensASessionForTheOrder(t *testing.T) {
	t.Parallel()
	d := serve(t, response{body: opened})
	s := provisioned(t, testKey, d.URL)
	o := paymentstest.Order("USD")
	page, err := s.Checkout(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := payments.Page{URL: "https://checkout.stripe.com/c/pay/cs_test_1", Reference: "cs_test_1"}
	if page != want {
		t.Errorf("got %+v, want %+v", page, want)
	}
	requests, forms := d.recorded()
	if len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	r := requests[0]
	if r.Method != http.MethodPost || r.URL.Path != "/v1/checkout/sessions" {
		t.Errorf("the request is %s %s", r.Method, r.URL)
	}
	for name, want := range map[string]string{
		"Authorization":             "Bearer " + testKey,
		"Idempotency-Key":           o.TradeNo,
		"X-Stripe-Client-Telemetry": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"mode":                "payment",
		"client_reference_id": o.TradeNo,
		"metadata[trade_no]":  o.TradeNo,
		"payment_intent_data[metadata][trade_no]": o.TradeNo,
		"success_url":                                   o.ReturnURL,
		"cancel_url":                                    o.ReturnURL,
		"expires_at":                                    strconv.FormatInt(o.Expires.Unix(), 10),
		"line_items[0][quantity]":                       "1",
		"line_items[0][price_data][currency]":           "usd",
		"line_items[0][price_data][unit_amount]":        "990",
		"line_items[0][price_data][product_data][name]": o.Title,
		"adaptive_pricing[enabled]":                     "false",
	} {
		if got := forms[0][name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
		delete(forms[0], name)
	}
	if len(forms[0]) > 0 {
		t.Errorf("the form has unexpected parameters: %v", forms[0])
	}
}

func TestASessionEndsWithinStripesLimits(t *testing.T) {
	t.Parallel()
	s := provisioned(t, testKey, "")
	s.now = func() time.Time { return paymentstest.Now }
	for life, want := range map[time.Duration]time.Duration{
		-time.Hour:       31 * time.Minute,
		0:                31 * time.Minute,
		30 * time.Minute: 31 * time.Minute,
		time.Hour:        time.Hour,
		24 * time.Hour:   23*time.Hour + 59*time.Minute,
		72 * time.Hour:   23*time.Hour + 59*time.Minute,
	} {
		if got := s.expiry(paymentstest.Now.Add(life)).Sub(paymentstest.Now); got != want {
			t.Errorf("an order that expires in %s has a session of %s, want %s", life, got, want)
		}
	}
}

func TestARetryHasTheSameIdempotencyKey(t *testing.T) {
	t.Parallel()
	busy := response{status: http.StatusTooManyRequests, body: `{"error":{"type":"invalid_request_error","code":"lock_timeout"}}`}
	d := serve(t, busy, response{body: opened})
	s := provisioned(t, testKey, d.URL)
	if _, err := s.Checkout(t.Context(), paymentstest.Order("USD")); err != nil {
		t.Fatal(err)
	}
	requests, _ := d.recorded()
	if len(requests) != 2 {
		t.Fatalf("%d requests", len(requests))
	}
	for _, r := range requests {
		if got := r.Header.Get("Idempotency-Key"); got != paymentstest.TradeNo {
			t.Errorf("idempotency key %q", got)
		}
	}
}

func TestErrorsOfCheckout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		answer response
		want   string
	}{
		{
			"a refusal",
			response{status: 400, header: map[string]string{"Request-Id": "req_1"}, body: `{"error":{"type":"invalid_request_error","code":"amount_too_small","message":"Amount must be at least 50 cents"}}`},
			"open a checkout session: Stripe returned 400 invalid_request_error amount_too_small (request req_1): Amount must be at least 50 cents",
		},
		{
			"a refusal that repeats the key",
			response{status: 401, body: `{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: ` + testKey + `"}}`},
			"Invalid API Key provided: REDACTED",
		},
		{"a long refusal", response{status: 400, body: `{"error":{"message":"` + strings.Repeat("é", 5000) + `"}}`}, "Stripe returned 400"},
		{"a page of a proxy", response{status: 403, body: "<html>\n" + testKey + "</html>"}, "open a checkout session: "},
		{"a response that is not JSON", response{body: "ok"}, "open a checkout session: "},
		{"a response that is too long", response{body: `{"id":"cs_1","url":"https://x.example","x":"` + strings.Repeat("x", maxResponse) + `"}`}, "open a checkout session: "},
		{"no page", response{body: `{"id":"cs_1","url":null}`}, "has no page"},
		{"a page that is a script", response{body: `{"id":"cs_1","url":"javascript:alert(1)"}`}, "has no page"},
		{"a relative page", response{body: `{"id":"cs_1","url":"/pay"}`}, "has no page"},
		{"no id", response{body: `{"url":"https://checkout.stripe.com/c"}`}, "has no id"},
		{"a redirect", response{status: 302, header: map[string]string{"Location": "/elsewhere"}}, "open a checkout session: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			// The library retries once after an unreadable answer.
			row.answer.header = maps.Collect(maps.All(row.answer.header))
			row.answer.header["Stripe-Should-Retry"] = "false"
			d := serve(t, row.answer)
			page, err := provisioned(t, testKey, d.URL).Checkout(t.Context(), paymentstest.Order("USD"))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %+v, %v; want %q", page, err, row.want)
				return
			}
			if text := err.Error(); strings.Contains(text, "hush") || len(text) > 2*maxErrorText || strings.Contains(text, "\n") {
				t.Errorf("the error contains a secret or is too long: %.200q", text)
			}
			requests, _ := d.recorded()
			for _, r := range requests {
				if r.URL.Path != "/v1/checkout/sessions" {
					t.Errorf("the redirect to %s was followed", r.URL)
				}
			}
		})
	}
}

func TestCheckoutOfAnInvalidAmountSendsNothing(t *testing.T) {
	t.Parallel()
	d := serve(t, response{body: opened})
	s := provisioned(t, testKey, d.URL)
	o := paymentstest.Order("USD")
	o.Amount = paymentstest.Amount("9.999")
	if _, err := s.Checkout(t.Context(), o); err == nil || !strings.Contains(err.Error(), "multiple of 0.01") {
		t.Errorf("got %v", err)
	}
	if requests, _ := d.recorded(); len(requests) > 0 {
		t.Errorf("%d requests were sent", len(requests))
	}
}

func TestCheckoutEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	requests := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(requests)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	go func() {
		<-requests
		cancel()
	}()
	_, err := provisioned(t, testKey, silent.URL).Checkout(ctx, paymentstest.Order("USD"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
