package call_test

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// fallbackPrices make a call of the second model cost ten times as much as one of the first.
const fallbackPrices = `
	price first* {
		input 0.001
		output 0.01
		context 10000
		max_output 1000
	}
	price second* {
		input 0.01
		output 0.1
		context 10000
		max_output 1000
	}
	price third* {
		request 0.5
	}
	alias backup second
	limits {
		first_byte 2s
	}
`

// fallbackSite is a site whose models first* have a fallback.
func fallbackSite(words, proxy string) string {
	block := func(name string) string {
		return name + " {\n" + words + "\n" + proxy + "\n}\n"
	}
	return block("modelgate_messages") + block("modelgate_openai")
}

// refused is a listener's address that refuses connections.
func refusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// status is a script that answers with an error in JSON.
func status(code int) http.HandlerFunc {
	return gatetest.JSON(code, fmt.Sprintf(`{"type":"error","error":{"type":"overloaded_error","message":"status %d"}}`, code))
}

// silent is a script that answers nothing more.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestAFallbackAnswersAfterANamedFailure(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite(
		"fallback first* backup third on dial 429 503 4xx 529 500 timeout broken",
		"@dead modelgate_model first-dial\nreverse_proxy @dead "+refusedAddress(t)+"\nreverse_proxy BACKEND")})
	big := strings.Repeat("x", 300<<10)
	for name, script := range map[string]http.HandlerFunc{
		"429": status(429), "401": status(401), "404": status(404), "500": status(500), "503": status(503), "529": status(529),
		"429 with a long body": gatetest.JSON(429, `{"x":"`+big+big+`"}`),
		"503 with a page":      gatetest.Body(503, "text/html", "<html>"),
		"503 with a broken body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			w.WriteHeader(503)
		},
		"timeout":                silent,
		"broken":                 gatetest.Reset,
		"dial":                   nil,
		"503 with a silent body": gatetest.Then(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503); gatetest.Send(w, "x") }, silent),
		"429 with a stream": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(429)
			gatetest.Send(w, "data: x\n\n")
		},
		"429 with a vendor's key": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Request-Id", "of-the-first")
			status(429)(w, nil)
		},
	} {
		for _, long := range []bool{false, true} {
			t.Run(fmt.Sprint(name, long), func(t *testing.T) {
				t.Parallel()
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				model := modelName(fmt.Sprint("first-", strings.ReplaceAll(name, " ", "-"), long))
				if name == "dial" {
					model = "first-dial"
				}
				more := `,"metadata":{"user_id":"` + name + fmt.Sprint(long) + `"}`
				if long {
					more += `,"system":"` + big + `"`
				}
				g.Backend.On(model, script)
				g.Backend.On("second", gatetest.JSON(200, messageAnswer))
				got := post(t, g, messages, key.Secret, model, more)
				if got.Status != 200 || got.Body != messageAnswer || got.Header.Get("Request-Id") == "of-the-first" {
					t.Fatalf("answered %d %v %s", got.Status, got.Header, got.Body)
				}
				found := 0
				for _, seen := range g.Backend.Seen("second") {
					if string(seen.Body) == bodyFor(messages, "second", more) {
						found++
					}
				}
				if n := len(g.Backend.Seen(model)); found != 1 || n != 1 && name != "dial" {
					t.Errorf("the fallback received the body %d times, the first model was called %d times", found, n)
				}
				line := g.CallLine(t, got.RequestID())
				word := strings.Fields(name)[0]
				if line.Text("fallback") != model+" "+word || line.Text("model") != "second" || line.Text("asked_model") != model || line.Text("cost") != "0.00000049" {
					t.Errorf("logged %v", line)
				}
				if (word == "401") != (line.Text("level") == "error") {
					t.Errorf("the level is %s", line.Text("level"))
				}
				wantCall(t, g, got, "complete", "reported", 9, 4)
				if w := g.WalletAtRest(t, key.UserID); w.Balance != amount(t, "1")-490 {
					t.Errorf("the balance is %v", w.Balance)
				}
				g.Verify(t)
			})
		}
	}
}

func TestAStreamFallsBackBeforeItsFirstByteOnly(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first second on 429 5xx broken timeout dial", "reverse_proxy BACKEND")})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("second", gatetest.Stream(append(chatChunks, usageChunk, doneChunk)...))
	g.Backend.On("first", status(503))
	got := post(t, g, chat, key.Secret, "first", streamed)
	if want := strings.Join(chatChunks, "") + doneChunk; got.Body != want { // the caller did not ask for usage
		t.Errorf("answered %d %q", got.Status, got.Body)
	}
	if seen := string(g.Backend.Seen("second")[0].Body); seen != `{"stream_options":{"include_usage":true},"model":"second","messages":[{"role":"user","content":"hello"}],"stream":true}` {
		t.Errorf("the fallback received %s", seen)
	}
	wantCall(t, g, got, "complete", "reported", 7, 2)

	for name, script := range map[string]http.HandlerFunc{
		"broken after the head":      gatetest.Then(gatetest.Stream(), gatetest.Reset),
		"broken after a chunk":       gatetest.Then(gatetest.Stream(chatChunks[:2]...), gatetest.Reset),
		"an error in the stream":     gatetest.Stream("data: {\"error\":{\"message\":\"Overloaded\",\"code\":503}}\n\n"),
		"an error event, and [DONE]": gatetest.Stream("data: {\"error\":{\"message\":\"Overloaded\",\"code\":503}}\n\n", doneChunk),
	} {
		g.Backend.On("first", script)
		before := len(g.Backend.Seen("second"))
		got := post(t, g, chat, key.Secret, "first", streamed)
		if n := len(g.Backend.Seen("second")); n != before {
			t.Errorf("%s: the fallback was called: %d %s", name, got.Status, got.Body)
		}
		if line := g.CallLine(t, got.RequestID()); line.Text("fallback") != "" || line.Text("model") != "first" {
			t.Errorf("%s: logged %v", name, line)
		}
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}

func TestACallIsRepeatedOnlyAfterAFailureThatWasNamed(t *testing.T) {
	for _, c := range []struct {
		named, fails string
		script       http.HandlerFunc
		status       int
	}{
		{"dial 429", "500", status(500), 500},
		{"dial 429", "broken", gatetest.Reset, 503},
		{"dial 429", "timeout", silent, 504},
		{"dial 5xx", "429", status(429), 429},
		{"4xx timeout", "broken", gatetest.Reset, 503},
		{"broken timeout", "a redirect", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/"); w.WriteHeader(302) }, 503},
		{"broken timeout 4xx 5xx dial", "a page", gatetest.Body(200, "text/html", "<html>"), 200},
	} {
		t.Run(c.named+" "+c.fails, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first second on "+c.named, "reverse_proxy BACKEND")})
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			g.Backend.On("first", c.script)
			got := post(t, g, messages, key.Secret, "first", "")
			if got.Status != c.status || len(g.Backend.Seen("second")) != 0 || len(g.Backend.Seen("first")) != 1 {
				t.Errorf("answered %d %s; the fallback was called %d times", got.Status, got.Body, len(g.Backend.Seen("second")))
			}
			if w := g.WalletAtRest(t, key.UserID); w.Balance != amount(t, "1") {
				t.Errorf("the balance is %v", w.Balance)
			}
		})
	}
}

func TestFallbacksAreCountedByTheirFailure(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first* backup on 429 dial",
		"@dead modelgate_model first-dial\nreverse_proxy @dead "+refusedAddress(t)+"\nreverse_proxy BACKEND")})
	g.Backend.On("first-429", status(429))
	g.Backend.On("second", gatetest.JSON(200, messageAnswer))
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	before := fallbacksCounted(t, g)
	post(t, g, messages, key.Secret, "first-429", "")
	post(t, g, messages, key.Secret, "first-429", "")
	post(t, g, messages, key.Secret, "first-dial", "")
	after := fallbacksCounted(t, g)
	if after["4xx"]-before["4xx"] != 2 || after["dial"]-before["dial"] != 1 {
		t.Errorf("counted %v, before %v", after, before)
	}
}

// fallbacksCounted returns the fallbacks of messages by failure. All gateways of the process count
// together, so a test that uses it is not parallel.
func fallbacksCounted(t *testing.T, g *gatetest.Gate) map[string]int {
	t.Helper()
	_, text := g.Admin(t, http.MethodGet, "/metrics", nil)
	counted := make(map[string]int)
	for _, found := range regexp.MustCompile(`modelgate_fallbacks_total\{failure="(\w+)",route="messages"\} (\d+)`).FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(found[2]))
		if err != nil {
			t.Fatal(err)
		}
		counted[string(found[1])] = n
	}
	return counted
}

func TestTheLastFallbackAnswersWithItsOwnFailure(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first second third on 503 429", "@known modelgate_model first second\nreverse_proxy @known BACKEND")})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("first", status(503))
	g.Backend.On("second", status(429))
	got := post(t, g, messages, key.Secret, "first", "")
	line := g.CallLine(t, got.RequestID())
	if got.Status != 404 || !strings.Contains(got.Body, `no model \"third\"`) || line.Text("fallback") != "first 503, second 429" || line.Text("ended") != "refused" {
		t.Errorf("answered %d %s, logged %v", got.Status, got.Body, line)
	}
	g.Backend.On("second", status(500))
	got = post(t, g, messages, key.Secret, "first", "")
	if !strings.Contains(got.Body, "status 500") || got.Status != 500 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != amount(t, "1") {
		t.Errorf("the balance is %v", w.Balance)
	}
	g.Verify(t)
}

func TestEachAttemptGetsTheRequestOfTheCaller(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: `
		modelgate_messages {
			pass_up X-Kept
			fallback first second on 503
			@first modelgate_model first
			handle @first {
				request_header X-Kept changed
				request_header Authorization "Bearer sk-of-the-first-vendor"
				rewrite /of/the/first
				reverse_proxy BACKEND
			}
			handle {
				reverse_proxy BACKEND {
					header_up X-Api-Key sk-of-the-second-vendor
				}
			}
		}`})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("first", status(503))
	g.Backend.On("second", gatetest.JSON(200, messageAnswer))
	got := g.Do(t, http.MethodPost, messages+"?beta=true", headersFor(messages, key.Secret)+"X-Kept: asked\nIdempotency-Key: one\n", bodyFor(messages, "first", ""))
	if got.Status != 200 {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	first, second := g.Backend.Seen("first")[0], g.Backend.Seen("second")[0]
	if first.Header.Get("X-Kept") != "changed" || first.Header.Get("Authorization") == "" || !strings.HasPrefix(first.URI, "/of/the/first") {
		t.Errorf("the first attempt: %v", first)
	}
	if second.Header.Get("X-Kept") != "asked" || second.Header.Get("Authorization") != "" || second.URI != messages+"?beta=true" || second.Header.Get("X-Api-Key") != "sk-of-the-second-vendor" {
		t.Errorf("the second attempt: %v", second)
	}
	if one, two := first.Header.Get("Idempotency-Key"), second.Header.Get("Idempotency-Key"); one == "" || two != one+"-2" {
		t.Errorf("the idempotency keys are %q and %q", one, two)
	}
	if g.Logged("sk-of-the-first-vendor") || g.Logged("sk-of-the-second-vendor") {
		t.Error("a key is logged")
	}
}

func TestFreeRoutesAndModelsHaveFallbacks(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "unpriced allow\n" + fallbackPrices, Site: fallbackSite("fallback free* second free-2 on 503\nfallback first free on 503", "reverse_proxy BACKEND")})
	key := g.NewKey(t, nil)
	g.Backend.On("free-1", status(503))
	g.Backend.On("second", gatetest.JSON(200, messageAnswer))
	if got := post(t, g, countTokens, key.Secret, "free-1", ""); got.Status != 200 || got.Body != messageAnswer {
		t.Errorf("a count: answered %d %s", got.Status, got.Body)
	}
	if got := post(t, g, messages, key.Secret, "free-1", ""); got.Status != 402 {
		t.Errorf("a free model with an expensive fallback: answered %d %s", got.Status, got.Body)
	}
	g.Credit(t, key.UserID, "1.00")
	got := post(t, g, messages, key.Secret, "free-1", "")
	wantCall(t, g, got, "complete", "reported", 9, 4)
	if w := g.WalletAtRest(t, key.UserID); w.Balance != amount(t, "1")-490 {
		t.Errorf("the balance is %v", w.Balance)
	}
	// second does not cover the member, so the next one answers.
	g.Backend.On("free-2", gatetest.JSON(200, messageAnswer))
	got = post(t, g, messages, key.Secret, "free-1", `,"unknown_member":1`)
	if line := g.CallLine(t, got.RequestID()); got.Status != 200 || line.Text("model") != "free-2" {
		t.Errorf("answered %d %s, logged %v", got.Status, got.Body, line)
	}
	g.Backend.On("first", status(503))
	g.Backend.On("free", gatetest.JSON(200, messageAnswer))
	got = post(t, g, messages, key.Secret, "first", "")
	if line := g.CallLine(t, got.RequestID()); got.Status != 200 || line.Text("cost") != "" {
		t.Errorf("a free fallback: logged %v", line)
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}

func TestRetriesOfReverseProxyComeBeforeFallbacks(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first second on 503", `reverse_proxy BACKEND BACKEND {
		lb_policy round_robin
		lb_retries 1
		lb_retry_match {
			expression `+"`{rp.status_code} == 503`"+`
		}
		request_buffers 33MiB
	}`)})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("first", status(503))
	g.Backend.On("second", gatetest.JSON(200, messageAnswer))
	got := post(t, g, messages, key.Secret, "first", "")
	if line := g.CallLine(t, got.RequestID()); got.Status != 200 || line.Text("fallback") != "first 503" || len(g.Backend.Seen("first")) != 2 {
		t.Errorf("answered %d %s, logged %v", got.Status, got.Body, line)
	}
}

func TestInvalidFallbacksAreRefused(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: gatetest.Proxied})
	for words, want := range map[string]string{
		"fallback":                                                     "fallback <model> <other model>… on <failure>…",
		"fallback first second":                                        "fallback <model> <other model>… on <failure>…",
		"fallback first on 503":                                        "fallback <model> <other model>… on <failure>…",
		"fallback first second on":                                     "fallback <model> <other model>… on <failure>…",
		"fallback first second on 200":                                 `fallback first: "200" is no failure; allowed: dial, timeout, broken, 4xx, 5xx, a status from 400 to 599`,
		"fallback first second on 3xx":                                 "is no failure",
		"fallback first second* on dial":                               `"second*" is a pattern`,
		"fallback first first on dial":                                 "first is given twice",
		"fallback first second second on dial":                         "second is given twice",
		"fallback first second on dial\nfallback first third on dial":  "fallback first is given twice",
		"fallback first other on dial":                                 "fallback first: other has no price for calls",
		"fallback second first on dial\nfallback backup third on dial": "fallback second is given twice",
	} {
		err := g.Reload(gatetest.Config{App: fallbackPrices, Site: fallbackSite(words, "reverse_proxy BACKEND")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v", words, err)
		}
	}
}
