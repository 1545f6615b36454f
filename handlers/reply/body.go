package reply

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// UnauthenticatedTimeout is the time limit for the body of an unauthenticated caller, such as
// a payment service.
const UnauthenticatedTimeout = 5 * time.Second

// Encoding returns the Content-Encoding of a body, empty if it has none. All routes refuse an
// encoded body: the backend must read the same bytes that were checked.
func Encoding(header http.Header) string {
	for _, coding := range header["Content-Encoding"] {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return coding
		}
	}
	return ""
}

// ReadBody reads the whole body of a request, at most limit bytes. The body must arrive
// within timeout, because Caddy's idle timeout does not stop a slow one. ReadBody reserves the
// capacity of the buffer in claim; the caller releases the claim. If Content-Length is above the
// limit, nothing is read.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration, claim *bodymem.Claim) ([]byte, *fault.Fault) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(timeout))
	body, f, err := readAll(http.MaxBytesReader(w, r.Body, limit), announced(r, limit), claim)
	if lost := claim.Complete(); lost != nil {
		return nil, lost
	}
	maxBytes := new(http.MaxBytesError)
	switch {
	case f != nil:
		return nil, f
	case err == nil:
	case errors.As(err, &maxBytes):
		return nil, tooLarge(maxBytes.Limit) // the limit of a request_body directive may be lower
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.RequestTimeout, "the body did not arrive within %v", timeout)
	default:
		return nil, fault.New(fault.InvalidJSON, "the body ended early")
	}
	// The deadline is only for the body.
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// announced returns the maximum length of the body.
func announced(r *http.Request, limit int64) int64 {
	if r.ContentLength >= 0 {
		return r.ContentLength
	}
	return limit
}

// firstBuffer is the size of the first buffer, in bytes.
const firstBuffer = 4 << 10

// readAll reads to the end of a body of at most length bytes. It reserves
// each buffer in claim before it allocates it.
func readAll(from io.Reader, length int64, claim *bodymem.Claim) ([]byte, *fault.Fault, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			// One byte more than the body can have is needed to find its end.
			size := min(max(2*int64(cap(body)), firstBuffer), length+1)
			if f := claim.Resize(size); f != nil {
				return nil, f, nil
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		claim.Received(n)
		switch {
		case errors.Is(err, io.EOF):
			return body, nil, nil
		case err != nil:
			return nil, nil, err
		}
	}
}

func tooLarge(limit int64) *fault.Fault {
	if limit < 1<<20 {
		return fault.New(fault.PayloadTooLarge, "the body is larger than %d KiB", limit>>10)
	}
	return fault.New(fault.PayloadTooLarge, "the body is larger than %d MiB", limit>>20)
}
