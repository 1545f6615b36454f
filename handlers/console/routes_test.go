package console

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
)

// selfDecoding has the paths whose handlers decode the body themselves. Either the passkey library
// defines its members, or they depend on the type of the task.
var selfDecoding = []string{
	"/api/user/passkey/register/finish", "/api/user/passkey/login/finish", "/api/user/passkey/verify/finish", "/api/task/self/",
}

func TestEveryRouteDeclaresCredentialBodyAndRateLimit(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, rt := range routes {
		name := rt.method + " " + rt.path
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true

		changes := rt.method != http.MethodGet
		if !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, rt.method) {
			t.Errorf("%s: the method must be GET, POST, PUT or DELETE", name)
		}
		if !strings.HasPrefix(rt.path, "/api/") || rt.serve == nil || (rt.takes == jsonBody || rt.takes == taskBody || rt.takes == maybe) && rt.decode == nil && rt.roles == nil && !slices.Contains(selfDecoding, rt.path) {
			t.Errorf("%s: the path is not below /api/, or the handler or decoder is missing", name)
		}
		if !slices.Contains([]reply.Credential{user, half, service, public}, rt.who) {
			t.Errorf("%s has no class of credential", name)
		}
		if rt.params != "" && (!rt.who.HasAccount() || rt.method == "PUT" || rt.method == "POST" && rt.params != "dry_run") {
			t.Errorf("%s declares query parameters that are not checked", name)
		}
		switch most := int64(64 << 10); {
		case rt.who == service:
			if rt.takes.limit != 64<<10 {
				t.Errorf("%s takes %d bytes", name, rt.takes.limit)
			}
		case rt.method == "GET" || rt.method == "DELETE":
			if rt.takes != nothing {
				t.Errorf("%s takes a body", name)
			}
		case rt.takes.limit <= 0 || rt.takes.limit > most && rt.takes != taskBody || rt.takes.media == "":
			t.Errorf("%s takes a body of %d bytes of type %q", name, rt.takes.limit, rt.takes.media)
		}
		wanted := []rate{reads}
		switch {
		case rt.who == service:
			wanted = []rate{notices}
		case rt.who == public && rt.takes.media == "application/json":
			wanted = []rate{logins}
		case rt.who == public:
			wanted = []rate{openPages}
		case rt.who == half:
			wanted = []rate{logins, writes}
		case strings.HasPrefix(rt.path, "/api/callback/") && changes:
			wanted = []rate{callbacks}
		case changes:
			wanted = []rate{writes}
		}
		if !slices.Contains(wanted, rt.rate) {
			t.Errorf("%s is counted among the %s, want %s", name, rt.rate, wanted)
		}
		if rt.asks == nil || rt.asks != nothingMore && rt.who != user {
			t.Errorf("%s asks for %v", name, rt.asks)
		}
	}
}

// TestProtectedRoutesMatchTheReference compares the protected operations with
// docs/reference/accounts.md#step-up, so that it fails if a row loses its protection.
func TestProtectedRoutesMatchTheReference(t *testing.T) {
	t.Parallel()
	want := map[string]*protection{
		"POST /api/user/password":               stepUp,
		"PUT /api/user/self":                    stepUpForEmail,
		"POST /api/user/2fa/setup":              stepUpToEnrol,
		"POST /api/user/2fa/disable":            stepUp,
		"POST /api/user/2fa/backup_codes":       stepUp,
		"POST /api/user/passkey/register/begin": stepUpToEnrol,
		"DELETE /api/user/self/passkeys/{id}":   stepUp,
		"POST /api/user/token":                  stepUpOrLogIn,
		"POST /api/token/":                      stepUpOrPassword,
		"PUT /api/token/{id}":                   stepUpForScope,
		"POST /api/token/{id}/rotate":           stepUpOrLogIn,
		"POST /api/token/{id}/callback_secret":  stepUpOrLogIn,
		"POST /api/subscription/wallet/pay":     stepUpAbove,
		"POST /api/subscription/wallet/renew":   stepUpAbove,

		"POST /api/admin/users/{user}/role":           stepUp,
		"DELETE /api/admin/users/{user}/factors":      stepUp,
		"POST /api/admin/users/{user}/reset-password": stepUp,
		"POST /api/admin/users/{user}/sign-out":       stepUp,
		"POST /api/admin/users/{user}/unblock":        stepUp,
		"POST /api/admin/tasks/{task}/retry":          stepUp,
		"POST /api/admin/tasks/{task}/cancel":         stepUp,
		"POST /api/admin/backends/{backend}/drain":    stepUp,
		"POST /api/admin/backends/{backend}/enable":   stepUp,
		"POST /api/admin/users/{user}/disable":        stepUp,
		"POST /api/admin/users/{user}/enable":         stepUp,
		"POST /api/admin/users/{user}/limits":         stepUp,
		"DELETE /api/admin/users/{user}/limits":       stepUp,
		"DELETE /api/admin/users/{user}/token":        stepUp,
		"POST /api/admin/keys/{key}/limits":           stepUp,
		"DELETE /api/admin/keys/{key}/limits":         stepUp,
		"POST /api/admin/keys/{key}/revoke":           stepUp,
		"POST /api/admin/wallets/{user}/credit":       stepUp,
		"POST /api/admin/wallets/{user}/debit":        stepUp,
		"POST /api/admin/wallets/{user}/clear":        stepUp,
		"POST /api/admin/subscriptions":               stepUp,
		"POST /api/admin/subscriptions/{id}/cancel":   stepUp,
	}
	for _, rt := range routes {
		name := rt.method + " " + rt.path
		asks, named := want[name]
		if !named {
			asks = nothingMore
		}
		if rt.asks != asks {
			t.Errorf("%s asks for %q, want %q", name, rt.asks.name, asks.name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is not a route", name)
	}
}

// TestMisspeltPathsAreRefused checks that the gateway's first directive refuses a path
// that is almost a route. This holds even if the next handler would serve it.
func TestMisspeltPathsAreRefused(t *testing.T) {
	t.Parallel()
	behind := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusTeapot)
		return nil
	})
	for _, rt := range routes {
		path := strings.NewReplacer("{provider}", "stripe", "{trade_no}", "0aB", "{task_id}", "0aB", "{id}", "0aB", "{request_id}", "0aB",
			"{user}", "0aB", "{key}", "0aB", "{request}", "0aB", "{order}", "0aB", "{task}", "0aB", "{backend}", "0aB", "{transfer}", "0aB").Replace(rt.path)
		bare := strings.TrimSuffix(path, "/")
		wrong := []string{
			strings.Replace(bare, "/api/", "/API/", 1), "/" + bare, bare + "//", bare + "/.", bare + "%00", bare + ";x",
			strings.Replace(bare, "/api/", "/api/%2e/", 1), strings.Replace(bare, "/api/", "/api%2F", 1),
		}
		if path == bare {
			wrong = append(wrong, bare+"/")
		}
		for wire, want := range map[string]int{bare: 418, path: 418} {
			if got := passed(t, wire, behind); got != want {
				t.Errorf("%s is answered %d, want %d", wire, got, want)
			}
		}
		for _, wire := range wrong {
			if got := passed(t, wire, behind); got != http.StatusNotFound {
				t.Errorf("%s is answered %d, want 404", wire, got)
			}
		}
	}
}

func passed(t *testing.T, wire string, behind caddyhttp.Handler) int {
	t.Helper()
	r := caddyhttp.PrepareRequest(httptest.NewRequest(http.MethodGet, wire, nil), caddy.NewReplacer(), nil, nil)
	w := httptest.NewRecorder()
	if err := reply.Pass(w, r, behind, "anthropic-version"); err != nil {
		t.Fatal(err)
	}
	return w.Code
}

func TestTheFirstMatchingRouteServesARequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, wire string
		path, allow  string // the path of the route, and the methods that it allows
		values       map[string]string
	}{
		{"GET", "/api/user/self", "/api/user/self", "", nil},
		{"HEAD", "/api/user/self", "/api/user/self", "", nil},
		{"get", "/api/user/self", "", "GET, HEAD, PUT", nil},
		{"OPTIONS", "/api/user/activity", "", "GET, HEAD", nil},
		{"GET", "/api/user/login", "", "POST", nil},
		{"DELETE", "/api/user/self/sessions", "/api/user/self/sessions/", "", nil},
		{"DELETE", "/api/user/self/sessions/ses_0aB", "/api/user/self/sessions/{id}", "", map[string]string{"id": "ses_0aB"}},
		{"PUT", "/api/token/key_0aB", "/api/token/{id}", "", map[string]string{"id": "key_0aB"}},
		{"POST", "/api/token", "/api/token/", "", nil},
		{"PATCH", "/api/token/key_0aB", "", "GET, HEAD, PUT, DELETE", nil},
		{"GET", "/api/task/self", "/api/task/self/", "", nil},
		{"POST", "/api/task/self/", "/api/task/self/", "", nil},
		{"DELETE", "/api/task/self", "", "GET, HEAD, POST", nil},
		{"GET", "/api/task/self/task_0aB", "/api/task/self/{task_id}", "", map[string]string{"task_id": "task_0aB"}},
		{"POST", "/api/task/self/task_0aB/cancel", "/api/task/self/{task_id}/cancel", "", map[string]string{"task_id": "task_0aB"}},
		{"POST", "/api/callback/deliveries/evt_0aB/redeliver", "/api/callback/deliveries/{id}/redeliver", "", map[string]string{"id": "evt_0aB"}},
		{"GET", "/api/user/ledger", "/api/user/ledger/", "", nil},
		{"GET", "/api/user/ledger/", "/api/user/ledger/", "", nil},
		{"POST", "/api/user/stripe/pay", "/api/user/{provider}/pay", "", map[string]string{"provider": "stripe"}},
		{"POST", "/api/user/topup/pay", "/api/user/{provider}/pay", "", map[string]string{"provider": "topup"}},
		{"GET", "/api/user/topup/pay", "", "POST", nil},
		{"GET", "/api/user/topup/0aB", "/api/user/topup/{trade_no}", "", map[string]string{"trade_no": "0aB"}},
		{"POST", "/api/user/topup/0aB", "", "GET, HEAD", nil},
		{"GET", "/api/user/topup/info", "/api/user/topup/info", "", nil},
		{"DELETE", "/api/user/x/page/0aB", "", "GET, HEAD, POST", nil},
		{"POST", "/api/user/x/page/0aB", "/api/user/{provider}/page/{trade_no}", "", map[string]string{"provider": "x", "trade_no": "0aB"}},
	} {
		r := httptest.NewRequest(c.method, c.wire, nil)
		i, f := table.Find(r)
		if i < 0 {
			t.Errorf("%s %s matches no route", c.method, c.wire)
			continue
		}
		rt := routes[i]
		switch {
		case c.allow != "":
			if f == nil || f.Allow != c.allow {
				t.Errorf("%s %s: %v, want it to allow %s", c.method, c.wire, f, c.allow)
			}
		case f != nil || rt.path != c.path || rt.method != c.method && c.method != http.MethodHead:
			t.Errorf("%s %s matches %s %s (%v), want %s", c.method, c.wire, rt.method, rt.path, f, c.path)
		}
		for name, value := range c.values {
			if got := r.PathValue(name); got != value {
				t.Errorf("%s: %s is %q", c.wire, name, got)
			}
		}
	}
}
