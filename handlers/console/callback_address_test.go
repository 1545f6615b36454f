package console_test

import "testing"

// special are addresses of this machine and of its network, in several spellings.
var special = []string{"http://127.0.0.1:1/", "http://localhost:1/", "http://2130706433/", "http://[::ffff:10.0.0.1]/", "http://metadata.internal/"}

func TestNonPublicCallbackAddressesAreRefusedByDefault(t *testing.T) {
	b := newBrowser(startGenerating(t, ""))
	b.registers(t)
	key := b.newKeyFor(t, "https://example.com/done")
	for _, url := range special {
		b.refused(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","callback_url":"`+url+`"}`, 400, "INVALID_PARAMETER")
		b.refused(t, "POST", "/api/token/", `{"password":"`+password+`","callback_url":"`+url+`"}`, 400, "INVALID_PARAMETER")
	}
}

// TestOnlyTheAllowedAddressIsAccepted checks that `allow` permits only its address and port. A name
// of the local network is accepted, because it may resolve to that address.
func TestOnlyTheAllowedAddressIsAccepted(t *testing.T) {
	b := newBrowser(startGenerating(t, "callback {\n allow 127.0.0.1:1\n}\n"))
	b.registers(t)
	key := b.newKeyFor(t, "https://example.com/done")
	for _, url := range []string{"http://127.0.0.1:1/", "http://localhost:1/", "http://hooks.corp.internal/"} {
		b.does(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","callback_url":"`+url+`"}`)
	}
	for _, url := range append(special[2:], "http://127.0.0.1:2/", "http://localhost/", "http://[::1]:1/", "http://169.254.169.254/", "http://metadata.google.internal/") {
		b.refused(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","callback_url":"`+url+`"}`, 400, "INVALID_PARAMETER")
	}
}

func TestAKeySaysThatItsCallbacksWaitForASecret(t *testing.T) {
	b := newBrowser(startGenerating(t, ""))
	b.registers(t)
	type shown struct {
		ID      string
		Missing bool `json:"callback_secret_missing"`
	}
	with := func(method, path, body string) (key shown) {
		t.Helper()
		into(t, b.does(t, method, path, body), &key)
		return key
	}
	const address = `"callback_url":"https://example.com/done"`
	key := with("POST", "/api/token/", `{"password":"`+password+`",`+address+`}`)
	if !key.Missing || !with("GET", "/api/token/"+key.ID, "").Missing {
		t.Error("a new key with an address does not say that it has no secret")
	}
	if with("POST", "/api/token/"+key.ID+"/callback_secret", "").Missing || with("GET", "/api/token/"+key.ID, "").Missing {
		t.Error("a key with a secret says that it has none")
	}
	if key = with("POST", "/api/token/", `{"password":"`+password+`"}`); key.Missing {
		t.Error("a key without an address asks for a secret")
	}
	if !with("PUT", "/api/token/"+key.ID, `{"password":"`+password+`",`+address+`}`).Missing {
		t.Error("a key that got an address does not say that it has no secret")
	}
}
