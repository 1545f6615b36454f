package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestTheClientsHeadersGoUpstreamWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)

	kept := map[string]string{
		"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "one-2025-01-01,two-2025-02-02",
		"X-Stainless-Lang": "go", "User-Agent": "tests/1", "Accept": "text/event-stream",
	}
	const once = "Idempotency-Key" // the caller's own, for the upstream
	// Each of these contains the word, in different forms.
	const word = "smuggled"
	dropped := []string{
		"Cookie", "session=" + word,
		"Proxy-Authorization", "Basic " + word,
		"Forwarded", "for=" + word,
		"X-Forwarded-For", word, "X-Forwarded-Host", word, "X-Forwarded-Proto", word,
		"X-Real-Ip", word, "X-Client-Ip", word, "True-Client-Ip", word,
		"X-Request-Id", word, "Te", "trailers;" + word,
		"Keep-Alive", word, "Upgrade", word,
		"Connection", "x-hop, upgrade, keep-alive", "Connection", " X-HOP-TOO",
		"X-Hop", word, "X-Hop-Too", word,
		"Accept-Encoding", "br, x-" + word,
	}
	for path, body := range callBodies {
		for _, credential := range [][]string{{"X-Api-Key", g.Key}, {"Authorization", "bearer " + g.Key}} {
			header := append(append([]string{once, "once"}, dropped...), credential...)
			for name, value := range kept {
				if name != "Anthropic-Version" { // all of these calls send it
					header = append(header, name, value)
				}
			}
			if a := g.call(path, body, header...); a.Status != http.StatusOK {
				t.Fatalf("%s: %d %s %v", path, a.Status, a.Body, a.Err)
			}
			got := b.next()
			for name, value := range kept {
				if got.Header.Get(name) != value {
					t.Errorf("%s: %s was sent as %q, want %q", path, name, got.Header.Get(name), value)
				}
			}
			if value := got.Header.Get(once); !strings.HasSuffix(value, "-once") {
				t.Errorf("%s: %s was sent as %q", path, once, value)
			}
			if strings.Contains(fmt.Sprint(got.Header, got.URI, got.Host), word) {
				t.Errorf("%s: a hop-by-hop header was forwarded: %v", path, got.Header)
			}
			if got.Header.Get("X-Api-Key") != g.operatorKey || len(got.Header["X-Api-Key"]) != 1 {
				t.Errorf("%s: the backend got the key %q", path, got.Header["X-Api-Key"])
			}
		}
	}
}

func TestOnlyBetaOfTheQueryGoesUpstream(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)
	for sent, want := range map[string]string{
		"":                             "",
		"?beta=true":                   "?beta=true",
		"?x=1&beta=true&key=sk-1":      "?beta=true",
		"?beta=a%20b&y=&beta":          "?beta=a%20b&beta",
		"?api_key=sk-1&access_token=2": "",
		"?BETA=true&betas=1":           "",
		"?b%65ta=true":                 "?b%65ta=true",
	} {
		if a := g.call("/v1/messages"+sent, callBodies["/v1/messages"], g.bearer()...); a.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", sent, a.Status, a.Body)
		}
		if got := b.next(); got.URI != "/v1/messages"+want {
			t.Errorf("%q was sent as %s", sent, got.URI)
		}
	}
}

func TestAnswersContainNothingOfTheOperatorsAccount(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 401, 402, 403, 404, 429, 500, 529} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			// The backend repeats the request in every part of its answer.
			b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
				echo := a.Header.Get("X-Api-Key")
				body := `{"error":{"message":"as you wish"}}`
				if status >= 401 && status <= 403 {
					body = `{"error":{"message":"the key ` + echo + ` is not valid"}}`
				}
				respond(status, body,
					"X-Api-Key", echo, "Authorization", "Bearer "+echo, "Set-Cookie", "key="+echo, "Set-Cookie2", "x",
					"Www-Authenticate", "Bearer key="+echo, "Proxy-Authenticate", "Basic "+echo, "Proxy-Authorization", "Basic "+echo,
					"Authentication-Info", echo, "Proxy-Authentication-Info", echo,
					"X-Request-Id", "vendor", "Request-Id", "vendor",
				)(s, a)
			})
			quiet := forwarding(b)
			quiet.Log = "INFO" // at DEBUG reverse_proxy logs the headers that backends send
			g := running(t, quiet, b)
			for path, body := range callBodies {
				a := g.call(path, body, g.bearer()...)
				want := status
				if status >= 401 && status <= 403 {
					want = http.StatusServiceUnavailable
				}
				if a.Status != want {
					t.Errorf("%s: %d, want %d: %s", path, a.Status, want, a.Body)
				}
				for _, name := range []string{
					"X-Api-Key", "Authorization", "Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate",
					"Proxy-Authorization", "Authentication-Info", "Proxy-Authentication-Info",
				} {
					if values := a.Header.Values(name); len(values) > 0 {
						t.Errorf("%s: %s was returned as %q", path, name, values)
					}
				}
				if id := a.Header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
					t.Errorf("%s: the id of the request is %q, not the gateway's", path, id)
				}
				if want == status && strings.HasPrefix(path, "/v1/messages") && a.Header.Get("Request-Id") != "vendor" {
					t.Errorf("%s: request-id is %q, not the vendor's", path, a.Header.Get("Request-Id"))
				}
			}
		})
	}
}

func TestAnInterimAnswerEndsAtTheGateway(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		s.w.Header().Set("Link", "</x>; rel=preload")
		s.w.Header().Set("Set-Cookie", "key="+a.Header.Get("X-Api-Key"))
		s.w.WriteHeader(http.StatusEarlyHints)
		s.w.Header().Del("Link")
		s.w.Header().Del("Set-Cookie")
		answerCalls(s, a)
	})
	g := running(t, forwarding(b), b)
	raw := g.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: " + g.Address + "\r\nConnection: close\r\nAuthorization: Bearer " + g.Key +
		"\r\nContent-Length: " + fmt.Sprint(len(callBodies["/v1/chat/completions"])) + "\r\n\r\n" + callBodies["/v1/chat/completions"])
	if !strings.HasPrefix(raw, "HTTP/1.1 200 ") || strings.Contains(raw, "Link:") || !strings.HasSuffix(raw, chatJSON) {
		t.Errorf("the client read\n%s", raw)
	}
	if strings.Contains(raw, "Set-Cookie") || strings.Contains(raw, g.operatorKey) {
		t.Errorf("the client received\n%s", raw)
	}
}

func TestTrailersAreFilteredLikeHeaders(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		echo := a.Header.Get("X-Api-Key")
		s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream", "Trailer", "X-Api-Key")
		s.write(strings.Join(chatEvents, ""))
		s.w.Header().Set("X-Api-Key", echo)
		s.w.Header().Set(http.TrailerPrefix+"Set-Cookie", "key="+echo) // not announced
	})
	quiet := forwarding(b)
	quiet.Log = "INFO" // at DEBUG reverse_proxy logs the headers that backends send
	g := running(t, quiet, b)
	for _, p := range []protocol{http1, http2} {
		resp := g.open(t.Context(), p, "/v1/chat/completions", streamBodies["/v1/chat/completions"])
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != strings.Join(chatEvents, "") {
			t.Errorf("%s: got %q (%v)", p, body, err)
		}
		for name, values := range resp.Trailer {
			if len(values) > 0 {
				t.Errorf("%s: the trailer %s was returned as %q", p, name, values)
			}
		}
	}
}
