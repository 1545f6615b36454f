package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/console"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// set returns the cookie with a name that an answer sets.
func set(t testing.TB, answer gatetest.Answer, name string) *http.Cookie {
	t.Helper()
	for _, cookie := range (&http.Response{Header: answer.Header}).Cookies() {
		if cookie.Name == name {
			return cookie
		}
	}
	t.Fatalf("no cookie %s in %v", name, answer.Header)
	return nil
}

func TestTheCookieIsForThisSiteAloneAndNoScript(t *testing.T) {
	for scheme, name := range map[string]string{"http://localhost:PORT": "modelgate_session", "https://ai.example.com": "__Host-modelgate_session"} {
		t.Run(scheme[:5], func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: "base_url " + scheme + "\nregistration open", Site: site})
			b := newBrowser(g)
			who := fmt.Sprintf("person-%d", accounts.Add(1))
			b.does(t, "POST", "/api/user/register", credentials(who, password))
			// Headers about the scheme of the request have no effect.
			answer := g.Do(t, "POST", "/api/user/login", "Content-Type: application/json\nX-Forwarded-Proto: https", credentials(who, password))
			cookie := set(t, answer, name)
			if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.Domain != "" ||
				cookie.Secure != strings.HasPrefix(name, "__Host-") || cookie.MaxAge < 29*86400 || cookie.MaxAge > 30*86400 || len(cookie.Value) != 43 {
				t.Errorf("the cookie is %s", cookie)
			}
			if answer.Header.Get("Cache-Control") != "no-store" || strings.Contains(answer.Body, cookie.Value) {
				t.Errorf("the answer is %v %s", answer.Header, answer.Body)
			}
			ceremony := set(t, g.Do(t, "POST", "/api/user/passkey/login/begin", "", ""), name+"_passkey")
			if !ceremony.HttpOnly || ceremony.SameSite != http.SameSiteStrictMode || ceremony.Path != "/" || ceremony.MaxAge != 120 || ceremony.Secure != cookie.Secure {
				t.Errorf("the ceremony's cookie is %s", ceremony)
			}
			out := g.Do(t, "POST", "/api/user/logout", "Cookie: "+name+"="+cookie.Value, "")
			if gone := set(t, out, name); gone.MaxAge >= 0 || gone.Value != "" || gone.Path != "/" || gone.Secure != cookie.Secure {
				t.Errorf("after the log-out the cookie is %s", gone)
			}
			refused(t, "after the log-out", g.Do(t, "GET", "/api/user/self", "Cookie: "+name+"="+cookie.Value, ""), 401, "NOT_LOGGED_IN")
		})
	}
}

func TestASecretThatABrowserBringsIsNeverAdopted(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	planted := strings.Repeat("A", 43)
	for _, brought := range []string{planted, b.jar["modelgate_session"]} {
		answer := g.Do(t, "POST", "/api/user/login", "Content-Type: application/json\nCookie: modelgate_session="+brought, credentials(name, password))
		if got := set(t, answer, "modelgate_session").Value; answer.Status != 200 || got == brought {
			t.Errorf("answered %d with the secret that came", answer.Status)
		}
	}
	refused(t, "the planted one", g.Do(t, "GET", "/api/user/self", "Cookie: modelgate_session="+planted, ""), 401, "NOT_LOGGED_IN")
}

func TestALogInEndsTheSessionThatItsBrowserLoses(t *testing.T) {
	g := start(t)
	b, other := newBrowser(g), newBrowser(g)
	name := b.registers(t)
	other.does(t, "POST", "/api/user/login", credentials(name, password))
	before := b.cookies()
	b.refused(t, "POST", "/api/user/login", credentials(name, "wrong "+password), 401, "NOT_LOGGED_IN")
	b.does(t, "GET", "/api/user/self", "")
	b.does(t, "POST", "/api/user/login", credentials(name, password))
	refused(t, "the session before", g.Do(t, "GET", "/api/user/self", before, ""), 401, "NOT_LOGGED_IN")
	b.does(t, "GET", "/api/user/self", "")
	other.does(t, "GET", "/api/user/self", "")
}

func TestUnknownNamesAndWrongPasswordsReadAlike(t *testing.T) {
	g := start(t)
	name := newBrowser(g).registers(t)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": "programs-only"}, nil)
	first := ""
	for _, body := range []string{
		credentials(name, "wrong "+password), credentials("nobody", password), credentials("programs-only", password), credentials("no such name", password),
		credentials(name, "x"), credentials(name, strings.Repeat("x", 2000)), credentials(strings.Repeat("x", 300), password),
	} {
		answer := g.Do(t, "POST", "/api/user/login", "Content-Type: application/json", body)
		refused(t, body, answer, 401, "NOT_LOGGED_IN")
		if first == "" {
			first = answer.Body
		}
		if answer.Body != first || answer.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v %s, want the same as for all others: %s", body, answer.Header, answer.Body, first)
		}
	}
}

func TestAHalfOpenSessionDoesNothingButBecomeWholeOrEnd(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	b.enrols(t)
	half := newBrowser(g)
	half.seed = b.seed
	var due struct {
		SecondFactor bool `json:"require_2fa"`
		Methods      []string
		Person       *struct{} `json:"user"`
	}
	into(t, half.does(t, "POST", "/api/user/login", credentials(name, password)), &due)
	if !due.SecondFactor || fmt.Sprint(due.Methods) != "[2fa]" || due.Person != nil {
		t.Errorf("the log-in says %+v", due)
	}
	for _, row := range console.Rows() {
		if !row.User || row.Half {
			continue
		}
		half.refused(t, row.Method, pathOf(row), "{}", 401, "SECOND_FACTOR_REQUIRED")
	}
	half.refused(t, "POST", "/api/user/login/2fa", `{"code":"000000"}`, 403, "VERIFICATION_FAILED")
	code := b.code(t)
	half.does(t, "POST", "/api/user/login/2fa", `{"code":`+code+`}`)
	half.does(t, "GET", "/api/user/self", "")
	half.refused(t, "POST", "/api/user/login/2fa", `{"code":`+code+`}`, 409, "CONFLICT")
	// A code that was used to log in is not accepted for a verification.
	half.refused(t, "POST", "/api/verify", `{"method":"2fa","code":`+code+`}`, 403, "VERIFICATION_FAILED")

	late := newBrowser(g)
	late.does(t, "POST", "/api/user/login", credentials(name, password))
	g.Wait(10*time.Minute + time.Second)
	late.refused(t, "POST", "/api/user/login/2fa", `{"code":"000000"}`, 401, "NOT_LOGGED_IN")

	left := newBrowser(g)
	left.does(t, "POST", "/api/user/login", credentials(name, password))
	cookies := left.cookies()
	left.does(t, "POST", "/api/user/logout", "")
	refused(t, "a half-open session that was ended", g.Do(t, "POST", "/api/user/logout", cookies, ""), 401, "NOT_LOGGED_IN")
}

// TestALogOutByATokenEndsTheSessionBesideItOrLeavesItsCookie: without its cookie, a session
// could not be logged out.
func TestALogOutByATokenEndsTheSessionBesideItOrLeavesItsCookie(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	mint := func() (bearer string) {
		var minted struct {
			Secret string `json:"access_token"`
		}
		into(t, b.does(t, "POST", "/api/user/token", ""), &minted)
		return "Authorization: Bearer " + minted.Secret + "\n"
	}
	const out = "/api/user/logout"
	bearer := mint()
	answer := g.Do(t, "POST", out, bearer, "")
	if answer.Status != 200 || answer.Header.Get("Set-Cookie") != "" {
		t.Errorf("by the token alone: %d %v", answer.Status, answer.Header)
	}
	refused(t, "the token", g.Do(t, "GET", "/api/user/self", bearer, ""), 401, "NOT_LOGGED_IN")
	b.does(t, "GET", "/api/user/self", "")

	bearer = mint()
	cookies := b.cookies()
	answer = g.Do(t, "POST", out, cookies+bearer, "")
	if gone := set(t, answer, "modelgate_session"); answer.Status != 200 || gone.MaxAge >= 0 {
		t.Errorf("by both: %d, the cookie is %s", answer.Status, gone)
	}
	refused(t, "the token", g.Do(t, "GET", "/api/user/self", bearer, ""), 401, "NOT_LOGGED_IN")
	refused(t, "the session", g.Do(t, "GET", "/api/user/self", cookies, ""), 401, "NOT_LOGGED_IN")
}

func TestCredentialsOfOneClassOpenNothingOfAnother(t *testing.T) {
	g := start(t)
	b, otherUser := newBrowser(g), newAccount(t, g)
	name := b.registers(t)
	key := g.NewKey(t, nil)
	secret := b.jar["modelgate_session"]
	var token struct {
		Secret string `json:"access_token"`
	}
	into(t, b.does(t, "POST", "/api/user/token", ""), &token)

	for what, headers := range map[string]string{
		"a session's secret as a token": "Authorization: Bearer " + secret,
		"a session's secret as a key":   "X-Api-Key: " + secret,
		"an access token as a session":  "Cookie: modelgate_session=" + token.Secret,
		"an API key as a session":       "Cookie: modelgate_session=" + key.Secret,
		"an API key beside a session":   b.cookies() + "Authorization: Bearer " + key.Secret,
		"the same in its own header":    b.cookies() + "X-Api-Key: " + key.Secret,
		"a junk token beside a session": b.cookies() + "Authorization: Bearer mgat_junk",
		"a cookie of another name":      "Cookie: __Host-modelgate_session=" + secret,
		"a cookie in another case":      "Cookie: Modelgate_Session=" + secret,
		"a cookie in quotes":            `Cookie: modelgate_session="` + secret + `"`,
		"a cookie with a tail":          "Cookie: modelgate_session=" + secret + "A",
	} {
		refused(t, what, g.Do(t, "GET", "/api/user/self", headers, ""), 401, "NOT_LOGGED_IN")
	}
	for what, headers := range map[string]string{
		"a cookie":        b.cookies(),
		"an access token": "Authorization: Bearer " + token.Secret,
		"both":            b.cookies() + "Authorization: Bearer " + token.Secret,
		"a secret as key": "Authorization: Bearer " + secret,
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/models", "/v1/usage"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "completions") {
				method = http.MethodPost
			}
			if got := g.Do(t, method, path, headers, "{}"); got.Status != 401 || !strings.Contains(got.Body, "UNAUTHORIZED") {
				t.Errorf("%s on %s: answered %d %s", what, path, got.Status, got.Body)
			}
		}
	}

	self := func(headers string) string {
		answer, e := open(t, g.Do(t, "GET", "/api/user/self", headers, ""))
		if !e.Success {
			t.Fatalf("answered %d %s", answer.Status, answer.Body)
		}
		return data[struct{ Name string }](t, answer, e).Name
	}
	for what, headers := range map[string]string{
		"a token and a session of one user": b.cookies() + "Authorization: Bearer " + token.Secret,
		"a session behind basic_auth":       b.cookies() + "Authorization: Basic Zm9vOmJhcg==",
		"a token beside a dead session":     "Cookie: modelgate_session=" + strings.Repeat("A", 43) + "\nAuthorization: Bearer " + token.Secret,
		"among other cookies":               "Cookie: a=b; modelgate_session=" + secret + ";c=d;e\nCookie: f=g",
		"the same cookie twice":             "Cookie: modelgate_session=" + secret + "; modelgate_session=" + secret,
	} {
		if got := self(headers); got != name {
			t.Errorf("%s is taken for %s", what, got)
		}
	}
	other := newBrowser(g)
	other.registers(t)
	for what, headers := range map[string]string{
		"a token and a session of different users": b.cookies() + otherUser.auth,
		"two sessions":              "Cookie: modelgate_session=" + secret + "; modelgate_session=" + other.jar["modelgate_session"],
		"two sessions in two lines": "Cookie: modelgate_session=" + secret + "\nCookie: modelgate_session=" + other.jar["modelgate_session"],
		"a session and a dead one":  "Cookie: modelgate_session=" + secret + "; modelgate_session=" + strings.Repeat("A", 43),
	} {
		refused(t, what, g.Do(t, "GET", "/api/user/self", headers, ""), 400, "INVALID_PARAMETER")
	}
}

func TestTooManyTriesOfANameEndNobodysSession(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: strings.Replace(app, "registration open", "registration open\nlimits {\n login_per_user 2\n}", 1), Site: site})
	b, attacker := newBrowser(g), newBrowser(g)
	name := b.registers(t)
	for range 2 {
		attacker.refused(t, "POST", "/api/user/login", credentials(name, "wrong "+password), 401, "NOT_LOGGED_IN")
	}
	answer, e := attacker.ask(t, "POST", "/api/user/login", credentials(strings.ToUpper(name), password))
	if e.Code != "TOO_MANY_ATTEMPTS" || answer.Status != 429 || answer.Header.Get("Retry-After") == "" {
		t.Errorf("answered %d %s", answer.Status, answer.Body)
	}
	b.does(t, "GET", "/api/user/self", "")
	g.Wait(15*time.Minute + time.Second)
	attacker.does(t, "POST", "/api/user/login", credentials(name, password))
}

func TestKeysOfOthersAreAsThoseThatAreNotThere(t *testing.T) {
	g := start(t)
	b, other := newBrowser(g), newBrowser(g)
	b.registers(t)
	other.registers(t)
	var key gatetest.Key
	into(t, b.does(t, "POST", "/api/token/", fmt.Sprintf(`{"name":"mine","password":%q,"limits":{"streams":2},"callback_url":"https://x.example/hook"}`, password)), &key)
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"PUT", "", `{"name":"theirs"}`}, {"DELETE", "", ""}, {"POST", "/rotate", ""}, {"POST", "/callback_secret", ""},
	} {
		mine, _ := other.ask(t, c.method, "/api/token/"+key.ID+c.path, c.body)
		none, _ := other.ask(t, c.method, "/api/token/key_0000000000000000"+c.path, c.body)
		refused(t, c.method+c.path, mine, 404, "NOT_FOUND")
		if strings.ReplaceAll(mine.Body, key.ID, "ID") != strings.ReplaceAll(none.Body, "key_0000000000000000", "ID") {
			t.Errorf("%s %s: %s, and of one that is not there: %s", c.method, c.path, mine.Body, none.Body)
		}
	}

	var shown struct {
		Name      string
		Callback  string `json:"callback_url"`
		Models    []string
		Limits    struct{ Streams int64 }
		Revoked   int64
		Secret    string `json:"api_key"`
		Callbackn string `json:"callback_secret"`
	}
	into(t, b.does(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","models":["a-*"]}`), &shown)
	if shown.Name != "mine" || shown.Limits.Streams != 2 || fmt.Sprint(shown.Models) != "[a-*]" || shown.Callback != "https://x.example/hook" || shown.Secret != "" {
		t.Errorf("the key is %+v", shown)
	}
	into(t, b.does(t, "POST", "/api/token/"+key.ID+"/callback_secret", ""), &shown)
	if !strings.HasPrefix(shown.Callbackn, "whsec_") {
		t.Errorf("the callback secret is %q", shown.Callbackn)
	}
	into(t, b.does(t, "POST", "/api/token/"+key.ID+"/rotate", `{"grace":60}`), &shown)
	for _, secret := range []string{key.Secret, shown.Secret} {
		if got := g.Do(t, "GET", "/v1/models", "Authorization: Bearer "+secret, ""); got.Status != 200 {
			t.Errorf("a key in its grace is answered %d", got.Status)
		}
	}
	into(t, b.does(t, "DELETE", "/api/token/"+key.ID, ""), &shown)
	if got := g.Do(t, "GET", "/v1/models", "Authorization: Bearer "+shown.Secret, ""); got.Status != 401 || shown.Revoked == 0 {
		t.Errorf("a revoked key is answered %d, and shown as %+v", got.Status, shown)
	}
}
