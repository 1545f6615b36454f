package reply_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestRoutesHaveTheDialectOfTheirPath ensures that a request that is refused before its route is
// known gets an error in the same dialect.
func TestRoutesHaveTheDialectOfTheirPath(t *testing.T) {
	t.Parallel()
	for _, route := range reply.Routes() {
		if got := reply.DialectOf(httptest.NewRequest(route.Method, pathOf(route), nil), "anthropic-version"); got != route.Dialect {
			t.Errorf("%s has the dialect %d, its path %d", route.Path, route.Dialect, got)
		}
	}
}

// pathOf returns a path of the route.
func pathOf(route reply.Route) string {
	return strings.NewReplacer("{provider}", "demo", "{trade_no}", strings.Repeat("0", 32), "{request_id}", "req_0", "{task_id}", "task_"+strings.Repeat("A", 26),
		"{id}", "key_0", "{id...}", "a/b", "{name}", "a", "{*media_name}", "a.mp4", "{backend}", "works",
		"{item}", "msg_0", "{user}", "a", "{key}", "key_0", "{request}", "req_0", "{order}", "0", "{task}", "task_0", "{transfer}", "0").Replace(route.Path)
}

// TestEveryRouteChecksItsCredentialAndBodyLimit sends requests to every route of the registry: without
// a credential, with one of another kind, and with a body above the limit. The tests of package
// console test the step-ups.
func TestEveryRouteChecksItsCredentialAndBodyLimit(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{
		App: "state own\nregistration open\npayment demo\nprice * {\n request 0.01\n}\nbase_url http://127.0.0.1:PORT\ntopup {\n min 1.00\n max 500.00\n}",
		Site: gatetest.Proxied + `
			modelgate_console {
				logins_per_minute 100000
			}
			modelgate_tasks
			modelgate_health
		`,
	})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "100.00")
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": "client"}, nil)
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/client/token", nil, &minted)
	const json = "Content-Type: application/json\n"
	const person = `{"username":"person","password":"correct horse battery staple"}`
	g.Do(t, "POST", "/api/user/register", json, person)
	cookie, _, _ := strings.Cut(g.Do(t, "POST", "/api/user/login", json, person).Header.Get("Set-Cookie"), ";")
	credentials := map[reply.Credential][]string{
		reply.APIKey: {"Authorization: Bearer " + key.Secret + "\n", "X-Api-Key: " + key.Secret + "\n"},
		reply.User:   {"Authorization: Bearer " + minted.Token + "\n", "Cookie: " + cookie + "\n"},
	}
	credentials[reply.HalfOpen] = credentials[reply.User]
	if got := g.Do(t, "GET", "/api/user/self", credentials[reply.User][1], ""); got.Status != 200 {
		t.Fatalf("with the session: answered %d %s", got.Status, got.Body)
	}

	checked := 0
	large := make(map[string]*gatetest.Wire) // requests that announce a body above the limit
	for _, route := range reply.Routes() {
		name, path := route.Method+" "+route.Path, pathOf(route)
		wrong := []string{""}
		right, needed := credentials[route.Credential]
		for kind, sent := range credentials {
			if needed && (kind == reply.APIKey) != (route.Credential == reply.APIKey) {
				wrong = append(wrong, sent...)
			}
		}
		for _, credential := range wrong {
			got := g.Do(t, route.Method, path, credential+json, "")
			if refused := got.Status == http.StatusUnauthorized; refused != needed {
				t.Errorf("%s with %.24q is answered %d %s", name, credential, got.Status, got.Body)
			}
			checked++
		}
		if needed && route.Method == "GET" {
			if got := g.Do(t, route.Method, path, right[0], ""); got.Status == http.StatusUnauthorized {
				t.Errorf("%s with the right credential is answered %d %s", name, got.Status, got.Body)
			}
		}
		if route.Roles != nil {
			continue // the body is not read without the role
		}
		if route.MaxBody == 0 || route.Path == "/v1/notices/{backend}" || strings.HasSuffix(route.Path, "/webhook") && route.Method == "GET" {
			continue // nothing is read, or no backend sends notices here
		}
		headers := json
		if strings.Contains(route.Path, "/page/") {
			headers = "Content-Type: application/x-www-form-urlencoded\n"
		}
		if strings.HasPrefix(route.Path, "/v1/audio/t") { // transcriptions and translations
			headers = "Content-Type: multipart/form-data; boundary=b\n"
		}
		if needed {
			headers += right[0]
		}
		if slices.Contains([]string{"/v1/messages", "/v1/messages/count_tokens"}, route.Path) {
			headers += "Anthropic-Version: 2023-06-01\n"
		}
		wire := g.Dial(t)
		wire.Send(t, fmt.Sprintf("%s %s HTTP/1.1\nHost: gate\n%sContent-Length: %d\n\n", route.Method, path, headers, route.MaxBody+1))
		large[name] = wire
	}
	for name, wire := range large {
		if got := wire.Receive(t, "POST"); got.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s with a body above its limit is answered %d %s", name, got.Status, got.Body)
		}
	}
	if checked < 150 {
		t.Errorf("only %d requests were checked", checked)
	}
}
