package console_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

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
		return key, key.Usage != nil && key.Usage.Used != "0.00"
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
