package reply

import (
	"io"
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

const (
	// linger is how long a refusal waits for the rest of a body that nobody is
	// going to read.
	linger = 500 * time.Millisecond

	// smallBody is how much of an unread body net/http takes in by itself, so
	// that the connection can serve another request.
	smallBody = 256 << 10
)

// RefuseUnread answers f to a request whose body has not been read to its end.
//
// A small body net/http reads away itself, before it sends the answer; the
// deadline keeps a caller who announces a body and never sends it from waiting,
// and from holding the connection. Of a large one nothing is read before the
// answer, and the connection ends with it: what remained unread would be taken
// for the next request. Until then it is read for a moment, because a reset in
// the middle of sending would take the answer from the caller.
func (d Dialect) RefuseUnread(w http.ResponseWriter, r *http.Request, f *fault.Fault, requestID string) {
	if r.ContentLength == 0 {
		d.Refuse(w, f, requestID)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(linger))
	if r.ProtoMajor != 1 || 0 < r.ContentLength && r.ContentLength <= smallBody {
		d.Refuse(w, f, requestID)
		return
	}
	w.Header().Set("Connection", "close")
	_ = control.EnableFullDuplex() // else net/http reads before it answers
	d.Refuse(w, f, requestID)
	_ = control.Flush()
	if r.Header.Get("Expect") == "" { // to read would be to ask for the body
		_, _ = io.Copy(io.Discard, r.Body)
	}
}
