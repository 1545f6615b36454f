package demo

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

var update = flag.Bool("update", false, "write the pages to the golden files")

// gateway is a server with the webhook and the page of one order, as in the console.
type gateway struct {
	*httptest.Server

	demo   *Demo
	order  payments.Order
	status int // of the webhook's responses to valid notices

	mu      sync.Mutex
	notices []payments.Notice
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{demo: provisioned(t), status: http.StatusOK}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/user/demo/webhook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		n, err := g.demo.Read(payments.Webhook{Method: r.Method, Header: r.Header, Query: r.URL.Query(), Body: body, Now: paymentstest.Now})
		if err != nil {
			t.Errorf("the webhook cannot read %s: %v", body, err)
		}
		g.mu.Lock()
		g.notices = append(g.notices, n)
		g.mu.Unlock()
		if g.status/100 == 3 {
			w.Header().Set("Location", r.URL.Path)
		}
		w.WriteHeader(g.status)
	})
	mux.HandleFunc("/api/user/demo/page/", func(w http.ResponseWriter, r *http.Request) {
		g.demo.ServePage(w, r, g.order)
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	g.order = order(g.URL + "/api/user/demo/webhook")
	return g
}

// received returns the notices that the webhook has received.
func (g *gateway) received() []payments.Notice {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]payments.Notice(nil), g.notices...)
}

// request sends a request to the page and returns the response with its body.
func (g *gateway) request(t *testing.T, method, form string, header http.Header) (*http.Response, string) {
	t.Helper()
	page, err := g.demo.Checkout(t.Context(), g.order)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, page.URL, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	answer, err := g.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

var buttonPattern = regexp.MustCompile(`name="action" value="(\w+)"`)

// buttons returns the actions on a page.
func buttons(page string) string {
	var names []string
	for _, match := range buttonPattern.FindAllStringSubmatch(page, -1) {
		names = append(names, match[1])
	}
	return strings.Join(names, " ")
}

func TestThePageMatchesTheGoldenFile(t *testing.T) {
	t.Parallel()
	d := provisioned(t)
	for name, row := range map[string]struct {
		change func(*payments.Order)
		method string
		header http.Header
	}{
		"open":    {func(*payments.Order) {}, http.MethodGet, nil},
		"expired": {func(o *payments.Order) { o.Expires = paymentstest.Now }, http.MethodGet, nil},
		"hostile": {func(o *payments.Order) {
			o.Title = `<script>alert(1)</script>"'&`
			o.ReturnURL = "javascript:alert(1)"
		}, http.MethodGet, nil},
		"foreign": {func(*payments.Order) {}, http.MethodPost, http.Header{"Sec-Fetch-Site": {"cross-site"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := order("https://ai.example.com/api/user/demo/webhook")
			row.change(&o)
			r := httptest.NewRequestWithContext(t.Context(), row.method, "https://ai.example.com/", nil)
			for name, values := range row.header {
				r.Header[name] = values
			}
			answer := httptest.NewRecorder()
			d.ServePage(answer, r, o)
			file := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(file, answer.Body.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.Body.String(); got != strings.ReplaceAll(string(want), "\r\n", "\n") {
				t.Errorf("the page is\n%s", got)
			}
		})
	}
}

func TestThePolicyAllowsOnlyTheForm(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		answer, _ := g.request(t, method, "action=decline", nil)
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8",
			"Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
				"require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options": "nosniff",
			"Cache-Control":          "no-store",
			"Referrer-Policy":        "same-origin",
		} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", method, name, got, want)
			}
		}
	}
}

func TestButtonsSendNotices(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, row := range []struct {
		action string
		want   payments.Kind
		next   string
	}{
		{"decline", payments.Failed, "pay delay"},
		{"pay", payments.Paid, "refund dispute"},
		{"dispute", payments.Disputed, "restore"},
		{"restore", payments.Restored, "refund dispute"},
		{"refund", payments.Refunded, ""},
	} {
		answer, page := g.request(t, http.MethodPost, "action="+row.action, http.Header{"Sec-Fetch-Site": {"same-origin"}})
		notices := g.received()
		if answer.StatusCode != http.StatusOK || len(notices) == 0 || notices[len(notices)-1].Kind != row.want {
			t.Errorf("%s: the status is %d, the notices are %+v", row.action, answer.StatusCode, notices)
			continue
		}
		if n := notices[len(notices)-1]; n.TradeNo != g.order.TradeNo || n.Amount != g.order.Amount || n.Currency != g.order.Currency {
			t.Errorf("%s: the notice of %+v is %+v", row.action, g.order, n)
		}
		if got := buttons(page); got != row.next {
			t.Errorf("%s: the next page has the buttons %q, want %q", row.action, got, row.next)
		}
	}
	if got := len(g.received()); got != 5 {
		t.Errorf("%d notices were sent, want 5", got)
	}
}

func TestThePageShowsTheState(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, row := range []struct {
		state         payments.Kind
		expired       bool
		text, buttons string
	}{
		{"", false, "", "pay decline delay"},
		{"", true, "The order has expired.", ""},
		{payments.Failed, false, "The payment was declined.", "pay delay"},
		{payments.Failed, true, "The order has expired.", ""},
		{payments.Paid, false, "The order is paid.", "refund dispute"},
		{payments.Paid, true, "The order is paid.", "refund dispute"},
		{payments.Refunded, false, "The money was given back", ""},
		{payments.Disputed, true, "The payer disputes", "restore"},
	} {
		g.order.State, g.order.Expires = row.state, paymentstest.Now.Add(time.Hour)
		if row.expired {
			g.order.Expires = paymentstest.Now
		}
		answer, page := g.request(t, http.MethodGet, "", nil)
		status := strings.Contains(page, `role="status"`)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, row.text) || status != (row.text != "") || buttons(page) != row.buttons {
			t.Errorf("%q, expired %v: the status is %d, the buttons are %q\n%s", row.state, row.expired, answer.StatusCode, buttons(page), page)
		}
	}
	if notices := g.received(); len(notices) > 0 {
		t.Errorf("a GET has sent the notices %+v", notices)
	}
}

func TestAPaidOrderIsNotDeclined(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for state, text := range map[payments.Kind]string{
		payments.Paid: "The order is paid.", payments.Refunded: "The money was given back", payments.Disputed: "The payer disputes",
	} {
		g.order.State = state
		before := len(g.received())
		answer, page := g.request(t, http.MethodPost, "action=decline", nil)
		if answer.StatusCode != http.StatusConflict || !strings.Contains(page, "was paid already. Nothing was done.") || len(g.received()) != before {
			t.Errorf("%s: the status of decline is %d, the notices are %v\n%s", state, answer.StatusCode, g.received(), page)
		}
		answer, page = g.request(t, http.MethodPost, "action=pay", nil)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, text) || len(g.received()) != before+1 {
			t.Errorf("%s: the status of pay is %d, the notices are %v\n%s", state, answer.StatusCode, g.received(), page)
		}
	}
}

func TestInvalidFormsDoNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method, form string
		header             http.Header
		want               int
	}{
		{"GET", http.MethodGet, "", nil, 200},
		{"HEAD", http.MethodHead, "", nil, 200},
		{"another method", http.MethodPut, "action=pay", nil, 405},
		{"a form of another site", http.MethodPost, "action=pay", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{"a form of another host of the same site", http.MethodPost, "action=pay", http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		{"a form of another origin, from an old browser", http.MethodPost, "action=pay", http.Header{"Origin": {"https://evil.example"}}, 403},
		{"a form of a sandbox, from an old browser", http.MethodPost, "action=pay", http.Header{"Origin": {"null"}}, 403},
		{"no action", http.MethodPost, "", nil, 400},
		{"an unknown action", http.MethodPost, "action=steal", nil, 400},
		{"two actions", http.MethodPost, "action=decline&action=pay", nil, 400},
		{"an action and more", http.MethodPost, "action=pay&amount=1000", nil, 400},
		{"a form that cannot be read", http.MethodPost, "action=pay&%zz", nil, 400},
		{"a form that is too long", http.MethodPost, "action=pay&x=" + strings.Repeat("x", maxForm), nil, 400},
		{"JSON", http.MethodPost, `{"action":"pay"}`, http.Header{"Content-Type": {"application/json"}}, 400},
		{"a form in plain text", http.MethodPost, "action=pay", http.Header{"Content-Type": {"text/plain"}}, 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			answer, _ := g.request(t, row.method, row.form, row.header)
			if answer.StatusCode != row.want {
				t.Errorf("the status is %d, want %d", answer.StatusCode, row.want)
			}
			if notices := g.received(); len(notices) > 0 {
				t.Errorf("the notices %+v were sent", notices)
			}
		})
	}
}

func TestAnActionInTheQueryIsIgnored(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://ai.example.com/?action=pay", nil)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	g.demo.ServePage(answer, r, g.order)
	if answer.Code != http.StatusBadRequest || len(g.received()) > 0 {
		t.Errorf("the status is %d, the notices are %v", answer.Code, g.received())
	}
}

func TestAnExpiredOrderCanOnlyBeRefunded(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.order.Expires = paymentstest.Now
	for action, want := range map[string]int{"pay": 409, "delay": 409, "refund": 200} {
		if answer, _ := g.request(t, http.MethodPost, "action="+action, nil); answer.StatusCode != want {
			t.Errorf("%s: the status is %d, want %d", action, answer.StatusCode, want)
		}
	}
	if notices := g.received(); len(notices) != 1 || notices[0].Kind != payments.Refunded {
		t.Errorf("the notices are %+v", notices)
	}
}

func TestAFailedNoticeIsShown(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusAccepted, http.StatusFound, http.StatusBadRequest, http.StatusServiceUnavailable} {
		g := newGateway(t)
		g.status = status
		answer, page := g.request(t, http.MethodPost, "action=pay", nil)
		want := fmt.Sprintf("The gateway did not accept the notice: the webhook returned %d.", status)
		if answer.StatusCode != http.StatusBadGateway || !strings.Contains(page, want) {
			t.Errorf("%d: the status is %d, %s", status, answer.StatusCode, page)
		}
		if got := buttons(page); got != "pay" {
			t.Errorf("%d: the next page has the buttons %q", status, got)
		}
		if len(g.received()) != 1 {
			t.Errorf("%d: %d notices were sent", status, len(g.received()))
		}
	}
	g := newGateway(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	g.order.NotifyURL = closed.URL + "/webhook"
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("action=pay"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	g.demo.ServePage(answer, r, g.order)
	if answer.Code != http.StatusBadGateway {
		t.Errorf("without a webhook server: the status is %d", answer.Code)
	}
}
