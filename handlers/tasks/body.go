package tasks

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// strangerPatience is how long somebody may take to send a body who is not known
// yet; a caller has as long as a model call's.
const strangerPatience = 10 * time.Second

// strangerMemory is how many bytes of the bodies of those may be in memory at
// once, on a node, apart from what callers have.
const strangerMemory = 16 << 20

// errBusy is why reading ends when bodies take all the memory they may.
var errBusy = errors.New("too many request bodies are being read")

// readBody reads the whole body, at most limit bytes. It is refused unread where
// the head tells that it will not do.
func (v *visit) readBody(limit int64) ([]byte, *fault.Fault) {
	for _, coding := range v.r.Header["Content-Encoding"] {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return nil, fault.New(fault.UnsupportedMediaType, "Content-Encoding %.64q: send the body without an encoding", coding)
		}
	}
	if v.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	patience := strangerPatience
	if v.principal != nil {
		patience = time.Duration(v.tasks.app.Limits.BodyRead)
	}
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Now().Add(patience))
	body, err := io.ReadAll(&budgeted{http.MaxBytesReader(v.w, v.r.Body, limit), v})
	maxBytes := new(http.MaxBytesError)
	switch {
	case err == nil:
	case errors.Is(err, errBusy):
		return nil, fault.New(fault.Overloaded, "%v; try again", err).After(time.Second)
	case errors.As(err, &maxBytes):
		return nil, tooLarge(maxBytes.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.RequestTimeout, "the body did not arrive within %v", patience)
	default:
		return nil, fault.New(fault.InvalidJSON, "the body ended early")
	}
	// What follows may take longer than a body may.
	_ = control.SetReadDeadline(time.Time{})
	v.read = true
	return body, nil
}

func tooLarge(limit int64) *fault.Fault {
	return fault.New(fault.PayloadTooLarge, "the body is larger than %d MiB", limit>>20)
}

// reserve takes bytes of the node's memory for bodies, or gives them back with a
// negative n.
func (v *visit) reserve(n int64) bool {
	if v.principal == nil {
		return v.node.ReserveStranger(n, strangerMemory)
	}
	return v.node.ReserveBody(n, v.tasks.app.Limits.BodyMemory)
}

// budgeted counts what is read against the node's memory for bodies.
type budgeted struct {
	io.Reader
	*visit
}

// Read implements io.Reader.
func (b *budgeted) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.reserve(int64(n)) {
		return 0, errBusy
	}
	b.taken += int64(n)
	return n, err
}
