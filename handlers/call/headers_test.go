package call_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestARetryCanMatchForwardedHeaders(t *testing.T) {
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
		t.Errorf("the backend received %d calls, want 2", n)
	}
}

func TestBothRequestIDsAreReturned(t *testing.T) {
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
		t.Errorf("request-id: %q, want the gateway's", unnamed.Header.Get("Request-Id"))
	}
	if named.RequestID() == unnamed.RequestID() {
		t.Error("two calls have the same id")
	}
}

func TestOnlyBetaOfTheQueryIsForwarded(t *testing.T) {
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
		model := "query" + query
		g.Do(t, http.MethodPost, messages+query, headersFor(messages, key), bodyFor(messages, model, ""))
		if seen := g.Backend.Seen(model); len(seen) != 1 || seen[0].URI != messages+want {
			t.Errorf("%s: the backend saw %v, want the query %q", query, seen, want)
		}
	}
}

// headersOf writes a header line per name, each with a different value.
func headersOf(names ...string) string {
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%s: of-%s\n", name, strings.ToLower(name))
	}
	return lines.String()
}

func TestOnlyListedRequestHeadersAreForwarded(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{
		App: "version_header acme-version",
		Site: `
		modelgate_messages {
			pass_up X-Grok-Conv-Id x-vendor-*
			@blue header X-Vendor-Region blue
			request_header @blue X-Chosen blue
			reverse_proxy BACKEND {
				header_up X-Api-Key operators-secret
				header_up X-Title "of the operator"
				header_up X-Copy {http.request.header.X-Vendor-Region}
			}
		}
		modelgate_completions {
			reverse_proxy BACKEND
		}`,
	})
	key := g.NewKey(t, nil).Secret
	always := []string{
		"Accept", "Accept-Language", "User-Agent", "Acme-Version", "Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access", "Openai-Beta",
		"X-Client-Request-Id", "X-App", "Traceparent", "Tracestate",
		"X-Stainless-Lang", "X-Stainless-Retry-Count", "X-Stainless-Helper-Method", "X-Stainless-Timeout",
	}
	never := []string{
		"X-Title", "Http-Referer", "Origin", "Referer", "Priority", "Baggage", "Sec-Fetch-Mode", "X-Amz-Security-Token", "X-Goog-User-Project",
		"Anthropic-Workspace-Id", "Anthropic-Organization-Id", "Openai-Organization", "Openai-Project", "X-Openai-Internal", "X-Forwarded-Port", "Via",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Forwarded",
		"X-Vendor", "Anthropic-Beta-2", "X-Stainless", "Cookie", "X-Stainless-Hop",
	}
	passed := []string{"X-Grok-Conv-Id", "X-Vendor-Tier"}
	for _, path := range []string{messages, chat} {
		sent := headersOf(append(append(append([]string{}, always...), never...), passed...)...) +
			"X-Vendor-Region: blue\nX-Api-Key: " + key + "\nContent-Type: application/json\nConnection: X-Stainless-Hop\n"
		sent = strings.Replace(sent, "of-acme-version", "2023-06-01", 1)
		got := g.Do(t, http.MethodPost, path, sent, bodyFor(path, path, ""))
		seen := g.Backend.Seen(path)
		if got.Status != http.StatusOK || len(seen) != 1 {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
		header := seen[0].Header
		want := http.Header{
			"Content-Type": {"application/json"}, "Content-Length": {itoa(len(seen[0].Body))}, "Accept-Encoding": {"identity"},
		}
		for _, name := range always {
			want.Set(name, "of-"+strings.ToLower(name))
		}
		want.Set("Acme-Version", "2023-06-01")
		if path == messages {
			for _, name := range passed {
				want.Set(name, "of-"+strings.ToLower(name))
			}
			want.Set("X-Vendor-Region", "blue")
			want.Set("X-Copy", "blue")
			want.Set("X-Chosen", "blue")
			want.Set("X-Api-Key", "operators-secret")
			want.Set("X-Title", "of the operator")
		}
		for name := range header {
			if want[name] == nil {
				t.Errorf("%s: the backend saw %s: %q", path, name, header[name])
			}
		}
		for name, values := range want {
			if fmt.Sprint(header[name]) != fmt.Sprint(values) {
				t.Errorf("%s: the backend saw %s: %q, want %q", path, name, header[name], values)
			}
		}
	}
}

func TestABackendLearnsTheCallersAddressOnlyByHeaderUp(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{
		Global: "servers {\n trusted_proxies static 127.0.0.0/8\n}",
		Site: `
		modelgate_messages {
			@own modelgate_model own-*
			reverse_proxy @own BACKEND {
				header_up X-Forwarded-For {client_ip}
				header_up X-Forwarded-Host {host}
				header_up X-Forwarded-Proto {scheme}
				header_up Via "1.1 gateway"
			}
			reverse_proxy BACKEND {
				lb_retries 1
			}
		}
		modelgate_completions {
			reverse_proxy BACKEND
		}`,
	})
	key := g.NewKey(t, nil).Secret
	host, _, _ := net.SplitHostPort(g.Address)
	const address = "192.0.2.77"
	echoed := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Openai-Version", "for:"+r.Header.Get("X-Forwarded-For"))
		gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
	}
	for _, c := range []struct {
		path, model string
		want        http.Header
	}{
		{messages, "vendor-1", http.Header{}},
		{chat, "vendor-2", http.Header{}},
		{messages, "own-1", http.Header{
			"X-Forwarded-For": {address}, "X-Forwarded-Host": {host}, "X-Forwarded-Proto": {"http"}, "Via": {"1.1 gateway"},
		}},
	} {
		g.Backend.On(c.model, echoed)
		sent := headersFor(c.path, key) + "X-Forwarded-For: " + address + "\nX-Forwarded-Host: there\nX-Forwarded-Proto: https\nForwarded: for=" + address + "\nX-Real-Ip: " + address + "\nVia: 1.1 proxy\n"
		got := g.Do(t, http.MethodPost, c.path, sent, bodyFor(c.path, c.model, ""))
		seen := g.Backend.Seen(c.model)
		if got.Status != http.StatusOK || len(seen) != 1 {
			t.Fatalf("%s: answered %d %s", c.model, got.Status, got.Body)
		}
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip", "Via"} {
			if fmt.Sprint(seen[0].Header[name]) != fmt.Sprint(c.want[name]) {
				t.Errorf("%s: the backend saw %s: %q, want %q", c.model, name, seen[0].Header[name], c.want[name])
			}
		}
		// The address is not a credential; the gateway would remove a credential from the answer.
		if version := got.Header.Get("Openai-Version"); version != "for:"+c.want.Get("X-Forwarded-For") {
			t.Errorf("%s: the answer has %q", c.model, version)
		}
	}
}

// accountHeaders are headers about the operator's account, and instructions for browsers
// and proxies.
var accountHeaders = []string{
	"Api-Key", "X-Api-Key", "X-Auth-Token", "Authorization", "Openai-Organization", "Openai-Project", "Anthropic-Organization-Id",
	"Anthropic-Ratelimit-Requests-Remaining", "X-Ratelimit-Remaining-Tokens", "Clear-Site-Data", "Location", "X-Accel-Redirect", "Set-Cookie",
	"Alt-Svc", "Strict-Transport-Security", "Refresh", "Server", "Cf-Ray", "X-Debug-Key", "Access-Control-Allow-Origin", "Www-Authenticate", "X-Hop", "Etag",
}

func TestOnlyListedResponseHeadersAreReturned(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		log
		header X-Site ours
		modelgate_messages {
			pass_down X-Groq-* X-Debug-Key X-Dropped
			reverse_proxy BACKEND {
				header_up X-Tenant secret-of-the-operator
				header_down X-Region {rp.header.X-Groq-Region}
				header_down -X-Dropped
			}
		}
		modelgate_completions {
			reverse_proxy BACKEND
		}`})
	key := g.NewKey(t, nil).Secret
	listed := []string{"Retry-After-Ms", "X-Should-Retry", "Request-Id", "Openai-Processing-Ms", "Openai-Version", "Cache-Control"}
	for _, status := range []int{200, 201, 400, 404, 409, 422, 429, 500, 503, 529} {
		for _, path := range []string{messages, chat} {
			model := path + itoa(status)
			g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
				for _, name := range listed {
					w.Header().Set(name, "of-"+strings.ToLower(name))
				}
				for _, name := range accountHeaders {
					w.Header().Set(name, "of the account")
				}
				w.Header().Set("Retry-After", "17")
				w.Header().Set("X-Groq-Region", "eu")
				w.Header().Set("X-Dropped", "yes")
				w.Header().Set("Connection", "X-Hop, X-Groq-Hop")
				w.Header().Set("X-Groq-Hop", "of this hop")
				w.Header().Set("X-Debug-Key", "it was secret-of-the-operator")
				w.Header().Set("Openai-Version", "secret-of-the-operator")
				w.Header().Set("Trailer", "X-Groq-Late, Set-Cookie")
				gatetest.JSON(status, messageAnswer)(w, r)
				w.Header().Set("X-Groq-Late", "late secret-of-the-operator")
				w.Header().Set("Set-Cookie", "late secret-of-the-operator")
				w.Header().Set(http.TrailerPrefix+"X-Api-Key", "late secret-of-the-operator")
			})
			got := post(t, g, path, key, model, "")
			want := http.Header{
				"X-Site": {"ours"}, "X-Request-Id": {got.RequestID()}, "Via": {"1.1 Caddy"}, "Content-Type": {"application/json"}, "Retry-After": {"17"},
				"Date": got.Header["Date"], "Openai-Version": {"secret-of-the-operator"},
			}
			for _, name := range listed {
				if name != "Openai-Version" {
					want.Set(name, "of-"+strings.ToLower(name))
				}
			}
			if path == messages {
				want.Set("X-Groq-Region", "eu")
				want.Set("X-Region", "eu")
				delete(want, "Openai-Version")
			}
			if got.Status != status || got.Body != messageAnswer || fmt.Sprint(got.Header) != fmt.Sprint(want) {
				t.Errorf("%s: answered %d with\n%v, want\n%v", path, got.Status, got.Header, want)
			}
			g.CallLine(t, got.RequestID())
		}
	}
	g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("msg") == "handled request" && l.Number("status") == 529 })
	if g.Logged("it was secret-of-the-operator") || g.Logged("late secret-of-the-operator") {
		t.Error("the credential is in the log")
	}
}

func TestAReplacedAnswerHasOnlyTheGatewaysHeaders(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		log
		header Cache-Control of-the-site
		header X-Site ours
		modelgate_messages {
			pass_down *
			header X-Block of-the-block
			reverse_proxy BACKEND {
				header_down X-Account "{rp.header.X-Debug-Key}"
			}
		}
		modelgate_completions {
			reverse_proxy BACKEND
		}`})
	key := g.NewKey(t, nil).Secret
	for name, script := range map[string]http.HandlerFunc{
		"401":        gatetest.JSON(401, `{}`),
		"402":        gatetest.JSON(402, `{}`),
		"403":        gatetest.JSON(403, `{}`),
		"302":        gatetest.JSON(302, `{}`),
		"404 HTML":   gatetest.Body(404, "text/html", "<html>"),
		"429 text":   gatetest.Body(429, "text/plain", "slowly"),
		"502 HTML":   gatetest.Body(502, "text/html", "<html>"),
		"504 HTML":   gatetest.Body(504, "text/html", "<html>"),
		"500 empty":  gatetest.JSON(500, ""),
		"500 events": gatetest.Body(500, "text/event-stream", "data: x\n\n"),
		"101":        gatetest.JSON(101, ""),
	} {
		for _, path := range []string{messages, chat} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				model := path + name
				g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
					for _, name := range accountHeaders {
						w.Header().Set(name, "of the account")
					}
					for _, name := range []string{"Request-Id", "X-Request-Id", "Openai-Version", "Cache-Control", "X-Should-Retry"} {
						w.Header().Set(name, "of the backend")
					}
					script(w, r)
				})
				got := post(t, g, path, key, model, "")
				want := http.Header{
					"Server": {"Caddy"}, "X-Site": {"ours"}, "X-Request-Id": {got.RequestID()}, "Content-Type": {"application/json"}, "Cache-Control": {"no-store"},
					"X-Content-Type-Options": {"nosniff"}, "Content-Length": {itoa(len(got.Body))}, "Date": got.Header["Date"],
				}
				if path == messages {
					want.Set("Request-Id", got.RequestID())
				}
				if got.Status != 504 {
					want.Set("Retry-After", "5")
				}
				if got.Status < 400 || fmt.Sprint(got.Header) != fmt.Sprint(want) {
					t.Errorf("answered %d with\n%v, want\n%v", got.Status, got.Header, want)
				}
			})
		}
	}
}

func TestInterimAnswersAreNotForwarded(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "log\nmodelgate_messages {\nreverse_proxy BACKEND\n}"})
	key := g.NewKey(t, nil).Secret
	g.Backend.On("hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.Header().Set("X-Api-Key", "of the account")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.Header().Del("X-Api-Key")
		gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
	})
	conn := g.Dial(t)
	body := bodyFor(messages, "hints", "")
	conn.Send(t, "POST "+messages+" HTTP/1.1\nHost: "+g.Address+"\n"+headersFor(messages, key)+"Content-Length: "+itoa(len(body))+"\n\n"+body)
	if got := conn.Receive(t, http.MethodPost); got.Status != http.StatusOK || got.Body != messageAnswer || got.Header["Link"] != nil || got.Header["X-Api-Key"] != nil {
		t.Errorf("answered %d %v %s", got.Status, got.Header, got.Body)
	}
	if g.Logged("of the account") {
		t.Error("a header of an interim answer is in the log")
	}
}

func TestPassUpAndPassDownRefuseForbiddenNames(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	for line, want := range map[string]string{
		"pass_up":                    "wrong argument count",
		"pass_down":                  "wrong argument count",
		"pass_up authorization":      "pass_up: Authorization never passes",
		"pass_up X-Ok api-key":       "pass_up: Api-Key never passes",
		"pass_up X-Forwarded-User":   "pass_up: X-Forwarded-User never passes",
		"pass_up Connection":         "pass_up: Connection never passes",
		"pass_down X-Ok set-cookie":  "pass_down: Set-Cookie never passes",
		"pass_down Location":         "pass_down: Location never passes",
		"pass_up \"X Y\"":            "allowed: the name of a header",
		"pass_down X-*-Y":            "allowed: the name of a header",
		"pass_down OpenAI-Project":   "pass_down: Openai-Project never passes",
		"pass_up X-A\n\t\tpass_up *": "",
	} {
		err := g.Reload(gatetest.Config{Site: "modelgate_messages {\n" + line + "\nreverse_proxy BACKEND\n}"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestIdempotencyKeysOfTwoUsersDifferUpstream(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	sent := make(map[string]bool)
	for _, tenant := range []string{"a", "b"} {
		key := g.NewKey(t, nil)
		var first string
		for i, attempt := range []string{"1", "2"} {
			model := "kept-" + tenant + attempt
			g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret)+"Idempotency-Key: order-7\n", bodyFor(chat, model, ""))
			values := g.Backend.Seen(model)[0].Header["Idempotency-Key"]
			if len(values) != 1 || !strings.HasSuffix(values[0], "-order-7") || strings.Contains(values[0], key.ID) {
				t.Fatalf("the backend saw %q", values)
			}
			if i > 0 && values[0] != first {
				t.Errorf("a repeated call has another key: %q, before %q", values[0], first)
			}
			first = values[0]
		}
		sent[first] = true
	}
	if len(sent) != 2 {
		t.Errorf("two tenants share the key %v", sent)
	}
}

// TestACallWithAnIdempotencyKeyIsSentOnce breaks the connection of the second call after its body. A
// transport of net/http would send it again, though the backend may have run it.
func TestACallWithAnIdempotencyKeyIsSentOnce(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Backend.On("broken", gatetest.Reset)
	for name, more := range map[string]string{"small": "", "large": `,"user":"` + strings.Repeat("x", 300<<10) + `"`} {
		g.Backend.On("kept-"+name, gatetest.JSON(200, chatAnswer))
		g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret), bodyFor(chat, modelName("kept-"+name), ""))
		before := len(g.Backend.Seen("broken"))
		g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret)+"Idempotency-Key: order-7\n", bodyFor(chat, "broken", more))
		if n := len(g.Backend.Seen("broken")) - before; n != 1 {
			t.Errorf("%s: the call was sent %d times", name, n)
		}
	}
}
