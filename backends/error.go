package backends

import (
	"errors"
	"strings"
	"time"
)

// Kind is what an error means for a job.
type Kind string

// The kinds.
const (
	// Refused: the service has certainly not performed the request and will
	// not. There is no job after a refused submission.
	Refused Kind = "refused"

	// Busy: the service has certainly not performed the request and may do so
	// later. The same request may be sent again, after RetryAfter if that is
	// set.
	Busy Kind = "busy"

	// Unconfirmed: the service may have performed the request. An Unconfirmed
	// submission is not sent again.
	Unconfirmed Kind = "doubtful"

	// Gone: the service does not know the job.
	Gone Kind = "gone"
)

// Error is the error of a backend.
type Error struct {
	Kind Kind

	// Reason is the reason of a task that fails because of this error.
	Reason Reason

	// Message is for the caller: what is wrong and what is allowed, at most 1
	// KiB, without secrets.
	Message string

	// Param is the path of the invalid field in the caller's body, such as
	// "output.duration". It is empty if no single field is invalid.
	Param string

	// RetryAfter is the wait that the service requires; zero if unknown.
	RetryAfter time.Duration

	// Status and Code are the HTTP status of the service's answer and its own
	// error code, if it answered. They are always logged.
	Status int
	Code   string

	// Detail is the service's own text for the operator, without secrets. It
	// may repeat parts of the caller's request.
	Detail string
}

// Error implements error. The text is for operators.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString(string(e.Kind))
	if e.Param != "" {
		text.WriteString(" (" + e.Param + ")")
	}
	text.WriteString(": " + e.Message)
	if e.Detail != "" {
		text.WriteString(" [" + e.Detail + "]")
	}
	return text.String()
}

// KindOf returns the kind of err. An error without a kind is Unconfirmed.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Unconfirmed
}

// Invalid returns the error for a job that this service does not support, which
// was not sent. message says what was given and what is allowed.
func Invalid(param, message string) *Error {
	return &Error{Kind: Refused, Reason: InvalidInput, Param: param, Message: message}
}
