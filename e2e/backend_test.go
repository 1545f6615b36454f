package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A backend stands where a vendor's service would. It records what reaches it
// and answers what its test scripts, byte for byte.
type backend struct {
	t      *testing.T
	server *httptest.Server
	asks   chan *ask

	mu     sync.Mutex
	record []*ask
}

// ask is one request as it reached the backend.
type ask struct {
	Method string
	URI    string // path and query as they were on the wire
	Host   string
	Header http.Header
	Body   []byte
	Length int64           // as announced; -1 when it was not
	Gone   <-chan struct{} // closed when the other side has left
}

// script answers one request.
type script func(*stage, *ask)

// newBackend returns a backend that plays the script to every caller.
func newBackend(t *testing.T, play script) *backend {
	t.Helper()
	b := &backend{t: t, asks: make(chan *ask, 1<<16)}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		a := &ask{r.Method, r.RequestURI, r.Host, r.Header.Clone(), body, r.ContentLength, r.Context().Done()}
		b.mu.Lock()
		b.record = append(b.record, a)
		b.mu.Unlock()
		if err != nil {
			return // cut off in the middle: recorded, but nobody is there to be answered
		}
		select {
		case b.asks <- a:
		default: // a test that makes so many calls waits for none of them
		}
		play(&stage{w, http.NewResponseController(w)}, a)
	}))
	t.Cleanup(b.server.Close)
	return b
}

// address is the host and port for reverse_proxy.
func (b *backend) address() string { return b.server.Listener.Addr().String() }

// next waits for the next request.
func (b *backend) next() *ask {
	b.t.Helper()
	return receive(b.t, b.asks, "a request at the backend")
}

// asked returns everything that reached the backend so far.
func (b *backend) asked() []*ask {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*ask(nil), b.record...)
}

// stage is where a script puts its answer.
type stage struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// head sends status and headers, given as name, value, name, value.
func (s *stage) head(status int, header ...string) {
	for i := 0; i < len(header); i += 2 {
		s.w.Header().Add(header[i], header[i+1])
	}
	s.w.WriteHeader(status)
	_ = s.control.Flush()
}

// say sends bytes at once.
func (s *stage) say(text string) {
	_, _ = io.WriteString(s.w, text)
	_ = s.control.Flush()
}

// answers is the script of an answer that is there as a whole.
func answers(status int, body string, header ...string) script {
	return func(s *stage, _ *ask) {
		for i := 0; i < len(header); i += 2 {
			s.w.Header().Add(header[i], header[i+1])
		}
		if s.w.Header().Get("Content-Type") == "" {
			s.w.Header().Set("Content-Type", "application/json")
		}
		s.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		s.w.WriteHeader(status)
		_, _ = io.WriteString(s.w, body)
	}
}

// streams is the script of an event stream, flushed after each part.
func streams(parts ...string) script {
	return func(s *stage, _ *ask) {
		s.head(http.StatusOK, "Content-Type", "text/event-stream; charset=utf-8")
		for _, part := range parts {
			s.say(part)
		}
	}
}

// inTurn plays each script once, and the last one from then on.
func inTurn(scripts ...script) script {
	var mu sync.Mutex
	return func(s *stage, a *ask) {
		mu.Lock()
		play := scripts[0]
		if len(scripts) > 1 {
			scripts = scripts[1:]
		}
		mu.Unlock()
		play(s, a)
	}
}

// speaks is the script of a backend that has an answer for each dialect, as
// JSON or as a stream.
func speaks(s *stage, a *ask) {
	stream := strings.Contains(string(a.Body), `"stream":true`)
	switch path, _, _ := strings.Cut(a.URI, "?"); {
	case path == "/v1/messages/count_tokens":
		answers(http.StatusOK, `{"input_tokens":7}`)(s, a)
	case path == "/v1/messages" && stream:
		streams(messageEvents...)(s, a)
	case path == "/v1/messages":
		answers(http.StatusOK, messageJSON)(s, a)
	case path == "/v1/chat/completions" && stream:
		streams(chatEvents...)(s, a)
	case path == "/v1/chat/completions":
		answers(http.StatusOK, chatJSON)(s, a)
	default:
		answers(http.StatusOK, completionJSON)(s, a)
	}
}

// Answers as the vendors write them.
const (
	messageJSON    = `{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":3}}`
	chatJSON       = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`
	completionJSON = `{"id":"cmpl-1","object":"text_completion","created":1,"model":"m-1","choices":[{"index":0,"text":"Hello.","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`
)

var (
	messageEvents = []string{
		event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":1}}}`),
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`),
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"."}}`),
		event("content_block_stop", `{"type":"content_block_stop","index":0}`),
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":3}}`),
		event("message_stop", `{"type":"message_stop"}`),
	}
	chatEvents = []string{
		event("", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`),
		event("", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":null}]}`),
		event("", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`),
		event("", `[DONE]`),
	}
)

// event writes one event of a stream; the completions dialect names none.
func event(name, data string) string {
	if name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + name + "\ndata: " + data + "\n\n"
}

// receive waits for a value, and fails the test when none comes.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
		panic("unreachable")
	}
}
