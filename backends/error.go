package backends

import (
	"errors"
	"strings"
	"time"
)

// Kind is what an error says about a job.
type Kind string

// The kinds.
const (
	// Refused: the service has surely not done it and will not. A submission so
	// refused is no job anywhere.
	Refused Kind = "refused"

	// Busy: the service has surely not done it now, and may later. The same may
	// be sent again, after RetryAfter where it is set.
	Busy Kind = "busy"

	// Doubtful: it may have been done. A submission so ended is not sent again.
	Doubtful Kind = "doubtful"

	// Gone: the service knows no such job.
	Gone Kind = "gone"
)

// Error is why a backend did not do what it was asked.
type Error struct {
	Kind Kind

	// Reason is what a task says that fails of this.
	Reason Reason

	// Message is for the caller: what was wrong and what is allowed, at most
	// 1 KiB, without secrets.
	Message string

	// Param is the path of the field at fault in the caller's body, such as
	// "output.duration". Empty when no single field is.
	Param string

	// RetryAfter is how long the service asks to wait. Zero: it does not say.
	RetryAfter time.Duration

	// Status and Code are what the service answered with, where it answered: the
	// HTTP status, and its own code. The log of an operator has them at all times.
	Status int
	Code   string

	// Detail is for an operator who looks for a fault: the service's own words,
	// which may repeat the caller's. Without secrets.
	Detail string
}

// Error implements error. It is text for operators.
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

// KindOf returns what err says about the job. An error without a kind says
// nothing: it is Doubtful.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Doubtful
}

// Invalid returns the error of a job that this service cannot be asked for:
// nothing has been sent. Message says what was given and what is allowed.
func Invalid(param, message string) *Error {
	return &Error{Kind: Refused, Reason: InvalidInput, Param: param, Message: message}
}
