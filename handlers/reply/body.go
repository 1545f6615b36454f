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

// UnauthenticatedPatience is how long an unauthenticated caller, such as a payment
// service, may take to send a body.
const UnauthenticatedPatience = 5 * time.Second

// Encoding returns the coding that a body comes in, as Content-Encoding names it;
// empty where it comes as it is. An encoded body is refused everywhere: what is
// checked must be what is read.
func Encoding(header http.Header) string {
	for _, coding := range header["Content-Encoding"] {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return coding
		}
	}
	return ""
}

// ReadBody reads the whole body of a request, at most limit bytes. It has to
// arrive within patience, because Caddy's own idle limit does not stop a trickle.
// Its memory is taken from claim, by the capacity of the buffer, as the bytes come.
// A body that is announced longer is refused unread. The caller releases the claim.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, patience time.Duration, claim *bodymem.Claim) ([]byte, *fault.Fault) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(patience))
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
		return nil, tooLarge(maxBytes.Limit) // also of an operator's request_body directive
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.RequestTimeout, "the body did not arrive within %v", patience)
	default:
		return nil, fault.New(fault.InvalidJSON, "the body ended early")
	}
	// What follows may take longer than a body may.
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// announced returns the greatest length that the body can have.
func announced(r *http.Request, limit int64) int64 {
	if r.ContentLength >= 0 {
		return r.ContentLength
	}
	return limit
}

// firstBuffer is the memory that a body begins with, in bytes.
const firstBuffer = 4 << 10

// readAll reads to the end of a body of at most length bytes. Each buffer is taken
// from claim before it is made.
func readAll(from io.Reader, length int64, claim *bodymem.Claim) ([]byte, *fault.Fault, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			// The end is found by one byte more than there can be.
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
