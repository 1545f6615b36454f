package demo

import (
	"crypto/rand"
	"fmt"
	"net/http"
)

// statusOverloaded is one vendor's own status for "everybody wants me".
const statusOverloaded = 529

// refusal is an error as a vendor answers it.
type refusal struct {
	status  int
	param   string // path of the field at fault, if one is
	message string
}

// Error implements error.
func (f *refusal) Error() string { return f.message }

// invalid is the refusal of a request whose field param is wrong.
func invalid(param, format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// missing is the refusal of a request without the field param.
func missing(param string) *refusal {
	return invalid(param, "%s: this field is required.", param)
}

// kinds is how the dialects name an error of a status, and what they say where
// a rehearsal asks for it.
var kinds = map[int]struct{ messages, completions, code, message string }{
	http.StatusBadRequest:            {"invalid_request_error", "invalid_request_error", "", ""},
	http.StatusUnauthorized:          {"authentication_error", "authentication_error", "invalid_api_key", "The API key is not valid."},
	http.StatusMethodNotAllowed:      {"invalid_request_error", "invalid_request_error", "method_not_allowed", ""},
	http.StatusRequestEntityTooLarge: {"request_too_large", "invalid_request_error", "request_too_large", ""},
	http.StatusTooManyRequests:       {"rate_limit_error", "rate_limit_error", "rate_limit_exceeded", "The rate limit is reached. Try again in 1s."},
	http.StatusInternalServerError:   {"api_error", "server_error", "", "The server had an error while processing the request."},
	statusOverloaded:                 {"overloaded_error", "server_error", "overloaded", "The engine is overloaded. Try again later."},
}

// rehearsed is the refusal a rehearsal of status asks for.
func rehearsed(status int) *refusal {
	return &refusal{status: status, message: kinds[status].message}
}

// dialect is what differs between the vendors whatever is asked of them.
type dialect struct {
	idHeader   string // header that carries the vendor's id of a request
	errorEvent string // name of the event that carries an error
	errorBody  func(f *refusal, requestID string) any
}

var messagesDialect = &dialect{
	idHeader:   "Request-Id",
	errorEvent: "error",
	errorBody: func(f *refusal, requestID string) any {
		var body struct {
			Type  string `json:"type"`
			Error struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
			RequestID string `json:"request_id"`
		}
		body.Type = "error"
		body.Error.Type = kinds[f.status].messages
		body.Error.Message = f.message
		body.RequestID = requestID
		return body
	},
}

var completionsDialect = &dialect{
	idHeader: "X-Request-Id",
	errorBody: func(f *refusal, _ string) any {
		var body struct {
			Error struct {
				Message string  `json:"message"`
				Type    string  `json:"type"`
				Param   *string `json:"param"`
				Code    *string `json:"code"`
			} `json:"error"`
		}
		body.Error.Message = f.message
		body.Error.Type = kinds[f.status].completions
		if f.param != "" {
			body.Error.Param = &f.param
		}
		if code := kinds[f.status].code; code != "" {
			body.Error.Code = &code
		}
		return body
	},
}

// newID returns a fresh id that begins with prefix.
func newID(prefix string) string {
	return prefix + rand.Text()
}
