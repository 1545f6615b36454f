package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func TestInterimAnswersAreTraced(t *testing.T) {
	t.Parallel()
	p := newPeer(t, answering("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"+ok))
	onBoth(t, func(t *testing.T, rt http.RoundTripper) {
		var got []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, fmt.Sprint(code, h["Link"]))
			return nil
		}})
		resp, body, err := fetch(rt, to(t, ctx, p, "GET", "/", nil))
		if err != nil || body != "ok" || resp.Header["Link"] != nil || fmt.Sprint(got) != "[103 [a]]" {
			t.Error(resp, body, err, got)
		}
	})
}

func TestHeadsAreBounded(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"one head":      "A: " + strings.Repeat("x", 1000) + "\r\n",
		"interim heads": "\r\nHTTP/1.1 103 Early Hints\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w *wire) {
				w.request()
				w.send("HTTP/1.1 103 Early Hints\r\n")
				for {
					if _, err := io.WriteString(w, part); err != nil {
						return
					}
				}
			})
			tr := newTransport(t, func(tr *Transport) { tr.MaxResponseHeaderSize = 50_000 })
			if _, _, err := fetch(tr, get(t, p)); !errors.Is(err, errTooLong) {
				t.Error(err)
			}
		})
	}
}

func TestRequestsAreSentAsNetHTTPSendsThem(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 1)
	p := newPeer(t, func(w *wire) {
		for {
			lines := w.head()
			if lines == nil {
				return
			}
			var length int
			for _, line := range lines {
				_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
			}
			body := make([]byte, length)
			_, _ = io.ReadFull(w.r, body)
			first := lines[0]
			counted := map[string]int{}
			for _, line := range lines[1:] {
				counted[line]++
			}
			sent <- fmt.Sprint(first, counted, string(body))
			w.send(ok)
		}
	})
	tr := newTransport(t, func(tr *Transport) { tr.Compression = new(bool) })
	for name, change := range map[string]func(*http.Request){
		"plain":           func(*http.Request) {},
		"no agent":        func(r *http.Request) { r.Header["User-Agent"] = []string{""} },
		"agents":          func(r *http.Request) { r.Header["User-Agent"] = []string{"a", "b"} },
		"values":          func(r *http.Request) { r.Header["X"] = []string{"b", " a ", ""} },
		"POST":            func(r *http.Request) { r.Method = "POST" },
		"DELETE":          func(r *http.Request) { r.Method = "DELETE" },
		"no method":       func(r *http.Request) { r.Method = "" },
		"body":            func(r *http.Request) { r.Method = "POST"; inMemory(3000).of(r) },
		"long body":       func(r *http.Request) { r.Method = "PUT"; inMemory(300_000).of(r) },
		"other body":      func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hello")), 5 },
		"raw path":        func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b", "/a%2Fb" },
		"odd path":        func(r *http.Request) { r.URL.Path = "/ü ?%" },
		"star":            func(r *http.Request) { r.Method = "OPTIONS"; r.URL.Path = "*" },
		"query":           func(r *http.Request) { r.URL.RawQuery = "a=ü&b={}|" },
		"empty path":      func(r *http.Request) { r.URL.Path = "" },
		"two slashes":     func(r *http.Request) { r.URL.Path = "//a" },
		"opaque":          func(r *http.Request) { r.URL.Opaque = "//x.example/%2f" },
		"empty query":     func(r *http.Request) { r.URL.ForceQuery = true },
		"host":            func(r *http.Request) { r.Host = "other.example:81" },
		"odd host":        func(r *http.Request) { r.Host = "/run/x.sock" },
		"own lines":       func(r *http.Request) { r.Header["Host"] = []string{"x"}; r.Header["Content-Length"] = []string{"7"} },
		"accept-encoding": func(r *http.Request) { r.Header["Accept-Encoding"] = []string{"br"} },
	} {
		var lines [2]string
		for i, rt := range []http.RoundTripper{tr, &tr.HTTPTransport} {
			req := get(t, p)
			change(req)
			tr.SetScheme(req)
			if _, ok := tr.shortWay(req); !ok {
				t.Errorf("%s takes the long way", name)
			}
			mustFetch(t, rt, req, "ok")
			lines[i] = <-sent
		}
		if lines[0] != lines[1] {
			t.Errorf("%s: %.400s\nnet/http: %.400s", name, lines[0], lines[1])
		}
	}
}

func TestNothingOfABadRequestIsSent(t *testing.T) {
	t.Parallel()
	p := newPeer(t, answering(ok))
	tr := newTransport(t)
	for name, change := range map[string]func(*http.Request){
		"value":       func(r *http.Request) { r.Header["A"] = []string{"1\r\nB: 2"} },
		"NUL":         func(r *http.Request) { r.Header["A"] = []string{"1\x00"} },
		"name":        func(r *http.Request) { r.Header["A\n"] = []string{"1"} },
		"agent":       func(r *http.Request) { r.Header["User-Agent"] = []string{"a\r\nB: 2"} },
		"host":        func(r *http.Request) { r.Host = "a\r\nB: 2" },
		"method":      func(r *http.Request) { r.Method = "GET /\r\n" },
		"opaque":      func(r *http.Request) { r.URL.Opaque = "/a\r\nB: 2" },
		"query":       func(r *http.Request) { r.URL.RawQuery = "a\nb" },
		"short body":  func(r *http.Request) { r.ContentLength++; r.Body = onlyReader(r.Body) },
		"longer body": func(r *http.Request) { r.ContentLength--; r.Body = onlyReader(r.Body) },
		"bad body":    func(r *http.Request) { r.Body = struct{ io.ReadCloser }{failing{r.Body}} },
	} {
		m := inMemory(100)
		req := m.of(post(t, p, nil))
		change(req)
		if _, _, err := fetch(tr, req); err == nil {
			t.Errorf("%s is sent", name)
		}
		if !m.isClosed() {
			t.Errorf("%s: the body is not closed", name)
		}
	}
	if n := p.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func onlyReader(r io.ReadCloser) io.ReadCloser { return struct{ io.ReadCloser }{r} }

type failing struct{ io.ReadCloser }

func (failing) Read([]byte) (int, error) { return 0, errors.New("no bytes") }

func TestTheLongWay(t *testing.T) {
	t.Parallel()
	p := newPeer(t, answering(ok))
	tr := newTransport(t)
	for name, change := range map[string]func(*http.Request){
		"unknown length":    func(r *http.Request) { r.ContentLength = -1 },
		"large and foreign": func(r *http.Request) { r.Body, r.ContentLength = onlyReader(r.Body), maxCopied+1 },
		"trailers":          func(r *http.Request) { r.Trailer = http.Header{"A": nil} },
		"chunked":           func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		"Expect":            func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		"Upgrade":           func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"Connection":        func(r *http.Request) { r.Header.Set("Connection", "x") },
		"TE":                func(r *http.Request) { r.Header.Set("TE", "trailers") },
		"CONNECT":           func(r *http.Request) { r.Method = "CONNECT" },
		"no dial info":      func(r *http.Request) { *r = *r.WithContext(t.Context()) },
		"https":             func(r *http.Request) { r.URL.Scheme = "https" },
	} {
		req := inMemory(100).of(post(t, p, nil))
		change(req)
		tr.SetScheme(req)
		if _, ok := tr.shortWay(req); ok {
			t.Errorf("%s takes the short way", name)
		}
	}
	for name, configure := range map[string]func(*Transport){
		"h2c":            func(tr *Transport) { tr.Versions = []string{"h2c", "2"} },
		"proxy protocol": func(tr *Transport) { tr.ProxyProtocol = "v1" },
		"max conns":      func(tr *Transport) { tr.MaxConnsPerHost = 1 },
		"keep-alive off": func(tr *Transport) { tr.KeepAlive = &reverseproxy.KeepAlive{Enabled: new(bool)} },
	} {
		if newTransport(t, configure).plain {
			t.Errorf("%s takes the short way", name)
		}
	}
	req := post(t, p, onlyReader(io.NopCloser(strings.NewReader("hello")))) // of unknown length
	mustFetch(t, tr, req, "ok")
}

func TestDialErrors(t *testing.T) {
	t.Parallel()
	p := newPeer(t, answering(ok))
	p.listener.Close()
	p.scripts.Wait()
	onBoth(t, func(t *testing.T, rt http.RoundTripper) {
		m := inMemory(100)
		_, _, err := fetch(rt, m.of(post(t, p, nil)))
		if dial := new(reverseproxy.DialError); !errors.As(err, dial) || m.off != 0 {
			t.Error(err, m.off)
		}
		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(context.Canceled)
		if _, _, err := fetch(rt, to(t, canceled, p, "GET", "/", nil)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	tr := newTransport(t)
	tr.HTTPTransport.Transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, reverseproxy.NewDialError(ctx.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := fetch(tr, to(t, ctx, p, "GET", "/", nil)); err != context.DeadlineExceeded { //nolint:errorlint // as net/http
		t.Error(err)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors()
	p := newPeer(t, func(w *wire) {
		for req := w.request(); req != nil; req = w.request() {
			switch req.URL.Path {
			case "/reset":
				return
			case "/short":
				w.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
				return
			case "/bad":
				w.send("what?\r\n\r\n")
			default:
				w.send(ok)
			}
		}
	})
	tr := newTransport(t)
	for i := range 200 {
		req := to(t, t.Context(), p, "POST", []string{"/", "/reset", "/short", "/bad"}[i%4], nil)
		inMemory([]int{10, 20_000, 200_000}[i%3]).of(req)
		_, _, _ = fetch(tr, req)
	}
	_ = tr.Cleanup()
	p.listener.Close()
	p.scripts.Wait()
	if g, d := leftBehind(t, goroutines, descriptors); g > 0 || d > 0 {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines and %d descriptors are left\n%s", g, d, bytes.TrimSpace(buf[:runtime.Stack(buf, true)]))
	}
}
