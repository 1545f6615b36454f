package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// page sends a GET as the browser does when a user follows a link.
func (b *browser) page(t testing.TB, path string) gatetest.Answer {
	t.Helper()
	return b.visits(t, "GET", path, "Accept: text/html\nSec-Fetch-Site: same-origin\n", "")
}

// sends sends a form as the browser does, and returns the answer without following a redirect.
func (b *browser) sends(t testing.TB, path string, form url.Values) gatetest.Answer {
	t.Helper()
	return b.visits(t, "POST", path, "Accept: text/html\nSec-Fetch-Site: same-origin\nContent-Type: application/x-www-form-urlencoded\n", form.Encode())
}

func (b *browser) visits(t testing.TB, method, path, headers, body string) gatetest.Answer {
	t.Helper()
	answer := b.gate.Do(t, method, path, b.cookies()+headers, body)
	for _, cookie := range (&http.Response{Header: answer.Header}).Cookies() {
		if cookie.MaxAge < 0 {
			delete(b.jar, cookie.Name)
		} else {
			b.jar[cookie.Name] = cookie.Value
		}
	}
	if answer.Header.Get("Content-Security-Policy") == "" || answer.Header.Get("X-Content-Type-Options") != "nosniff" ||
		answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
		t.Errorf("%s %s: the headers are %v", method, path, answer.Header)
	}
	if missing := missingMessage.FindString(answer.Body); missing != "" {
		t.Errorf("%s %s: there is no message %s", method, path, missing)
	}
	return answer
}

// missingMessage matches the key of a message that a language lacks.
var missingMessage = regexp.MustCompile(`![a-z_]+\.[a-z_.]+!`)

// leads checks that an answer is a redirect to a path.
func leads(t testing.TB, answer gatetest.Answer, to string) {
	t.Helper()
	if got := answer.Header.Get("Location"); answer.Status != http.StatusSeeOther || got != to {
		t.Fatalf("%d leads to %q, want %q:\n%s", answer.Status, got, to, answer.Body)
	}
}

// shows checks the status of a page and that it contains texts.
func shows(t testing.TB, answer gatetest.Answer, status int, texts ...string) {
	t.Helper()
	if answer.Status != status {
		t.Errorf("status %d, want %d:\n%s", answer.Status, status, answer.Body)
	}
	for _, text := range texts {
		if !strings.Contains(answer.Body, text) {
			t.Errorf("the page does not contain %q:\n%s", text, answer.Body)
		}
	}
}

// hidden returns the values of the hidden fields of the page's form that has an action's name.
func hidden(t testing.TB, page, action string) url.Values {
	t.Helper()
	for _, form := range regexp.MustCompile(`(?s)<form.*?</form>`).FindAllString(page, -1) {
		values := url.Values{}
		for _, found := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
			values.Add(unescape.Replace(found[1]), unescape.Replace(found[2]))
		}
		if values.Get("do") == action {
			return values
		}
	}
	t.Fatalf("the page has no form %q:\n%s", action, page)
	return nil
}

var unescape = strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&#43;", "+", "&amp;", "&")

// entersBy logs in by the form, and returns the browser.
func entersBy(t testing.TB, g *gatetest.Gate, name string) *browser {
	t.Helper()
	b := newBrowser(g)
	leads(t, b.sends(t, "/console/login", url.Values{"do": {"login"}, "username": {name}, "password": {password}, "next": {"/console"}}), "/console")
	return b
}

func TestThePagesLeadInAndOut(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	shows(t, b.page(t, "/"), 200, `href="/console/login"`, `href="/console/register"`, g.URL("/v1"))
	leads(t, b.page(t, "/console"), "/console/login?next=%2Fconsole")
	leads(t, b.page(t, "/console/?a=b"), "/console/login?next=%2Fconsole%2F%3Fa%3Db")

	form := hidden(t, b.page(t, "/console/register").Body, "register")
	form.Set("username", "walker")
	form.Set("password", "short")
	shows(t, b.sends(t, "/console/register", form), 400, `value="walker"`, `role="alert"`, "<code>INVALID_PARAMETER</code>", "aria-invalid")
	form.Set("password", password)
	leads(t, b.sends(t, "/console/register", form), "/console")
	shows(t, b.page(t, "/console"), 200, "walker", "0.00 USD")
	shows(t, b.page(t, "/"), 200, `href="/console"`)

	before := b.cookies()
	leads(t, b.sends(t, "/console/logout", url.Values{"do": {"logout"}}), "/console/login?done=logged_out")
	shows(t, b.page(t, "/console/login?done=logged_out"), 200, "You are logged out.")
	if answer := g.Do(t, "GET", "/api/user/self", before, ""); answer.Status != 401 {
		t.Errorf("the session before the log-out gets %d", answer.Status)
	}
	answer := b.sends(t, "/console/login", url.Values{"do": {"login"}, "username": {"walker"}, "password": {"wrong password"}})
	shows(t, answer, 401, `value="walker"`, "<p>The user name or the password is wrong</p>")
	if strings.Contains(answer.Body, "wrong password") {
		t.Error("the page repeats the password")
	}
}

func TestALogInByAFormContinuesOnlyInTheConsole(t *testing.T) {
	t.Parallel()
	g := start(t)
	newBrowser(g).registers(t)
	b := newBrowser(g)
	name := b.registers(t)
	for next, want := range map[string]string{
		"/console/login?x=1": "/console/login?x=1", "": "/console", "/api/user/self": "/console", "//evil.example/console": "/console",
		"https://evil.example/console": "/console", "/console//evil.example": "/console", "/consolex": "/console", "/console/\\evil": "/console",
		"/console/..//evil.example": "/console", "/console/\t/evil": "/console", "javascript:alert(1)": "/console",
	} {
		// A script follows the field after a log-in by passkey.
		if got := hidden(t, newBrowser(g).page(t, "/console/login?next="+url.QueryEscape(next)).Body, "login").Get("next"); got != want {
			t.Errorf("the page for %q leads to %q, want %q", next, got, want)
		}
		leads(t, b.sends(t, "/console/login", url.Values{"do": {"login"}, "username": {name}, "password": {password}, "next": {next}}), want)
	}
}

func TestFormsOfOtherSitesAndOtherUsersDoNothing(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	other := newBrowser(g)
	other.registers(t)
	page := b.page(t, "/console")
	shows(t, b.visits(t, "POST", "/console/logout", "Sec-Fetch-Site: cross-site\nContent-Type: application/x-www-form-urlencoded\n", "do=logout"), 403, "CROSS_ORIGIN")
	shows(t, b.visits(t, "POST", "/console/logout", "Origin: https://evil.example\nContent-Type: application/x-www-form-urlencoded\n", "do=logout"), 403, "CROSS_ORIGIN")
	shows(t, b.sends(t, "/console/logout", url.Values{"do": {"logout"}, "as": {"usr_other"}}), 409, "Another user")
	if page.Status != 200 || b.page(t, "/console").Status != 200 {
		t.Error("the session has ended")
	}
	// A key and an access token open no page.
	token := newAccount(t, g)
	if answer := g.Do(t, "GET", "/console", token.auth, ""); answer.Status != http.StatusSeeOther {
		t.Errorf("an access token gets %d", answer.Status)
	}
}

func TestThePagesHaveTwoLanguagesAndThemes(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	shows(t, b.visits(t, "GET", "/console/login", "Accept-Language: zh-TW,zh;q=0.9,en;q=0.5\n", ""), 200, `<html lang="zh">`, "登录")
	shows(t, b.visits(t, "GET", "/console/login", "Accept-Language: de\n", ""), 200, `<html lang="en">`)
	leads(t, b.sends(t, "/console/preferences", url.Values{"do": {"language"}, "value": {"zh"}, "return": {"/console/login"}}), "/console/login")
	leads(t, b.sends(t, "/console/preferences", url.Values{"do": {"theme"}, "value": {"dark"}, "return": {"https://evil.example"}}), "/console")
	shows(t, b.page(t, "/console/login"), 200, `<html lang="zh" data-theme="dark">`)
	b.sends(t, "/console/preferences", url.Values{"do": {"theme"}, "value": {`"><script>`}, "return": {"/console/login"}})
	shows(t, b.page(t, "/console/login"), 200, `<html lang="zh" data-theme="dark">`)
	// A refusal of the API comes in the language of the page.
	shows(t, b.sends(t, "/console/login", url.Values{"do": {"login"}, "username": {"nobody"}, "password": {"none at all"}}), 401, "<code>NOT_LOGGED_IN</code>", "密码")
}

func TestAssetsAreKeptForeverByTheirContent(t *testing.T) {
	t.Parallel()
	g := start(t)
	page := newBrowser(g).page(t, "/console/login")
	for _, found := range regexp.MustCompile(`(?:href|src)="(/console/assets/[^"]*)"`).FindAllStringSubmatch(page.Body, -1) {
		plain := g.Do(t, "GET", found[1], "", "")
		zipped := g.Do(t, "GET", found[1], "Accept-Encoding: gzip", "")
		if plain.Status != 200 || plain.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || plain.Header.Get("Content-Type") == "" ||
			len(zipped.Body) >= len(plain.Body) && zipped.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %v", found[1], plain.Status, plain.Header)
		}
	}
	if answer := g.Do(t, "GET", "/console/assets/000000000000/style.css", "", ""); answer.Status != 404 || strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("another hash gets %d %v", answer.Status, answer.Header)
	}
}

// TestASecondFactorIsAskedForByPages logs in with a second factor.
func TestASecondFactorIsAskedForByPages(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	b.enrols(t)
	other := newBrowser(g)
	leads(t, other.sends(t, "/console/login", url.Values{"do": {"login"}, "username": {name}, "password": {password}, "next": {"/console/orders/x"}}),
		"/console/login/code?next=%2Fconsole%2Forders%2Fx")
	leads(t, other.page(t, "/console"), "/console/login/code?next=%2Fconsole")
	shows(t, other.page(t, "/console/login/code?next=%2Fconsole"), 200, `name="code"`)
	shows(t, other.sends(t, "/console/login/code", url.Values{"do": {"code"}, "code": {"000000"}, "next": {"/console"}}), 403, `role="alert"`)
	leads(t, other.sends(t, "/console/login/code", url.Values{"do": {"code"}, "code": {strings.Trim(b.code(t), `"`)}, "next": {"/console"}}), "/console")
	shows(t, other.page(t, "/console"), 200, name)
}

func TestASiteMayHaveNoPages(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app, Site: "modelgate_console {\npath off\n}\n"})
	for _, path := range []string{"/console", "/"} {
		if answer := g.Do(t, "GET", path, "Accept: text/html", ""); strings.Contains(answer.Body, "<html") {
			t.Errorf("%s: %d %s", path, answer.Status, answer.Body)
		}
	}
	for _, wrong := range []string{"path console", "path /", "path /api/console", "path /console/", "languages fr", "languages en en", "logo " + t.TempDir()} {
		if _, err := gatetest.Adapt(g.Caddyfile(gatetest.Config{App: app, Site: "modelgate_console {\n" + wrong + "\n}\n"})); err != nil {
			t.Error(wrong, err)
		}
		if err := g.Reload(gatetest.Config{App: app, Site: "modelgate_console {\n" + wrong + "\n}\n"}); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
	site := "modelgate_console {\npath /my/pages\ntitle \"A <gate>\"\nlanguages zh\n}\n"
	if err := g.Reload(gatetest.Config{App: app, Site: site}); err != nil {
		t.Fatal(err)
	}
	shows(t, newBrowser(g).page(t, "/my/pages/login"), 200, "A &lt;gate&gt;", `<html lang="zh">`, `href="/my/pages/assets/`)
}
