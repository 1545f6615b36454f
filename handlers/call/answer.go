package call

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/forwarding"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// answer is the ResponseWriter that the operator's routes write to. It passes
// the backend's answer on byte for byte as it comes, reads usage from it, and
// answers in the dialect what no caller should see as it is.
//
// The routes and the watch write from different goroutines, so every way to the
// caller goes through mu.
type answer struct {
	caddyhttp.ResponseWriterWrapper
	call    *call
	control *http.ResponseController

	mu     sync.Mutex
	closed bool // nothing goes to the caller any more

	head    bool         // the backend's head has come, or what stands for it
	passed  bool         // and has gone on to the caller
	status  int          // of the answer as the backend gave it
	fault   *fault.Fault // set when our own answer stands in for the backend's
	dropped int          // bytes of the backend's that it stands in for
	told    bool         // a head has gone on to the caller
	lost    bool         // the caller has disconnected, or takes nothing more

	stream  bool // an event stream, by how it begins; until then by its media type
	json    bool // a JSON document
	html    bool // a page, by its media type
	plain   bool // a text, likewise
	encoded bool // under a Content-Encoding
	meter   *usage.Reader
	trim    *usage.Trimmer

	firstByte time.Time
	lastByte  time.Time
	lastSign  time.Time // last byte or ping that went to the caller
	received  bool      // something of the body has come
	bytes     int64     // that went to the caller

	watch watch

	site      []headerField // headers that were there before the routes ran
	siteSpace [4]headerField
}

// headerField is one header with its values.
type headerField struct {
	name   string
	values []string
}

func newAnswer(w http.ResponseWriter, c *call) *answer {
	a := &answer{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		call:                  c,
		control:               http.NewResponseController(w),
	}
	a.site = a.siteSpace[:0]
	for name, values := range w.Header() {
		a.site = append(a.site, headerField{name, values})
	}
	return a
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeHeader(status)
}

func (a *answer) writeHeader(status int) {
	if a.head || a.closed || status < http.StatusOK {
		return // an interim answer is for the gateway, which needs none
	}
	header := a.Header()
	if a.call.cause() != nil {
		return // the proxy's word for a cancelled request; settle has the better one
	}
	a.head, a.status = true, status
	for name := range header { // what other handlers than reverse_proxy may have set
		if forwarding.Downstream.Never(name) {
			delete(header, name)
		}
	}
	a.classify(header)
	if f := a.judge(header); f != nil {
		a.refuse(f)
		a.watch.headCame(a)
		return
	}
	dialect.Stamp(header, a.call.route.Dialect, a.call.id)
	if a.stream {
		header.Del("Content-Length") // pings may join it, and our usage chunk may leave
	}
	if status < 300 && !a.call.route.free {
		a.measure(header)
	}
	a.passed = true
	a.watch.headCame(a)
	if !a.lost {
		a.told = true
		a.ResponseWriter.WriteHeader(status)
	}
}

// classify notes what kind of body is coming.
func (a *answer) classify(header http.Header) {
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	coding := header.Get("Content-Encoding")
	a.stream = media == "text/event-stream"
	a.json = media == "application/json" || strings.HasSuffix(media, "+json")
	a.html = media == "text/html" || media == "application/xhtml+xml"
	a.plain = media == "text/plain"
	a.encoded = coding != "" && coding != "identity"
}

// measure sets up the reading of usage.
func (a *answer) measure(header http.Header) {
	a.meter = usage.New(a.call.route.Dialect, a.stream, header.Get("Content-Encoding"))
	// An answer that is not declared as a stream may be one all the same.
	if !a.encoded && a.call.trimsUsage && header.Get("Content-Length") == "" {
		a.trim = usage.NewTrimmer(a.meter, a.ResponseWriter)
	}
}

// backendFaults are the statuses of a backend that are answered in other words
// whatever its body says, because they speak of the operator's account.
var backendFaults = map[int]bool{
	http.StatusUnauthorized: true, http.StatusPaymentRequired: true, http.StatusForbidden: true,
}

// unavailable is what a caller hears when the backend cannot be used.
var unavailable = fault.New(fault.UpstreamUnavailable, "the backend of this model cannot be reached or used now; try again later").After(5 * time.Second)

// judge returns what to answer in the backend's place, or nil: for refusals of
// the operator's credentials, for redirects, for streams in answer to a count of tokens, and
// for errors that are not JSON, such as the HTML page of a proxy in between, which no client
// of the dialect can read. A server's error keeps its status.
func (a *answer) judge(header http.Header) *fault.Fault {
	serverError := a.status >= 500 && a.status < 600
	switch {
	case a.status < 300 && a.stream && a.call.route.free:
		return unavailable // a model call, which this route does not charge
	case a.status < 300:
		return nil
	case a.status < 400 || backendFaults[a.status]:
		return unavailable
	case a.json && (!serverError || header.Get("Content-Length") != "0"):
		return nil
	case a.status == http.StatusGatewayTimeout:
		return timedOut
	case a.status == http.StatusRequestEntityTooLarge:
		return fault.New(fault.PayloadTooLarge, "the backend of this model does not take a body of this size")
	case a.status == http.StatusTooManyRequests:
		return fault.New(fault.RateLimited, "the backend of this model is busy").After(retryAfter(header))
	case serverError:
		return unavailable.WithStatus(a.status).After(retryAfter(header))
	}
	return unavailable
}

// retryAfter is how long the backend asks callers to wait: seconds, at most an
// hour; 5 s where it does not say.
func retryAfter(header http.Header) time.Duration {
	if seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, time.Hour)
	}
	return 5 * time.Second
}

// refuse answers f in the backend's place.
func (a *answer) refuse(f *fault.Fault) {
	a.fault = f
	if a.lost {
		return
	}
	a.told = true
	a.replace(f)
	_ = a.control.Flush() // the routes return only when the backend's body has ended
}

// replace answers f with the headers of the site and the gateway's own: whatever
// the routes have set is of the backend's answer.
func (a *answer) replace(f *fault.Fault) {
	header := a.ResponseWriter.Header()
	clear(header)
	for _, field := range a.site {
		header[field.name] = field.values
	}
	a.call.route.Dialect.Refuse(a.ResponseWriter, f, a.call.id)
}

// maxDropped is how much of a body that is not passed on is read before its
// backend is cut off.
const maxDropped = 256 << 10

var (
	errDropped = errors.New("the answer was replaced")
	errTooLong = errors.New("a line of the backend's stream is too long")
)

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.head {
		a.writeHeader(http.StatusOK)
	}
	if !a.passed || a.closed {
		if a.dropped += len(p); a.dropped > maxDropped {
			return 0, errDropped
		}
		return len(p), nil
	}
	return a.pass(p)
}

// pass sends bytes of the backend to the caller, reading usage on the way.
func (a *answer) pass(p []byte) (n int, err error) {
	now := time.Now()
	if a.firstByte.IsZero() && len(p) > 0 {
		a.firstByte = now
	}
	a.received = a.received || len(p) > 0
	// Until the caller has taken it, nobody reads of the backend.
	defer func() { a.lastByte = time.Now(); a.lastSign = a.lastByte }()
	if a.lost {
		err = a.overhear(p)
	} else {
		a.bytes += int64(len(p))
		switch {
		case a.trim != nil:
			_, err = a.trim.Write(p) // feeds the meter, too
		case a.meter != nil:
			a.meter.Write(p)
			fallthrough
		default:
			_, err = a.ResponseWriter.Write(p)
		}
		if err != nil {
			a.detachOrCancel() // the meter has read all of p
			if a.call.detached() {
				err = nil
			}
		}
	}
	if err != nil {
		return 0, err
	}
	if a.meter != nil {
		a.stream = a.meter.Stream()
	}
	if a.meter != nil && (a.stream || a.call.request.Stream) {
		if out := a.call.pay(now); out != nil {
			a.call.cancel(out)
			return len(p), out
		}
		if a.meter.TooLong() {
			return 0, errTooLong
		}
	}
	return len(p), nil
}

func (a *answer) emit(p []byte) error {
	_, err := a.ResponseWriter.Write(p)
	return err
}

// ReadFrom implements io.ReaderFrom. The wrapper's own would take the bytes
// past the meter.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{a}, r)
}

// FlushError is what http.ResponseController calls.
func (a *answer) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || !a.head || a.lost {
		return nil // a flush without a head would be an empty 200
	}
	return a.control.Flush()
}

// intact tells whether an event can be put behind what the caller has got.
func (a *answer) intact() bool {
	return a.passed && a.stream && !a.encoded && !a.lost && a.meter != nil && a.meter.AtBoundary()
}

// whole tells whether an answer that ended cleanly, or not, came to its proper
// end: its own, where that can be read, or else that of the connection.
func (a *answer) whole(cleanly bool) bool {
	switch {
	case a.page():
		return false
	case a.meter == nil || a.meter.Unreadable() || !a.stream && !a.json:
		return cleanly
	case !a.received && !a.stream:
		return cleanly // an empty body, which is charged nothing
	}
	return a.meter.Finished()
}

// page reports whether a page for people stands in the place of the answer: the
// backend, or a proxy in front of it, has failed.
func (a *answer) page() bool { return a.meter != nil && !a.plain && a.meter.Page(a.html) }

// end closes the answer to the routes and the watch.
func (a *answer) end() {
	a.watch.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for name := range a.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(a.Header(), name)
		}
	}
	if a.trim != nil && !a.lost {
		_ = a.trim.Close()
	}
	if a.meter != nil {
		a.meter.Close()
	}
}

// release gives back what settling the call has read. The answer has ended.
func (a *answer) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.meter != nil {
		a.meter.Release()
		a.meter, a.trim = nil, nil
	}
}

// Interface guards.
var (
	_ http.ResponseWriter = (*answer)(nil)
	_ io.ReaderFrom       = (*answer)(nil)
)
