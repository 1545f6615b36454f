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

// source is where the bytes of a result come from.
type source interface {
	// id stands for the address; what was read from another is not gone on with.
	// It is empty where nothing can be gone on with.
	id() string

	// open opens the result, behind its first from bytes if that is not zero and
	// the result is still the one with the validator.
	open(ctx context.Context, from int64, validator string) (*stream, error)
}

// stream is a result that is being read.
type stream struct {
	body      io.ReadCloser
	from      int64  // where the body begins
	total     int64  // size of the whole result; -1: not told
	validator string // by which one may go on with it; empty: one cannot
}

func sourceOf(c *config, k task.Keeping, index int) source {
	if address := k.Results[index].URL; address != "" || k.Fetch == nil {
		return &linked{address: address, allow: c.Allow, transport: c.client.Transport}
	}
	return &fetched{fetch: k.Fetch, index: index}
}

// fetched is a result that a backend gives the bytes of.
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

// linked is a result with an address, which a service named: it is as little
// trusted as one that a user gave.
type linked struct {
	address   string
	allow     egress.Allowed
	transport http.RoundTripper // guarded
}

// maxHops is how many redirects are followed, each to an address that is judged
// anew.
const maxHops = 5

// id leaves the query out, which holds a signature that may be drawn anew.
func (l *linked) id() string {
	address, _, _ := strings.Cut(l.address, "?")
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// errChanged: the result is not the one any more that was begun.
var errChanged = errors.New("the result has changed while it was copied")

func (l *linked) open(ctx context.Context, from int64, validator string) (*stream, error) {
	address := l.address
	for range maxHops + 1 {
		answer, err := l.get(ctx, address, from, validator)
		if err != nil {
			return nil, err
		}
		if !redirects(answer.StatusCode) {
			s, err := readAnswer(answer, from, validator)
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
	return nil, fmt.Errorf("the address of the result redirects more than %d times", maxHops)
}

// get asks one address. Nothing of a caller and no credential goes along.
func (l *linked) get(ctx context.Context, address string, from int64, validator string) (*http.Response, error) {
	if err := l.allow.CheckURL(address); err != nil {
		return nil, fmt.Errorf("the address of the result %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the address of the result is no URL")
	}
	request.Header.Set("User-Agent", "modelgate")
	request.Header.Set("Accept", "image/*, video/*;q=0.9, */*;q=0.1")
	request.Header.Set("Accept-Encoding", "identity") // a range of compressed bytes is none of the file
	if from > 0 {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
		request.Header.Set("If-Range", validator)
	}
	answer, err := l.transport.RoundTrip(request) // a client would follow, and name the address in its errors
	if err != nil {
		return nil, plain(err)
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

// follow returns where a redirect leads.
func follow(answer *http.Response) (string, error) {
	from := answer.Request.URL
	next, err := from.Parse(answer.Header.Get("Location"))
	switch {
	case err != nil || answer.Header.Get("Location") == "":
		return "", errors.New("the address of the result redirects to nowhere")
	case from.Scheme == "https" && next.Scheme != "https":
		return "", errors.New("the address of the result redirects from https to " + backends.Text(next.Scheme))
	}
	next.Fragment = ""
	return next.String(), nil
}

// readAnswer takes an answer that is no redirect.
func readAnswer(answer *http.Response, from int64, validator string) (*stream, error) {
	header := answer.Header
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, errors.New("the result comes compressed, which was not asked for")
	}
	s := &stream{body: answer.Body, total: answer.ContentLength, validator: validatorOf(header)}
	switch answer.StatusCode {
	case http.StatusOK:
		return s, nil
	case http.StatusPartialContent:
		begin, total, err := contentRange(header.Get("Content-Range"))
		if err != nil || begin != from || from == 0 {
			return nil, errors.New("the service of the result answers with another range than it was asked for")
		}
		// Some send a range whatever has become of If-Range.
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

// validatorOf returns what If-Range may say of an answer, or "": a strong entity
// tag, or else a time that is strong too (RFC 9110, sections 8.8.2.2 and 13.1.5).
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

// isStrong tells whether a text is a strong entity tag (RFC 9110, section 8.8.3)
// of a length worth keeping.
func isStrong(tag string) bool {
	if len(tag) <= 2 || len(tag) > 256 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return false
	}
	for _, c := range []byte(tag[1 : len(tag)-1]) {
		if c <= ' ' || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}

// contentRange reads "bytes 5-9/10"; the total is -1 where it is not told.
func contentRange(text string) (begin, total int64, err error) {
	text = textproto.TrimString(text)
	unit, rest, _ := strings.Cut(text, " ")
	span, size, sized := strings.Cut(rest, "/")
	first, last, ranged := strings.Cut(span, "-")
	if !strings.EqualFold(unit, "bytes") || !sized || !ranged {
		return 0, 0, errors.New("no range of bytes")
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
		return 0, 0, errors.New("no range of bytes")
	}
	return begin, total, nil
}

// plain is an error of a connection for the operator's log: on one line, with
// the true reason, and without the address, which may be signed.
func plain(err error) error {
	if u, is := errors.AsType[*url.Error](err); is {
		err = u.Err
	}
	text := err.Error()
	if u, is := errors.AsType[*egress.Unreachable](err); is && u.Cause != nil {
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
