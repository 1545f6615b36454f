package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// line is one connection to a gateway. It implements HTTP with one goroutine
// and two system calls per request, so that the load generator is not the
// bottleneck.
type line struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	others  [][]byte       // requests that alternate with it
	size    int64          // of each answer in bytes, or anySize
	events  *bufio.Reader  // the body of the answer, when it is a stream
	sent    chan time.Time // due times of the requests, in the order sent; for paced
}

func dial(ctx context.Context, address string, request []byte) (*line, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &line{conn: conn, in: bufio.NewReader(conn), request: request, size: int64(len(answerJSON))}, nil
}

// anySize allows answers of different sizes.
const anySize = -1

func (l *line) close() { _ = l.conn.Close() }

// request returns a complete call with the headers of the vendor's libraries.
func request(address, key, want string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/messages HTTP/1.1\r\nHost: %s\r\n", address)
	for _, header := range [][2]string{
		{"Accept", "application/json"},
		{"Anthropic-Version", "2023-06-01"},
		{"Content-Type", "application/json"},
		{"User-Agent", "Anthropic/Go 1.84.0"},
		{"X-Api-Key", key},
		{"X-Stainless-Arch", "x64"},
		{"X-Stainless-Lang", "go"},
		{"X-Stainless-Os", "Linux"},
		{"X-Stainless-Retry-Count", "0"},
		{"X-Stainless-Runtime", "go"},
		{wantHeader, want},
	} {
		if header[1] != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", header[0], header[1])
		}
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	return b.Bytes()
}

// consoleRead returns the request by which a browser reads a path of the console.
func consoleRead(address, path, session string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"+
		"Accept-Language: en-US,en;q=0.9\r\nCookie: modelgate_session=%s\r\nSec-Fetch-Dest: empty\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Site: same-origin\r\n"+
		"User-Agent: %s\r\n\r\n", path, address, session, browserName)
}

// taskQuery returns the request by which a program reads a path with an API key.
func taskQuery(address, path, key string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"+
		"Authorization: Bearer %s\r\nUser-Agent: python-requests/2.32.5\r\n\r\n", path, address, key)
}

// browserName is the User-Agent of a common browser.
const browserName = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"

// call sends a request and reads its answer to the end.
func (l *line) call() error {
	if err := l.send(); err != nil {
		return err
	}
	return l.answer()
}

func (l *line) send() error {
	_, err := l.conn.Write(l.request)
	if last := len(l.others) - 1; last >= 0 {
		next := l.others[0]
		copy(l.others, l.others[1:])
		l.others[last], l.request = l.request, next
	}
	return err
}

// answer reads an answer to its end and checks its size.
func (l *line) answer() error {
	resp, err := l.head()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && l.size != anySize && n != l.size {
		err = fmt.Errorf("want an answer of %d bytes, got %d", l.size, n)
	}
	return err
}

// post is the request that [http.ReadResponse] needs to read an answer.
var post = &http.Request{Method: http.MethodPost}

// head reads the status line and headers of an answer. Any status but 200 is an error.
func (l *line) head() (*http.Response, error) {
	resp, err := http.ReadResponse(l.in, post)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("the gateway answered %s: %s", resp.Status, text)
	}
	return resp, nil
}

// open sends a request for a stream and reads its first event.
func (l *line) open() error {
	if err := l.send(); err != nil {
		return err
	}
	resp, err := l.head() //nolint:bodyclose // closed with the line
	if err != nil {
		return err
	}
	l.events = bufio.NewReader(resp.Body)
	return l.event()
}

// event reads an event of a stream to its end.
func (l *line) event() error {
	for {
		text, err := l.events.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(text) == 1 {
			return nil
		}
	}
}
