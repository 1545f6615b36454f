package e2e

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
)

// oddJSON is the beginning of a call with unusual JSON: white space, escapes,
// numbers that decoding would change, unknown fields, duplicate names.
const oddJSON = "\t{ \"zzz\":1e400,\"unknown\" : {\"deep\":[1.000000000000000000001,-0.0,1E+2,\"\\u0041\\ud83d\\ude00\\/\"]},\r\n" +
	" \"again\":1,\"again\":2, \"\":null, \"m\\u006fdel\"  :\"m-1\" ,"

func TestTheBackendReceivesTheClientsBytes(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)

	long := strings.Repeat(`é\n`, 200_000)
	for _, c := range []struct{ name, path, body string }{
		{"a message", "/v1/messages", oddJSON + `"max_tokens":16,"messages":[{"role":"user","content":"Hi"}] }` + " \n"},
		{"a stream of a message", "/v1/messages", oddJSON + `"max_tokens":16,"stream":true,"messages":[{"role":"user","content":[{"type":"new","x":1.0}]}]}`},
		{"tokens to count", "/v1/messages/count_tokens", oddJSON + `"messages":[{"role":"user","content":"Hi"}]}`},
		{"a chat", "/v1/chat/completions", oddJSON + `"messages":[{"role":"user","content":"Hi"}]}`},
		{"a chat of a megabyte", "/v1/chat/completions", oddJSON + `"messages":[{"role":"user","content":"` + long + `"}]}`},
		{"a completion", "/v1/completions", oddJSON + `"prompt":["a","b"],"max_tokens":0}`},
		{"a response", "/v1/responses", oddJSON + `"input":[{"role":"user","content":[{"type":"input_text","text":"Hi","new":[1.0]}]}]}`},
		{"a stream of a response", "/v1/responses", oddJSON + `"stream":true,"input":"Hi","stream_options":{"include_obfuscation":false}}`},
		{"tokens of a response to count", "/v1/responses/input_tokens", oddJSON + `"input":"Hi"}`},
		{"a response to compact", "/v1/responses/compact", oddJSON + `"input":"Hi"}`},
		{"embeddings", "/v1/embeddings", oddJSON + `"input":[[1,2],[3]],"encoding_format":"base64"}`},
		{"a moderation", "/v1/moderations", oddJSON + `"input":"Hi"}`},
		{"a ranking", "/v1/rerank", oddJSON + `"query":"Hi","documents":["a",{"text":"b"}]}`},
		{"a ranking of the second version", "/v2/rerank", oddJSON + `"query":"Hi","documents":["a"]}`},
		{"a stream whose usage is asked for", "/v1/chat/completions", oddJSON + `"stream":true,"stream_options":{"include_usage": true},"messages":[]}`},
		{"a stream whose usage is declined", "/v1/completions", oddJSON + `"stream":true,"stream_options":{"include_usage":false},"prompt":""}`},
	} {
		a := g.call(c.path, c.body, g.bearer()...)
		if a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", c.name, a.Status, a.Body)
			continue
		}
		got := b.next()
		if string(got.Body) != c.body {
			t.Errorf("%s: the backend got\n%.300q\nfor\n%.300q", c.name, got.Body, c.body)
		}
		if got.Length != int64(len(c.body)) {
			t.Errorf("%s: a body of %d bytes was announced as %d", c.name, len(c.body), got.Length)
		}
		if got.Method != http.MethodPost || got.URI != c.path {
			t.Errorf("%s: the backend got %s %s", c.name, got.Method, got.URI)
		}
	}
}

func TestOnlyTheUsageOptionIsAddedToACompletionStream(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)

	const rest = `"model":"m-1","messages":[{"role":"user","content":"Hi"}],"stream":true`
	for _, c := range []struct{ sent, got string }{
		{`{` + rest + `}`, `{"stream_options":{"include_usage":true},` + rest + `}`},
		{" \n{ " + rest + ` }`, " \n{" + `"stream_options":{"include_usage":true}, ` + rest + ` }`},
		{`{` + rest + `,"stream_options":null}`, `{` + rest + `,"stream_options":{"include_usage":true}}`},
		{`{` + rest + `,"stream_options": {}}`, `{` + rest + `,"stream_options": {"include_usage":true}}`},
		{`{` + rest + `,"stream_options":{"x":[1]}}`, `{` + rest + `,"stream_options":{"include_usage":true,"x":[1]}}`},
	} {
		if a := g.call("/v1/chat/completions", c.sent, g.bearer()...); a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", c.sent, a.Status, a.Body)
			continue
		}
		if got := b.next(); string(got.Body) != c.got || got.Length != int64(len(c.got)) {
			t.Errorf("%q was forwarded as %q (%d bytes announced), want %q", c.sent, got.Body, got.Length, c.got)
		}
	}
}

func TestTheClientReceivesTheBackendsBytes(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(chatJSON))
	_ = z.Close()

	for _, c := range []struct {
		name   string
		status int
		body   string
		header []string
	}{
		{"JSON as it is written", 200, " {\"choices\":[ {\"index\":0,\"x\":1e999,\"message\":{\"content\":\"\\u0041\"}}],\r\n\"usage\":null}\n\n", nil},
		{"JSON of unknown shape", 200, `{"new":[{}]}`, nil},
		{"JSON compressed", 200, packed.String(), []string{"Content-Encoding", "gzip"}},
		{"no JSON at all", 200, "plain words", []string{"Content-Type", "text/plain"}},
		{"a refused parameter", 400, `{"error":{"message":"no","type":"invalid_request_error","param":"tools","code":null}}`, nil},
		{"an unknown model", 404, `{"error":{"message":"no such model"}}`, nil},
		{"too many calls", 429, `{"error":{"message":"slow down"}}`, []string{"Retry-After", "17"}},
		{"an error inside", 500, `{ "error" : {}}`, nil},
		{"a vendor overloaded", 529, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, respond(c.status, c.body, append(c.header, "Openai-Version", "kept", "Openai-Processing-Ms", "12")...))
			g := running(t, forwarding(b), b)
			for path, body := range callBodies {
				a := g.call(path, body, append(g.bearer(), "Accept-Encoding", "gzip")...)
				if a.Status != c.status || a.Body != c.body || a.Err != nil {
					t.Errorf("%s: got %d %.200q (%v), want %d %.200q", path, a.Status, a.Body, a.Err, c.status, c.body)
				}
				for i := 0; i < len(c.header); i += 2 {
					if got := a.Header.Get(c.header[i]); got != c.header[i+1] {
						t.Errorf("%s: %s is %q, want %q", path, c.header[i], got, c.header[i+1])
					}
				}
				if a.Header.Get("Openai-Version") != "kept" || a.Header.Get("Openai-Processing-Ms") != "12" {
					t.Errorf("%s: the vendor's own headers are gone: %v", path, a.Header)
				}
			}
		})
	}
}

// oddMessages and oddChat are streams with everything that the standard allows. They have a
// byte order mark, comments, every line end, unknown events and fields, and data in several
// lines.
var (
	oddMessages = "\ufeff: hello\n\n" +
		strings.Join(messageEvents[:2], "") +
		"retry: 100\nid: 7\nunknown\n\n" +
		"event: vendor_event\r\ndata: {\"type\":\"vendor_event\",\r\ndata:  \"x\":[1.0]}\r\n\r\n" +
		"event:content_block_delta\rdata:{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\u00e9\"}}\r\r" +
		"\n\n\r\n: between\n" +
		strings.Join(messageEvents[2:], "") + ": after the end\n\n"
	oddChat = ":\n\n" +
		"data:" + `{"id":"1","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}` + "\r\r" +
		"event: x\ndata: not json at all\n\n" +
		"data: {\"choices\":[{\"index\":0,\r\ndata: \"delta\":{\"content\":\"b\"}}]}\r\n\r\n" +
		"data: [DONE]\n\n: bye\n\n"
)

func TestAStreamIsUnchangedHoweverItIsSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, stream string }{
		{"/v1/messages", oddMessages}, {"/v1/chat/completions", oddChat},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(c.path, func(t *testing.T) {
				t.Parallel()
				b := newBackend(t, streams(cut(c.stream, size)...))
				g := running(t, forwarding(b), b)
				const member = `"stream_options":{"include_usage":true},`
				for body, want := range map[string]string{
					streamBodies[c.path]: c.stream,
					// The gateway removes the member that the caller did not
					// request.
					strings.Replace(streamBodies[c.path], member, "", 1): strings.Replace(c.stream, `,"usage":null`, "", 1),
				} {
					a := g.call(c.path, body, g.bearer()...)
					if a.Status != http.StatusOK || a.Body != want || a.Err != nil {
						t.Errorf("cut by %d: got %d (%v)\n%q\nwant\n%q", size, a.Status, a.Err, a.Body, want)
					}
				}
			})
		}
	}
}

func TestOnlyTheUsageThatTheGatewayRequestedIsRemoved(t *testing.T) {
	t.Parallel()
	usage := event("", `{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`)
	parts := append(append([]string(nil), chatEvents[:3]...), usage, chatEvents[3])
	whole, without := strings.Join(parts, ""), strings.Join(chatEvents, "")
	for _, size := range []int{1, 64, 1 << 20} {
		b := newBackend(t, streams(cut(whole, size)...))
		g := running(t, forwarding(b), b)
		withUsage := g.call("/v1/chat/completions", streamBodies["/v1/chat/completions"], g.bearer()...)
		if withUsage.Body != whole {
			t.Errorf("cut by %d, a client that requested usage got\n%s", size, withUsage.Body)
		}
		withoutUsage := g.call("/v1/chat/completions", `{"model":"m-1","stream":true,"messages":[{"role":"user","content":"Hi"}]}`, g.bearer()...)
		if withoutUsage.Body != without {
			t.Errorf("cut by %d, a client that did not request usage got\n%s", size, withoutUsage.Body)
		}
	}
}

// cut splits a text into parts of a size.
func cut(text string, size int) []string {
	var parts []string
	for len(text) > size {
		parts = append(parts, text[:size])
		text = text[size:]
	}
	return append(parts, text)
}

func TestAnEventReachesTheClientBeforeTheNextIsSent(t *testing.T) {
	t.Parallel()
	for path, events := range map[string][]string{
		"/v1/messages": messageEvents, "/v1/chat/completions": chatEvents, "/v1/responses": responseEvents,
	} {
		for _, p := range []protocol{http1, http2} {
			t.Run(string(p)+path, func(t *testing.T) {
				t.Parallel()
				read := make(chan struct{})
				b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
					s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
					for _, e := range events {
						s.write(e)
						select {
						case <-read:
						case <-a.Gone:
							return
						}
					}
				})
				g := running(t, forwarding(b), b)
				resp := g.open(t.Context(), p, path, streamBodies[path])
				for _, e := range events {
					expect(t, resp.Body, e)
					read <- struct{}{}
				}
			})
		}
	}
}

func TestAThousandConcurrentCallsKeepTheirBodies(t *testing.T) {
	t.Parallel()
	echo := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		respond(http.StatusOK, string(a.Body))(s, a)
	})
	g := running(t, forwarding(echo), echo)
	client := g.client()
	inParallel(32, 1000, func(i int) {
		// Sizes around those of the buffers for bodies.
		filler := strings.Repeat(string(rune('a'+i%26)), (i*137)%(36<<10))
		body := `{"model":"m-1","messages":[{"role":"user","content":"` + filler + `"}]}`
		resp, err := client.Transport.RoundTrip(g.request(t.Context(), "/v1/chat/completions", body, g.bearer()...))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		var got bytes.Buffer
		if _, err := got.ReadFrom(resp.Body); err != nil || resp.StatusCode != http.StatusOK || got.String() != body {
			t.Errorf("call %d was returned as %d %.100q (%v)", i, resp.StatusCode, got.String(), err)
		}
	})
}
