package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

var (
	qrPath = regexp.MustCompile(`(?s)<svg class="qr" viewBox="0 0 (\d+) (\d+)"[^>]*><path d="([^"]+)"/></svg>`)
	blocks = regexp.MustCompile(`<code id="seed">([A-Z2-7 ]+)</code>`)
	backup = regexp.MustCompile(`(?s)<pre class="codes"[^>]*>(.*?)</pre>`)
)

// enrolsByPages sets up an authenticator app on its page, and returns the backup codes.
func (b *browser) enrolsByPages(t testing.TB) []string {
	t.Helper()
	const path = "/console/security/totp"
	shows(t, b.fills(t, path, "totp_setup", map[string]string{"password": "not the password"}), 403, "<code>VERIFICATION_FAILED</code>")
	shown := b.fills(t, path, "totp_setup", map[string]string{"password": password})
	seed := blocks.FindStringSubmatch(shown.Body)
	if seed == nil || !qrPath.MatchString(shown.Body) {
		t.Fatalf("%d shows no QR code:\n%s", shown.Status, shown.Body)
	}
	b.seed = strings.ReplaceAll(seed[1], " ", "")
	// A wrong code shows the QR code again.
	wrong := b.completes(t, shown, "totp_enable", map[string]string{"code": "000000"})
	shows(t, wrong, 403, seed[0], qrPath.FindString(shown.Body), "<code>VERIFICATION_FAILED</code>")
	done := b.completes(t, wrong, "totp_enable", map[string]string{"code": b.digits(t)})
	shows(t, done, 200, "cannot be used again")
	return codesOn(t, done)
}

func codesOn(t testing.TB, page gatetest.Answer) []string {
	t.Helper()
	found := backup.FindStringSubmatch(page.Body)
	if found == nil || len(strings.Fields(found[1])) != 10 {
		t.Fatalf("%d shows no ten backup codes:\n%s", page.Status, page.Body)
	}
	return strings.Fields(found[1])
}

// TestAStepUpSurvivesEveryForm sends each form that needs a step-up. It asks for the factor, for a
// confirmation, and for the secrets of the form, and nothing is done before.
func TestAStepUpSurvivesEveryForm(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	key := b.makes(t, `"name":"first","callback_url":"https://hooks.example/done"`)
	path := "/console/keys/" + key.ID
	codes := b.enrolsByPages(t)
	if self := b.self(t); !self.Factors.TOTP || self.Factors.Codes != 10 {
		t.Fatalf("the factors are %+v", self.Factors)
	}

	waits := func(answer gatetest.Answer, undone func() bool) gatetest.Answer {
		t.Helper()
		if !undone() {
			t.Error("it was done before the step-up")
		}
		return answer
	}
	keys := func(n int) func() bool { return func() bool { return b.keys(t).Total == n } }

	page := waits(b.fills(t, "/console/keys/new", "key_create", map[string]string{"name": "second", "limits.budget": "7.50", "limits.reset": "week", "limits.streams": ""}), keys(1))
	made := b.proves(t, page, "key_create", nil)
	secretOn(t, made)
	if key := b.keys(t).Items[0]; key.Name != "second" || key.Limits.Reset != "week" || key.Limits.Budget == "" || key.Limits.Streams != 0 {
		t.Errorf("the key is %+v", key)
	}

	g.Wait(6 * time.Minute) // the step-up has expired
	page = waits(b.fills(t, path, "key_change", map[string]string{"name": "renamed", "callback_url": ""}), func() bool {
		return slices.ContainsFunc(b.keys(t).Items, func(k seenKey) bool { return k.Name == "first" })
	})
	leads(t, b.proves(t, page, "key_change", nil), path+"?done=key_changed")
	if i := slices.IndexFunc(b.keys(t).Items, func(k seenKey) bool { return k.Name == "renamed" && k.CallbackURL == "" }); i < 0 {
		t.Errorf("the keys are %+v", b.keys(t))
	}

	g.Wait(6 * time.Minute)
	secretOn(t, b.proves(t, b.fills(t, path, "key_rotate", map[string]string{"grace": "0"}), "key_rotate", nil))
	if tries(t, g, key.Secret, "priced") != 401 {
		t.Error("the old secret is accepted")
	}
	g.Wait(6 * time.Minute)
	if text := secretOn(t, b.proves(t, b.fills(t, path, "callback_secret", nil), "callback_secret", nil)); !strings.HasPrefix(text, "whsec_") {
		t.Errorf("the secret is %.8s…", text)
	}
	g.Wait(6 * time.Minute)
	page = waits(b.fills(t, "/console/security/token", "token_mint", nil), func() bool { return b.self(t).Token == nil })
	token := secretOn(t, b.proves(t, page, "token_mint", nil))
	if answer := g.Do(t, "GET", "/api/user/self", "Authorization: Bearer "+token, ""); answer.Status != 200 {
		t.Errorf("the token gets %d", answer.Status)
	}
	leads(t, b.fills(t, "/console/security/token", "token_revoke", nil), "/console/security?done=token_revoked")
	if answer := g.Do(t, "GET", "/api/user/self", "Authorization: Bearer "+token, ""); answer.Status != 401 {
		t.Errorf("the revoked token gets %d", answer.Status)
	}

	// A passkey, as the script of its page adds it after the step-up.
	g.Wait(6 * time.Minute)
	b.refused(t, "POST", "/api/user/passkey/register/begin", `{"name":"phone <i>"}`, 403, "VERIFICATION_EXPIRED")
	verified := b.proves(t, b.fills(t, "/console/security/passkey", "passkey_add", map[string]string{"name": "phone <i>"}), "passkey_add", nil)
	shows(t, verified, 200, "You are verified")
	if fields, _ := filled(t, verified, "passkey_add"); fields.Get("name") != "phone <i>" {
		t.Errorf("the name is lost: %v", fields)
	}
	b.does(t, "POST", "/api/user/passkey/register/finish", b.makesPasskey(t, b.does(t, "POST", "/api/user/passkey/register/begin", `{"name":"phone <i>"}`)))
	shows(t, b.page(t, "/console/security?done=passkey_added"), 200, "phone &lt;i&gt;", "The passkey is added.")

	// Its removal, after a step-up by the passkey.
	page = waits(b.fills(t, "/console/security", "passkey_remove", nil), func() bool { return b.self(t).Factors.Passkeys == 1 })
	shows(t, page, 200, `data-passkey="verify"`)
	b.does(t, "POST", "/api/user/passkey/verify/finish", b.usesPasskey(t, b.does(t, "POST", "/api/user/passkey/verify/begin", "")))
	confirm := b.completes(t, page, "verify", map[string]string{"method": "passkey"})
	shows(t, confirm, 200, "Nothing has been done yet", "phone &lt;i&gt;")
	leads(t, b.completes(t, confirm, "passkey_remove", nil), "/console/security?done=passkey_removed")
	if self := b.self(t); self.Factors.Passkeys != 0 {
		t.Errorf("the factors are %+v", self.Factors)
	}

	// Codes: the code of the form is not the one of the step-up.
	fresh := codesOn(t, b.proves(t, b.fills(t, "/console/security/totp", "codes_renew", map[string]string{"code": b.digits(t)}), "codes_renew", map[string]string{"code": "code"}))
	if slices.Contains(fresh, codes[0]) {
		t.Error("the backup codes are the ones before")
	}
	const next = "another password, long enough"
	changed := b.proves(t, b.fills(t, "/console/security", "password", map[string]string{"password": password, "new_password": next}), "password", map[string]string{"password": password, "new_password": next})
	leads(t, changed, "/console/security?done=password")
	if gatetest.Password == next || g.Login(t, name, next) == "" || g.Login(t, name, password) != "" {
		t.Error("the password is not changed")
	}
	page = b.fills(t, "/console/security/totp", "totp_disable", map[string]string{"code": fresh[0]})
	leads(t, b.proves(t, page, "totp_disable", map[string]string{"code": "code"}), "/console/security?done=totp_disabled")
	if self := b.self(t); self.Factors.Enabled {
		t.Errorf("the factors are %+v", self.Factors)
	}
}

// TestTheConfirmPageIsNoWayAroundTheStepUp sends the form of the confirm page without the proof, and
// forged forms that wait for a proof.
func TestTheConfirmPageIsNoWayAroundTheStepUp(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	b.enrols(t)
	page := b.fills(t, "/console/security/token", "token_mint", nil)
	waiting, _ := filled(t, page, "verify")
	straight := url.Values{}
	for name, values := range waiting {
		if name, ok := strings.CutPrefix(name, "pending."); ok {
			straight[name] = values
		}
	}
	shows(t, b.sends(t, "/console/security/token", straight), 200, "Verify that it is you")
	shows(t, b.sends(t, "/console/verify", url.Values{"do": {"verify"}, "method": {"2fa"}, "code": {"000000"}, "action": waiting["action"], "pending.do": {"token_mint"}}), 403, "Verify that it is you")
	for _, forged := range []string{"https://evil.example/console/security/token", "//evil.example/console/security/token", "/api/user/token", "/console/nothing", "javascript:alert(1)", "/console/security/token/../../api"} {
		waiting.Set("action", forged)
		waiting.Set("code", b.digits(t))
		shows(t, b.sends(t, "/console/verify", waiting), 400, "incomplete or damaged")
	}
	waiting.Set("action", "/console/security/token")
	waiting.Set("pending.do", "nothing")
	shows(t, b.sends(t, "/console/verify", waiting), 400, "incomplete or damaged")
	if b.self(t).Token != nil {
		t.Error("a token was made")
	}
	// The page that a log-in by passkey leads to proves nothing.
	waiting.Set("pending.do", "token_mint")
	waiting.Set("do", "resume")
	confirm := b.sends(t, "/console/verify", waiting)
	shows(t, confirm, 200, "create an access token")
	shows(t, b.completes(t, confirm, "token_mint", nil), 200, "Verify that it is you")
	if b.self(t).Token != nil {
		t.Error("a token was made")
	}
	shows(t, b.page(t, "/console/verify"), 200, "Nothing waits for a verification")
}

func TestTheSecurityPageShowsAndEndsSessions(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	leads(t, b.fills(t, "/console/security", "profile", map[string]string{"display_name": "Ada & Grace"}), "/console/security?done=profile")
	shows(t, b.page(t, "/console/security?done=profile"), 200, "Ada &amp; Grace", "The display name is saved.")
	leads(t, b.fills(t, "/console/security", "profile", map[string]string{"display_name": ""}), "/console/security?done=profile")
	if self := b.self(t); self.DisplayName != "" {
		t.Errorf("the emptied name is %q", self.DisplayName)
	}
	if strings.Contains(b.page(t, "/console/security").Body, `value="session_end"`) {
		t.Error("the present session has a button that ends it")
	}

	second, third := newBrowser(g), newBrowser(g)
	for _, other := range []*browser{second, third} {
		other.visits(t, "POST", "/console/login", "User-Agent: <b>Agent</b>\nSec-Fetch-Site: same-origin\nContent-Type: application/x-www-form-urlencoded\n",
			url.Values{"do": {"login"}, "username": {name}, "password": {password}, "next": {"/console"}}.Encode())
	}
	shows(t, b.page(t, "/console/security"), 200, "&lt;b&gt;Agent&lt;/b&gt;", "127.0.0.1", "This browser")
	leads(t, b.fills(t, "/console/security", "session_end", nil), "/console/security?done=session_ended")
	ended := 0
	for _, other := range []*browser{second, third} {
		if other.page(t, "/console").Status == http.StatusSeeOther {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("%d sessions have ended", ended)
	}
	leads(t, b.fills(t, "/console/security", "sessions_end", nil), "/console/security?done=sessions_ended")
	leads(t, second.page(t, "/console"), "/console/login?next=%2Fconsole")
	leads(t, third.page(t, "/console"), "/console/login?next=%2Fconsole")
	if b.page(t, "/console").Status != 200 {
		t.Error("the present session has ended")
	}
	shows(t, b.fills(t, "/console/security", "password", map[string]string{"password": "wrong password", "new_password": "another password, long enough"}), 403, "<code>VERIFICATION_FAILED</code>", "<details open>")
	leads(t, b.fills(t, "/console/security", "password", map[string]string{"password": password, "new_password": "another password, long enough"}), "/console/security?done=password")
	shows(t, b.page(t, "/console/security"), 200)
}

func TestTheActivityIsShownInWordsAndPages(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	b.makes(t, `"name":"<i>laptop</i>"`)
	for i := range 25 {
		b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"display_name":"name %d"}`, i))
	}
	type event struct {
		Action, Address, Detail, Key string
		Request                      string `json:"request_id"`
	}
	var last page[event]
	into(t, b.does(t, "GET", "/api/user/activity/?p=2", ""), &last)
	shown := b.page(t, "/console/activity")
	shows(t, shown, 200, "Display name changed", "name 24", "Page 1 of 2", `href="/console/activity?p=2"`, "127.0.0.1", ">You<")
	shown = b.page(t, "/console/activity?p=2")
	shows(t, shown, 200, "API key created", "&lt;i&gt;laptop&lt;/i&gt;", "Account created", "Logged in", "Page 2 of 2")
	for _, e := range last.Items {
		shows(t, shown, 200, e.Request, e.Address)
		if e.Key != "" {
			shows(t, shown, 200, `href="/console/keys/`+e.Key+`"`)
		}
	}
	b.jar["modelgate_language"] = "zh"
	shows(t, b.page(t, "/console/activity"), 200, "修改显示名称", "第 1 页，共 2 页")
	for _, path := range []string{"/console/keys", "/console/keys/new", "/console/keys/" + b.keys(t).Items[0].ID, "/console/callbacks", "/console/security", "/console/security/totp", "/console/security/passkey", "/console/security/token"} {
		shows(t, b.page(t, path), 200, `<html lang="zh"`)
	}
}
