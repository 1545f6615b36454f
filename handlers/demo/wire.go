package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// object is a JSON object with ordered members: names and values alternate. A
// member that is absent is omitted.
type object []any

// absent is the value of an omitted member.
var absent = struct{ absent bool }{}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i := 0; i < len(o); i += 2 {
		if o[i+1] == absent {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, encode(o[i])...), ':'), encode(o[i+1])...)
	}
	return append(text, '}'), nil
}

// encode encodes v as the vendors do: compact, and without escaping for HTML.
func encode(v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // all types of this package can be encoded
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// newID returns a new id with a prefix.
func newID(prefix string) string { return prefix + rand.Text() }

// statusOverloaded is one vendor's status for an overloaded service.
const statusOverloaded = 529

// refusal is an error in the form of a vendor.
type refusal struct {
	status  int
	param   string // path of the invalid field, if any
	message string
}

// Error implements error.
func (f *refusal) Error() string { return f.message }

// invalid returns the error for an invalid field param.
func invalid(param, format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// missing returns the error for a missing field param.
func missing(param string) *refusal { return invalid(param, "%s: this field is required.", param) }

// kinds has, for each status, the error types of the dialects and the message of
// a simulated error.
var kinds = map[int]struct{ messages, completions, code, message string }{
	http.StatusBadRequest:            {"invalid_request_error", "invalid_request_error", "", ""},
	http.StatusUnauthorized:          {"authentication_error", "authentication_error", "invalid_api_key", "The API key is not valid."},
	http.StatusNotFound:              {"not_found_error", "invalid_request_error", "", ""},
	http.StatusMethodNotAllowed:      {"invalid_request_error", "invalid_request_error", "method_not_allowed", ""},
	http.StatusRequestEntityTooLarge: {"request_too_large", "invalid_request_error", "request_too_large", ""},
	http.StatusTooManyRequests:       {"rate_limit_error", "rate_limit_error", "rate_limit_exceeded", "The rate limit is reached. Try again in 1s."},
	http.StatusInternalServerError:   {"api_error", "server_error", "", "The server had an error while processing the request."},
	statusOverloaded:                 {"overloaded_error", "server_error", "overloaded", "The engine is overloaded. Try again later."},
}

// simulated returns the error that simulates a status.
func simulated(status int) *refusal { return &refusal{status: status, message: kinds[status].message} }

// dialect has the differences between the vendors.
type dialect struct {
	idHeader   string // name of the header with the request id
	errorEvent string // name of the error event
	errorBody  func(f *refusal, requestID string) object
	errorData  func(f *refusal) object // data of the error event; nil: errorBody
}

var messagesDialect = &dialect{
	idHeader:   "Request-Id",
	errorEvent: "error",
	errorBody: func(f *refusal, requestID string) object {
		return object{"type", "error", "error", object{"type", kinds[f.status].messages, "message", f.message}, "request_id", requestID}
	},
}

var completionsDialect = &dialect{
	idHeader: "X-Request-Id",
	errorBody: func(f *refusal, _ string) object {
		kind := kinds[f.status]
		return object{"error", object{"message", f.message, "type", kind.completions, "param", orNull(f.param), "code", orNull(kind.code)}}
	},
}

var responsesDialect = &dialect{
	idHeader:   completionsDialect.idHeader,
	errorEvent: "error",
	errorBody:  completionsDialect.errorBody,
	errorData: func(f *refusal) object {
		return object{"type", "error", "code", orNull(kinds[f.status].code), "message", f.message, "param", orNull(f.param), "sequence_number", 0}
	},
}

// orNull returns nil for an empty text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// answer is the answer of an endpoint: one value, or events.
type answer struct {
	simulation simulation
	whole      any           // the JSON answer
	raw        []byte        // the answer of another media type instead
	media      string        // the media type of raw
	events     func(*sender) // sends the answer as a stream instead; nil for JSON
	pieces     int           // number of pieces that events sends
}

// sender sends one answer and simulates the failures that the prompt requests.
// After the first error of a stream it sends nothing.
type sender struct {
	ctx        context.Context
	w          http.ResponseWriter
	dialect    *dialect
	pace       time.Duration
	simulation simulation

	failAfter int // number of the piece after which the simulated failure occurs
	sent      int // pieces
	ended     bool
	err       error
}

// failAfterPieces is the number of pieces before a simulated failure of a stream.
// A shorter stream fails after its last piece.
const failAfterPieces = 3

// badGateway is an HTML page like the error page of a proxy.
const badGateway = `<html>
<head><title>502 Bad Gateway</title></head>
<body><h1>502 Bad Gateway</h1></body>
</html>
`

// answer sends a. It returns an error if the client disconnects before the first
// byte. If the client disconnects later, answer aborts the handler as
// reverse_proxy does, so that an incomplete answer never looks complete.
func (s *sender) answer(a *answer) error {
	r := a.simulation
	s.simulation, s.failAfter = r, min(failAfterPieces, a.pieces)
	if err := wait(s.ctx, r.slow); err != nil {
		return disconnected(err)
	}
	switch {
	case r.status != 0:
		s.refuse(simulated(r.status))
	case r.html:
		s.send(http.StatusBadGateway, "text/html; charset=utf-8", []byte(badGateway))
	case r.empty:
		s.send(http.StatusOK, "", nil)
	case a.events == nil && r.fail:
		s.refuse(simulated(statusOverloaded))
	case a.events == nil:
		s.w.Header().Set(s.dialect.idHeader, newID("req_"))
		if body, media := a.raw, a.media; media != "" {
			s.sendWhole(body, media)
		} else {
			s.sendWhole(encode(a.whole), "application/json")
		}
	default:
		s.w.Header().Set(s.dialect.idHeader, newID("req_"))
		s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.WriteHeader(http.StatusOK)
		if a.events(s); s.err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	return nil
}

// sendWhole sends an answer that is no stream.
func (s *sender) sendWhole(body []byte, media string) {
	if s.simulation.gzip {
		s.w.Header().Set("Content-Encoding", "gzip")
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		_, _ = z.Write(body) // a bytes.Buffer returns no error
		z.Close()
		body = buf.Bytes()
	}
	if s.simulation.breakOff {
		s.w.Header().Set("Content-Type", media)
		s.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = s.w.Write(body[:len(body)/2])    //nolint:gosec // no page: the media type is that of an API
		http.NewResponseController(s.w).Flush() // otherwise the server would not send its buffer
		panic(http.ErrAbortHandler)
	}
	s.send(http.StatusOK, media, body)
}

// refuse sends f in the dialect.
func (s *sender) refuse(f *refusal) {
	id := newID("req_")
	s.w.Header().Set(s.dialect.idHeader, id)
	if f.status == http.StatusTooManyRequests {
		s.w.Header().Set("Retry-After", "1")
	}
	s.send(f.status, "application/json", encode(s.dialect.errorBody(f, id)))
}

// send writes a complete body.
func (s *sender) send(status int, contentType string, body []byte) {
	if contentType != "" {
		s.w.Header().Set("Content-Type", contentType)
	}
	s.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	s.w.WriteHeader(status)
	if _, err := s.w.Write(body); err != nil { //nolint:gosec // as above
		panic(http.ErrAbortHandler)
	}
}

// piece sends an event with a piece of the answer, then pauses. After piece
// number failAfter it simulates the failure of a stream.
func (s *sender) piece(name string, data any) {
	s.event(name, data)
	if s.ended {
		return
	}
	if s.sent++; s.sent == s.failAfter {
		s.fail(wait(s.ctx, s.simulation.stall))
		if s.simulation.breakOff {
			panic(http.ErrAbortHandler)
		}
		if s.simulation.fail {
			f := simulated(statusOverloaded)
			data := s.dialect.errorBody(f, s.w.Header().Get(s.dialect.idHeader))
			if s.dialect.errorData != nil {
				data = s.dialect.errorData(f)
			}
			s.event(s.dialect.errorEvent, data)
			s.ended = true
		}
	}
	s.fail(wait(s.ctx, s.pace))
}

// event sends one event and flushes it. An event without a name has data only.
func (s *sender) event(name string, data any) { s.write(name, encode(data)) }

// write sends an event whose data is encoded.
func (s *sender) write(name string, data []byte) {
	if s.ended {
		return
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := fmt.Fprintf(s.w, "%sdata: %s\n\n", name, data); err != nil {
		s.fail(err)
		return
	}
	// A writer that cannot flush sends all events at the end.
	if err := http.NewResponseController(s.w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		s.fail(err)
	}
}

// fail ends the stream if err is an error.
func (s *sender) fail(err error) {
	if err != nil && !s.ended {
		s.ended, s.err = true, err
	}
}

// disconnected returns the error for a client that disconnected before the first
// byte, with status 499 as in reverse_proxy.
func disconnected(err error) error { return caddyhttp.Error(499, err) }

// wait returns after d, or with an error as soon as ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
