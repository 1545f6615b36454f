package reply_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/caddy-modelgate/modelgate" // registers the routes of all directives
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// requestFor returns a request for a path as it is sent.
func requestFor(t testing.TB, method, wire string) *http.Request {
	t.Helper()
	u, err := url.ParseRequestURI(wire)
	if err != nil {
		t.Skip("net/http refuses this path")
	}
	r := httptest.NewRequest(method, "/", nil)
	r.URL = u
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), nil, nil)
}

var someRoutes = reply.Register(
	reply.Route{Path: "/v1/messages", Method: "POST", Dialect: dialect.Anthropic, Credential: reply.APIKey},
	reply.Route{Path: "/v1/models/{id...}", Method: "GET", Credential: reply.APIKey},
)

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, wire string
		index        int
		allow        string
	}{
		{"POST", "/v1/messages", 0, ""},
		{"POST", "/v1/messages?beta=true", 0, ""},
		{"post", "/v1/messages", 0, "POST"},
		{"GET", "/v1/messages", 0, "POST"},
		{"POST", "/v1/messages/", -1, ""},
		{"POST", "/V1/messages", -1, ""},
		{"POST", "/v1/m%65ssages", -1, ""},
		{"GET", "/v1/models/a", 1, ""},
		{"GET", "/v1/models/a%2Fb", 1, ""},
		{"HEAD", "/v1/models/a/b", 1, ""},
		{"PUT", "/v1/models/a", 1, "GET, HEAD"},
		{"GET", "/v1/models/", -1, ""},
		{"GET", "/v1/models", -1, ""},
	} {
		index, f := someRoutes.Find(requestFor(t, c.method, c.wire))
		if index != c.index {
			t.Errorf("%s %s has the index %d, want %d", c.method, c.wire, index, c.index)
		}
		if c.allow == "" && f != nil || c.allow != "" && (f == nil || f.Code != fault.MethodNotAllowed || f.Allow != c.allow) {
			t.Errorf("%s %s: %v, want Allow: %q", c.method, c.wire, f, c.allow)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, wire string
		values        string // joined by spaces; "no": no match
	}{
		{"/api/a", "/api/a", ""},
		{"/api/a", "/api/a/", "no"},
		{"/api/a", "/api/A", "no"},
		{"/api/a", "/api", "no"},
		{"/api/a", "/api/a/b", "no"},
		{"/api/a", "//api/a", "no"},
		{"/api/a", "/api/%61", "no"},
		{"/api/a/", "/api/a", ""},
		{"/api/a/", "/api/a/", ""},
		{"/api/a/", "/api/a//", "no"},
		{"/api/a/", "/api/", "no"},
		{"/api/{x}/b/{y}", "/api/Ab_-9/b/Z", "Ab_-9 Z"},
		{"/api/{x}/b/{y}", "/api//b/Z", "no"},
		{"/api/{x}/b/{y}", "/api/a/c/Z", "no"},
		{"/api/{x}/b/{y}", "/api/a/b/", "no"},
		{"/api/{x}", "/api/", "no"},
		{"/api/{x}", "/api", "no"},
		{"/api/{x}", "/api/a%2Fb", "no"},
		{"/api/{x}", "/api/a;b", "no"},
		{"/api/{x}", "/api/..", "no"},
		{"/api/{x}", "*", "no"},
		{"/api/{x}", "", "no"},
		{"/v1/{x}/{*y}", "/v1/a/b%2Fc ü", "a b%2Fc ü"},
		{"/v1/{x}/{*y}", "/v1/a/", "no"},
		{"/v1/{x}/{*y}", "/v1/a", "no"},
		{"/v1/{x}/{*y}", "/v1/a/b/c", "no"},
	} {
		values, ok := reply.Match(c.pattern, c.wire)
		if got := strings.Join(values, " "); ok != (c.values != "no") || ok && got != c.values {
			t.Errorf("%s matches %s: %v with %q, want %q", c.wire, c.pattern, ok, got, c.values)
		}
	}
}

func TestPassRefusesUnhandledAndMisspeltPaths(t *testing.T) {
	t.Parallel()
	handled := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusTeapot)
		return nil
	})
	unhandled := caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		caddyhttp.SetVar(r.Context(), "unhandled", true)
		return nil
	})
	for _, c := range []struct {
		wire   string
		next   caddyhttp.Handler
		status int
	}{
		{"/v1/messages", handled, 418}, // another directive of the gateway may serve it
		{"/v1/messages", unhandled, 404},
		{"/v1/messages/", handled, 404},
		{"/V1/messages", handled, 404},
		{"/v1/messages/batches", handled, 418},
		{"/v1/messages/batches", unhandled, 404},
		{"/api/x", unhandled, 404},
		{"/v1/x/..%2F..%2Fpage", unhandled, 404},
		{"/v1/x/..%2F..%2Fpage", handled, 418},
		{"/v1/platform/tasks/task_Ab9", handled, 418},
		{"/v1/platform/tasks/task_Ab9", unhandled, 404},
		{"/v1/platform/Tasks/task_Ab9", handled, 404},
		{"/v1/platform/tasks/task_%41b9", handled, 404},
		{"/v1/platform/tasks/task_Ab9/", handled, 404},
		{"/v1/platform/tasks/task_Ab9/cancel", handled, 418},
		{"/v1/platform/tasks/task_Ab9/Cancel", handled, 404},
		{"/v1/platform/VIDEO", handled, 404},
		{"/v1/video/generations/task_Ab9", handled, 418},
		{"/v1/Video/generations/task_Ab9", handled, 404},
		{"/v1/notices/works", handled, 418},
		{"/v1/notices//works", handled, 404},
		{"/v1/files/aB/a%20%42.mp4", handled, 418},
		{"/v1/files/aB/a.mp4", unhandled, 404},
		{"/v1/Files/aB/a.mp4", handled, 404},
		{"/v1/files/aB/..%2F..%2Fmessages", handled, 404},
		{"/api/x", handled, 418},
		{"/api/user/self", handled, 418}, // modelgate_console may follow
		{"/api/user/self", unhandled, 404},
		{"/api/user/self/", handled, 404},
		{"/api/User/self", handled, 404},
		{"/api/user/ledger/", handled, 418},
		{"/api/user/ledger//", handled, 404},
		{"/api/user/stripe/pay", handled, 418},
		{"/api/user/%73tripe/pay", handled, 404},
		{"/api/user/stripe//pay", handled, 404},
		{"/api/user/topup/0aB", handled, 418},
		{"/api/user/Topup/0aB", handled, 404},
		{"/page", handled, 418},
		{"/page", unhandled, 200}, // not a path of the gateway
	} {
		w := httptest.NewRecorder()
		if err := reply.Pass(w, requestFor(t, http.MethodGet, c.wire), c.next, "anthropic-version"); err != nil || w.Code != c.status {
			t.Errorf("%s is answered %d (%v), want %d", c.wire, w.Code, err, c.status)
		}
	}
}

func TestNestedDirectivesAnswerOnce(t *testing.T) {
	t.Parallel()
	inner := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return reply.Pass(w, r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			caddyhttp.SetVar(r.Context(), "unhandled", true)
			return nil
		}), "anthropic-version")
	})
	w := httptest.NewRecorder()
	if err := reply.Pass(w, requestFor(t, http.MethodGet, "/v1/unknown"), inner, "anthropic-version"); err != nil || strings.Count(w.Body.String(), "NOT_FOUND") != 1 {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// FuzzPass checks that no spelling of a path passes if a server behind the gateway reads it
// as a path of the gateway.
func FuzzPass(f *testing.F) {
	for _, wire := range []string{"/v1/messages", "//v1/messages", "/V1/m%65ssages", "/v1%2fmessages%00", `/v1\messages`, "/v1/models/a%2Fb", "/x/../v1/messages", "/v1/%252e/messages", "/api/user/%2573elf/", "/api/USER/stripe/pay;x", "*"} {
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire string) {
		r := requestFor(t, http.MethodPost, wire)
		passed := false
		err := reply.Pass(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
			passed = true
			return nil
		}), "anthropic-version")
		if err != nil {
			t.Fatal(err)
		}
		if exact := reply.IsOwn(r.URL.EscapedPath()); !passed || exact {
			return
		}
		// A server behind the gateway may decode the path once, and clean it.
		read := strings.ToLower(r.URL.JoinPath().Path)
		for _, form := range []string{read, strings.TrimSuffix(read, "/"), strings.ToLower(r.URL.Path)} {
			if reply.IsOwn(form) {
				t.Errorf("%q passed, and may be read as %s", wire, form)
			}
		}
	})
}
