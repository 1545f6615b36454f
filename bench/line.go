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

// line is one connection to a gateway. It speaks HTTP by itself, with one
// goroutine and two system calls a call, so that the load generator is not what
// is slow.
type line struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	others  [][]byte       // requests that are sent in turn with it
	size    int64          // of the answers, in bytes; or anySize
	events  *bufio.Reader  // the body of the answer, when it is a stream
	sent    chan time.Time // when calls were due, in the order in which they were sent; for paced
}

func dial(ctx context.Context, address string, request []byte) (*line, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &line{conn: conn, in: bufio.NewReader(conn), request: request, size: int64(len(answerJSON))}, nil
}

// anySize is the size of answers that are not all alike.
const anySize = -1

func (l *line) close() { _ = l.conn.Close() }

// request is a whole call as it goes over the wire, with the headers that the
// vendor's own libraries send.
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

// reading is the request by which a browser reads a path of the console.
func reading(address, path, session string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"+
		"Accept-Language: en-US,en;q=0.9\r\nCookie: modelgate_session=%s\r\nSec-Fetch-Dest: empty\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Site: same-origin\r\n"+
		"User-Agent: %s\r\n\r\n", path, address, session, browserName)
}

// asking is the request by which a program asks for a path with an API key.
func asking(address, path, key string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"+
		"Authorization: Bearer %s\r\nUser-Agent: python-requests/2.32.5\r\n\r\n", path, address, key)
}

// browserName is what a common browser calls itself.
const browserName = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"

// call makes a call and reads its answer to the end.
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

// answer reads an answer to its end, and makes sure that it is whole.
func (l *line) answer() error {
	resp, err := l.head()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && l.size != anySize && n != l.size {
		err = fmt.Errorf("an answer of %d bytes came with %d", l.size, n)
	}
	return err
}

// post is the request that answers are read for.
var post = &http.Request{Method: http.MethodPost}

// head reads the head of an answer, which must be 200.
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

// open makes a call that is streamed, and reads its first event.
func (l *line) open() error {
	if err := l.send(); err != nil {
		return err
	}
	resp, err := l.head() //nolint:bodyclose // it ends with the line
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
