package transport

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// What a test expects of an answer.
type end int

const (
	reused   end = iota // the next request goes over the same connection
	dropped             // it does not
	refused             // RoundTrip fails
	cut                 // the body ends with io.ErrUnexpectedEOF
	mangled             // the body ends with another error
	stricter            // refused, although net/http accepts the answer
	mangles             // mangled, although net/http accepts the answer
)

// TestAnswers sends each answer whole, and once more in single bytes, to both transports.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const h11 = "HTTP/1.1 200 OK\r\n"
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		name, method, answer string
		body                 string
		end                  end
	}{
		{"length", "GET", h11 + "Content-Length: 5\r\n\r\nhello", "hello", reused},
		{"long body", "GET", h11 + "Content-Length: 100000\r\n\r\n" + long, long, reused},
		{"long head", "GET", h11 + "A: " + long + "\r\nContent-Length: 5\r\n\r\nhello", "hello", reused},
		{"chunks", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n" + chunk("he") + chunkWith("llo", ";a=b") + "0\r\n\r\n", "hello", reused},
		{"chunks with blanks after the size", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5 \t\r\nhello\r\n0\r\n\r\n", "hello", reused},
		{"long chunk", "GET", h11 + "Transfer-Encoding: Chunked\r\n\r\n186A0\r\n" + long + "\r\n000\r\n\r\n", long, reused},
		{"trailers", "GET", h11 + "Trailer: A\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("hello") + "0\r\nA: 1\r\nB: 2\r\n\r\n", "hello", reused},
		{"empty chunks", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", reused},
		{"until the end", "GET", h11 + "\r\nhello", "hello", dropped},
		{"close", "GET", h11 + "Connection: close\r\nContent-Length: 5\r\n\r\nhello", "hello", dropped},
		{"close among others", "GET", h11 + "Connection: a, CLOSE\r\nContent-Length: 5\r\n\r\nhello", "hello", dropped},
		{"1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", dropped},
		{"1.0 with keep-alive", "GET", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello", "hello", reused},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "", reused},
		{"304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", reused},
		{"HEAD with a length", "HEAD", h11 + "Content-Length: 5\r\n\r\n", "", reused},
		{"HEAD with chunks", "HEAD", h11 + "Transfer-Encoding: chunked\r\n\r\n", "", reused},
		{"205", "GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", "", reused},
		{"200 without content", "GET", h11 + "Content-Length: 0\r\n\r\n", "", reused},
		{"lengths twice", "GET", h11 + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "hello", reused},
		{"lengths in a list", "GET", h11 + "Content-Length: 5, 5\r\n\r\nhello", "", refused},
		{"two lengths", "GET", h11 + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "", refused},
		{"signed length", "GET", h11 + "Content-Length: +5\r\n\r\nhello", "", refused},
		{"negative length", "GET", h11 + "Content-Length: -5\r\n\r\nhello", "", refused},
		{"empty length", "GET", h11 + "Content-Length:\r\n\r\nhello", "", refused},
		{"overlong length", "GET", h11 + "Content-Length: 9223372036854775808\r\n\r\nhello", "", refused},
		{"length and chunks", "GET", h11 + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("hello") + "0\r\n\r\n", "hello", dropped},
		{"gzip encoding", "GET", h11 + "Transfer-Encoding: gzip\r\n\r\nhello", "", refused},
		{"gzip, chunked", "GET", h11 + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "", refused},
		{"chunked twice", "GET", h11 + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", refused},
		{"chunked in 1.0", "GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", stricter},
		{"chunk size empty", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n\r\nhello", "", mangled},
		{"chunk size negative", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", "", mangled},
		{"chunk size over 2^63", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n8000000000000000\r\nhello\r\n0\r\n\r\n", "hello\r\n0\r\n\r\n", mangled},
		{"chunk size of 17 digits", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n", "", mangled},
		{"endless chunk line", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5;" + long + "\r\nhello\r\n0\r\n\r\n", "", mangled},
		{"chunk without its line end", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n", "hello", mangled},
		{"chunk line with a bare LF", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", "", mangled},
		{"chunk data with a bare LF", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n", "hello", mangled},
		{"missing last chunk", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "hello", cut},
		{"end in a chunk", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel", "hel", cut},
		{"end in a chunk line", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0", "hello", cut},
		{"end in the trailers", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: 1\r\n", "hello", cut},
		{"short body", "GET", h11 + "Content-Length: 9\r\n\r\nhello", "hello", cut},
		{"bytes after the end", "GET", h11 + "Content-Length: 5\r\n\r\nhello" + ok, "hello", dropped},
		{"bytes after the chunks", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n" + chunk("hello") + "0\r\n\r\n" + ok, "hello", dropped},
		{"bytes after 204", "GET", "HTTP/1.1 204 No Content\r\n\r\n" + ok, "", dropped},
		{"204 with a length", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "", dropped},
		{"bare LF", "GET", "HTTP/1.1 200 OK\nA: 1\nContent-Length: 5\n\nhello", "hello", reused},
		{"folded line", "GET", h11 + "A: 1\r\n 2\r\nContent-Length: 5\r\n\r\nhello", "", stricter},
		{"first line folded", "GET", h11 + " A: 1\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"blank before the colon", "GET", h11 + "A : 1\r\nContent-Length: 5\r\n\r\nhello", "", stricter},
		{"NUL in a value", "GET", h11 + "A: 1\x002\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"CR in a value", "GET", h11 + "A: 1\r2\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"no colon", "GET", h11 + "A\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"no name", "GET", h11 + ": 1\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"bad name", "GET", h11 + "A(: 1\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"no reason", "GET", "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", "hello", reused},
		{"two digits", "GET", "HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"four digits", "GET", "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"letters", "GET", "HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"other protocol", "GET", "ICY 200 OK\r\nContent-Length: 5\r\n\r\nhello", "", refused},
		{"2.0", "GET", "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "", stricter},
		{"empty line first", "GET", "\r\n" + h11 + "Content-Length: 5\r\n\r\nhello", "", refused},
		{"interim", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + h11 + "Content-Length: 5\r\n\r\nhello", "hello", reused},
		{"interim with close", "GET", "HTTP/1.1 102 Processing\r\nConnection: close\r\n\r\n" + h11 + "Content-Length: 5\r\n\r\nhello", "hello", dropped},
		{"interim with a body", "GET", "HTTP/1.1 102 Processing\r\nContent-Length: 2\r\n\r\nhi" + h11 + "Content-Length: 5\r\n\r\nhello", "", refused},
		{"101 unasked", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello", "", stricter},
		{"framing in a trailer", "GET", h11 + "Transfer-Encoding: chunked\r\n\r\n" + chunk("hello") + "0\r\nContent-Length: 2\r\n\r\n", "hello", mangles},
		{"framing announced", "GET", h11 + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("hello") + "0\r\n\r\n", "", refused},
		{"end in the head", "GET", h11 + "Content-Le", "", refused},
		{"nothing", "GET", "", "", refused},
	} {
		for _, split := range []int{0, 1, 7} {
			if split > 0 && len(c.answer) > 10_000 {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				script := func(w *wire) {
					for w.request() != nil {
						rest := c.answer
						for split > 0 && len(rest) > split {
							w.send(rest[:split])
							rest = rest[split:]
						}
						w.send(rest)
						if c.end != reused && !strings.Contains(rest, ok) {
							return
						}
					}
				}
				p := newPeer(t, script)
				tr := newTransport(t)
				request := func() *http.Request { return to(t, t.Context(), p, c.method, "/", nil) }
				resp, body, err := fetch(tr, request())
				other, otherBody, otherErr := fetch(&tr.HTTPTransport, request())
				switch c.end {
				case reused, dropped:
					if err != nil || body != c.body {
						t.Fatalf("%.100q %v", body, err)
					}
					p.accepted.Store(1)
					if _, _, err := fetch(tr, request()); err != nil {
						t.Fatal(err)
					}
					if now := p.accepted.Load(); (now == 1) != (c.end == reused) {
						t.Errorf("%d connections", now)
					}
					compareAnswers(t, resp, other)
					if otherErr != nil || body != otherBody {
						t.Errorf("net/http reads %.100q %v", otherBody, otherErr)
					}
				case refused, stricter:
					if resp != nil || err == nil {
						t.Fatal(resp, err)
					}
					if (c.end == refused) != (otherErr != nil) {
						t.Errorf("net/http: %v, here: %v", otherErr, err)
					}
				case cut, mangled, mangles:
					if resp == nil || err == nil || !strings.HasPrefix(c.body, body) || errors.Is(err, io.ErrUnexpectedEOF) != (c.end == cut) {
						t.Fatalf("%v %q %v", resp, body, err)
					}
					if (c.end == mangles) != (otherErr == nil) {
						t.Errorf("net/http: %v, here: %v", otherErr, err)
					}
				}
			})
		}
	}
}

func compareAnswers(t *testing.T, a, b *http.Response) {
	t.Helper()
	if a.Status != b.Status || a.StatusCode != b.StatusCode || a.Proto != b.Proto || a.ContentLength != b.ContentLength || a.Close != b.Close {
		t.Errorf("%s %d %d %t, net/http: %s %d %d %t", a.Proto, a.StatusCode, a.ContentLength, a.Close, b.Proto, b.StatusCode, b.ContentLength, b.Close)
	}
	if !reflect.DeepEqual(a.Header, b.Header) || !reflect.DeepEqual(a.TransferEncoding, b.TransferEncoding) || !reflect.DeepEqual(a.Trailer, b.Trailer) {
		t.Errorf("%v %v %v, net/http: %v %v %v", a.Header, a.TransferEncoding, a.Trailer, b.Header, b.TransferEncoding, b.Trailer)
	}
}
