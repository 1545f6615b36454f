package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestNoCredentialOfTheCallerReachesTheBackendNorTheOperatorsTheCaller(t *testing.T) {
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
			// A backend that sends back every header it got, and some of its own.
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
				"Anthropic-Beta": "tools-2024-05-16", "Idempotency-Key": "7", "User-Agent": "sdk/1.0", "X-Stainless-Lang": "go",
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
			if got.Header.Get("Anthropic-Ratelimit-Requests-Remaining") != "7" {
				t.Error("a header of the backend was lost")
			}
			// The log of this Gate is at DEBUG, and reverse_proxy writes the
			// request into it.
			g.CallLine(t, got.RequestID())
			for _, secret := range []string{key, "secret-of-the-caller"} {
				if g.Logged(secret) {
					t.Errorf("%q stands in the log", secret[:6])
				}
			}
		})
	}
}

// reverse_proxy describes to its log, at WARN, what it has sent to a backend that
// breaks off, and hides only Authorization and cookies of it.
func TestTheOperatorsCredentialIsNotLoggedWhenABackendBreaksOff(t *testing.T) {
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
		"in place of another": `reverse_proxy BACKEND {
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
					t.Error("the backend was asked without the credential")
				}
			})
			post(t, g, messages, key, "breaks", "")
			g.WaitLine(t, func(line gatetest.Line) bool { return line.Text("msg") == "aborting with incomplete response" })
			if g.Logged("operators-secret") {
				t.Error("the operator's credential stands in the log")
			}
		})
	}
}

func TestARetryCanBeMatchedOnWhatWentUpstream(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_messages {
			reverse_proxy BACKEND BACKEND {
				header_up X-Tier gold
				request_buffers 1MiB
				lb_retries 1
				lb_retry_match {
					header X-Tier gold
					expression ` + "`{rp.status_code} == 503`" + `
				}
			}
		}`})
	key := g.NewKey(t, nil).Secret
	g.Backend.On("busy", gatetest.JSON(http.StatusServiceUnavailable, `{}`))
	post(t, g, messages, key, "busy", "")
	if n := len(g.Backend.Seen("busy")); n != 2 {
		t.Errorf("the backend was asked %d times, want 2", n)
	}
}

func TestTheRequestIDIsOursAndTheBackendsStaysBesideIt(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	g.Backend.On("named", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Request-Id", "req_backend")
		gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
	})
	named, unnamed := post(t, g, messages, key, "named", ""), post(t, g, messages, key, "unnamed", "")
	if named.Header.Get("Request-Id") != "req_backend" {
		t.Errorf("request-id: %q, want the backend's", named.Header.Get("Request-Id"))
	}
	if unnamed.Header.Get("Request-Id") != unnamed.RequestID() {
		t.Errorf("request-id: %q, want ours", unnamed.Header.Get("Request-Id"))
	}
	if named.RequestID() == unnamed.RequestID() {
		t.Error("two calls have one id")
	}
}

func TestOfTheQueryOnlyBetaPasses(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for query, want := range map[string]string{
		"":                              "",
		"?beta=true":                    "?beta=true",
		"?key=" + key:                   "",
		"?a=1&beta=true&api_key=" + key: "?beta=true",
		"?b%65ta=x%20y&beta=z":          "?b%65ta=x%20y&beta=z",
		"?betas=1&Beta=1&xbeta=1":       "",
		"?beta=true;key=" + key:         "?beta=true;key=" + key,
	} {
		if strings.Contains(query, ";") {
			continue
		}
		model := "query " + query
		g.Do(t, http.MethodPost, messages+query, headersFor(messages, key), bodyFor(messages, model, ""))
		if seen := g.Backend.Seen(model); len(seen) != 1 || seen[0].URI != messages+want {
			t.Errorf("%s: the backend saw %v, want the query %q", query, seen, want)
		}
	}
}
