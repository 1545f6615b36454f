// Package dialect has the wire formats of callers and backends. Each route has a [Dialect], which
// writes errors, the error that ends a stream ([Dialect.Event]), pings and the status of rate
// limits. The [usage.Format] of the route decides how the usage and the end of an answer are read. ARCHITECTURE.md lists the places of a new dialect.
package dialect

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Dialect is a wire format. It depends only on the path, so it is known before the caller is
// authenticated.
type Dialect uint8

// The dialects of docs/reference/http.md#errors.
const (
	OpenAI    Dialect = iota // /v1/*, except for those below
	Responses                // /v1/responses: as OpenAI, except for the event of an error in a stream
	Anthropic                // /v1/messages
	Platform                 // /v1/platform/*
	Console                  // /api/*
)

// statusOverloaded is Anthropic's unregistered status for an overloaded service.
const statusOverloaded = 529

// anthropicTypes has the error types of the anthropic dialect, by status.
var anthropicTypes = map[int]string{
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

// errorType returns the error type of a status. A status without its own type is an
// error of the caller below 500, otherwise of the server.
func (d Dialect) errorType(status int) string {
	if d == Anthropic {
		if t, ok := anthropicTypes[status]; ok {
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
	param := paramOf(f)
	kind := d.errorType(f.Status())
	var v any
	switch d {
	case Anthropic:
		type details struct {
			ErrorCode string `json:"error_code"`
		}
		type typed struct {
			Type    string  `json:"type"`
			Message string  `json:"message"`
			Details details `json:"details,omitzero"`
		}
		v = struct {
			Type      string `json:"type"`
			Error     typed  `json:"error"`
			RequestID string `json:"request_id"`
		}{"error", typed{kind, f.Message, details{f.ErrorCode}}, requestID}
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
			Param   string     `json:"param,omitempty"`
		}{false, f.Message, f.Code, f.Param}
	default:
		v = struct {
			Error nested `json:"error"`
		}{nested{f.Code, f.Message, kind, param}}
	}
	body, err := JSON(v)
	if err != nil {
		panic("dialect: " + err.Error()) // strings cannot fail to marshal
	}
	return body
}

// JSON returns v as the body of an answer. It does not escape HTML, so that links can be
// copied from a terminal. The answer must have the type application/json and forbid
// sniffing.
func JSON(v any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), err
}

// Event returns f as the event that ends a stream. In the dialect of responses it is the flat event
// `error` of the vendor's OpenAPI document (ResponseErrorEvent). Its sequence number is not known here,
// so it is zero.
func (d Dialect) Event(f *fault.Fault, requestID string) []byte {
	body := d.Body(f, requestID)
	if d == Responses {
		var err error
		if body, err = JSON(responseError{"error", f.Code, f.Message, paramOf(f), 0}); err != nil {
			panic("dialect: " + err.Error()) // strings cannot fail to marshal
		}
	}
	event := append([]byte("data: "), body...)
	if d == Anthropic || d == Responses {
		event = append([]byte("event: error\n"), event...)
	}
	return append(event, "\n\n"...)
}

// responseError is the event that ends a stream of /v1/responses.
type responseError struct {
	Type           string     `json:"type"`
	Code           fault.Code `json:"code"`
	Message        string     `json:"message"`
	Param          *string    `json:"param"`
	SequenceNumber int        `json:"sequence_number"`
}

// paramOf returns the parameter that f names, or nil.
func paramOf(f *fault.Fault) *string {
	if f.Param == "" {
		return nil
	}
	return &f.Param
}

// The pings of the dialects.
var (
	anthropicPing = []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n")
	openAIPing    = []byte(": ping\n\n")
)

// Ping returns the bytes that show between two events that the connection is alive. The
// anthropic dialect has an event for this. In other dialects it is a comment, which every
// client skips (WHATWG HTML, server-sent events, section 9.2.6). The caller must not change
// the result.
func (d Dialect) Ping() []byte {
	if d == Anthropic {
		return anthropicPing
	}
	return openAIPing
}

// Refuse writes f in the dialect. It removes headers that were set for another answer.
func (d Dialect) Refuse(w http.ResponseWriter, f *fault.Fault, requestID string) {
	header := w.Header()
	for name := range header {
		if strings.HasPrefix(name, "Content-") || staleHeaders[name] {
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
	if status == http.StatusUpgradeRequired {
		header.Set("Upgrade", "HTTP/1.1") // RFC 9110, section 15.5.22
	}
	body := d.Body(f, requestID)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// staleHeaders are headers of another answer that Refuse removes in addition to Content-*.
var staleHeaders = map[string]bool{
	"Etag": true, "Last-Modified": true, "Trailer": true, "Location": true, "Request-Id": true,
}

// Stamp sets the request id of an answer: X-Request-Id, and in the anthropic dialect
// Request-Id, unless the backend has set one.
func Stamp(header http.Header, d Dialect, requestID string) {
	header["X-Request-Id"] = []string{requestID}
	if d == Anthropic && header["Request-Id"] == nil {
		header["Request-Id"] = []string{requestID}
	}
}

// languages are the languages of the console: English by default, and Chinese. Simplified Chinese
// is also used for traditional Chinese.
var languages = language.NewMatcher([]language.Tag{language.English, language.SimplifiedChinese, language.TraditionalChinese})

// inLanguageOf returns f in the language that Accept-Language prefers, in the dialect of the
// console. The other dialects use English.
func (d Dialect) inLanguageOf(r *http.Request, f *fault.Fault) *fault.Fault {
	if d != Console || LanguageOf(r) == English {
		return f
	}
	return f.Chinese()
}

// The languages that LanguageOf returns.
const (
	English = "en"
	Chinese = "zh"
)

// LanguageOf returns the language that the Accept-Language of a request prefers.
func LanguageOf(r *http.Request) string {
	accepted := r.Header.Get("Accept-Language")
	if len(accepted) > maxAccepted {
		return English
	}
	if _, i := language.MatchStrings(languages, accepted); i == 0 {
		return English
	}
	return Chinese
}

// maxAccepted is the maximum length of an Accept-Language that is read, in bytes. Clients without
// an account send it.
const maxAccepted = 1 << 10

// RefuseRequest writes f as the answer to a request. read reports whether its body was read to the
// end.
func (d Dialect) RefuseRequest(w http.ResponseWriter, r *http.Request, f *fault.Fault, requestID string, read bool) {
	if read {
		d.Refuse(w, d.inLanguageOf(r, f), requestID)
	} else {
		d.RefuseUnread(w, r, f, requestID)
	}
}
