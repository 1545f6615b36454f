package reply

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// StrangerPatience is how long somebody may take to send a body who is not known
// yet, such as a payment service.
const StrangerPatience = 10 * time.Second

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
// Memory for it is taken by reserve, a few bytes at a time as they come, until
// that returns false. A body that is announced longer is refused unread.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, patience time.Duration, reserve func(bytes int64) bool) ([]byte, *fault.Fault) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(patience))
	body, err := io.ReadAll(&budgeted{http.MaxBytesReader(w, r.Body, limit), reserve})
	maxBytes := new(http.MaxBytesError)
	switch {
	case err == nil:
	case errors.Is(err, errBusy):
		return nil, fault.New(fault.Overloaded, "%v; try again", err).After(time.Second)
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

func tooLarge(limit int64) *fault.Fault {
	if limit < 1<<20 {
		return fault.New(fault.PayloadTooLarge, "the body is larger than %d KiB", limit>>10)
	}
	return fault.New(fault.PayloadTooLarge, "the body is larger than %d MiB", limit>>20)
}

// errBusy is why reading ends when bodies take all the memory they may.
var errBusy = errors.New("too many request bodies are being read")

// budgeted counts what is read against the memory for bodies.
type budgeted struct {
	io.Reader
	reserve func(bytes int64) bool
}

// Read implements io.Reader.
func (b *budgeted) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.reserve(int64(n)) {
		return 0, errBusy
	}
	return n, err
}
