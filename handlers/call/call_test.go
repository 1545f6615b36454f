package call_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// The paths of model calls.
const (
	messages    = "/v1/messages"
	countTokens = "/v1/messages/count_tokens"
	completions = "/v1/completions"
	chat        = "/v1/chat/completions"
)

// headersFor returns the headers of a valid call to path.
func headersFor(path, key string) string {
	if strings.HasPrefix(path, messages) {
		return "Content-Type: application/json\nX-Api-Key: " + key + "\nAnthropic-Version: 2023-06-01\n"
	}
	return "Content-Type: application/json\nAuthorization: Bearer " + key + "\n"
}

// bodyFor returns a valid body for path, with the members of more added as they are.
func bodyFor(path, model, more string) string {
	switch path {
	case messages:
		more = `"max_tokens":64,"messages":[{"role":"user","content":"hello"}]` + more
	case countTokens, chat:
		more = `"messages":[{"role":"user","content":"hello"}]` + more
	default:
		more = `"prompt":"hello"` + more
	}
	return fmt.Sprintf(`{"model":%q,%s}`, model, more)
}

const streamed = `,"stream":true`

// Answers of backends, as the vendors write them.
const (
	messageAnswer = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hello there"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":4}}`
	chatAnswer    = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`
)

// messageEvents is a messages stream with one event per element.
var messageEvents = []string{
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
	"event: ping\ndata: {\"type\": \"ping\"}\n\n",
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello \\u00fc\"}}\n\n",
	"event: not_known_yet\ndata: {\"type\":\"not_known_yet\"}\n\n",
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n",
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
}

// chatChunks is a chat stream without usage. usageChunk is its usage report, and
// doneChunk is its end.
var chatChunks = []string{
	"data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
	"data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}]}\n\n",
	"data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
}

const (
	usageChunk = "data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\n"
	doneChunk  = "data: [DONE]\n\n"
)

// begun returns the beginning of a stream of path, which contains text and ends between
// two events.
func begun(path string) string {
	if path == messages {
		return strings.Join(messageEvents[:4], "")
	}
	return strings.Join(chatChunks[:2], "")
}

// errorEvent returns the event with which the gateway ends a broken stream of path.
func errorEvent(path, kind, code, message, requestID string) string {
	if path == messages {
		return fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":%q,\"message\":%q},\"request_id\":%q}\n\n", kind, message, requestID)
	}
	return fmt.Sprintf("data: {\"error\":{\"code\":%q,\"message\":%q,\"type\":\"server_error\",\"param\":null}}\n\n", code, message)
}

// modelName returns the name of a model for the name of a test, without the characters
// that a pattern does not match.
func modelName(of string) string { return strings.NewReplacer(",", "", ":", "").Replace(of) }

// post makes a valid call to path.
func post(t *testing.T, g *gatetest.Gate, path, key, model, more string) gatetest.Answer {
	t.Helper()
	return g.Do(t, http.MethodPost, path, headersFor(path, key), bodyFor(path, model, more))
}

// open begins a call and does not read its answer.
func open(ctx context.Context, t *testing.T, g *gatetest.Gate, path, key, model, more string) *http.Response {
	t.Helper()
	return g.Open(ctx, t, http.MethodPost, path, headersFor(path, key), bodyFor(path, model, more))
}

// wantCall checks the log line of an answered call, with its tokens.
func wantCall(t *testing.T, g *gatetest.Gate, a gatetest.Answer, ended, basis string, input, output float64) {
	t.Helper()
	line := g.CallLine(t, a.RequestID())
	if line.Text("ended") != ended || line.Text("usage") != basis || line.Number("input") != input || line.Number("output") != output {
		t.Errorf("logged as %s × %s, input %v, output %v; want %s × %s, %v, %v\n%v", line.Text("ended"), line.Text("usage"),
			line.Number("input"), line.Number("output"), ended, basis, input, output, line)
	}
	if n := g.CallLines(a.RequestID()); n != 1 {
		t.Errorf("one call has %d log lines", n)
	}
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func TestRequestsAndAnswersAreForwardedByteForByte(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	odd := ` ,"temperature" : 1.0e-0,"x_unknown":{"a":[1,1.00,"\u00e9\/"]}, "x_big":123456789012345678901234567890 `
	for _, c := range []struct{ path, answer string }{
		{messages, messageAnswer},
		{countTokens, `{"input_tokens":14}`},
		{completions, `{"id":"cmpl-1","choices":[{"index":0,"text":"Hello there","finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`},
		{chat, chatAnswer},
	} {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			model := "plain-" + c.path
			g.Backend.On(model, gatetest.JSON(http.StatusOK, c.answer))
			body := bodyFor(c.path, model, odd)
			got := g.Do(t, http.MethodPost, c.path+"?beta=true&secret=1", headersFor(c.path, key.Secret), body)
			if got.Status != http.StatusOK || got.Body != c.answer {
				t.Errorf("answered %d %q", got.Status, got.Body)
			}
			seen := g.Backend.Seen(model)
			if len(seen) != 1 || string(seen[0].Body) != body {
				t.Fatalf("the backend saw %q", seen)
			}
			if seen[0].URI != c.path+"?beta=true" {
				t.Errorf("the backend received a request for %s", seen[0].URI)
			}
			if c.path == countTokens {
				wantCall(t, g, got, "complete", "none", 0, 0) // free
			} else {
				wantCall(t, g, got, "complete", "reported", 9, 4)
			}
		})
	}
}

func TestUsageIsReadFromCompressedAnswers(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	packed := gzipped(t, messageAnswer)
	g.Backend.On("packed", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("the backend was offered the encodings %q", r.Header["Accept-Encoding"])
		}
		w.Header().Set("Content-Encoding", "gzip")
		gatetest.JSON(http.StatusOK, packed)(w, r)
	})
	got := g.Do(t, http.MethodPost, messages, headersFor(messages, key.Secret)+"Accept-Encoding: br, gzip;q=0.5", bodyFor(messages, "packed", ""))
	if got.Body != packed || got.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the compressed answer was changed: headers %q", got.Header)
	}
	wantCall(t, g, got, "complete", "reported", 9, 4)
}

func TestOnlyReadableEncodingsAreOfferedToTheBackend(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	for name, c := range map[string]struct{ accept, more, want string }{
		"gzip":              {"gzip, br", "", "gzip"},
		"anything":          {"*", "", "gzip"},
		"none":              {"", "", "identity"},
		"only others":       {"br, zstd", "", "identity"},
		"gzip refused":      {"br, gzip;q=0.0", "", "identity"},
		"gzip for a stream": {"gzip", streamed, "identity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := "accept " + name
			headers := headersFor(messages, key.Secret)
			if c.accept != "" {
				headers += "Accept-Encoding: " + c.accept
			}
			g.Do(t, http.MethodPost, messages, headers, bodyFor(messages, model, c.more))
			if got := g.Backend.Seen(model)[0].Header["Accept-Encoding"]; len(got) != 1 || got[0] != c.want {
				t.Errorf("offered %q, want %q", got, c.want)
			}
		})
	}
}
