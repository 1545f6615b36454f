package caddymodule_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const redacting = "modelgate_redact {\nwrap json\n}"

// TestNoCredentialReachesTheLogs sends a marked credential in every place that is
// known, and looks for it in all that is logged at the level DEBUG: the access
// log, and the log of what reverse_proxy sent and got.
func TestNoCredentialReachesTheLogs(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{
		LogFormat: redacting,
		Site:      "log\nreverse_proxy BACKEND\n",
	})
	g.Backend.On("echo", func(w http.ResponseWriter, r *http.Request) {
		name, value, _ := strings.Cut(r.Header.Get("X-Answer"), "=")
		w.Header().Set(name, value)
	})
	const plain = "hush-"
	key := func(n int) string { return fmt.Sprintf("sk-abcdefghijklm-%03d-", n) }
	type place struct{ path, header, answer string }
	var places []place
	for _, name := range []string{
		"X-Api-Key", "Api-Key", "X-Auth-Token", "X-Goog-Api-Key", "X_Api_Key", "x_goog_api_key", "Stripe-Signature", "Webhook-Signature",
		"Authorization", "Proxy-Authorization", "Cookie", "X-Amz-Security-Token",
	} {
		places = append(places, place{header: name + ": " + plain})
	}
	for _, name := range []string{"access_token", "apikey", "Key", "key", "api_key", "api-key", "token", "sign", "%6Bey", "client_secret"} {
		places = append(places,
			place{path: "?a=b&" + name + "=" + plain},
			place{header: "Referer: https://x.example/?" + name + "=" + plain},
			place{path: "?a=b;" + name + "=" + plain})
	}
	for _, name := range []string{"X-Debug-Key", "Set-Cookie", "X_Api_Key", "Www-Authenticate-Token"} {
		places = append(places, place{answer: name + "=" + plain})
	}
	// What has the form of a key is hidden wherever it is.
	places = append(places,
		place{header: "X-Note: KEY"}, place{header: "User-Agent: KEY"}, place{path: "/KEY/x"}, place{path: "?note=KEY"},
		place{answer: "X-Note=KEY"}, place{answer: "Location=https://x.example/?x=KEY"},
		place{path: "/v1/files/abcdefghijklmn-hush-/boat.mp4"})

	for n, p := range places {
		mark := fmt.Sprintf("%s%03d-", plain, n)
		fill := func(text string) string {
			return strings.NewReplacer("KEY", key(n), plain, mark).Replace(text)
		}
		id := fmt.Sprintf("place-%03d", n)
		path := fill(p.path)
		if !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
		g.Do(t, "POST", path, "X-Place: "+id+"\nX-Answer: "+fill(p.answer)+"\n"+fill(p.header), `{"model":"echo"}`)
		g.WaitLine(t, func(l gatetest.Line) bool {
			request, _ := l["request"].(map[string]any)
			headers, _ := request["headers"].(map[string]any)
			return l.Text("msg") == "handled request" && fmt.Sprint(headers["X-Place"]) == "["+id+"]"
		})
		for _, credential := range []string{mark, key(n)} {
			if g.Logged(credential) {
				t.Errorf("%+v is logged", p)
			}
		}
	}
	for _, harmless := range []string{`"uri":"/?a=b&access_token=REDACTED"`, `"/v1/files/REDACTED/boat.mp4"`, `"X-Debug-Key":["REDACTED"]`, `"X-Place":["place-001"]`} {
		if !g.Logged(harmless) {
			t.Errorf("%s is not in the log", harmless)
		}
	}
}
