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

// The client of these tests looks at every byte; the SDKs have files of their own.

// callBodies are the smallest calls, by path.
var callBodies = map[string]string{
	"/v1/messages":              `{"model":"m-1","max_tokens":16,"messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/messages/count_tokens": `{"model":"m-1","messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/chat/completions":      `{"model":"m-1","messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/completions":           `{"model":"m-1","prompt":"Hi"}`,
}

// streamBodies are the same calls as streams.
var streamBodies = map[string]string{
	"/v1/messages":         `{"model":"m-1","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`,
	"/v1/chat/completions": `{"model":"m-1","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}`,
}

// answer is what a client got.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // how the body ended, when not cleanly
}

// protocols is how a client speaks to the gateway.
type protocol string

const (
	http1 protocol = "HTTP/1.1"
	http2 protocol = "HTTP/2"
)

// newTransport returns connections of one protocol that nobody else uses.
func newTransport(p protocol) *http.Transport {
	use := new(http.Protocols)
	if p == http2 {
		use.SetUnencryptedHTTP2(true)
	} else {
		use.SetHTTP1(true)
	}
	return &http.Transport{Protocols: use, DisableCompression: true}
}

// request makes a call with the headers, given as name, value, name, value. A
// call that names no credential header carries none.
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

// call posts body to path on a fresh connection and returns the whole answer.
func (g *gateway) call(path, body string, header ...string) answer {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	return g.send(g.request(ctx, path, body, header...))
}

// send sends a request on a fresh connection and returns the whole answer.
func (g *gateway) send(req *http.Request) answer {
	g.t.Helper()
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	return g.sendOver(transport, req)
}

// sendOver sends a request and returns the whole answer.
func (g *gateway) sendOver(transport *http.Transport, req *http.Request) answer {
	resp, err := g.witness.over(transport).RoundTrip(req)
	if err != nil {
		return answer{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// bearer is the credential header of the gateway's key.
func (g *gateway) bearer() []string { return []string{"Authorization", "Bearer " + g.Key} }

// authenticates tells whether a key is in force.
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
		g.t.Fatalf("a key is neither in force nor not: %d %s %v", a.Status, a.Body, a.Err)
		panic("unreachable")
	}
}

// raw writes bytes to a connection of its own, until it takes no more of them,
// and returns all that comes back.
func (g *gateway) raw(request string) string {
	g.t.Helper()
	conn, err := net.DialTimeout("tcp", g.Address, patience)
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { _, _ = io.WriteString(conn, request) })
	answer, err := io.ReadAll(io.TeeReader(conn, g.witness))
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		g.t.Fatal(err)
	}
	conn.Close()
	return string(answer)
}

// open sends a streaming call and returns its answer as soon as its head is
// there. The call ends with ctx.
func (g *gateway) open(ctx context.Context, p protocol, path, body string) *http.Response {
	g.t.Helper()
	transport := newTransport(p)
	g.t.Cleanup(transport.CloseIdleConnections)
	resp, err := g.witness.over(transport).RoundTrip(g.request(ctx, path, body, g.bearer()...))
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

// witness keeps what clients have received, headers and bodies, for the search
// for credentials.
type witness struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newWitness() *witness { return new(witness) }

func (w *witness) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *witness) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// over returns the transport with the witness looking on.
func (w *witness) over(transport http.RoundTripper) http.RoundTripper {
	return watched{transport, w}
}

type watched struct {
	transport http.RoundTripper
	witness   *witness
}

// RoundTrip implements http.RoundTripper.
func (t watched) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(t.witness, resp.Status, resp.Header)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, t.witness), resp.Body}
	return resp, nil
}

// client is for the SDKs: connections are kept, and it does not wait for ever.
func (g *gateway) client() *http.Client {
	transport := newTransport(http1)
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: g.witness.over(transport), Timeout: time.Minute}
}

// inParallel runs work for each number below n, at most so many at once.
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
