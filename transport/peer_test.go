package transport

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// peer is an upstream that does exactly what a script says.
type peer struct {
	network, address string
	accepted         atomic.Int32
	scripts          sync.WaitGroup
	listener         net.Listener
}

// wire is a connection of a peer.
type wire struct {
	net.Conn
	r *bufio.Reader
	n int // the number of the connection, from 1
}

// newPeer starts a peer. Each connection runs the script, and is closed at its end.
func newPeer(t testing.TB, script func(w *wire)) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return peerOn(t, l, script)
}

func peerOn(t testing.TB, l net.Listener, script func(w *wire)) *peer {
	p := &peer{network: l.Addr().Network(), address: l.Addr().String(), listener: l}
	p.scripts.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w := &wire{Conn: c, r: bufio.NewReader(c), n: int(p.accepted.Add(1))}
			p.scripts.Go(func() {
				defer c.Close()
				script(w)
			})
		}
	})
	t.Cleanup(func() { l.Close() })
	return p
}

// request reads a request with its body. It returns nil at the end of the connection.
func (w *wire) request() *http.Request {
	req, err := http.ReadRequest(w.r)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil
	}
	req.Body = io.NopCloser(strings.NewReader(string(body)))
	return req
}

// head reads the lines of a head as they were sent.
func (w *wire) head() (lines []string) {
	for {
		line, err := w.r.ReadString('\n')
		if err != nil {
			return lines
		}
		if line = strings.TrimSuffix(line, "\r\n"); line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

func (w *wire) send(s string) { _, _ = io.WriteString(w, s) }

// awaitEnd returns when the connection was closed.
func (w *wire) awaitEnd() { _, _ = io.Copy(io.Discard, w.r) }

// answering answers each request of a connection with the same bytes.
func answering(answer string) func(*wire) {
	return func(w *wire) {
		for w.request() != nil {
			w.send(answer)
		}
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// newTransport provisions a transport.
func newTransport(t testing.TB, configure ...func(*Transport)) *Transport {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	tr := new(Transport)
	for _, c := range configure {
		c(tr)
	}
	if err := tr.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tr.Cleanup()
		cancel()
	})
	return tr
}

// to returns a request as reverse_proxy makes it.
func to(t testing.TB, ctx context.Context, p *peer, method, path string, body io.Reader) *http.Request { //nolint:revive // t comes first
	t.Helper()
	req, err := http.NewRequestWithContext(within(ctx, p), method, "http://up.test"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Scheme = ""
	return req
}

// within returns a context as reverse_proxy makes it for an attempt.
func within(ctx context.Context, p *peer) context.Context {
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
	return context.WithValue(ctx, caddy.CtxKey("reverse_proxy.dial_info"), reverseproxy.DialInfo{
		Network: p.network, Address: p.address,
	})
}

func get(t testing.TB, p *peer) *http.Request {
	t.Helper()
	return to(t, t.Context(), p, "GET", "/", nil)
}

func post(t testing.TB, p *peer, body io.Reader) *http.Request {
	t.Helper()
	return to(t, t.Context(), p, "POST", "/", body)
}

// fetch sends a request and reads its answer.
func fetch(rt http.RoundTripper, req *http.Request) (*http.Response, string, error) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// mustFetch is fetch, and fails the test unless the answer is this body.
func mustFetch(t testing.TB, rt http.RoundTripper, req *http.Request, want string) {
	t.Helper()
	if _, body, err := fetch(rt, req); err != nil || body != want {
		t.Fatalf("%q %v, want %q", body, err, want)
	}
}

// onBoth runs a test with the transport and with the one of Caddy that it embeds.
func onBoth(t *testing.T, test func(t *testing.T, rt http.RoundTripper)) {
	t.Run("short", func(t *testing.T) { test(t, newTransport(t)) })
	t.Run("net/http", func(t *testing.T) { test(t, &newTransport(t).HTTPTransport) })
}

// memory is a body in memory that notes its use.
type memory struct {
	bytes  []byte
	off    int
	closed chan struct{}
	once   sync.Once
}

func inMemory(size int) *memory {
	return &memory{bytes: []byte(strings.Repeat("0123456789abcdef", size/16+1)[:size]), closed: make(chan struct{})}
}

func (m *memory) Bytes() []byte { return m.bytes }

func (m *memory) Read(p []byte) (int, error) {
	n := copy(p, m.bytes[m.off:])
	if m.off += n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) isClosed() bool {
	select {
	case <-m.closed:
		return true
	default:
		return false
	}
}

// poison overwrites the body. The race detector reports whoever still reads it.
func (m *memory) poison(t testing.TB) {
	t.Helper()
	if !m.isClosed() {
		t.Error("the body is not closed")
	}
	for i := range m.bytes {
		m.bytes[i] = 'X'
	}
}

func (m *memory) of(req *http.Request) *http.Request {
	req.Body, req.ContentLength = m, int64(len(m.bytes))
	return req
}

// leftBehind returns how many goroutines and descriptors there are more than before, once they are
// as few as they become.
func leftBehind(t testing.TB, goroutines, descriptors int) (int, int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		g, d := runtime.NumGoroutine()-goroutines, openDescriptors()-descriptors
		if g <= 0 && d <= 0 || time.Now().After(deadline) {
			return g, d
		}
		runtime.Gosched()
	}
}

func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func chunk(s string) string { return chunkWith(s, "") }

func chunkWith(s, extension string) string {
	const digits = "0123456789abcdef"
	n := len(s)
	return string([]byte{digits[n>>12&15], digits[n>>8&15], digits[n>>4&15], digits[n&15]}) + extension + "\r\n" + s + "\r\n"
}
