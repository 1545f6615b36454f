package transport

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// errTooLong is the error for a head or a line beyond its limit.
var errTooLong = errors.New("transport: the answer has a head or a line above the limit")

func malformed(what, text string) error {
	return fmt.Errorf("transport: malformed %s: %q", what, text[:min(len(text), 100)])
}

// readHead reads a head of at most limit bytes, up to the empty line that ends it.
func (c *conn) readHead(limit int) (string, error) {
	for scanned, line := 0, 0; ; {
		unread := c.buf[c.r:c.w]
		for {
			i := bytes.IndexByte(unread[scanned:], '\n')
			if i < 0 {
				scanned = len(unread)
				break
			}
			end := scanned + i
			scanned = end + 1
			if end == line || end == line+1 && unread[line] == '\r' {
				if scanned > limit {
					return "", errTooLong
				}
				c.r += scanned
				return string(unread[:scanned]), nil
			}
			line = scanned
		}
		if len(unread) >= limit {
			return "", errTooLong
		}
		if err := c.fill(limit); err != nil {
			return "", err
		}
	}
}

// parseHead sets status, protocol and header of resp from a head. It accepts less than net/http:
// no folded lines, no control characters in a value, and no versions besides HTTP/1.0 and HTTP/1.1.
func parseHead(head string, resp *http.Response) error {
	first, rest, ok := nextLine(head)
	if !ok {
		return malformed("status line", first)
	}
	proto, status, _ := strings.Cut(first, " ")
	switch proto {
	case "HTTP/1.1":
		resp.ProtoMinor = 1
	case "HTTP/1.0":
		resp.ProtoMinor = 0
	default:
		return malformed("status line", first)
	}
	resp.Proto, resp.ProtoMajor = proto, 1
	resp.Status = strings.TrimLeft(status, " ")
	code, _, _ := strings.Cut(resp.Status, " ")
	if len(code) != 3 || code[0] < '1' || code[0] > '9' || !isDigit(code[1]) || !isDigit(code[2]) {
		return malformed("status line", first)
	}
	resp.StatusCode = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	if strings.IndexByte(first, 0) >= 0 {
		return malformed("status line", first)
	}
	var err error
	resp.Header, err = parseFields(rest)
	if h := resp.Header; err == nil && h["Cache-Control"] == nil {
		if pragma := h["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" {
			h["Cache-Control"] = []string{"no-cache"} // as net/http does
		}
	}
	return err
}

// parseFields parses header lines up to the empty one. The values are parts of s.
func parseFields(s string) (http.Header, error) {
	count := strings.Count(s, "\n")
	header := make(http.Header, min(count, 64))
	values := make([]string, 0, count)
	for {
		text, rest, ok := nextLine(s)
		if !ok {
			return nil, malformed("header line", text)
		}
		if text == "" {
			return header, nil
		}
		name, value, ok := strings.Cut(text, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, malformed("header line", text)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		value = strings.Trim(value, " \t")
		if before := header[name]; before != nil {
			header[name] = append(before, value)
		} else {
			values = append(values, value)
			header[name] = values[len(values)-1 : len(values) : len(values)]
		}
		s = rest
	}
}

// nextLine cuts a line off s. It returns false if there is none, or if a CR is in it.
func nextLine(s string) (text, rest string, ok bool) {
	text, rest, ok = strings.Cut(s, "\n")
	text = strings.TrimSuffix(text, "\r")
	return text, rest, ok && strings.IndexByte(text, '\r') < 0
}

// The framings of a body (RFC 9112, section 6.3).
type framing int

const (
	noBody framing = iota
	byLength
	byChunks
	byEnd
)

// frame finds out where the body of resp ends, and sets the fields of resp that say so, as
// net/http does. It reports whether the connection can be used again after it.
func frame(resp *http.Response, method string) (f framing, length int64, reusable bool, err error) {
	h := resp.Header
	reusable = keepAlive(resp)
	chunked, err := isChunked(resp)
	if err != nil {
		return noBody, 0, false, err
	}
	length, err = contentLength(h)
	if err != nil {
		return noBody, 0, false, err
	}
	code := resp.StatusCode
	empty := code < 200 || code == http.StatusNoContent || code == http.StatusNotModified
	if chunked {
		resp.TransferEncoding = []string{"chunked"}
		if err := announced(resp); err != nil {
			return noBody, 0, false, err
		}
	}
	switch {
	case method == http.MethodHead:
		resp.ContentLength = length
		return noBody, 0, reusable, nil
	case empty:
		// Only 304 may tell the length of a body that does not follow. After any other, a
		// body might follow, which the next request on the connection would receive.
		return noBody, 0, reusable && (code == http.StatusNotModified || !chunked && length <= 0), nil
	case chunked:
		resp.ContentLength = -1
		delete(h, "Content-Length")
		return byChunks, 0, reusable && length < 0, nil
	case length > 0:
		resp.ContentLength = length
		return byLength, length, reusable, nil
	case length == 0:
		return noBody, 0, reusable, nil
	}
	resp.ContentLength, resp.Close = -1, true
	return byEnd, 0, false, nil
}

// keepAlive reports whether the upstream keeps the connection open after resp.
func keepAlive(resp *http.Response) bool {
	lines := resp.Header["Connection"]
	resp.Close = httpguts.HeaderValuesContainsToken(lines, "close")
	if resp.ProtoMinor == 0 {
		resp.Close = resp.Close || !httpguts.HeaderValuesContainsToken(lines, "keep-alive")
	} else if resp.Close {
		delete(resp.Header, "Connection")
	}
	return !resp.Close
}

// isChunked reports whether the body is chunked. It refuses any other encoding.
func isChunked(resp *http.Response) (bool, error) {
	values, ok := resp.Header["Transfer-Encoding"]
	if !ok {
		return false, nil
	}
	if len(values) != 1 || !strings.EqualFold(values[0], "chunked") || resp.ProtoMinor == 0 {
		return false, malformed("Transfer-Encoding", strings.Join(values, ", "))
	}
	delete(resp.Header, "Transfer-Encoding")
	return true, nil
}

// contentLength returns the length of the body, or -1 if there is none. Several equal lengths are
// one.
func contentLength(h http.Header) (int64, error) {
	values := h["Content-Length"]
	if len(values) == 0 {
		return -1, nil
	}
	for _, value := range values {
		if value != values[0] {
			return 0, malformed("Content-Length", strings.Join(values, ", "))
		}
	}
	if len(values) > 1 {
		h["Content-Length"] = values[:1]
	}
	length, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return 0, malformed("Content-Length", values[0])
	}
	return int64(length), nil
}

// announced moves the names in the header Trailer to resp.Trailer.
func announced(resp *http.Response) error {
	values, ok := resp.Header["Trailer"]
	if !ok {
		return nil
	}
	delete(resp.Header, "Trailer")
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)); name == "" {
				continue
			}
			if isFraming(name) {
				return malformed("Trailer", value)
			}
			if resp.Trailer == nil {
				resp.Trailer = http.Header{}
			}
			resp.Trailer[name] = nil
		}
	}
	return nil
}

// isFraming reports whether a header says where a body ends. A trailer comes too late for that.
func isFraming(name string) bool {
	return name == "Transfer-Encoding" || name == "Content-Length" || name == "Trailer"
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
