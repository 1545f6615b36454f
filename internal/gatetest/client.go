package gatetest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Answer is a complete answer to a caller.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // of reading the body; set if the answer is incomplete
}

// RequestID returns the request id of the answer.
func (a Answer) RequestID() string { return a.Header.Get("X-Request-Id") }

// client sends requests unchanged: without compression, redirects or reused
// connections, so that tests do not affect each other.
var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Open sends a request and returns the answer with its body unread. Headers are
// written "Name: value", one per line.
//
// On a reload, Linux resets connections that wait in the queue of the closed
// listener. Therefore a request that fails without an answer is sent once more
// after a reload.
func (g *Gate) Open(ctx context.Context, t testing.TB, method, path, headers, body string) *http.Response {
	t.Helper()
	resp, err := g.send(ctx, t, method, path, headers, body)
	if err != nil && g.reloaded {
		resp, err = g.send(ctx, t, method, path, headers, body)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (g *Gate) send(ctx context.Context, t testing.TB, method, path, headers, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, g.URL(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(headers) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			req.Header.Add(name, strings.TrimSpace(value))
		}
	}
	return client.Do(req)
}

// Do sends a request and reads the complete answer.
func (g *Gate) Do(t testing.TB, method, path, headers, body string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	return read(g.Open(ctx, t, method, path, headers, body))
}

func read(resp *http.Response) Answer {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, string(body), err}
}

// Wire is a connection to the site on which a test writes raw bytes.
type Wire struct {
	net.Conn
	in *bufio.Reader
}

// Dial opens a connection to the site.
func (g *Gate) Dial(t testing.TB) *Wire {
	t.Helper()
	return g.DialFrom(t, "127.0.0.1")
}

// DialFrom opens a connection to the site from an address of this machine, such as
// 127.0.0.9.
func (g *Gate) DialFrom(t testing.TB, address string) *Wire {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := from.DialContext(t.Context(), "tcp", g.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	return &Wire{conn, bufio.NewReader(conn)}
}

// Send writes text, with each "\n" as a CRLF.
func (w *Wire) Send(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(w, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
}

// Receive reads the next answer on the connection.
func (w *Wire) Receive(t testing.TB, method string) Answer {
	t.Helper()
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("reading an answer: %v", err)
	}
	return read(resp)
}
