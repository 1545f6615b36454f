package dialect

import (
	"io"
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

const (
	// drainTimeout is how long a refusal reads and drops the rest of a body.
	drainTimeout = 500 * time.Millisecond

	// smallBody is how many unread bytes net/http drops itself, so that the connection can
	// serve another request.
	smallBody = 256 << 10
)

// RefuseUnread answers a request with f before its body has been read completely. In the console,
// the message has the language of the request.
//
// net/http reads a small body to its end before it sends the answer. The deadline frees the
// connection of a client that announces a body and does not send it. A large body is not read
// before the answer, and the connection is closed: otherwise the rest would be read as the next
// request. After the answer, the body is read for drainTimeout, because a client whose connection
// is reset while it sends does not read the answer.
func (d Dialect) RefuseUnread(w http.ResponseWriter, r *http.Request, f *fault.Fault, requestID string) {
	f = d.inLanguageOf(r, f)
	if r.ContentLength == 0 {
		d.Refuse(w, f, requestID)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(drainTimeout))
	if r.ProtoMajor != 1 || 0 < r.ContentLength && r.ContentLength <= smallBody {
		d.Refuse(w, f, requestID)
		return
	}
	w.Header().Set("Connection", "close")
	_ = control.EnableFullDuplex() // otherwise net/http reads the body before it answers
	d.Refuse(w, f, requestID)
	_ = control.Flush()
	if r.Header.Get("Expect") == "" { // a read would request the body
		_, _ = io.Copy(io.Discard, r.Body)
	}
}
