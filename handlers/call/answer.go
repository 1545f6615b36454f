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

// answer is the ResponseWriter that the operator's routes write to. It forwards
// the bytes of the backend's answer without change, and reads usage from them. It
// replaces an answer that callers must not see with an error of the dialect.
//
// The routes and the watch write from different goroutines, so mu guards every
// write to the caller.
type answer struct {
	caddyhttp.ResponseWriterWrapper
	call    *call
	control *http.ResponseController

	mu     sync.Mutex
	closed bool // the call has ended: nothing more is written to the caller

	head       bool         // the routes have written a response header
	passed     bool         // that header is forwarded
	status     int          // of the backend's answer
	withheld   bool         // the backend's answer is an error after which another model is called
	fault      *fault.Fault // the error that replaces the backend's answer, or nil
	dropped    int          // bytes of the body that fault replaces
	headSent   bool         // a response header was written to the caller
	callerGone bool         // the caller has disconnected, or a write to it has failed
	stored     string       // id of the response that the call makes, if the vendor stores it
	undecided  bool         // the caller has disconnected while a backend received the body

	stream  bool // an event stream: by its media type, then by its first bytes
	json    bool // a JSON document
	html    bool // by its media type
	plain   bool // plain text, by its media type
	encoded bool // has a Content-Encoding
	meter   *usage.Reader
	trim    *usage.Trimmer

	firstByte time.Time
	lastByte  time.Time
	lastSent  time.Time     // when the last byte or ping was written to the caller
	blocked   time.Duration // how long writes to the caller have blocked since the backend was last awaited
	received  bool          // the body is not empty
	bytes     int64         // written to the caller

	watch watch

	site      []headerField // headers that were set before the routes ran
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
		return // interim responses are not forwarded
	}
	header := a.Header()
	if a.call.cause() != nil {
		return // the proxy's error for a cancelled request; settle writes a more exact error
	}
	a.head, a.status = true, status
	for name := range header { // handlers other than reverse_proxy may have set them
		if forwarding.Downstream.Never(name) {
			delete(header, name)
		}
	}
	if a.call.withholds(status) {
		a.withheld = true
		a.watch.headReceived(a)
		return
	}
	a.classify(header)
	if f := a.judge(header); f != nil {
		a.refuse(f)
		a.watch.headReceived(a)
		return
	}
	dialect.Stamp(header, a.call.route.Dialect, a.call.id)
	if a.stream {
		header.Del("Content-Length") // pings are added, and the usage chunk may be removed
	}
	if status < 300 && (!a.call.route.free || a.call.collects()) {
		a.measure(header)
	}
	a.forgetObject()
	a.passed = true
	a.decide()
	a.watch.headReceived(a)
	if !a.callerGone {
		a.headSent = true
		a.ResponseWriter.WriteHeader(status)
	}
}

// classify sets the kind of the body from its headers.
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

// measure begins to read usage from the answer.
func (a *answer) measure(header http.Header) {
	c := a.call
	a.meter = usage.New(c.route.answer, a.stream, header.Get("Content-Encoding"))
	switch {
	case c.reading != nil:
		before := c.reading.Before()
		if before.Event == 0 && !c.continues {
			before.Bytes = 0
		}
		a.meter.Continues(before.Bytes, before.Event)
	case c.request.Background:
		a.meter.Continues(0, 0)
	}
	if c.collects() {
		o := c.route.object
		if o == nil {
			o = new(objectRoute)
		}
		a.meter.CollectIDs(o.answer, o.list)
	}
	if c.route.answer.Form != usage.TextForm {
		a.meter.Wants(c.request.Images(c.members()))
		if c.request.Unreported(c.members()) && !a.json && !a.stream && !a.html {
			a.meter.Opaque()
		}
	}
	// An answer without the media type of a stream may still be a stream.
	if !a.encoded && c.trimsUsage && header.Get("Content-Length") == "" {
		a.trim = usage.NewTrimmer(a.meter, a.ResponseWriter)
	}
}

// backendFaults are the statuses of a backend that concern the operator's account.
// Their answers are always replaced.
var backendFaults = map[int]bool{
	http.StatusUnauthorized: true, http.StatusPaymentRequired: true, http.StatusForbidden: true,
}

// unavailable is the error of a call whose backend cannot be used.
var unavailable = fault.New(fault.UpstreamUnavailable, "the backend of this model cannot be reached or used now; try again later").After(5 * time.Second)

// judge returns the error that replaces the backend's answer, or nil. It replaces refusals of
// the operator's credentials, redirects, streams that answer count_tokens, and errors that are
// not JSON. Clients of the dialect cannot read the latter, such as the HTML page of a proxy. A
// 5xx error keeps its status.
func (a *answer) judge(header http.Header) *fault.Fault {
	serverError := a.status >= 500 && a.status < 600
	switch {
	case a.status < 300 && a.stream && a.call.route.free && !a.call.request.Stream:
		return unavailable // the backend made a model call, and this route charges nothing
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

// retryAfter returns how long callers must wait by the header of the backend, at most an hour. It
// returns 5 s if Retry-After is not a number of seconds.
func retryAfter(header http.Header) time.Duration {
	if seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, time.Hour)
	}
	return 5 * time.Second
}

// refuse replaces the backend's answer with f.
func (a *answer) refuse(f *fault.Fault) {
	a.fault = f
	if a.callerGone {
		return
	}
	a.headSent = true
	a.replace(f)
	_ = a.control.Flush() // the routes return only when the backend's body has ended
}

// replace writes f to the caller, with the headers of the site and of the gateway. It removes
// all headers that the routes have set, because they belong to the backend's answer.
func (a *answer) replace(f *fault.Fault) {
	a.restoreHeaders()
	a.call.route.Dialect.Refuse(a.ResponseWriter, f, a.call.id)
}

// restart prepares the answer for another attempt. Nothing was written to the caller.
func (a *answer) restart() {
	a.head, a.withheld, a.passed, a.status, a.dropped = false, false, false, 0, 0
	a.restoreHeaders()
}

// restoreHeaders removes the headers that the routes have set.
func (a *answer) restoreHeaders() {
	header := a.ResponseWriter.Header()
	clear(header)
	for _, field := range a.site {
		header[field.name] = field.values
	}
}

// maxDropped is the maximum number of bytes that are read of a body that is not
// forwarded. If the body is longer, the connection to the backend is closed.
const maxDropped = 256 << 10

var (
	errDropped = errors.New("the answer was replaced")
	errTooLong = errors.New("a line of the backend's stream is too long")
)

// intact reports whether the gateway can append an event to what the caller has received.
func (a *answer) intact() bool {
	return a.passed && a.stream && !a.encoded && !a.callerGone && a.meter != nil && a.meter.AtBoundary()
}

// complete reports whether the answer is complete. If the meter can read the format, the
// end of the format decides, and otherwise whether the connection ended cleanly.
func (a *answer) complete(cleanly bool) bool {
	switch {
	case a.page(), a.meter != nil && a.meter.Stream() && a.meter.Failed() && !a.meter.Began(): // the backend has refused the call
		return false
	case a.meter == nil || a.meter.Unreadable() || !a.stream && !a.json:
		return cleanly
	case !a.received && !a.stream:
		return cleanly // an empty body costs nothing
	}
	return a.meter.Finished() || cleanly && a.meter.WholeIfEnded()
}

// page reports whether the body is a web page instead of an answer: the backend, or a
// proxy in front of it, has failed.
func (a *answer) page() bool { return a.meter != nil && !a.plain && a.meter.Page(a.html) }

// end stops the watch, and ends all writes of the routes to the caller.
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
	if a.trim != nil && !a.callerGone {
		_ = a.trim.Close()
	}
	if a.meter != nil {
		a.meter.Close()
	}
	a.call.reading.End(a.call.lifetime)
}

// release returns the buffers of the meter. The answer has ended and the call is settled.
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
