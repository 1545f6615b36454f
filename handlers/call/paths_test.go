package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// trap is a site that answers 418 to every request that the gateway passes on.
const trap = gatetest.Proxied + `
	respond "passed on" 418
`

var notFound = refusal{404, "not_found_error", fault.NotFound, "there is nothing at this path", ""}

// wire sends a request with exactly this target and a valid credential.
func wire(t *testing.T, g *gatetest.Gate, method, target, key, body string) gatetest.Answer {
	t.Helper()
	conn := g.Dial(t)
	head := method + " " + target + " HTTP/1.1\nHost: gate\nX-Api-Key: " + key + "\nAnthropic-Version: 2023-06-01\nConnection: close\n"
	if body != "" {
		head += "Content-Type: application/json\nContent-Length: " + itoa(len(body)) + "\n"
	}
	conn.Send(t, head+"\n")
	conn.Send(t, body)
	return conn.Receive(t, method)
}

func TestAMisspeltPathIs404AndIsNotPassedOn(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: trap})
	key := g.NewKey(t, nil).Secret
	body := bodyFor(messages, "never", "")
	for _, target := range []string{
		"//v1/messages", "/v1//messages", "/v1/messages/", "/v1/messages//", "/V1/messages", "/v1/Messages",
		"/v1/./messages", "/v1/x/../messages", "/x/../v1/messages", "/v1/messages/.", "/v1/messages/x/..",
		"/%761/messages", "/v1/m%65ssages", "/v1/%6d%65ssages", "/v1%2Fmessages", "/v1%2fmessages", "/v1/messages%2F",
		"/v1/messages%00", "/v1/messages%00.html", "/v1/messages%20", "/v1/messages;", "/v1/messages.", "/v1/messages%2e",
		`/v1\messages`, "/v1%5Cmessages", "/%2e/v1/messages", "/%2e%2e/v1/messages", "/v1/%252e/messages", "/v1%252fmessages",
		"/v1/messages;x", "/v1;a/messages", "/v1;a=b;c/messages;d", "/v1/messages%3f", "/v1/messages%3Fa=b", "/v1/messages%23x", "/v1/messages%0a", "/v1/messages:",
		"/v1/%256dessages/%25zz/..", "/v1/messages%2525", "/v1/%25252525256dessages",
		"/v1/messages/count_tokens/", "/v1/messages//count_tokens", "/v1/messages/Count_Tokens",
		"/v1/completions/", "/v1/Completions", "//v1/completions", "/v1/chat//completions", "/v1/chat/completions/",
		"/v1/chat%2Fcompletions", "/v1/chat/./completions", "/v1/models/", "/v1/Models", "/v1//models", "/V1/models/m", "/v1/models%2Fm",
		"/HealthZ", "/readyz/", "//healthz",
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			t.Run(method+" "+target, func(t *testing.T) {
				t.Parallel()
				got := wire(t, g, method, target, key, body)
				dialect := completions
				if folded := strings.ToLower(target); strings.Contains(folded, "messages") || strings.Contains(folded, "m%65ssages") || strings.Contains(folded, "dessages") || strings.Contains(folded, "%6d%65ssages") || strings.Contains(folded, "models") {
					dialect = messages // the version header names it for models
				}
				notFound.check(t, dialect, got)
			})
		}
	}
	t.Cleanup(func() {
		if n := g.Backend.Total(); n != 0 {
			t.Errorf("%d misspelt calls reached the backend", n)
		}
	})
}

func TestOtherPathsPass(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: trap})
	for _, target := range []string{"/", "/index.html", "/v2/messages", "/messages", "/v1messages", "/v10/messages", "/healthz", "/apis", "/x/v1/messages"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			if got := wire(t, g, http.MethodGet, target, "", ""); got.Body != "passed on" {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
		})
	}
}

// unserved is the refusal of a path that no directive serves.
var unserved = func() refusal {
	f := notFound
	f.message += "; POST is served at /v1/messages, /v1/messages/count_tokens, /v1/completions, /v1/chat/completions, /v1/responses, " +
		"/v1/responses/input_tokens, /v1/responses/compact, /v1/embeddings, /v1/moderations, /v1/rerank, /v2/rerank, " +
		"/v1/images/generations, /v1/images/edits, /v1/audio/speech, /v1/audio/transcriptions, /v1/audio/translations"
	return f
}()

func TestAnUnknownPathIs404InItsDialect(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for target, want := range map[string]string{
		"/v1":                  "",
		"/v1/unknown":          "",
		"/v1/messages/unknown": messages,
		"/v1/messages/batches": messages,
		"/v1/batches":          "",
		"/v1/chat":             "",
		"/v1/platform/video":   `{"code":"NOT_FOUND","message":"there is nothing at this path","error":{"code":"NOT_FOUND","message":"there is nothing at this path","type":"invalid_request_error","param":null}}`,
		"/v1/Platform//video":  `{"code":"NOT_FOUND","message":"there is nothing at this path","error":{"code":"NOT_FOUND","message":"there is nothing at this path","type":"invalid_request_error","param":null}}`,
		"/api/user/login":      `{"success":false,"message":"there is nothing at this path","code":"NOT_FOUND"}`,
		"/API/x":               `{"success":false,"message":"there is nothing at this path","code":"NOT_FOUND"}`,
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			got := wire(t, g, http.MethodPost, target, key, "{}")
			if !strings.HasPrefix(want, "{") {
				unserved.check(t, want, got)
			} else if got.Status != http.StatusNotFound || got.Body != want || got.RequestID() == "" {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
		})
	}
	t.Cleanup(func() {
		if n := g.Backend.Total(); n != 0 {
			t.Errorf("%d calls to unknown paths reached the backend", n)
		}
	})
}

func TestABaseURLWithV1TwiceIsReportedInTheDialect(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	twice := notFound
	twice.message += ": the base URL has /v1 twice"
	for target, dialect := range map[string]string{
		"/v1/v1/messages": messages, "/v1/v1/messages/count_tokens": messages, "/v1/v1/v1/messages": messages, "/v1//v1/messages": messages,
		"/v1/v1/models":           messages, // the version header names it
		"/v1/v1/chat/completions": chat, "/v1/v1/completions": completions, "/v1/v1": chat, "/v1/v1/unknown": chat,
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			got := wire(t, g, http.MethodPost, target, key, "{}")
			twice.check(t, dialect, got)
			if dialect == messages && got.Header.Get("Request-Id") != got.RequestID() {
				t.Errorf("Request-Id: %q", got.Header.Get("Request-Id"))
			}
		})
	}
}

func TestAWrongMethodIs405WithAllow(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: trap})
	key := g.NewKey(t, nil).Secret
	for target, allow := range map[string]string{
		messages: "POST", countTokens: "POST", completions: "POST", chat: "POST", "/v1/models": "GET, HEAD", "/v1/models/m": "GET, HEAD",
	} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST", "post", "QUERY"} {
			if strings.Contains(" "+strings.ReplaceAll(allow, ",", "")+" ", " "+method+" ") {
				continue
			}
			t.Run(method+" "+target, func(t *testing.T) {
				t.Parallel()
				got := wire(t, g, method, target, key, "")
				if got.Header.Get("Allow") != allow {
					t.Errorf("Allow: %q, want %q", got.Header.Get("Allow"), allow)
				}
				if method == http.MethodHead {
					if got.Status != http.StatusMethodNotAllowed || got.RequestID() == "" {
						t.Errorf("answered %d, request id %q", got.Status, got.RequestID())
					}
					return
				}
				dialect := target
				if strings.HasPrefix(target, "/v1/models") {
					dialect = messages // the version header names it
				}
				named := strings.TrimSuffix(strings.TrimSuffix(target, "m"), "/")
				if target == messages {
					named = target
				}
				refusal{405, "invalid_request_error", fault.MethodNotAllowed, named + " takes " + allow, ""}.check(t, dialect, got)
			})
		}
	}
	t.Cleanup(func() {
		if n := g.Backend.Total(); n != 0 {
			t.Errorf("%d wrong methods reached the backend", n)
		}
	})
}
