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

	"golang.org/x/net/html"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// filled returns the fields that a browser sends for the form of a page that has an action's name,
// as the page has filled them, and the path that it sends them to.
func filled(t testing.TB, page gatetest.Answer, action string) (fields url.Values, path string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page.Body))
	if err != nil {
		t.Fatal(err)
	}
	for node := range root.Descendants() {
		if node.Data != "form" {
			continue
		}
		if fields := fieldsOf(node); fields.Get("do") == action {
			return fields, attribute(node, "action")
		}
	}
	t.Fatalf("%d has no form %q:\n%s", page.Status, action, page.Body)
	return nil, ""
}

func fieldsOf(form *html.Node) url.Values {
	fields := url.Values{}
	for node := range form.Descendants() {
		name := attribute(node, "name")
		switch {
		case node.Type != html.ElementNode || name == "" && node.Data != "option":
		case node.Data == "input":
			fields.Add(name, attribute(node, "value"))
		case node.Data == "textarea" && node.FirstChild != nil:
			fields.Add(name, node.FirstChild.Data)
		case node.Data == "textarea":
			fields.Add(name, "")
		case node.Data == "option" && slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == "selected" }):
			fields.Add(attribute(node.Parent, "name"), attribute(node, "value"))
		}
	}
	return fields
}

func attribute(node *html.Node, key string) string {
	for _, a := range node.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// fills opens a page, fills the form of an action and sends it.
func (b *browser) fills(t testing.TB, path, action string, typed map[string]string) gatetest.Answer {
	t.Helper()
	return b.completes(t, b.page(t, path), action, typed)
}

// completes fills a form of the page that is shown, and sends it.
func (b *browser) completes(t testing.TB, page gatetest.Answer, action string, typed map[string]string) gatetest.Answer {
	t.Helper()
	fields, path := filled(t, page, action)
	for name, value := range typed {
		if !fields.Has(name) {
			t.Fatalf("the form %s has no field %s, but %v", action, name, fields)
		}
		fields.Set(name, value)
	}
	return b.sends(t, path, fields)
}

// proves gives the code that a page asks for, and confirms the form that waited for it. The secrets
// of the form are typed again.
func (b *browser) proves(t testing.TB, page gatetest.Answer, action string, secrets map[string]string) gatetest.Answer {
	t.Helper()
	shows(t, page, 200, "Verify that it is you")
	wrong := b.completes(t, page, "verify", map[string]string{"code": "12345678"})
	shows(t, wrong, 400, `role="alert"`)
	confirm := b.completes(t, wrong, "verify", map[string]string{"code": b.digits(t)})
	shows(t, confirm, 200, "Nothing has been done yet")
	for _, shown := range []gatetest.Answer{page, wrong, confirm} {
		for name, secret := range secrets {
			if strings.Contains(shown.Body, secret) && !strings.Contains(secret, "code") {
				t.Errorf("a page repeats the %s of the form", name)
			}
		}
	}
	for name, secret := range secrets {
		if secret == "code" {
			secrets[name] = b.digits(t)
		}
	}
	return b.completes(t, confirm, action, secrets)
}

// digits returns a code of the authenticator app that was not used before.
func (b *browser) digits(t testing.TB) string { return strings.Trim(b.code(t), `"`) }

// self returns the account as the API has it.
func (b *browser) self(t testing.TB) (self struct {
	DisplayName string `json:"display_name"`
	Factors     struct {
		Enabled, TOTP bool
		Codes         int `json:"backup_codes"`
		Passkeys      int
	}
	Token *struct{ Hint string } `json:"access_token"`
},
) {
	t.Helper()
	into(t, b.does(t, "GET", "/api/user/self", ""), &self)
	return self
}

var newSecret = regexp.MustCompile(`<code id="secret">([^<]+)</code>`)

// secretOn returns the secret that a page shows once.
func secretOn(t testing.TB, page gatetest.Answer) string {
	t.Helper()
	found := newSecret.FindStringSubmatch(page.Body)
	if page.Status != 200 || found == nil {
		t.Fatalf("%d shows no secret:\n%s", page.Status, page.Body)
	}
	return html.UnescapeString(found[1])
}

func TestAKeyIsMadeUsedChangedRotatedAndRevokedOnItsPages(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	g.Credit(t, b.registers(t), "5.00")
	shows(t, b.page(t, "/console/keys"), 200, `href="/console/keys/new"`, "You have no API keys yet")

	// A refused form keeps what was typed.
	typed := map[string]string{
		"name": "laptop <b>&", "models": "priced, other-*", "ip_ranges": "127.0.0.1\n10.0.0.0/8", "limits.budget": "3.00", "limits.reset": "month",
		"limits.requests_per_second": "50", "limits.streams": "4", "limits.tokens_per_minute": "9000", "callback_url": "https://hooks.example/done",
	}
	refused := b.fills(t, "/console/keys/new", "key_create", typed)
	shows(t, refused, 400, "<code>MISSING_PARAMETER</code>")
	again, _ := filled(t, refused, "key_create")
	for name, value := range typed {
		if again.Get(name) != value {
			t.Errorf("%s is %q after the refusal", name, again.Get(name))
		}
	}
	for field, wrong := range map[string]string{"limits.budget": "much", "limits.streams": "four", "expires": "tomorrow", "ip_ranges": "here", "models": "*x"} {
		answer := b.completes(t, refused, "key_create", map[string]string{field: wrong, "password": password})
		shows(t, answer, 400)
		if !regexp.MustCompile(`(?s)name="` + field + `"[^>]*aria-invalid`).MatchString(answer.Body) {
			t.Errorf("%s is not marked:\n%s", field, answer.Body)
		}
	}
	if total := b.keys(t).Total; total != 0 {
		t.Fatalf("%d keys after refusals", total)
	}

	made := b.completes(t, refused, "key_create", map[string]string{"password": password, "expires": "2099-12-31T10:30"})
	first := secretOn(t, made)
	shows(t, made, 200, "x-api-key: "+first, "Bearer "+first, "anthropic-version: 2023-06-01", "priced", g.URL("/v1/messages"), g.URL("/v1/chat/completions"))
	if status := tries(t, g, first, "priced"); status != 200 {
		t.Errorf("the key gets %d", status)
	}
	key := gatetest.Eventually(t, "the call is charged", func() (seenKey, bool) {
		key := b.keys(t).Items[0]
		return key, key.Usage != nil && key.Usage.Used != "0"
	})
	want := time.Date(2099, 12, 31, 10, 30, 0, 0, time.UTC).Unix()
	if key.Name != typed["name"] || fmt.Sprint(key.Models, key.Ranges) != "[priced other-*] [127.0.0.1/32 10.0.0.0/8]" || key.Expires != want || key.State != "active" ||
		key.Limits.Reset != "month" || key.Limits.RequestsPerSecond != 50 || key.Limits.Streams != 4 || key.Limits.TokensPerMinute != 9000 || key.CallbackURL != typed["callback_url"] {
		t.Errorf("the key is %+v", key)
	}
	spent := fmt.Sprintf("%s of %s USD", key.Usage.Used, key.Limits.Budget)
	path := "/console/keys/" + key.ID
	for _, shown := range []gatetest.Answer{b.page(t, "/console/keys"), b.page(t, path)} {
		shows(t, shown, 200, "laptop &lt;b&gt;&amp;", key.Hint, spent, `value="`+key.Usage.Used+`"`, "2099-12-31 10:30 UTC")
		if strings.Contains(shown.Body, first) {
			t.Error("the secret is shown again")
		}
	}

	// The form of the change has all settings; an emptied field removes a limit.
	fields, _ := filled(t, b.page(t, path), "key_change")
	if fields.Get("expires") != "2099-12-31T10:30" || fields.Get("models") != "priced\nother-*" || fields.Get("limits.budget") != key.Limits.Budget || fields.Get("limits.reset") != "month" {
		t.Errorf("the form has %v", fields)
	}
	leads(t, b.fills(t, path, "key_change", map[string]string{"password": password, "name": "desktop"}), path+"?done=key_changed")
	if now := b.keys(t).Items[0]; now.Name != "desktop" || now.Expires != key.Expires || now.Limits != key.Limits || fmt.Sprint(now.Models, now.Ranges) != fmt.Sprint(key.Models, key.Ranges) {
		t.Errorf("another name has made it %+v", now)
	}
	emptied := map[string]string{"name": "", "expires": "", "models": "", "ip_ranges": "bad", "limits.budget": "", "limits.requests_per_second": "", "limits.streams": "", "limits.tokens_per_minute": "", "callback_url": "", "password": password}
	refused = b.fills(t, path, "key_change", emptied)
	shows(t, refused, 400, "<code>INVALID_PARAMETER</code>")
	again, _ = filled(t, refused, "key_change")
	for name := range emptied {
		if name != "ip_ranges" && again.Get(name) != "" {
			t.Errorf("the emptied field %s is %q after the refusal", name, again.Get(name))
		}
	}
	leads(t, b.completes(t, refused, "key_change", map[string]string{"ip_ranges": "", "password": password}), path+"?done=key_changed")
	now := b.keys(t).Items[0]
	if now.Name != "" || now.Expires != 0 || len(now.Models) != 0 || len(now.Ranges) != 0 || now.Limits.Budget != "" || now.Limits.Streams != 0 || now.Usage != nil || now.CallbackURL != "" {
		t.Errorf("the emptied form has left %+v", now)
	}
	shows(t, b.page(t, path+"?done=key_changed"), 200, "The key is changed.", "Unnamed key", "0.25 USD")

	second := secretOn(t, b.fills(t, path, "key_rotate", map[string]string{"grace": "3600", "password": password}))
	if tries(t, g, first, "priced") != 200 || tries(t, g, second, "priced") != 200 {
		t.Error("one of the two secrets is refused in the grace")
	}
	shows(t, b.page(t, path), 200, "The previous secret ends")
	leads(t, b.fills(t, path, "key_revoke", nil), path+"?done=key_revoked")
	if tries(t, g, first, "priced") != 401 || tries(t, g, second, "priced") != 401 {
		t.Error("a revoked key is accepted")
	}
	over := b.page(t, path)
	shows(t, over, 200, "Revoked", "cannot be changed")
	if strings.Contains(over.Body, "key_change") {
		t.Error("a revoked key has a form")
	}
	shows(t, b.page(t, "/console/keys"), 200, `class="ended"`, "Revoked")
}

func TestAKeyThatHasExpiredIsShownSo(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	b.makes(t, fmt.Sprintf(`"name":"brief","expires":%d`, g.Now().Add(time.Hour).Unix()))
	g.Wait(2 * time.Hour)
	if key := b.keys(t).Items[0]; key.State != "expired" {
		t.Errorf("the key is %+v", key)
	}
	shows(t, b.page(t, "/console/keys"), 200, "brief", "Expired")
	shows(t, b.page(t, "/console/keys/"+b.keys(t).Items[0].ID), 200, "cannot be changed")
}

// hostileTexts are texts that users type.
var hostileTexts = []string{
	`"><script>alert(1)</script>`, `{{.Self}}`, "‮evil\u2066", "🌅 <img src=x onerror=alert(1)>", strings.Repeat("a<b", 3334), "' onmouseover='alert(1)", "javascript:alert(1)",
}

func TestHostileTextsAreShownAsTexts(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	b.jar["modelgate_language"] = "zh"
	harmless := func(answer gatetest.Answer) {
		t.Helper()
		for _, tag := range []string{"<script>alert", "<img", "onmouseover='", `href="javascript:`} {
			if strings.Contains(answer.Body, tag) {
				t.Errorf("%d contains %s", answer.Status, tag)
			}
		}
	}
	for _, text := range hostileTexts {
		made := b.fills(t, "/console/keys/new", "key_create", map[string]string{"name": text, "callback_url": text, "password": password})
		shows(t, made, 400)
		harmless(made)
		if fields, _ := filled(t, made, "key_create"); fields.Get("name") != text {
			t.Errorf("%.40q is lost", text)
		}
		named := b.fills(t, "/console/keys/new", "key_create", map[string]string{"name": text, "password": password})
		harmless(named)
		harmless(b.fills(t, "/console/security", "profile", map[string]string{"display_name": text}))
		answer := b.visits(t, "POST", "/console/login", "User-Agent: "+strings.ReplaceAll(text, "\n", " ")+"\nContent-Type: application/x-www-form-urlencoded\n",
			url.Values{"do": {"login"}, "username": {text}, "password": {password}}.Encode())
		harmless(answer)
	}
	for _, path := range []string{"/console/keys", "/console/callbacks", "/console/security", "/console/activity", "/console/keys/new?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"} {
		harmless(b.page(t, path))
	}
	// A link fills no settings of a key.
	key := b.makes(t, `"name":"mine"`)
	if fields, _ := filled(t, b.page(t, "/console/keys/"+key.ID+"?do=key_change&callback_url=https://evil.example&name=evil"), "key_change"); fields.Get("callback_url") != "" || fields.Get("name") != "mine" {
		t.Errorf("a link has filled %v", fields)
	}
}

func TestThePagesOfOtherUsersDoNotExist(t *testing.T) {
	t.Parallel()
	g := start(t)
	b, other := newBrowser(g), newBrowser(g)
	b.registers(t)
	other.registers(t)
	key := other.makes(t, `"name":"other"`)
	own := b.makes(t, `"name":"own"`)
	shows(t, b.page(t, "/console/keys/"+key.ID), 404, "<code>NOT_FOUND</code>")
	for _, action := range []string{"key_change", "key_rotate", "key_revoke", "callback_secret"} {
		fields, _ := filled(t, b.page(t, "/console/keys/"+own.ID), action)
		fields.Set("password", password)
		shows(t, b.sends(t, "/console/keys/"+key.ID, fields), 404, "<code>NOT_FOUND</code>")
	}
	var sessions page[struct{ ID string }]
	into(t, other.does(t, "GET", "/api/user/self/sessions/", ""), &sessions)
	shows(t, b.sends(t, "/console/security", url.Values{"do": {"session_end"}, "id": {sessions.Items[0].ID}}), 404, "<code>NOT_FOUND</code>")
	shows(t, b.sends(t, "/console/callbacks", url.Values{"do": {"callback_test"}, "key_id": {key.ID}}), 404, "<code>NOT_FOUND</code>")
	shows(t, b.sends(t, "/console/callbacks", url.Values{"do": {"callback_redeliver"}, "id": {"evt_0"}}), 404, "<code>NOT_FOUND</code>")
	if now := other.keys(t).Items[0]; now.State != "active" || now.Name != "other" {
		t.Errorf("the key of the other user is %+v", now)
	}
}

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

func TestCallbacksAreTestedAndSentAgainOnTheirPage(t *testing.T) {
	t.Parallel()
	g, r := startWithReceiver(t)
	b := newBrowser(g)
	g.Credit(t, b.registers(t), "5.00")
	shows(t, b.page(t, "/console/callbacks"), 200, "None of your keys has a callback URL", "No callbacks yet")
	shows(t, b.fills(t, "/console/keys/new", "key_create", map[string]string{"name": "films", "callback_url": r.URL + "/mine", "password": password}), 200)
	key := b.keys(t).Items[0]
	shows(t, b.page(t, "/console/callbacks"), 200, "films", r.URL+"/mine", "There is no signing secret yet")
	shown := b.fills(t, "/console/keys/"+key.ID, "callback_secret", map[string]string{"password": password})
	if text := secretOn(t, shown); !strings.HasPrefix(text, "whsec_") {
		t.Errorf("the secret is %.8s…", text)
	}
	for _, path := range []string{"/console/callbacks", "/console/keys/" + key.ID} {
		shows(t, b.fills(t, path, "callback_test", nil), 200, "The test was delivered.", "HTTP 200")
	}
	r.had(t, "/mine", 2)

	secretOf := secretOn(t, b.fills(t, "/console/keys/"+key.ID, "key_rotate", map[string]string{"password": password}))
	id := submits(t, g, secretOf, "done")
	first := b.delivered(t, id)
	shows(t, b.page(t, "/console/callbacks"), 200, id, "Delivered", "HTTP 200", "films")
	leads(t, b.fills(t, "/console/callbacks", "callback_redeliver", nil), "/console/callbacks?done=redelivered")
	r.had(t, "/mine", 4)
	gatetest.Eventually(t, "the second delivery is seen", func() (d seenDelivery, ok bool) {
		d = b.delivered(t, id)
		return d, d.Attempts == first.Attempts+1
	})

	r.Close()
	shows(t, b.fills(t, "/console/callbacks", "callback_test", nil), 200, "The test was not delivered.")
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
