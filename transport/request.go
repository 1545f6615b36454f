package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// The sizes of what is sent, in bytes.
const (
	oneWrite   = 8 << 10           // up to here a body in memory is copied behind the head
	background = 64 << 10          // above, a body is sent while the answer is awaited
	maxPooled  = maxCopied + 8<<10 // larger buffers are not kept
)

// message is a request as it is sent.
type message struct {
	head []byte // and the body, if it was copied
	body []byte // in memory; empty: copied, or there is none

	pooled *[]byte // holds head
}

// messages holds buffers for heads.
var messages = sync.Pool{New: func() any { return new([]byte) }}

// free gives the buffer of the head back. Nothing may be sending it.
func (m *message) free() {
	if cap(m.head) <= maxPooled {
		*m.pooled = m.head[:0]
		messages.Put(m.pooled)
	}
	m.head, m.pooled = nil, nil
}

// newMessage builds the message for req. It sends nothing and does not close the body.
func newMessage(req *http.Request) (*message, error) {
	m := &message{pooled: messages.Get().(*[]byte)}
	m.head = (*m.pooled)[:0]
	err := m.addHead(req)
	if err == nil && req.ContentLength > 0 {
		err = m.addBody(req)
	}
	if err != nil {
		m.free()
		return nil, err
	}
	return m, nil
}

// inBackground reports whether the body is sent while the answer is awaited: an upstream may answer
// before it has read the body, and then stop reading.
func (m *message) inBackground() bool { return len(m.body) > background }

// ownLines lists the headers that addHead does not copy.
var ownLines = map[string]bool{"Host": true, "User-Agent": true, "Content-Length": true}

// addHead appends the head. The rules are those of net/http, so that both ways send the same
// lines, except that the names are not sorted.
func (m *message) addHead(req *http.Request) error {
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	if !httpguts.ValidHeaderFieldName(method) { // a method is a token, as a name is
		return fmt.Errorf("transport: invalid method %q", method)
	}
	target := req.URL.RequestURI()
	if hasControl(target) {
		return errors.New("transport: the URL has a control character")
	}
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	switch {
	case hasControl(host):
		return errors.New("transport: the host has a control character")
	case !httpguts.ValidHostHeader(host):
		host = "" // such as the path of a unix socket
	}
	b := m.head
	b = append(append(append(b, method...), ' '), target...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), host...)
	b = append(b, "\r\n"...)
	agents, ok := req.Header["User-Agent"]
	switch {
	case !ok:
		b = append(b, "User-Agent: Go-http-client/1.1\r\n"...)
	case len(agents) > 0 && agents[0] != "":
		if !httpguts.ValidHeaderFieldValue(agents[0]) {
			return errors.New(`transport: invalid value of "User-Agent"`)
		}
		b = line(b, "User-Agent", agents[0])
	}
	switch {
	case req.ContentLength > 0:
		b = strconv.AppendInt(append(b, "Content-Length: "...), req.ContentLength, 10)
		b = append(b, "\r\n"...)
	case method == http.MethodPost, method == http.MethodPut, method == http.MethodPatch:
		b = append(b, "Content-Length: 0\r\n"...)
	}
	for name, values := range req.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("transport: invalid header name %q", name)
		}
		own := ownLines[name]
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("transport: invalid value of %q", name) // which may be secret
			}
			if !own {
				b = line(b, name, value)
			}
		}
	}
	m.head = append(b, "\r\n"...)
	return nil
}

func line(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	b = append(b, textproto.TrimString(value)...)
	return append(b, "\r\n"...)
}

// addBody appends the body to the head, or refers to it if it is in memory and large.
func (m *message) addBody(req *http.Request) error {
	if body, ok := req.Body.(InMemory); ok {
		switch bytes := body.Bytes(); {
		case int64(len(bytes)) != req.ContentLength:
			return errLength
		case len(m.head)+len(bytes) <= oneWrite:
			m.head = append(m.head, bytes...)
		default:
			m.body = bytes
		}
		return nil
	}
	start, length := len(m.head), int(req.ContentLength)
	m.head = append(m.head, make([]byte, length)...)
	n, err := io.ReadFull(req.Body, m.head[start:])
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("transport: ContentLength=%d with Body length %d", length, n)
	case err != nil:
		return err
	}
	// Reading to the end lets net/http's server notice that a client leaves.
	var more [1]byte
	switch n, err := req.Body.Read(more[:]); {
	case n > 0:
		return errLength
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

var errLength = errors.New("transport: the body has another length than its ContentLength")

// mayRepeat reports whether a request may be sent again after a connection failed that an upstream
// may have closed while it was idle. Unlike net/http, it does not trust an Idempotency-Key: callers
// choose it, many vendors ignore it, and the operator would pay for both runs of a model.
func mayRepeat(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
