package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// This client compares every byte; the SDKs have their own files.

// callBodies are minimal calls by path.
var callBodies = map[string]string{
	"/v1/messages":              `{"model":"m-1","max_tokens":16,"messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/messages/count_tokens": `{"model":"m-1","messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/chat/completions":      `{"model":"m-1","messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/completions":           `{"model":"m-1","prompt":"Hi"}`,
	"/v1/responses":             `{"model":"m-1","input":"Hi"}`,
}

// streamBodies are the same calls with streamed answers.
var streamBodies = map[string]string{
	"/v1/messages":         `{"model":"m-1","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/responses":        `{"model":"m-1","stream":true,"input":"Hi"}`,
	"/v1/chat/completions": `{"model":"m-1","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}`,
}

// answer is the answer that a client received.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // the error while reading the body
}

// protocol is the HTTP version of a client.
type protocol string

const (
	http1 protocol = "HTTP/1.1"
	http2 protocol = "HTTP/2"
)

// newTransport returns a transport of one protocol with its own connections.
func newTransport(p protocol) *http.Transport {
	use := new(http.Protocols)
	if p == http2 {
		use.SetUnencryptedHTTP2(true)
	} else {
		use.SetHTTP1(true)
	}
	return &http.Transport{Protocols: use, DisableCompression: true}
}

// request returns a call with these headers, given as name, value, name, value.
// Without a credential header it has no credential.
func (g *gateway) request(ctx context.Context, path, body string, header ...string) *http.Request {
	g.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url(path), strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// call posts body to path on a new connection and returns the complete answer.
func (g *gateway) call(path, body string, header ...string) answer {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), waitLimit)
	defer cancel()
	return g.send(g.request(ctx, path, body, header...))
}

// send sends a request on a new connection and returns the complete answer.
func (g *gateway) send(req *http.Request) answer {
	g.t.Helper()
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	return g.sendOver(transport, req)
}

// sendOver sends a request and returns the complete answer.
func (g *gateway) sendOver(transport *http.Transport, req *http.Request) answer {
	resp, err := g.responseRecorder.over(transport).RoundTrip(req)
	if err != nil {
		return answer{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// bearer returns the credential header of the gateway's key.
func (g *gateway) bearer() []string { return []string{"Authorization", "Bearer " + g.Key} }

// authenticates reports whether a key is valid.
func (g *gateway) authenticates(key string) bool {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.url("/v1/models"), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Close = true
	switch a := g.send(req); a.Status {
	case http.StatusOK:
		return true
	case http.StatusUnauthorized:
		return false
	default:
		g.t.Fatalf("the check of a key: %d %s %v", a.Status, a.Body, a.Err)
		panic("unreachable")
	}
}

// raw writes bytes to a new connection until the gateway stops reading, and
// returns everything that it answers.
func (g *gateway) raw(request string) string {
	g.t.Helper()
	conn, err := net.DialTimeout("tcp", g.Address, waitLimit)
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { _, _ = io.WriteString(conn, request) })
	answer, err := io.ReadAll(io.TeeReader(conn, g.responseRecorder))
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		g.t.Fatal(err)
	}
	conn.Close()
	return string(answer)
}

// open sends a streaming call and returns when the header of the answer
// arrives. The call ends with ctx.
func (g *gateway) open(ctx context.Context, p protocol, path, body string) *http.Response {
	g.t.Helper()
	transport := newTransport(p)
	g.t.Cleanup(transport.CloseIdleConnections)
	resp, err := g.responseRecorder.over(transport).RoundTrip(g.request(ctx, path, body, g.bearer()...))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// expect reads exactly text from r, or fails the test.
func expect(t *testing.T, r io.Reader, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != text {
		t.Fatalf("read %q (%v), want %q", got[:n], err, text)
	}
}

// responseRecorder keeps the headers and bodies that clients have received, for
// the search for credentials.
type responseRecorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newResponseRecorder() *responseRecorder { return new(responseRecorder) }

func (w *responseRecorder) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *responseRecorder) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// over returns a transport that records its answers.
func (w *responseRecorder) over(transport http.RoundTripper) http.RoundTripper {
	return recordingTransport{transport, w}
}

type recordingTransport struct {
	transport        http.RoundTripper
	responseRecorder *responseRecorder
}

// RoundTrip implements http.RoundTripper.
func (t recordingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(t.responseRecorder, resp.Status, resp.Header)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, t.responseRecorder), resp.Body}
	return resp, nil
}

// client returns an HTTP client for the SDKs. It reuses connections and has a
// timeout.
func (g *gateway) client() *http.Client {
	transport := newTransport(http1)
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: g.responseRecorder.over(transport), Timeout: time.Minute}
}

// inParallel calls work for each number below n, with at most atOnce
// concurrently.
func inParallel(atOnce, n int, work func(i int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			work(i)
		})
	}
	all.Wait()
}
