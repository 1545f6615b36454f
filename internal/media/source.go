package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// source returns the bytes of a result.
type source interface {
	// id identifies the URL. A copy from another URL cannot be continued. Empty:
	// no copy can be continued.
	id() string

	// open opens the result. If from is not zero and the result still has the
	// validator, the stream begins after from bytes.
	open(ctx context.Context, from int64, validator string) (*stream, error)
}

// stream is an open result.
type stream struct {
	body      io.ReadCloser
	from      int64  // offset of the first byte of the body
	total     int64  // size of the whole result; -1: unknown
	validator string // for If-Range; empty: the copy cannot be continued
}

func sourceOf(c *config, k task.Keeping, index int) source {
	if address := k.Results[index].URL; address != "" || k.Fetch == nil {
		return &linked{address: address, allow: c.Allow, transport: c.client.Transport}
	}
	return &fetched{fetch: k.Fetch, index: index}
}

// fetched is a result whose bytes the backend returns.
type fetched struct {
	fetch func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error)
	index int
}

func (*fetched) id() string { return "" }

func (f *fetched) open(ctx context.Context, _ int64, _ string) (*stream, error) {
	body, content, err := f.fetch(ctx, f.index)
	if err != nil {
		return nil, err
	}
	total := content.Size
	if total <= 0 {
		total = -1
	}
	return &stream{body: body, total: total}, nil
}

// linked is a result with a URL from a service. The URL is untrusted, like a URL
// from a user.
type linked struct {
	address   string
	allow     egress.Allowed
	transport http.RoundTripper // guarded
}

// maxRedirects is the maximum number of redirects that are followed. Each target
// is checked.
const maxRedirects = 5

// id returns a hash of the URL without its query, which may contain a new
// signature each time.
func (l *linked) id() string {
	address, _, _ := strings.Cut(l.address, "?")
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// errChanged means that the content of the result has changed since the copy began.
var errChanged = errors.New("the result has changed while it was copied")

func (l *linked) open(ctx context.Context, from int64, validator string) (*stream, error) {
	address := l.address
	for range maxRedirects + 1 {
		answer, err := l.get(ctx, address, from, validator)
		if err != nil {
			return nil, err
		}
		if !redirects(answer.StatusCode) {
			s, err := readResponse(answer, from, validator)
			if err != nil {
				answer.Body.Close()
			}
			return s, err
		}
		answer.Body.Close()
		if address, err = follow(answer); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the address of the result redirects more than %d times", maxRedirects)
}

// get requests one URL, without credentials or data of the caller.
func (l *linked) get(ctx context.Context, address string, from int64, validator string) (*http.Response, error) {
	if err := l.allow.CheckURL(address); err != nil {
		return nil, fmt.Errorf("the address of the result %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the address of the result is not a URL")
	}
	request.Header.Set("User-Agent", "modelgate")
	request.Header.Set("Accept", "image/*, video/*;q=0.9, */*;q=0.1")
	request.Header.Set("Accept-Encoding", "identity") // ranges of compressed bytes cannot be joined
	if from > 0 {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
		request.Header.Set("If-Range", validator)
	}
	answer, err := l.transport.RoundTrip(request) // an http.Client would follow redirects and put the URL into its errors
	if err != nil {
		return nil, sanitize(err)
	}
	return answer, nil
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// follow returns the target of a redirect.
func follow(answer *http.Response) (string, error) {
	from := answer.Request.URL
	next, err := from.Parse(answer.Header.Get("Location"))
	switch {
	case err != nil || answer.Header.Get("Location") == "":
		return "", errors.New("the address of the result redirects without a valid Location")
	case from.Scheme == "https" && next.Scheme != "https":
		return "", errors.New("the address of the result redirects from https to " + backends.Text(next.Scheme))
	}
	next.Fragment = ""
	return next.String(), nil
}

// readResponse reads an answer that is not a redirect.
func readResponse(answer *http.Response, from int64, validator string) (*stream, error) {
	header := answer.Header
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, errors.New("the result is compressed, although the request did not accept that")
	}
	s := &stream{body: answer.Body, total: answer.ContentLength, validator: validatorOf(header)}
	switch answer.StatusCode {
	case http.StatusOK:
		return s, nil
	case http.StatusPartialContent:
		begin, total, err := contentRange(header.Get("Content-Range"))
		if err != nil || begin != from || from == 0 {
			return nil, errors.New("the service of the result sent a range that was not requested")
		}
		// Some servers send a range although If-Range does not match.
		if s.validator != "" && s.validator != validator {
			return nil, errChanged
		}
		if total < 0 && answer.ContentLength >= 0 {
			total = begin + answer.ContentLength
		}
		s.from, s.total, s.validator = begin, total, validator
		return s, nil
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, errChanged
	}
	return nil, fmt.Errorf("the service of the result answers %d", answer.StatusCode)
}

// validatorOf returns the value for If-Range, or "": a strong entity tag, or a
// modification time that counts as strong (RFC 9110, sections 8.8.2.2 and
// 13.1.5).
func validatorOf(header http.Header) string {
	if strings.EqualFold(header.Get("Accept-Ranges"), "none") {
		return ""
	}
	if tag := header.Get("ETag"); isStrong(tag) {
		return tag
	}
	text := header.Get("Last-Modified")
	modified, err := http.ParseTime(text)
	date, dateErr := http.ParseTime(header.Get("Date"))
	if err != nil || dateErr != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return text
}

// isStrong reports whether text is a strong entity tag (RFC 9110, section
// 8.8.3) of limited length.
func isStrong(tag string) bool {
	if len(tag) <= 2 || len(tag) > 256 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return false
	}
	return !strings.ContainsFunc(tag[1:len(tag)-1], func(c rune) bool { return c <= ' ' || c == '"' || c == 0x7f })
}

// contentRange parses "bytes 5-9/10". The total is -1 if it is unknown.
func contentRange(text string) (begin, total int64, err error) {
	text = textproto.TrimString(text)
	unit, rest, _ := strings.Cut(text, " ")
	span, size, sized := strings.Cut(rest, "/")
	first, last, ranged := strings.Cut(span, "-")
	if !strings.EqualFold(unit, "bytes") || !sized || !ranged {
		return 0, 0, errors.New("not a range of bytes")
	}
	begin, err = strconv.ParseInt(first, 10, 64)
	end, endErr := strconv.ParseInt(last, 10, 64)
	total = -1
	var totalErr error
	if size != "*" {
		total, totalErr = strconv.ParseInt(size, 10, 64)
	}
	if err := errors.Join(err, endErr, totalErr); err != nil {
		return 0, 0, err
	}
	if begin < 0 || end < begin || total != -1 && total <= end {
		return 0, 0, errors.New("not a range of bytes")
	}
	return begin, total, nil
}

// sanitize returns an error of a connection for the operator's log: on one line,
// with the cause, and without the URL, which may be signed.
func sanitize(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	text := err.Error()
	if u, ok := errors.AsType[*egress.Unreachable](err); ok && u.Cause != nil {
		text += ": " + u.Cause.Error()
	}
	return &connectionError{text: backends.Text(text), cause: err}
}

type connectionError struct {
	text  string
	cause error
}

func (e *connectionError) Error() string { return e.text }
func (e *connectionError) Unwrap() error { return e.cause }
