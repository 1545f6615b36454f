// Package reply writes refusals in the shape each kind of caller reads, mints
// request ids, reads bodies, and decides which paths and methods are ours.
package reply

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Dialect is the shape of an error. It follows the path alone, so that it is
// known before anything else about a call is.
type Dialect uint8

// The dialects of docs/reference/http.md#errors.
const (
	Completions Dialect = iota // /v1/* but for the rows below
	Messages                   // /v1/messages
	Platform                   // /v1/platform/*
	Console                    // /api/*
)

// DialectOf returns the dialect of a path: of the prefix under which it is written,
// wherever encoded dots and slashes lead from there, else of its canonical form,
// however it is misspelt. A listing of models is in the messages dialect when its
// caller names a version of that.
func DialectOf(r *http.Request, versionHeader string) Dialect {
	wire := r.URL.EscapedPath()
	if under(wire, "/v1/platform") {
		return Platform
	}
	path, _ := canonical(wire)
	switch {
	case under(path, "/api"):
		return Console
	case under(path, "/v1/messages"):
		return Messages
	case under(path, "/v1/platform"):
		return Platform
	case under(path, "/v1/models") && r.Header.Get(versionHeader) != "":
		return Messages
	}
	return Completions
}

// statusOverloaded is the status, not a registered one, by which the messages
// dialect's vendor says that it is overloaded.
const statusOverloaded = 529

// messagesTypes is the messages dialect's error type by status.
var messagesTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusInternalServerError:   "api_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
	statusOverloaded:                 "overloaded_error",
}

// errorType returns the dialect's word for a status. What has no row of its own
// is the caller's mistake below 500 and the server's above.
func (d Dialect) errorType(status int) string {
	if d == Messages {
		if t, ok := messagesTypes[status]; ok {
			return t
		}
		if status >= 500 {
			return "api_error"
		}
		return "invalid_request_error"
	}
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusPaymentRequired:
		return "insufficient_quota"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// Body returns f as the dialect's JSON.
func (d Dialect) Body(f *fault.Fault, requestID string) []byte {
	type nested struct {
		Code    fault.Code `json:"code,omitempty"`
		Message string     `json:"message"`
		Type    string     `json:"type"`
		Param   *string    `json:"param"`
	}
	var param *string
	if f.Param != "" {
		param = &f.Param
	}
	kind := d.errorType(f.Status())
	var v any
	switch d {
	case Messages:
		v = struct {
			Type  string `json:"type"`
			Error struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
			RequestID string `json:"request_id"`
		}{"error", struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		}{kind, f.Message}, requestID}
	case Platform:
		v = struct {
			Code    fault.Code `json:"code"`
			Message string     `json:"message"`
			TaskID  string     `json:"task_id,omitempty"`
			Error   nested     `json:"error"`
		}{f.Code, f.Message, f.Task, nested{f.Code, f.Message, kind, param}}
	case Console:
		v = struct {
			Success bool       `json:"success"`
			Message string     `json:"message"`
			Code    fault.Code `json:"code"`
		}{false, f.Message, f.Code}
	default:
		v = struct {
			Error nested `json:"error"`
		}{nested{f.Code, f.Message, kind, param}}
	}
	body, err := json.Marshal(v)
	if err != nil {
		panic("reply: " + err.Error()) // strings cannot fail to marshal
	}
	return body
}

// Event returns f as the event that ends a stream which has begun.
func (d Dialect) Event(f *fault.Fault, requestID string) []byte {
	event := append([]byte("data: "), d.Body(f, requestID)...)
	if d == Messages {
		event = append([]byte("event: error\n"), event...)
	}
	return append(event, "\n\n"...)
}

// Refuse answers f in the dialect. Whatever headers were prepared for another
// answer are taken back first.
func (d Dialect) Refuse(w http.ResponseWriter, f *fault.Fault, requestID string) {
	header := w.Header()
	for name := range header {
		if strings.HasPrefix(name, "Content-") || ofAnother[name] {
			delete(header, name)
		}
	}
	Stamp(header, d, requestID)
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if f.Allow != "" {
		header.Set("Allow", f.Allow)
	}
	if f.Code == fault.RangeNotSatisfiable {
		header.Set("Content-Range", "bytes */"+strconv.FormatInt(f.Complete, 10)) // RFC 9110, section 15.5.17
	}
	if f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
	}
	status := f.Status()
	if status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer") // RFC 9110, section 15.5.2
	}
	body := d.Body(f, requestID)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// ofAnother are headers that belong to the answer which a refusal stands in
// for, beside those that describe its content.
var ofAnother = map[string]bool{
	"Etag": true, "Last-Modified": true, "Trailer": true, "Location": true, "Request-Id": true,
}

// Stamp puts the request id on an answer: X-Request-Id always, and request-id
// where the messages dialect's clients read it, unless the backend has set its
// own there.
func Stamp(header http.Header, d Dialect, requestID string) {
	header["X-Request-Id"] = []string{requestID}
	if d == Messages && header["Request-Id"] == nil {
		header["Request-Id"] = []string{requestID}
	}
}

// Internal returns the fault of a request that failed in the gateway. The log has the error
// under the id of the request.
func Internal(requestID string) *fault.Fault {
	return fault.New(fault.Internal, "something went wrong; it has been logged under %s", requestID)
}

// RefuseRequest answers f to a request whose body was read to its end, or was not.
func (d Dialect) RefuseRequest(w http.ResponseWriter, r *http.Request, f *fault.Fault, requestID string, read bool) {
	if read {
		d.Refuse(w, f, requestID)
	} else {
		d.RefuseUnread(w, r, f, requestID)
	}
}
