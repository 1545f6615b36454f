package dialect

import (
	"io"
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

const (
	// linger is how long a refusal reads and drops the rest of a body.
	linger = 500 * time.Millisecond

	// smallBody is how many unread bytes net/http drops by itself, so that the connection
	// can serve another request.
	smallBody = 256 << 10
)

// RefuseUnread answers a request with f before its body has been read completely. In the console,
// the message has the language of the request.
//
// net/http reads a small body to its end before it sends the answer. The deadline frees the
// connection of a client that announces a body and does not send it. Of a large body nothing
// is read before the answer, and the connection is closed: else the rest would be taken for
// the next request. Before that, the body is read for a moment, because a client that is
// reset while it sends does not see the answer.
func (d Dialect) RefuseUnread(w http.ResponseWriter, r *http.Request, f *fault.Fault, requestID string) {
	f = d.inLanguageOf(r, f)
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
	if r.Header.Get("Expect") == "" { // a read would ask for the body
		_, _ = io.Copy(io.Discard, r.Body)
	}
}
