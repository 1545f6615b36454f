package gatetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
)

// Password is the password of users in tests.
const Password = "correct horse battery staple"

// Login logs in and returns the header with the session cookie, or "".
func (g *Gate) Login(t testing.TB, name, password string) (cookie string) {
	t.Helper()
	answer := g.Do(t, http.MethodPost, "/api/user/login", "Content-Type: application/json", fmt.Sprintf(`{"username":%q,"password":%q}`, name, password))
	return sessionOf(answer.Header)
}

// sessionOf returns the header with the session cookie that an answer sets; empty if it sets none.
func sessionOf(header http.Header) string {
	for _, line := range header.Values("Set-Cookie") {
		if pair, _, _ := strings.Cut(line, ";"); strings.Contains(pair, "session=") {
			return "Cookie: " + pair
		}
	}
	return ""
}

// Post sends JSON with a session cookie; the request must succeed. It returns
// the data and the cookie to use afterwards.
func (g *Gate) Post(t testing.TB, cookie, path, body string) (data map[string]any, renewed string) {
	t.Helper()
	answer := g.Do(t, http.MethodPost, path, cookie+"\nContent-Type: application/json", body)
	var e struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(answer.Body), &e); err != nil || answer.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
	}
	return e.Data, cmp.Or(sessionOf(answer.Header), cookie)
}

// Authenticator generates TOTP codes. It begins with the oldest valid code, so
// that three codes are valid at once. A test waits only if the oldest one would
// expire soon.
type Authenticator struct {
	seed string
	at   time.Time
}

// codeStep is the validity of a code. The gateway also accepts the code of the
// previous and the next step.
const codeStep = 30 * time.Second

// newAuthenticator returns an Authenticator whose first code is valid for some seconds.
func newAuthenticator(seed string) *Authenticator {
	const soon = 5 * time.Second
	return &Authenticator{seed, time.Now().Add(soon - codeStep)}
}

// Code returns the body of a request with an unused code.
func (a *Authenticator) Code(t testing.TB) string {
	t.Helper()
	code, err := totp.GenerateCode(a.seed, a.at)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(a.at.Truncate(codeStep).Add(-codeStep)))
	a.at = a.at.Add(codeStep)
	return fmt.Sprintf(`{"code":%q}`, code)
}

// Enrol enrols an authenticator app for a user.
func (g *Gate) Enrol(t testing.TB, cookie string) (app *Authenticator, renewed string) {
	t.Helper()
	data, cookie := g.Post(t, cookie, "/api/user/2fa/setup", fmt.Sprintf(`{"password":%q}`, Password))
	seed, _ := data["secret"].(string)
	app = newAuthenticator(seed)
	_, cookie = g.Post(t, cookie, "/api/user/2fa/enable", app.Code(t))
	return app, cookie
}
