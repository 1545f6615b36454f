package call_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

const incomplete = "the backend ended its answer before it was complete"

var unavailable = refusal{503, "overloaded_error", fault.UpstreamUnavailable, "the backend of this model cannot be reached or used now; try again later", ""}

func TestErrorsAboutTheOperatorsAccountAreReplaced(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	const secret = "sk-operator-secret"
	busy := refusal{429, "rate_limit_error", fault.RateLimited, "the backend of this model is busy", ""}
	late := refusal{504, "timeout_error", fault.UpstreamTimeout, "the backend of this model did not answer in time", ""}
	large := refusal{413, "request_too_large", fault.PayloadTooLarge, "the backend of this model does not take a body of this size", ""}
	html := "<html>" + secret + "</html>"
	failed := func(status int, kind string) refusal {
		return refusal{status, kind, fault.UpstreamUnavailable, unavailable.message, ""}
	}
	for name, c := range map[string]struct {
		status     int
		media      string
		body       string
		want       refusal
		retryAfter string
	}{
		"401 JSON":      {401, "application/json", `{"error":{"message":"bad key ` + secret + `"}}`, unavailable, "5"},
		"402 JSON":      {402, "application/json", `{"error":{"message":"no credit ` + secret + `"}}`, unavailable, "5"},
		"403 JSON":      {403, "application/json", `{"error":{"message":"` + secret + `"}}`, unavailable, "5"},
		"401 HTML":      {401, "text/html", html, unavailable, "5"},
		"401 as events": {401, "text/event-stream", "data: " + secret + "\n\n", unavailable, "5"},
		"301":           {301, "text/html", html, unavailable, "5"},
		"302":           {302, "application/json", `{}`, unavailable, "5"},
		"307":           {307, "", "", unavailable, "5"},
		"502 HTML":      {502, "text/html", html, failed(502, "api_error"), "5"},
		"500 text":      {500, "text/plain", secret, failed(500, "api_error"), "5"},
		"503 no type":   {503, "", "", unavailable, "5"},
		"404 HTML":      {404, "text/html", html, unavailable, "5"},
		"504 text":      {504, "text/plain", secret, late, ""},
		"413 HTML":      {413, "text/html", html, large, ""},
		"429 text":      {429, "text/plain", secret, busy, "5"},
		"a large page":  {500, "text/html", strings.Repeat(html, 100_000), failed(500, "api_error"), "5"},
		"500 empty":     {500, "application/json", "", failed(500, "api_error"), "5"},
		"502 empty":     {502, "", "", failed(502, "api_error"), "5"},
		"504 empty":     {504, "application/json", "", late, ""},
		"522 HTML":      {522, "text/html", html, failed(522, "api_error"), "5"},
		"529 text":      {529, "text/plain", html, failed(529, "overloaded_error"), "5"},
		"600 text":      {600, "text/plain", html, unavailable, "5"},
	} {
		for _, path := range []string{messages, chat} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				model := path + name
				g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
					for header, value := range map[string]string{
						"Location": "https://elsewhere.example/?key=" + secret, "Set-Cookie": "s=" + secret, "Etag": `"x"`,
						"WWW-Authenticate": "Bearer realm=" + secret, "Request-Id": "req_backend", "X-Request-Id": "req_backend",
						"Content-Encoding": "identity", "Content-Language": "en",
					} {
						w.Header().Set(header, value)
					}
					gatetest.Body(c.status, c.media, c.body)(w, r)
				})
				got := post(t, g, path, key, model, streamed)
				c.want.check(t, path, got)
				if got.Header.Get("Retry-After") != c.retryAfter {
					t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
				}
				for header, values := range got.Header {
					if strings.Contains(strings.Join(values, " "), secret) || header == "Etag" || header == "Content-Language" {
						t.Errorf("%s: %q was forwarded", header, values)
					}
				}
				wantCall(t, g, got, "upstream_error", "none", 0, 0)
				level := "info"
				if c.status >= 401 && c.status <= 403 { // the operator must act
					level = "error"
				}
				if line := g.CallLine(t, got.RequestID()); line.Text("level") != level {
					t.Errorf("logged with the level %q, want %q", line.Text("level"), level)
				}
			})
		}
	}
}

func TestAJSONErrorOfABackendPassesByteForByte(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for status, ended := range map[int]string{400: "refused", 404: "refused", 413: "refused", 422: "refused", 429: "refused", 500: "upstream_error", 503: "upstream_error", 529: "upstream_error"} {
		for _, path := range []string{messages, completions} {
			for _, more := range []string{"", streamed} {
				t.Run(path+" "+itoa(status)+more, func(t *testing.T) {
					t.Parallel()
					const body = "{ \"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"\\u00fc\"},\"usage\":{\"input_tokens\":99,\"output_tokens\":99}}\n"
					model := path + itoa(status) + more
					g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Retry-After", "17")
						w.Header().Set("Request-Id", "req_backend")
						w.Header().Set("X-Request-Id", "req_backend")
						gatetest.Body(status, "application/problem+json; charset=utf-8", body)(w, r)
					})
					got := post(t, g, path, key, model, more)
					if got.Status != status || got.Body != body || got.Header.Get("Retry-After") != "17" || got.Header.Get("Request-Id") != "req_backend" {
						t.Errorf("answered %d %q %v", got.Status, got.Body, got.Header)
					}
					if !strings.HasPrefix(got.RequestID(), "req_") || got.RequestID() == "req_backend" {
						t.Errorf("X-Request-Id %q is not the gateway's", got.RequestID())
					}
					wantCall(t, g, got, ended, "none", 0, 0)
				})
			}
		}
	}
}

func TestABackendWithoutAnAnswerIs503(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_messages {
			@down modelgate_model down
			reverse_proxy @down 127.0.0.1:1
			reverse_proxy BACKEND
		}
		modelgate_completions {
			@down modelgate_model down
			reverse_proxy @down 127.0.0.1:1
			reverse_proxy BACKEND
		}`})
	key := g.NewKey(t, nil).Secret
	g.Backend.On("resets", gatetest.Reset)
	g.Backend.On("not-http", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, "SSH-2.0-OpenSSH_9.9\r\n")
		conn.Close()
	})
	g.Backend.On("switches", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: bare\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
		conn.Close()
	})
	for _, model := range []string{"down", "resets", "not-http", "switches"} {
		for _, path := range []string{messages, chat} {
			for _, more := range []string{"", streamed} {
				got := post(t, g, path, key, model, more)
				unavailable.check(t, path, got)
				if got.Header.Get("Retry-After") != "5" {
					t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
				}
				wantCall(t, g, got, "upstream_error", "none", 0, 0)
				if why := g.CallLine(t, got.RequestID()).Text("error"); why == "" || model == "down" && !strings.Contains(why, "refused") {
					t.Errorf("%s: the log has the reason %q", model, why)
				}
			}
		}
	}
}

func TestAnIncompleteAnswerNeverLooksComplete(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	long := "data: {\"x\":\"" + strings.Repeat("x", 17<<20) + "\"}\n\n"
	for _, path := range []string{messages, chat} {
		for name, c := range map[string]struct {
			more   string
			script http.HandlerFunc
			sent   string // the part that the caller always receives
			event  bool   // an error event ends the body; otherwise the connection is closed
			basis  string
		}{
			"reset between events":       {streamed, gatetest.Then(gatetest.Stream(begun(path)), gatetest.Reset), begun(path), true, "estimated"},
			"clean end without the last": {streamed, gatetest.Stream(begun(path)), begun(path), true, "estimated"},
			"clean end after the head":   {streamed, gatetest.Stream(), "", true, "none"},
			"reset after the head":       {streamed, gatetest.Then(gatetest.Stream(), gatetest.Reset), "", true, "none"},
			"reset within an event":      {streamed, gatetest.Then(gatetest.Stream(begun(path)+"data: {\"ty"), gatetest.Reset), begun(path), false, "estimated"},
			"clean end within an event":  {streamed, gatetest.Stream(begun(path) + "data: {\"ty"), begun(path), false, "estimated"},
			"a line over 16 MiB":         {streamed, gatetest.Stream(begun(path), long), begun(path), false, "estimated"},
			"reset within JSON":          {"", gatetest.Then(gatetest.JSON(200, `{"content":[{"type":"text","text":"Hello`), flush, gatetest.Reset), `{"content":[{"type":"text","text":"Hello`, false, "estimated"},
			"JSON that ends too early":   {"", gatetest.Then(gatetest.JSON(200, `{"content":[{"type":"text","text":"Hello`), flush), `{"content":[{"type":"text","text":"Hello`, false, "estimated"},
			"shorter than announced":     {"", short(messageAnswer), "", false, "reported"},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				model := path + name
				g.Backend.On(model, c.script)
				got := post(t, g, path, key, model, c.more)
				if got.Status != http.StatusOK || !strings.HasPrefix(got.Body, c.sent) {
					t.Errorf("answered %d %.500q, want %.500q", got.Status, got.Body, c.sent)
				}
				if (got.Err == nil) != c.event {
					t.Errorf("the body ended with %v", got.Err)
				}
				if want := c.sent + errorEvent(path, "overloaded_error", "UPSTREAM_UNAVAILABLE", incomplete, got.RequestID()); c.event && got.Body != want {
					t.Errorf("the caller got\n%s\nwant\n%s", got.Body, want)
				}
				if name == "shorter than announced" {
					return // the JSON is complete; other tests check its charge
				}
				line := g.CallLine(t, got.RequestID())
				if line.Text("ended") != "upstream_error" || line.Text("usage") != c.basis {
					t.Errorf("logged %v", line)
				}
			})
		}
	}
}

func flush(w http.ResponseWriter, _ *http.Request) { gatetest.Send(w, "") }

// short returns a backend whose Content-Length is greater than its body.
func short(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", itoa(len(body)+10))
		gatetest.JSON(http.StatusOK, body)(w, r)
	}
}

func TestTheBackendsErrorEventEndsTheStream(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for path, event := range map[string]string{
		messages: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
		chat:     "data: {\"error\":{\"message\":\"Overloaded\",\"type\":\"server_error\"}}\n\n",
	} {
		for name, before := range map[string]string{"before content": "", "after content": begun(path)} {
			model := path + name
			g.Backend.On(model, gatetest.Stream(before, event))
			got := post(t, g, path, key, model, streamed)
			if got.Body != before+event || got.Err != nil {
				t.Errorf("the caller got (%v)\n%s", got.Err, got.Body)
			}
			line := g.CallLine(t, got.RequestID())
			if line.Text("ended") != "upstream_error" || (line.Text("usage") == "none") != (before == "") {
				t.Errorf("%s %s: logged %v", path, name, line)
			}
		}
	}
}

func TestAnEmptyAnswerOfABackendPassesAndIsFree(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, status := range []int{200, 204} {
		model := "empty " + itoa(status)
		g.Backend.On(model, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		got := post(t, g, messages, key, model, "")
		if got.Status != status || got.Body != "" {
			t.Errorf("answered %d %q", got.Status, got.Body)
		}
		wantCall(t, g, got, "complete", "none", 0, 0)
	}
}

func TestAFailedStoreIs503(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied + "\nmodelgate_health"})
	key := g.NewKey(t, nil).Secret
	g.FailStore(t)
	want := refusal{503, "overloaded_error", fault.StoreUnavailable, "the gateway cannot take calls now; try again later", ""}
	for _, path := range []string{messages, chat} {
		got := post(t, g, path, key, "m", "")
		want.check(t, path, got)
		if got.Header.Get("Retry-After") != "5" {
			t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
		}
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("%d calls were forwarded", n)
	}
}

// TestAnErrorEventWithAReportOfUsageIsChargedOnlyAfterContent has a report of 7 tokens of input and 30 of output.
func TestAnErrorEventWithAReportOfUsageIsChargedOnlyAfterContent(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "charge_failed_input\n" + prices, Site: gatetest.Proxied + "\nmodelgate_openai {\n reverse_proxy BACKEND\n}"})
	const (
		figures  = `"usage":{"prompt_tokens":7,"completion_tokens":30}`
		failed   = "data: {\"error\":{\"message\":\"x\"}," + figures + "}\n\n"
		message  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"},\"usage\":{\"input_tokens\":7,\"output_tokens\":30}}\n\n"
		response = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"x\"},\"usage\":{\"input_tokens\":7,\"output_tokens\":30}}}\n\n"
		chunk    = "data: {\"error\":{\"message\":\"x\"},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]," + figures + "}\n\n"
		stop     = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	)
	const after = 7 + 300 // as reported
	for name, c := range map[string]struct {
		path   string
		events []string
		cost   money.Amount
	}{
		"chat":                         {chat, []string{failed}, 0},
		"chat, then its end":           {chat, []string{failed, doneChunk}, 0},
		"chat, without a report":       {chat, []string{"data: {\"error\":{}}\n\n", doneChunk}, 0},
		"chat, another dialect before": {chat, []string{"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}]}}]}\n\n", failed, doneChunk}, 0},
		"chat, a role before":          {chat, []string{chatChunks[0], failed, doneChunk}, 0},
		"chat, in a choice":            {chat, []string{chunk}, 0},
		"chat, then a report":          {chat, []string{"data: {\"error\":{}}\n\n", "data: {" + figures + "}\n\n", doneChunk}, 0},
		"chat, after content":          {chat, []string{chatChunks[1], failed}, after},
		"messages":                     {messages, []string{message}, 0},
		"messages, then its end":       {messages, []string{message, stop}, 0},
		"messages, after content":      {messages, append(append([]string(nil), messageEvents[:4]...), message), 25 + 300},
		"responses":                    {responses, []string{response}, 0},
		"responses, then its end":      {responses, []string{response, doneChunk}, 0},
		"responses, after some text":   {responses, []string{"data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\"}\n\n", response}, after},
		"completions, then its end":    {completions, []string{failed, doneChunk}, 0},
		"completions, after the text":  {completions, []string{"data: {\"choices\":[{\"index\":0,\"text\":\"Hello\"}]}\n\n", failed}, after},
	} {
		t.Run(name, func(t *testing.T) {
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := modelName("priced " + t.Name())
			g.Backend.On(model, gatetest.Stream(c.events...))
			body := bodyFor(c.path, model, streamed)
			if c.path == responses {
				body = `{"model":"` + model + `","input":"hello","stream":true}`
			}
			got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body)
			if got.Body != strings.Join(c.events, "") {
				t.Errorf("the caller got %q", got.Body)
			}
			if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "upstream_error" || line.Text("rule") != "" || line.Text("cost") != c.cost.String() {
				t.Errorf("logged %v, want a cost of %v", line, c.cost)
			}
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v", w.Balance, c.cost)
			}
		})
	}
	g.Verify(t)
}
