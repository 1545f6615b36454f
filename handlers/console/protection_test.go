package console_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/console"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// protecting starts a gate with step_up_above.
func protecting(t *testing.T) *gatetest.Gate {
	t.Helper()
	return gatetest.Start(t, gatetest.Config{App: app + "verification {\n step_up_above 5.00\n}\n", Site: site})
}

// bodies are the bodies of routes whose protection is not reached with the body {}.
var bodies = map[string]string{
	"/api/user/self":                 `{"email":""}`,
	"/api/token/{id}":                `{"models":[]}`,
	"/api/subscription/wallet/pay":   `{"plan_id":1,"idempotency_key":"again"}`,
	"/api/subscription/wallet/renew": `{"subscription_id":1,"idempotency_key":"more"}`,
}

func TestEveryProtectedRouteAsksForAFreshStamp(t *testing.T) {
	g := protecting(t)
	b := newBrowser(g)
	name := b.registers(t)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": "admin"}, nil)
	b.does(t, "POST", "/api/user/login", credentials(name, password)) // a new role ends the sessions
	b.enrols(t)
	g.Credit(t, name, "100.00")
	b.verifies(t)
	b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":1,"idempotency_key":"first"}`)
	var minted struct {
		Secret string `json:"access_token"`
	}
	into(t, b.does(t, "POST", "/api/user/token", ""), &minted)
	program := account{gate: g, auth: "Authorization: Bearer " + minted.Secret}

	protected := 0
	for _, row := range console.Rows() {
		if row.Asks == "" {
			continue
		}
		protected++
		body := bodies[row.Path]
		if body == "" && row.Method != "DELETE" {
			body = "{}"
		}
		answer, _ := program.ask(t, row.Method, pathOf(row), body)
		refused(t, row.Path+" without a stamp", answer, 403, "VERIFICATION_REQUIRED")

		g.Wait(time.Second - time.Duration(g.Now().Nanosecond())) // a step-up counts from the beginning of its second
		b.verifies(t)
		g.Wait(299 * time.Second)
		// A user with a factor needs no password.
		if answer, e := b.ask(t, row.Method, pathOf(row), refusable(row, body)); strings.HasPrefix(e.Code, "VERIFICATION_REQ") || strings.HasPrefix(e.Code, "VERIFICATION_EXP") {
			t.Errorf("%s %s with a stamp of 299 s: %d %s", row.Method, row.Path, answer.Status, answer.Body)
		}
		g.Wait(2 * time.Second)
		anew := strings.NewReplacer("again", "once more", `"more"`, `"still more"`).Replace(body)
		answer, _ = b.ask(t, row.Method, pathOf(row), anew)
		refused(t, row.Path+" after 301 s", answer, 403, "VERIFICATION_EXPIRED")
	}
	if protected < 12 {
		t.Errorf("%d routes are protected", protected)
	}
	b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":3,"idempotency_key":"cheap"}`)
	// A repeated request gets the same answer and costs nothing.
	if again := b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":1,"idempotency_key":"first"}`); !strings.Contains(string(again), `"replayed":true`) {
		t.Errorf("a replay without a stamp: %s", again)
	}
	b.verifies(t)
	b.does(t, "POST", "/api/subscription/wallet/renew", `{"subscription_id":1,"idempotency_key":"longer"}`)
}

// refusable returns a body that a route refuses after the protection has passed. The test
// uses it if a success would end the session or factor that it needs.
func refusable(row console.Row, body string) string {
	switch row.Path {
	case "/api/user/token":
		return `{"other":1}`
	}
	return body
}

func TestWithoutAFactorALastingCredentialAsksForThePassword(t *testing.T) {
	g := protecting(t)
	b := newBrowser(g)
	b.registers(t)
	asked := 0
	for _, row := range console.Rows() {
		if row.Asks != "step-up or password" {
			continue
		}
		asked++
		for body, code := range map[string]string{
			`{}`:              "MISSING_PARAMETER",
			`{"password":""}`: "MISSING_PARAMETER",
			fmt.Sprintf(`{"password":%q}`, "x"+password): "VERIFICATION_FAILED",
		} {
			answer, e := b.ask(t, row.Method, pathOf(row), body)
			if e.Code != code || answer.Status < 400 || strings.Contains(answer.Body, "api_key") {
				t.Errorf("%s with %s: %d %s, want %s", row.Path, body, answer.Status, answer.Body, code)
			}
		}
		b.does(t, row.Method, pathOf(row), fmt.Sprintf(`{"password":%q}`, password))
	}
	if asked != 3 {
		t.Errorf("%d routes ask for the password", asked)
	}
}

func TestAPurchaseAboveTheBoundAsksNothingOfWhoHasNoFactor(t *testing.T) {
	g := protecting(t)
	b := newBrowser(g)
	name := b.registers(t)
	g.Credit(t, name, "100.00")
	b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":1,"idempotency_key":"dear"}`)
}

func TestAVerificationThatFailsNeverReadsAsOne(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	try := func(body string, status int, code string) {
		t.Helper()
		answer, _ := b.ask(t, "POST", "/api/verify", body)
		refused(t, body, answer, status, code)
		if strings.Contains(answer.Body, `"verified":true`) || strings.Contains(answer.Body, "验证成功") {
			t.Errorf("%s reads as a success: %s", body, answer.Body)
		}
	}
	try(`{"method":"2fa","code":"123456"}`, 400, "NO_FACTOR")
	try(`{"method":"passkey"}`, 400, "NO_FACTOR")
	b.enrols(t)
	for body, want := range map[string]string{
		`{}`:                                   "400 MISSING_PARAMETER",
		`{"method":""}`:                        "400 MISSING_PARAMETER",
		`{"method":"2FA","code":"123456"}`:     "400 INVALID_PARAMETER",
		`{"method":"password","code":"x"}`:     "400 INVALID_PARAMETER",
		`{"method":"2fa"}`:                     "400 MISSING_PARAMETER",
		`{"method":"2fa","code":" 123456"}`:    "400 INVALID_PARAMETER",
		`{"method":"2fa","code":123456}`:       "400 INVALID_PARAMETER",
		`{"method":"2fa","code":"000000"}`:     "403 VERIFICATION_FAILED",
		`{"method":"passkey","code":"000000"}`: "400 PASSKEY_NOT_COMPLETED",
		`{"method":"2fa","verified":true}`:     "400 INVALID_PARAMETER",
	} {
		status, code, _ := strings.Cut(want, " ")
		n := 400
		if status == "403" {
			n = 403
		}
		try(body, n, code)
	}
	// A refusal that repeats the body does not contain the message of a success either.
	const words = "验证成功"
	b.does(t, "POST", "/api/user/register", credentials(words, password))
	for what, sent := range map[string]struct{ method, path, headers, body string }{
		"an encoding":          {"POST", "/api/verify", "Content-Type: application/json\nContent-Encoding: " + words, `{"method":"2fa","code":"123456"}`},
		"a name":               {"POST", "/api/verify", "Content-Type: application/json", `{"` + words + `":1}`},
		"an id":                {"DELETE", "/api/user/self/sessions/" + url.PathEscape(words), "", ""},
		"a query":              {"GET", "/api/token/?" + url.QueryEscape(words) + "=1", "", ""},
		"a name that is taken": {"POST", "/api/user/register", "Content-Type: application/json", credentials(words, password)},
	} {
		answer := g.Do(t, sent.method, sent.path, b.cookies()+sent.headers, sent.body)
		if answer.Status < 400 || answer.Status >= 500 || strings.Contains(answer.Body, words) {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
}

// TestANewSecretOfACredentialAsksWhoHasNoFactorForAFreshLogIn: otherwise a thief of the
// cookie could get a permanent credential.
func TestANewSecretOfACredentialAsksWhoHasNoFactorForAFreshLogIn(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	var made struct {
		ID string `json:"id"`
	}
	into(t, b.does(t, "POST", "/api/token/", fmt.Sprintf(`{"password":%q}`, password)), &made)
	for _, path := range []string{"/api/user/token", "/api/token/" + made.ID + "/rotate", "/api/token/" + made.ID + "/callback_secret"} {
		b.does(t, "POST", path, "")
	}
	g.Wait(300 * time.Second)
	for _, path := range []string{"/api/user/token", "/api/token/" + made.ID + "/rotate", "/api/token/" + made.ID + "/callback_secret"} {
		b.refused(t, "POST", path, "", 400, "MISSING_PARAMETER")
		b.refused(t, "POST", path, `{"password":"x"}`, 403, "VERIFICATION_FAILED")
		b.does(t, "POST", path, fmt.Sprintf(`{"password":%q}`, password))
	}
}

// TestASlowBodyOutlivesNoLogOut: the caller is authenticated again after the body was
// read.
func TestASlowBodyOutlivesNoLogOut(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	thief := &browser{gate: g, jar: maps.Clone(b.jar)}
	body, rest := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked := make(chan struct{}) // closed when the body is read: the caller was authenticated before
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { close(asked) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+g.Address+"/api/subscription/self/preference", body)
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(thief.cookies()), "Cookie: "), "=")
	request.AddCookie(&http.Cookie{Name: name, Value: value})
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}
	answered := make(chan string, 1)
	go func() {
		answer, err := client.Do(request)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		answered <- fmt.Sprint(answer.StatusCode, " ", string(text))
	}()
	<-asked
	b.does(t, "POST", "/api/user/logout", "")
	if _, err := io.WriteString(rest, `{"preference":"wallet_only"}`); err != nil {
		t.Fatal(err)
	}
	_ = rest.Close()
	if got := <-answered; !strings.HasPrefix(got, "401 ") {
		t.Errorf("a session that ended before the body came is answered %s", got)
	}
}

// Without a factor, a change of a key's scope needs the password, and a change of its name
// does not. With an access token, a new secret of a credential needs the password.
func TestWithoutAFactorTheScopeOfAKeyAndSecretsByAnAccessTokenAskForThePassword(t *testing.T) {
	g := protecting(t)
	b := newBrowser(g)
	b.registers(t)
	key := b.makes(t, `"name":"mine"`)
	path := "/api/token/" + key.ID
	b.does(t, "PUT", path, `{"name":"other"}`)
	for _, change := range []string{`"models":["a-*"]`, `"callback_url":"https://x.example/"`, `"ip_ranges":["192.0.2.1"]`, `"limits":{"streams":9}`, fmt.Sprintf(`"expires":%d`, g.Now().Add(time.Hour).Unix())} {
		b.refused(t, "PUT", path, "{"+change+"}", 400, "MISSING_PARAMETER")
		answer, _ := b.ask(t, "PUT", path, `{"password":"wrong horse battery staple",`+change+"}")
		if answer.Status < 400 {
			t.Errorf("%s by a wrong password is answered %d", change, answer.Status)
		}
		b.does(t, "PUT", path, fmt.Sprintf(`{"password":%q,%s}`, password, change))
	}
	var minted struct {
		Secret string `json:"access_token"`
	}
	into(t, b.does(t, "POST", "/api/user/token", ""), &minted)
	program := account{gate: g, auth: "Authorization: Bearer " + minted.Secret}
	for _, route := range []string{path + "/rotate", path + "/callback_secret", "/api/user/token"} {
		answer, _ := program.ask(t, "POST", route, "{}")
		refused(t, route+" by an access token", answer, 400, "MISSING_PARAMETER")
		if answer, _ = program.ask(t, "POST", route, fmt.Sprintf(`{"password":%q}`, password)); answer.Status != 200 {
			t.Errorf("%s by an access token and the password is answered %d %s", route, answer.Status, answer.Body)
		}
	}
}
