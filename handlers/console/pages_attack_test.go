package console_test

import (
	"net/url"
	"testing"
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
