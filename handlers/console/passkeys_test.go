package console_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestALogInByPasskeyIsOfOneBrowserAndOneAnswer tests the parts of a ceremony that the handlers
// add: the cookie that binds a log-in, and the checks of the body.
func TestALogInByPasskeyIsOfOneBrowserAndOneAnswer(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	var passkey struct{ ID string }
	options := b.does(t, "POST", "/api/user/passkey/register/begin", fmt.Sprintf(`{"password":%q}`, password))
	into(t, b.does(t, "POST", "/api/user/passkey/register/finish", b.makesPasskey(t, options)), &passkey)

	const begin, finish = "/api/user/passkey/login/begin", "/api/user/passkey/login/finish"
	attempt := func() (answer string) {
		b.jar = map[string]string{}
		return b.usesPasskey(t, b.does(t, "POST", begin, ""))
	}
	answer := attempt()
	ceremony := maps.Clone(b.jar)
	for what, jar := range map[string]map[string]string{
		"another browser":               {},
		"one with a ceremony of itself": {"modelgate_session_passkey": strings.Repeat("A", 43)},
	} {
		other := newBrowser(g)
		other.jar = jar
		other.refused(t, "POST", finish, answer, 400, "PASSKEY_NOT_COMPLETED")
		if other.jar["modelgate_session"] != "" {
			t.Errorf("%s was let in", what)
		}
	}
	b.does(t, "POST", finish, answer)
	if b.jar["modelgate_session_passkey"] != "" {
		t.Error("the ceremony's cookie stays")
	}
	b.does(t, "GET", "/api/user/self", "")
	again := newBrowser(g)
	again.jar = ceremony
	again.refused(t, "POST", finish, answer, 400, "PASSKEY_NOT_COMPLETED")

	// A body that is not strict JSON does not reach the library.
	for _, body := range []string{`{"id":"a","id":"b"}`, `[]`, `{"id":1`, `{"a":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`} {
		got, e := again.ask(t, "POST", finish, body)
		if got.Status != 400 || !strings.HasPrefix(e.Code, "INVALID_") {
			t.Errorf("%s: answered %d %s", body, got.Status, got.Body)
		}
	}
	got, _ := again.ask(t, "POST", finish, `{"id":"`+strings.Repeat("a", 64<<10)+`"}`)
	refused(t, "a large answer", got, 413, "PAYLOAD_TOO_LARGE")

	// A page on another origin cannot use the passkey.
	right := b.site.Origin
	for _, origin := range []string{"http://localhost:1", "https://localhost", "http://elsewhere.example"} {
		b.site.Origin = origin
		got, _ := b.ask(t, "POST", finish, attempt())
		refused(t, origin, got, 403, "VERIFICATION_FAILED")
		g.WaitLine(t, func(l gatetest.Line) bool {
			return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "passkey.refuse" && l.Text("request_id") == got.RequestID()
		})
	}
	b.site.Origin = right
	answer = attempt()
	g.Wait(2*time.Minute + time.Second)
	b.refused(t, "POST", finish, answer, 400, "PASSKEY_NOT_COMPLETED")

	// The password alone opens a half-open session, which the passkey completes.
	b.jar = map[string]string{}
	var due struct {
		Methods []string
	}
	into(t, b.does(t, "POST", "/api/user/login", credentials(name, password)), &due)
	if fmt.Sprint(due.Methods) != "[passkey]" {
		t.Errorf("what is due is %v", due.Methods)
	}
	b.does(t, "POST", finish, b.usesPasskey(t, b.does(t, "POST", begin, "")))

	// A passkey assertion belongs to the session that made it, for a minute.
	other := newBrowser(g)
	verification := func() {
		b.does(t, "POST", "/api/user/passkey/verify/finish", b.usesPasskey(t, b.does(t, "POST", "/api/user/passkey/verify/begin", "")))
	}
	verification()
	other.authenticator, other.passkey = b.authenticator, b.passkey
	other.does(t, "POST", finish, other.usesPasskey(t, other.does(t, "POST", begin, "")))
	b.passkey.Counter = other.passkey.Counter
	other.refused(t, "POST", "/api/verify", `{"method":"passkey"}`, 400, "PASSKEY_NOT_COMPLETED")
	g.Wait(61 * time.Second)
	b.refused(t, "POST", "/api/verify", `{"method":"passkey"}`, 400, "PASSKEY_NOT_COMPLETED")
	g.Wait(time.Second - time.Duration(g.Now().Nanosecond())) // an assertion counts from the beginning of its second
	verification()
	g.Wait(59 * time.Second)
	b.does(t, "POST", "/api/verify", `{"method":"passkey"}`)

	var list page[struct{ ID, Name string }]
	into(t, b.does(t, "GET", "/api/user/passkey", ""), &list)
	if list.Total != 1 || list.Items[0].ID != passkey.ID || list.Items[0].Name != "Passkey" {
		t.Errorf("the passkeys are %+v", list)
	}
	b.refused(t, "DELETE", "/api/user/self/passkeys/psk_0", "", 404, "NOT_FOUND")
	b.does(t, "DELETE", "/api/user/self/passkeys/"+passkey.ID, "")
	answer = attempt()
	b.refused(t, "POST", finish, answer, 403, "VERIFICATION_FAILED")
}

// TestWhoSharesTheCookieDoesNotSpendThePasskeysAnswer: a thief of the cookie has no factor, and
// the assertion would allow a permanent credential.
func TestWhoSharesTheCookieDoesNotSpendThePasskeysAnswer(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	options := b.does(t, "POST", "/api/user/passkey/register/begin", fmt.Sprintf(`{"password":%q}`, password))
	b.does(t, "POST", "/api/user/passkey/register/finish", b.makesPasskey(t, options))

	thief := newBrowser(g)
	thief.jar = maps.Clone(b.jar)
	for range 20 {
		thief.refused(t, "POST", "/api/verify", `{"method":"passkey"}`, 400, "PASSKEY_NOT_COMPLETED")
	}
	answer, _ := thief.ask(t, "POST", "/api/verify", `{"method":"passkey"}`)
	refused(t, "lying in wait", answer, 429, "TOO_MANY_ATTEMPTS")
	if answer.Header.Get("Retry-After") != "900" {
		t.Errorf("again after %q", answer.Header.Get("Retry-After"))
	}
	options = b.does(t, "POST", "/api/user/passkey/verify/begin", "")
	b.does(t, "POST", "/api/user/passkey/verify/finish", b.usesPasskey(t, options))
	if b.jar["modelgate_session"] == thief.jar["modelgate_session"] {
		t.Error("the cookie stays when the passkey has answered")
	}
	thief.refused(t, "POST", "/api/verify", `{"method":"passkey"}`, 401, "NOT_LOGGED_IN")
	thief.refused(t, "POST", "/api/user/token", "", 401, "NOT_LOGGED_IN")
	b.does(t, "POST", "/api/verify", `{"method":"passkey"}`)
	b.does(t, "POST", "/api/user/token", "")
}
