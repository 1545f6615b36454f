package auth_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// guarded is a site in which modelgate_stepup guards the operator's own app.
const guarded = `
	modelgate_console
	@app path /app/*
	modelgate_stepup @app
	reverse_proxy /app/* BACKEND {
		header_up X-User {http.auth.user.id}
	}
	respond /open "open"
`

const password = "correct horse battery staple"

// login registers a user and returns the cookie of the session.
func login(t *testing.T, g *gatetest.Gate, name string) (cookie string) {
	t.Helper()
	body := fmt.Sprintf(`{"username":%q,"password":%q}`, name, password)
	post(t, g, "", "/api/user/register", body)
	return cookieOf(t, post(t, g, "", "/api/user/login", body))
}

// post sends JSON to the console; the request must succeed.
func post(t *testing.T, g *gatetest.Gate, headers, path, body string) gatetest.Answer {
	t.Helper()
	answer := g.Do(t, http.MethodPost, path, "Content-Type: application/json\n"+headers, body)
	if answer.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
	}
	return answer
}

func cookieOf(t *testing.T, answer gatetest.Answer) string {
	t.Helper()
	value, _, _ := strings.Cut(answer.Header.Get("Set-Cookie"), ";")
	if value == "" {
		t.Fatal("the answer has no cookie")
	}
	return "Cookie: " + value
}

// enrol enrols an authenticator app, and returns its secret and the session's
// cookie afterwards.
func enrol(t *testing.T, g *gatetest.Gate, cookie string) (seed, renewed string) {
	t.Helper()
	var e struct {
		Data struct{ Secret string }
	}
	answer := post(t, g, cookie, "/api/user/2fa/setup", fmt.Sprintf(`{"password":%q}`, password))
	if err := json.Unmarshal([]byte(answer.Body), &e); err != nil {
		t.Fatal(err)
	}
	return e.Data.Secret, cookieOf(t, post(t, g, cookie, "/api/user/2fa/enable", code(t, g, e.Data.Secret)))
}

// code returns a body with an unused code.
func code(t *testing.T, g *gatetest.Gate, seed string) string {
	t.Helper()
	g.Wait(30 * time.Second)
	code, err := totp.GenerateCode(seed, g.Now())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"code":%q}`, code)
}

func TestStepUpAcceptsARecentSecondFactor(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "registration open", Site: guarded})
	key := g.NewKey(t, nil)
	request := func(method, headers string) gatetest.Answer { return g.Do(t, method, "/app/x?q=1", headers, "") }
	refused := func(what string, got gatetest.Answer, status int, code string) {
		t.Helper()
		if got.Status != status || !strings.HasPrefix(got.Body, `{"success":false,"message":`) || !strings.Contains(got.Body, `"code":"`+code+`"`) || got.RequestID() == "" {
			t.Errorf("%s is answered %d %s, want %d %s", what, got.Status, got.Body, status, code)
		}
	}
	refused("anonymous", request("GET", ""), 401, "NOT_LOGGED_IN")
	refused("an API key", request("GET", "Authorization: Bearer "+key.Secret), 401, "NOT_LOGGED_IN")

	cookie := login(t, g, "ann")
	refused("a user without a factor", request("GET", cookie), 403, "VERIFICATION_REQUIRED")
	seed, cookie := enrol(t, g, cookie)
	refused("an unverified session", request("GET", cookie), 403, "VERIFICATION_REQUIRED")
	half := cookieOf(t, post(t, g, "", "/api/user/login", fmt.Sprintf(`{"username":"ann","password":%q}`, password)))
	refused("a half-open session", request("GET", half), 401, "SECOND_FACTOR_REQUIRED")

	cookie = cookieOf(t, post(t, g, cookie, "/api/verify", `{"method":"2fa",`+code(t, g, seed)[1:]))
	if n := g.Backend.Total(); n != 0 {
		t.Fatalf("%d requests passed", n)
	}
	got := request("GET", cookie+"; other=1\nAuthorization: Basic Zm9vOmJhcg==")
	if got.Status != http.StatusOK {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	seen := g.Backend.Seen("")[0]
	if seen.Header.Get("Authorization") != "" || seen.Header.Get("Cookie") != "other=1" || seen.URI != "/app/x?q=1" || !strings.HasPrefix(seen.Header.Get("X-User"), "usr_") {
		t.Errorf("the app saw %+v", seen)
	}

	// The browser also sends the cookie for a page of another site.
	refused("another site's page", request("POST", cookie+"\nSec-Fetch-Site: cross-site"), 403, "CROSS_ORIGIN")
	refused("a page of another origin", request("DELETE", cookie+"\nOrigin: https://elsewhere.example"), 403, "CROSS_ORIGIN")
	refused("a WebSocket of another origin", request("GET", cookie+"\nConnection: Upgrade\nUpgrade: websocket\nSec-Fetch-Site: same-site"), 403, "CROSS_ORIGIN")
	if got := request("POST", cookie+"\nSec-Fetch-Site: same-origin"); got.Status != http.StatusOK {
		t.Errorf("a page of the same origin is answered %d %s", got.Status, got.Body)
	}

	// Another credential of the same user has no step-up.
	var minted struct {
		Data struct {
			Token string `json:"access_token"`
		}
	}
	if err := json.Unmarshal([]byte(post(t, g, cookie, "/api/user/token", "").Body), &minted); err != nil {
		t.Fatal(err)
	}
	token := "Authorization: Bearer " + minted.Data.Token
	refused("the user's token", request("GET", token), 403, "VERIFICATION_REQUIRED")
	post(t, g, token, "/api/verify", `{"method":"2fa",`+code(t, g, seed)[1:])
	if got := request("POST", token+"\nSec-Fetch-Site: cross-site"); got.Status != http.StatusOK {
		t.Errorf("a token from another site is answered %d %s", got.Status, got.Body)
	}
	refused("a token and another user's cookie", request("GET", token+"\n"+login(t, g, "bob")), 400, "INVALID_PARAMETER")

	g.Wait(301 * time.Second)
	refused("an expired step-up", request("GET", cookie), 403, "VERIFICATION_EXPIRED")
	if got := g.Do(t, http.MethodGet, "/open", "", ""); got.Body != "open" {
		t.Errorf("an unguarded path is answered %d", got.Status)
	}
	metrics := func() string {
		_, body := g.Admin(t, http.MethodGet, "/metrics", nil)
		return string(body)
	}()
	for _, line := range []string{`modelgate_auth_events_total{event="stepup",outcome="failure"}`, `modelgate_auth_events_total{event="stepup",outcome="success"}`, `modelgate_auth_events_total{event="login",outcome="success"}`} {
		if !strings.Contains(metrics, line+" ") || strings.Contains(metrics, line+" 0\n") {
			t.Errorf("the metrics do not count %s", line)
		}
	}
}

func TestStepUpFailsClosedWithoutAStore(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "registration open", Site: guarded})
	cookie := login(t, g, "ann")
	g.FailStore(t)
	if got := g.Do(t, http.MethodGet, "/app/x", cookie, ""); got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "STORE_UNAVAILABLE") {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("%d requests passed", n)
	}
}
