package console_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestAFormWithoutTheIDOfAThingDoesNothing sends forms that lack the field by which they name a
// session, a passkey or a delivery.
func TestAFormWithoutTheIDOfAThingDoesNothing(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	other := entersBy(t, g, name)
	for path, actions := range map[string][]string{
		"/console/security": {"session_end", "passkey_remove"}, "/console/callbacks": {"callback_redeliver"}, "/console/wallet": {"topup"},
	} {
		for _, action := range actions {
			for _, form := range []url.Values{{"do": {action}}, {"do": {action}, "id": {""}, "provider": {""}}} {
				shows(t, b.sends(t, path, form), 400, "incomplete or damaged")
			}
		}
	}
	shows(t, other.page(t, "/console"), 200, name)
}

// TestTheLongestPromptIsPricedKeptAndSubmitted sends prompts of the most characters that a task
// may have, and one more.
func TestTheLongestPromptIsPricedKeptAndSubmitted(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app + generating, Site: site})
	b, _ := taskUser(t, g, "25.00")
	const most = 32768
	for _, character := range []string{"海", "🌅", "<"} {
		prompt := strings.Repeat(character, most)
		priced := b.sends(t, "/console/tasks/new?model=video-test-1", taskForm("price_task", "video", prompt))
		shows(t, priced, 200, "0.50")
		if kept := promptOn(priced); kept != prompt {
			t.Errorf("of %d characters %s, %d bytes are kept", most, character, len(kept))
		}
		b.submitsByPage(t, "video", prompt)
		refused := b.sends(t, "/console/tasks/new?model=video-test-1", taskForm("submit_task", "video", prompt+character))
		if kept := promptOn(refused); refused.Status != 400 || kept != prompt+character {
			t.Errorf("%d: of the prompt that is too long, %d bytes are kept", refused.Status, len(kept))
		}
	}
}

// promptOn returns the prompt that the page of a task that is being composed shows.
func promptOn(page gatetest.Answer) string {
	_, rest, _ := strings.Cut(page.Body, `<textarea id="f-prompt"`)
	_, rest, _ = strings.Cut(rest, ">")
	prompt, _, _ := strings.Cut(rest, "</textarea>")
	return html.UnescapeString(prompt)
}

// TestAFormSurvivesTheEndOfItsSession ends the session while a form is being filled in.
func TestAFormSurvivesTheEndOfItsSession(t *testing.T) {
	t.Parallel()
	g := start(t)
	b, name := customer(t, g, "25.00")
	shown, buy := b.page(t, "/console/keys/new"), hidden(t, b.page(t, "/console/plans/1").Body, "buy")
	key, _ := filled(t, shown, "key_create")
	key.Set("name", "typed with <care>")
	key.Set("password", password)
	b.does(t, "DELETE", "/api/user/self/sessions/?which=all", "")

	asked := b.sends(t, "/console/keys/new", key)
	shows(t, asked, 401, "Your session has ended", "<code>NOT_LOGGED_IN</code>")
	hides(t, asked, password)
	wrong := b.completes(t, asked, "login", map[string]string{"username": name, "password": "not the password"})
	shows(t, wrong, 401, "password")
	confirm := b.completes(t, wrong, "login", map[string]string{"username": name, "password": password})
	shows(t, confirm, 200, "create an API key", "typed with &lt;care&gt;", name)
	made := b.completes(t, confirm, "key_create", map[string]string{"password": password})
	shows(t, made, 200, "Your new key")
	if keys := b.keys(t); len(keys.Items) != 1 || keys.Items[0].Name != "typed with <care>" {
		t.Errorf("the keys are %+v", keys.Items)
	}

	// With a second factor there is one page more, and a purchase is still made once.
	b.enrols(t)
	b.does(t, "POST", "/api/user/logout", "")
	half := b.completes(t, b.sends(t, "/console/plans/1", buy), "login", map[string]string{"username": name, "password": password})
	shows(t, half, 200, "Second factor")
	// Another form meets the session that waits for its code.
	shows(t, b.sends(t, "/console/plans/1", buy), 401, "Second factor")
	confirm = b.completes(t, half, "code", map[string]string{"code": b.digits(t)})
	shows(t, confirm, 200, "Nothing has been done yet", "Starter", "9.90", "Balance afterwards")
	leads(t, b.completes(t, confirm, "buy", nil), "/console/wallet?done=bought")
	leads(t, b.completes(t, confirm, "buy", nil), "/console/wallet?done=replayed")
	if got := b.lines(t, "wallet"); got != "purchase -9.90, credit 25.00" {
		t.Errorf("the lines are %s", got)
	}

	// Another user who logs in instead does not get the form of the first one.
	b.does(t, "POST", "/api/user/logout", "")
	other := newBrowser(g).registers(t)
	asked = b.sends(t, "/console/keys/new", key)
	confirm = b.completes(t, asked, "login", map[string]string{"username": other, "password": password})
	shows(t, b.completes(t, confirm, "key_create", map[string]string{"password": password}), 409, "Another user")
	// A form that is none leads to the log-in as before.
	b.does(t, "POST", "/api/user/logout", "")
	leads(t, b.sends(t, "/console/keys/new", url.Values{"do": {"nothing"}}), "/console/login?next=%2Fconsole%2Fkeys%2Fnew")
}

// TestAPageSaysWhichMethodsItTakes sends methods that no page takes.
func TestAPageSaysWhichMethodsItTakes(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	b.registers(t)
	for path, allowed := range map[string]string{"/console/keys/new": "GET, HEAD, POST", "/console/usage": "GET, HEAD"} {
		for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"} {
			answer := b.visits(t, method, path, "Sec-Fetch-Site: same-origin\n", "")
			shows(t, answer, 405, "<code>METHOD_NOT_ALLOWED</code>")
			if got := answer.Header.Get("Allow"); got != allowed {
				t.Errorf("%s %s allows %q, want %q", method, path, got, allowed)
			}
		}
	}
	shows(t, b.sends(t, "/console/usage", nil), 405)
}

// TestTheKeyOfTheConsoleHasAName shows a task that was submitted in the console.
func TestTheKeyOfTheConsoleHasAName(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app + generating, Site: site})
	b, name := taskUser(t, g, "5.00")
	shows(t, b.page(t, "/console/tasks"), 200)
	id := b.submitsByPage(t, "video", "done")
	b.untilShown(t, id, "success")
	g.WalletAtRest(t, name)
	key := shownByAPI[struct {
		ID string `json:"console_key_id"`
	}](t, b, "/api/user/self").ID
	if key == "" || key != shownByAPI[seenTask](t, b, "/api/task/self/"+id).KeyID {
		t.Errorf("the key of the console is %q", key)
	}
	shows(t, b.page(t, "/console/tasks/"+id), 200, "<dd>Console</dd>")
	shows(t, b.page(t, "/console/tasks?key_id="+key), 200, `<option value="`+key+`" selected>Console</option>`, id)
	usage := b.page(t, "/console/usage")
	shows(t, usage, 200, "<div>Console")
	hides(t, usage, "<code>"+key+"</code>")
}

// TestACommandIsWhatItShows has a prompt with marks that change the direction of the text behind them.
func TestACommandIsWhatItShows(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app + generating, Site: site})
	b, _ := taskUser(t, g, "5.00")
	id := b.submitsByPage(t, "video", "a \u202ereversed\u2066 boat 👩\u200d🚀")
	shown := b.page(t, "/console/tasks/"+id)
	_, command, _ := strings.Cut(shown.Body, `id="curl">`)
	command, _, _ = strings.Cut(command, "</pre>")
	if !strings.Contains(command, `a \u202ereversed\u2066 boat 👩`+"\u200d🚀") {
		t.Errorf("the command is %s", command)
	}
	if request := shownByAPI[seenTask](t, b, "/api/task/self/"+id).Request; request["prompt"] != "a \u202ereversed\u2066 boat 👩\u200d🚀" {
		t.Errorf("the request is %v", request)
	}
}

// TestTheIdempotencyKeyOfAnotherUserIsWorthNothing buys with the key by which another user has
// bought.
func TestTheIdempotencyKeyOfAnotherUserIsWorthNothing(t *testing.T) {
	g := start(t)
	first, _ := customer(t, g, "25.00")
	second, _ := customer(t, g, "25.00")
	form := hidden(t, first.page(t, "/console/plans/1").Body, "buy")
	leads(t, first.sends(t, "/console/plans/1", form), "/console/wallet?done=bought")
	form.Del("as")
	leads(t, second.sends(t, "/console/plans/1", form), "/console/wallet?done=bought")
	for _, b := range []*browser{first, second} {
		if got := b.lines(t, "wallet"); got != "purchase -9.90, credit 25.00" {
			t.Errorf("the ledger has %q", got)
		}
	}
	g.Verify(t)
}

// TestAddressesAndNamesOfUsersReachNoOtherPlace sends addresses inside the network, and names with
// ends of lines.
func TestAddressesAndNamesOfUsersReachNoOtherPlace(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app + generating, Site: site})
	b, _ := taskUser(t, g, "5.00")
	for _, address := range []string{
		g.URL("/"), "http://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest", "file:///etc/passwd", "gopher://x", "https://user:secret@hooks.example/", "https://0x7f000001/", "https://hooks.example:22\r\nX: y/",
	} {
		made := b.fills(t, "/console/keys/new", "key_create", map[string]string{"callback_url": address, "password": password})
		if made.Status != 400 && made.Status != 200 {
			t.Errorf("%q gets %d", address, made.Status)
		}
		for _, key := range b.keys(t).Items {
			tested := b.sends(t, "/console/keys/"+key.ID, url.Values{"do": {"callback_test"}, "key_id": {key.ID}})
			if tested.Status >= 500 || strings.Contains(tested.Body, "The test was delivered") {
				t.Errorf("the test of %q gets %d:\n%s", address, tested.Status, tested.Body)
			}
		}
	}
	if seen := g.Backend.Total(); seen != 0 {
		t.Errorf("%d requests arrived", seen)
	}
	for _, name := range []string{"a\r\nX-Evil: yes", `a"; filename="evil.html`, "../../etc/passwd", "<script>alert(1)</script>"} {
		answer := b.sends(t, "/console/tasks/new?model=video-test-1", taskForm("submit_task", "video", "done", "output.media_name", name))
		if answer.Status >= 500 || answer.Header.Get("X-Evil") != "" || strings.Contains(answer.Body, "<script>alert") {
			t.Errorf("the name %q gets %d %v", name, answer.Status, answer.Header)
		}
	}
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
