package console_test

import (
	"html"
	"net/url"
	"strings"
	"testing"

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
