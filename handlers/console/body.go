package console

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// How long a caller may take to send the whole of a body: one who is known, and
// one who is not yet, such as a payment service. Caddy's own idle limit does not
// stop a trickle.
const (
	bodyPatience     = 30 * time.Second
	strangerPatience = 10 * time.Second
)

// strangerMemory is how many bytes of the bodies of callers who are not known yet
// may be in memory at once, on a node. They have a budget of their own: else
// anybody could keep the customers' calls from being read.
const strangerMemory = 16 << 20

// errBusy is why reading ends when bodies take all the memory they may.
var errBusy = errors.New("too many request bodies are being read")

// readBody reads what a route takes as the body, and leaves it in the request
// as well. It is refused unread where the head tells that it will not do.
func (v *visit) readBody(takes intake) *fault.Fault {
	if takes == nothing && v.r.ContentLength != 0 && v.r.Method == http.MethodDelete {
		// Who says in a body what is to go must not believe that it was heard.
		return fault.New(fault.InvalidParameter, "DELETE takes no body here; what this path takes stands in its query")
	}
	if takes == nothing || takes.optional && v.r.ContentLength == 0 {
		return nil
	}
	for _, coding := range v.r.Header["Content-Encoding"] {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return fault.New(fault.UnsupportedMediaType, "the body is encoded, as Content-Encoding says: send it without an encoding")
		}
	}
	if f := checkMedia(v.r.Header, takes.media); f != nil {
		return f
	}
	if v.r.ContentLength > takes.limit {
		return tooLarge(takes.limit)
	}

	patience := bodyPatience
	if v.account == nil {
		patience = strangerPatience
	}
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Now().Add(patience))
	body, err := io.ReadAll(&budgeted{http.MaxBytesReader(v.w, v.r.Body, takes.limit), v})
	maxBytes := new(http.MaxBytesError)
	switch {
	case err == nil:
	case errors.Is(err, errBusy):
		return fault.New(fault.Overloaded, "%v; try again", err).After(time.Second)
	case errors.As(err, &maxBytes):
		return tooLarge(maxBytes.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.RequestTimeout, "the body did not arrive within %v", patience)
	default:
		return fault.New(fault.InvalidJSON, "the body ended early")
	}
	// What follows may take longer than a body may.
	_ = control.SetReadDeadline(time.Time{})
	v.read, v.body = true, body
	v.r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

func tooLarge(limit int64) *fault.Fault {
	return fault.New(fault.PayloadTooLarge, "the body is larger than %d KiB", limit>>10)
}

// checkMedia refuses a body of another type than the one that is wanted: a form
// of another site cannot send application/json.
func checkMedia(header http.Header, wanted string) *fault.Fault {
	if wanted == "" {
		return nil
	}
	given := header.Values("Content-Type")
	if len(given) == 1 {
		if media, _, err := mime.ParseMediaType(given[0]); err == nil && media == wanted {
			return nil
		}
	}
	return fault.New(fault.UnsupportedMediaType, "send the body as Content-Type: %s", wanted)
}

// reserve takes bytes of the node's memory for bodies, or gives them back with a
// negative n.
func (v *visit) reserve(n int64) bool {
	if v.account == nil {
		return v.node.ReserveStranger(n, strangerMemory)
	}
	return v.node.ReserveBody(n, v.console.app.Limits.BodyMemory)
}

// budgeted counts what is read against the node's memory for bodies.
type budgeted struct {
	io.Reader
	*visit
}

func (b *budgeted) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.reserve(int64(n)) {
		return 0, errBusy
	}
	b.taken += int64(n)
	return n, err
}

// decodeMaybe is decode where there may be no body at all.
func decodeMaybe[T any](v *visit) (in T, f *fault.Fault) {
	if len(v.body) == 0 {
		return in, nil
	}
	return decode[T](v)
}

// decode reads a body strictly into a T. Names that T does not have are refused:
// a misspelt idempotency_key must not be taken for none.
func decode[T any](v *visit) (in T, f *fault.Fault) {
	f = strictjson.Decode(v.body, &in)
	return in, f
}
