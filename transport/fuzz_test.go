package transport

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"testing"
	"time"
)

// given is a connection that gives fixed bytes, in parts.
type given struct {
	net.Conn // for the methods that are not used
	rest     []byte
	part     int
}

func (g *given) Read(p []byte) (int, error) {
	if len(g.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, g.rest[:min(len(g.rest), g.part)])
	g.rest = g.rest[n:]
	return n, nil
}

func (*given) Close() error                    { return nil }
func (*given) SetReadDeadline(time.Time) error { return nil }

// FuzzAnswers reads any bytes as an answer. What is accepted net/http accepts as well, with the same
// result.
func FuzzAnswers(f *testing.F) {
	const h = "HTTP/1.1 200 OK\r\n"
	for _, s := range []string{
		ok, h + "\r\nuntil", h + "Transfer-Encoding: chunked\r\nTrailer: A\r\n\r\n5;a\r\nhello\r\n0\r\nA: b\r\n\r\nmore",
		h + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nokay", "HTTP/1.0 304 x\nConnection: keep-alive\nPragma: no-cache\n\n",
		"HTTP/1.1 103 A\r\nB: c\r\n\r\n" + ok, h + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s), byte(3), false)
		f.Add([]byte(s), byte(200), true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, part byte, head bool) {
		req := &http.Request{Method: "GET"}
		if head {
			req.Method = "HEAD"
		}
		g := &given{rest: answer, part: int(part) + 1}
		c := &conn{conn: g, socket: g, buf: make([]byte, bufferSize)}
		e := &exchange{pool: newPool(func() (int, int) { return 0, 0 }, 0), conn: c, owned: c}
		e.resp.Request = req
		if _, err := e.readAnswer(nil, 1<<20); err != nil {
			return
		}
		body, err := io.ReadAll(e.resp.Body)
		if err != nil {
			return
		}
		r := bufio.NewReader(bytes.NewReader(answer))
		var other *http.Response
		for {
			var err error
			if other, err = http.ReadResponse(r, req); err != nil {
				t.Fatalf("net/http refuses the head: %v", err)
			}
			if other.StatusCode >= 200 {
				break
			}
		}
		otherBody, err := io.ReadAll(other.Body)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("net/http refuses the body: %v", err)
		}
		if !bytes.Equal(body, otherBody) {
			t.Fatalf("%q, net/http: %q", body, otherBody)
		}
		if e.keep && e.framing != noBody && other.Close {
			t.Fatal("net/http closes the connection")
		}
		a, b := &e.resp, other
		if a.Status != b.Status || a.ContentLength != b.ContentLength || a.Close != b.Close || !reflect.DeepEqual(a.Header, b.Header) ||
			len(a.Trailer)+len(b.Trailer) > 0 && !reflect.DeepEqual(a.Trailer, b.Trailer) {
			t.Fatalf("%+v\nnet/http: %+v", a, b)
		}
	})
}
