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

// backend simulates a vendor's service. It records every request and answers
// with the bytes of its script.
type backend struct {
	t      *testing.T
	server *httptest.Server
	queue  chan *recordedRequest

	mu     sync.Mutex
	record []*recordedRequest
}

// recordedRequest is one request as the backend received it.
type recordedRequest struct {
	Method string
	URI    string // path and query exactly as sent
	Host   string
	Header http.Header
	Body   []byte
	Length int64           // Content-Length; -1 without one
	Gone   <-chan struct{} // closed when the client has disconnected
}

// script answers one request.
type script func(*scriptWriter, *recordedRequest)

// newBackend returns a backend that answers every request with the script.
func newBackend(t *testing.T, serve script) *backend {
	t.Helper()
	b := &backend{t: t, queue: make(chan *recordedRequest, 1<<16)}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		a := &recordedRequest{r.Method, r.RequestURI, r.Host, r.Header.Clone(), body, r.ContentLength, r.Context().Done()}
		b.mu.Lock()
		b.record = append(b.record, a)
		b.mu.Unlock()
		if err != nil {
			return // the client disconnected: the request is recorded and not answered
		}
		select {
		case b.queue <- a:
		default: // the queue is full: a test with so many calls does not use next
		}
		serve(&scriptWriter{w, http.NewResponseController(w)}, a)
	}))
	t.Cleanup(b.server.Close)
	return b
}

// address returns host and port for reverse_proxy.
func (b *backend) address() string { return b.server.Listener.Addr().String() }

// next waits for the next request.
func (b *backend) next() *recordedRequest {
	b.t.Helper()
	return receive(b.t, b.queue, "a request at the backend")
}

// requests returns all requests so far.
func (b *backend) requests() []*recordedRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*recordedRequest(nil), b.record...)
}

// scriptWriter writes the answer of a script.
type scriptWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// writeHeader sends status and headers, given as name, value, name, value.
func (s *scriptWriter) writeHeader(status int, header ...string) {
	for i := 0; i < len(header); i += 2 {
		s.w.Header().Add(header[i], header[i+1])
	}
	s.w.WriteHeader(status)
	_ = s.control.Flush()
}

// write sends bytes at once.
func (s *scriptWriter) write(text string) {
	_, _ = io.WriteString(s.w, text)
	_ = s.control.Flush()
}

// respond returns a script that sends a complete answer.
func respond(status int, body string, header ...string) script {
	return func(s *scriptWriter, _ *recordedRequest) {
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

// streams returns a script that sends an event stream and flushes after each
// part.
func streams(parts ...string) script {
	return func(s *scriptWriter, _ *recordedRequest) {
		s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream; charset=utf-8")
		for _, part := range parts {
			s.write(part)
		}
	}
}

// inSequence returns a script that runs each of the scripts once, and then
// always the last one.
func inSequence(scripts ...script) script {
	var mu sync.Mutex
	return func(s *scriptWriter, a *recordedRequest) {
		mu.Lock()
		serve := scripts[0]
		if len(scripts) > 1 {
			scripts = scripts[1:]
		}
		mu.Unlock()
		serve(s, a)
	}
}

// answerCalls is a script that answers each dialect, as JSON or as a stream.
func answerCalls(s *scriptWriter, a *recordedRequest) {
	stream := strings.Contains(string(a.Body), `"stream":true`)
	switch path, _, _ := strings.Cut(a.URI, "?"); {
	case path == "/v1/messages/count_tokens":
		respond(http.StatusOK, `{"input_tokens":7}`)(s, a)
	case path == "/v1/messages" && stream:
		streams(messageEvents...)(s, a)
	case path == "/v1/messages":
		respond(http.StatusOK, messageJSON)(s, a)
	case path == "/v1/chat/completions" && stream:
		streams(chatEvents...)(s, a)
	case path == "/v1/chat/completions":
		respond(http.StatusOK, chatJSON)(s, a)
	case path == "/v1/responses" && stream:
		streams(responseEvents...)(s, a)
	case path == "/v1/responses":
		respond(http.StatusOK, responseJSON)(s, a)
	default:
		respond(http.StatusOK, completionJSON)(s, a)
	}
}

// Answers as the vendors write them.
const (
	messageJSON    = `{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":3}}`
	chatJSON       = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`
	responseJSON   = `{"id":"resp_1","object":"response","status":"completed","model":"m-1","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello."}]}],"usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10}}`
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
	responseEvents = []string{
		event("response.created", `{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","output":[],"usage":null}}`),
		event("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":1,"delta":"Hello."}`),
		event("response.completed", `{"type":"response.completed","sequence_number":2,"response":{"id":"resp_1","status":"completed","output":[],"usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10}}}`),
	}
	chatEvents = []string{
		event("", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`),
		event("", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":null}]}`),
		event("", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`),
		event("", `[DONE]`),
	}
)

// event returns one event of a stream. The completions dialect has no event
// names.
func event(name, data string) string {
	if name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + name + "\ndata: " + data + "\n\n"
}

// receive waits for a value, and fails the test if none arrives in time.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(waitLimit):
		t.Fatalf("%s: not within %s", what, waitLimit)
		panic("unreachable")
	}
}
