package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestCredentialsAreNotForwarded(t *testing.T) {
	const operators = "sk-operator-secret"
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_messages {
			reverse_proxy BACKEND {
				header_up X-Api-Key ` + operators + `
			}
		}
		modelgate_completions {
			reverse_proxy BACKEND {
				header_up Authorization "Bearer ` + operators + `"
			}
		}`})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, chat} {
		t.Run(path, func(t *testing.T) {
			// A backend that returns every request header, and some of its own.
			g.Backend.On(path, func(w http.ResponseWriter, r *http.Request) {
				for name, values := range r.Header {
					if name != "Content-Length" {
						w.Header()[name] = values
					}
				}
				for _, name := range []string{"Set-Cookie", "Set-Cookie2", "WWW-Authenticate", "Proxy-Authenticate", "Authentication-Info"} {
					w.Header().Set(name, "of the operator's account")
				}
				w.Header().Set("X-Request-Id", "theirs")
				w.Header().Set("Anthropic-Ratelimit-Requests-Remaining", "7")
				gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
			})
			headers := "Authorization: Bearer " + key + "\nX-Api-Key: " + key + `
				Cookie: session=secret-of-the-caller
				Proxy-Authorization: Basic secret-of-the-caller
				Connection: X-Hop, close
				X-Hop: secret-of-the-caller
				Te: trailers
				Forwarded: for=192.0.2.1
				X-Forwarded-User: root
				X-Forwarded-Client-Cert: secret-of-the-caller
				X-Original-URL: /elsewhere
				X-HTTP-Method-Override: DELETE
				Api-Key: secret-of-the-caller
				OpenAI-Organization: of-another-account
				X-Forwarded-For: 192.0.2.1
				X-Real-Ip: 192.0.2.1
				True-Client-Ip: 192.0.2.1
				X-Request-Id: chosen-by-the-caller
				Anthropic-Version: 2023-06-01
				Anthropic-Beta: tools-2024-05-16
				Idempotency-Key: 7
				User-Agent: sdk/1.0
				X-Stainless-Lang: go`
			got := g.Do(t, http.MethodPost, path, headers, bodyFor(path, path, ""))
			if got.Status != http.StatusOK {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			seen := g.Backend.Seen(path)[0].Header
			for name, values := range seen {
				text := strings.Join(values, " ")
				if strings.Contains(text, key) || strings.Contains(text, "secret-of-the-caller") || strings.Contains(text, "192.0.2.1") || strings.Contains(text, "chosen") {
					t.Errorf("the backend saw %s: %s", name, text)
				}
			}
			for name, want := range map[string]string{
				"Anthropic-Beta": "tools-2024-05-16", "User-Agent": "sdk/1.0", "X-Stainless-Lang": "go",
			} {
				if seen.Get(name) != want {
					t.Errorf("the backend saw %s: %q, want %q", name, seen.Get(name), want)
				}
			}
			if sent := seen.Get("X-Api-Key") + seen.Get("Authorization"); !strings.HasSuffix(sent, operators) {
				t.Errorf("the backend saw the credential %q, want the operator's", sent)
			}
			for name, values := range got.Header {
				text := strings.Join(values, " ")
				if strings.Contains(text, operators) || strings.Contains(text, "operator's account") || strings.Contains(text, "theirs") {
					t.Errorf("the caller saw %s: %s", name, text)
				}
			}
			if got.Header.Get("Anthropic-Ratelimit-Requests-Remaining") != "" {
				t.Error("the caller saw the operator's own rate limits")
			}
			// The log of this Gate is at DEBUG, and reverse_proxy writes the
			// request into it.
			g.CallLine(t, got.RequestID())
			for _, secret := range []string{key, "secret-of-the-caller"} {
				if g.Logged(secret) {
					t.Errorf("the log contains %q", secret[:6])
				}
			}
		})
	}
}

// TestTheOperatorsCredentialIsNotLoggedAfterABrokenAnswer breaks the connection to the backend.
// reverse_proxy then logs the request at WARN, and hides only Authorization and cookies.
func TestTheOperatorsCredentialIsNotLoggedAfterABrokenAnswer(t *testing.T) {
	const credential = "header_up Api-Key operators-secret"
	for name, proxy := range map[string]string{
		"alone": "reverse_proxy BACKEND {\n" + credential + "\n}",
		"matched for retries": `reverse_proxy BACKEND {
			` + credential + `
			lb_retries 1
			lb_retry_match {
				expression ` + "`{rp.status_code} == 503`" + `
			}
		}`,
		"a second proxy in handle_response": `reverse_proxy BACKEND {
			header_up X-First yes
			@busy status 503
			handle_response @busy {
				reverse_proxy BACKEND {
					` + credential + `
				}
			}
		}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{Site: "modelgate_messages {\n" + proxy + "\n}"})
			key := g.NewKey(t, nil).Secret
			g.Backend.On("breaks", func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Header.Get("Api-Key") == "operators-secret":
					gatetest.Then(gatetest.JSON(http.StatusOK, `{"content":[`), flush, gatetest.Reset)(w, r)
				case r.Header.Get("X-First") != "":
					gatetest.JSON(http.StatusServiceUnavailable, `{}`)(w, r)
				default:
					t.Error("the backend received no credential")
				}
			})
			post(t, g, messages, key, "breaks", "")
			g.WaitLine(t, func(line gatetest.Line) bool { return line.Text("msg") == "aborting with incomplete response" })
			if g.Logged("operators-secret") {
				t.Error("the log contains the operator's credential")
			}
		})
	}
}

// TestTheOperatorsCredentialIsNotRepeated uses a backend that returns the operator's
// credential under names that do not identify a credential.
func TestTheOperatorsCredentialIsNotRepeated(t *testing.T) {
	const secret = "upstream-credential-of-the-operator"
	for name, proxy := range map[string]string{
		"of a known scheme":          "header_up Authorization \"Bearer " + secret + "\"",
		"of a known name":            "header_up X-Vendor-Token " + secret,
		"with a matcher":             "header_up Api-Key " + secret + "\nlb_retries 1\nlb_retry_match {\nexpression `{rp.status_code} == 529`\n}",
		"of a name with underscores": "header_up X_Api_Key " + secret,
		"of an unknown name":         "header_up X-Tenant " + secret,
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{Site: "log\nmodelgate_messages {\npass_down X-Trace X-Note\nreverse_proxy BACKEND {\n" + proxy + "\n}\n}\n"})
			key := g.NewKey(t, nil).Secret
			g.Backend.On("m-1", func(w http.ResponseWriter, r *http.Request) {
				w.Header()["X-Trace"] = []string{"kept", "account " + secret + " of the operator"}
				w.Header().Set("X-Note", secret)
				gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
			})
			got := g.Do(t, "POST", messages, "X-Api-Key: "+key+"\nAnthropic-Version: 2023-06-01\nContent-Type: application/json",
				`{"model":"m-1","max_tokens":5,"messages":[{"role":"user","content":"hello"}]}`)
			if got.Status != http.StatusOK || fmt.Sprint(got.Header["X-Trace"]) != "[kept]" || got.Header["X-Note"] != nil {
				t.Errorf("answered %d with %v", got.Status, got.Header)
			}
			g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("msg") == "handled request" })
			if seen := g.Backend.Seen("m-1"); len(seen) != 1 || !strings.Contains(fmt.Sprint(seen[0].Header), secret) {
				t.Errorf("the backend received %v", seen)
			}
			if g.Logged(secret) {
				t.Error("the credential is in the log")
			}
		})
	}
}
