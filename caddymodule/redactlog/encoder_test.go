package redactlog_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestMain(m *testing.M) { gatetest.Main(m) }

const redacting = "modelgate_redact {\nwrap json\n}"

// TestNoCredentialReachesTheLogs sends a marked credential in every known place. It searches
// for it in all logs at level DEBUG: the access log and the log of reverse_proxy.
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
		"Authorization", "Proxy-Authorization", "Cookie", "X-Amz-Security-Token", "X-Secrets", "X-Auth-Tokens", "X_Api_Keys", "X-Otp", "X-Session",
	} {
		places = append(places, place{header: name + ": " + plain})
	}
	for _, name := range []string{"access_token", "apikey", "Key", "key", "api_key", "api-key", "token", "sign", "%6Bey", "client_secret", "keys[]", "code", "reset_code", "otp", "session"} {
		places = append(places,
			place{path: "?a=b&" + name + "=" + plain},
			place{header: "Referer: https://x.example/?" + name + "=" + plain},
			place{path: "?a=b;" + name + "=" + plain})
	}
	for _, name := range []string{"X-Debug-Key", "Set-Cookie", "X_Api_Key", "Www-Authenticate-Token", "X-Secrets", "X-Tokens"} {
		places = append(places, place{answer: name + "=" + plain})
	}
	// Text with the form of a key is hidden everywhere.
	places = append(places,
		place{header: "X-Note: KEY"}, place{header: "User-Agent: KEY"}, place{path: "/KEY/x"}, place{path: "?note=KEY"},
		place{answer: "X-Note=KEY"}, place{answer: "Location=https://x.example/?x=KEY"},
		place{path: "/v1/files/abcdefghijklmn-hush-/boat.mp4"},
		place{path: "http://user:hush-@127.0.0.1/x"}, place{path: "http://hush-@127.0.0.1/x"}, place{path: "HTTP://u:a%2Fhush-@[::1]:80/x"},
		place{header: "Referer: https://user:hush-@x.example/"}, place{path: "?next=https%3A%2F%2Fuser%3Ahush-%40x.example%2F"},
		place{answer: "Location=https://user:hush-@x.example/"}, place{header: "X-Note: see https://u:p@ss@hush-@x.example?a=b@c"})

	for n, p := range places {
		mark := fmt.Sprintf("%s%03d-", plain, n)
		fill := func(text string) string {
			return strings.NewReplacer("KEY", key(n), plain, mark).Replace(text)
		}
		id := fmt.Sprintf("place-%03d", n)
		path := fill(p.path)
		if !strings.HasPrefix(path, "/") && !strings.Contains(path, "://") {
			path = "/" + path
		}
		const body = `{"model":"echo"}`
		wire := g.Dial(t) // HTTP clients would normalize the address
		wire.Send(t, "POST "+path+" HTTP/1.1\nHost: "+g.Address+"\nConnection: close\nX-Place: "+id+"\nX-Answer: "+fill(p.answer)+
			"\nContent-Length: "+strconv.Itoa(len(body))+"\n"+strings.TrimLeft(fill(p.header)+"\n", "\n")+"\n"+body)
		wire.Receive(t, "POST")
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
	for _, harmless := range []string{`"uri":"/?a=b&access_token=REDACTED"`, `"/v1/files/REDACTED/boat.mp4"`, `"X-Debug-Key":["REDACTED"]`, `"X-Place":["place-001"]`,
		`"uri":"http://REDACTED@127.0.0.1/x"`, `"uri":"/?a=b&code=REDACTED"`} {
		if !g.Logged(harmless) {
			t.Errorf("%s is not in the log", harmless)
		}
	}
}
