package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Operation is the purpose of a call.
type Operation int

// The operations.
const (
	Submitting Operation = iota
	Polling
	Cancelling
	Fetching
	Checking
)

// operations has the name of each operation, and the kind of error if the
// operation may have been performed. Reading again is always safe; submitting
// or cancelling again may not be.
var operations = map[Operation]struct {
	name        string
	interrupted backends.Kind
}{
	Submitting: {"submission", backends.Unconfirmed},
	Polling:    {"poll", backends.Busy},
	Cancelling: {"cancellation", backends.Unconfirmed},
	Fetching:   {"fetching", backends.Busy},
	Checking:   {"check", backends.Busy},
}

// anyOf marks the row for the statuses of a class that have no row of their own.
const anyOf = 0

// outcomes maps each operation and HTTP status to the kind of its error. A
// status without a row has the kind of its class.
//
// A service that answers 301, 307 or 308 has not performed the request (RFC 9110,
// section 15.4). One that answers 302 or 303 may have performed it. 409 reports a
// job with the same token, so there may be a job.
var outcomes = map[Operation]map[int]backends.Kind{
	Submitting: {
		http.StatusMovedPermanently:  backends.Refused,
		http.StatusTemporaryRedirect: backends.Refused,
		http.StatusPermanentRedirect: backends.Refused,
		300 + anyOf:                  backends.Unconfirmed,
		http.StatusRequestTimeout:    backends.Busy,
		http.StatusConflict:          backends.Unconfirmed,
		http.StatusTooEarly:          backends.Busy,
		http.StatusTooManyRequests:   backends.Busy,
		400 + anyOf:                  backends.Refused,
		500 + anyOf:                  backends.Unconfirmed,
	},
	Polling:    pollOutcomes,
	Fetching:   pollOutcomes,
	Cancelling: cancelOutcomes,
	Checking:   checkOutcomes,
}

var pollOutcomes = map[int]backends.Kind{
	300 + anyOf:                backends.Busy,
	http.StatusNotFound:        backends.Gone,
	http.StatusGone:            backends.Gone,
	http.StatusRequestTimeout:  backends.Busy,
	http.StatusConflict:        backends.Busy,
	http.StatusTooEarly:        backends.Busy,
	http.StatusTooManyRequests: backends.Busy,
	400 + anyOf:                backends.Refused,
	500 + anyOf:                backends.Busy,
}

// checkOutcomes are pollOutcomes for a request without a job: 404 and 410 mean
// that the service itself is not there.
var checkOutcomes = func() map[int]backends.Kind {
	kinds := maps.Clone(pollOutcomes)
	kinds[http.StatusNotFound], kinds[http.StatusGone] = backends.Refused, backends.Refused
	return kinds
}()

var cancelOutcomes = map[int]backends.Kind{
	300 + anyOf:                backends.Refused,
	http.StatusNotFound:        backends.Gone,
	http.StatusGone:            backends.Gone,
	http.StatusRequestTimeout:  backends.Busy,
	http.StatusTooEarly:        backends.Busy,
	http.StatusTooManyRequests: backends.Busy,
	400 + anyOf:                backends.Refused,
	500 + anyOf:                backends.Unconfirmed,
}

// outcome returns the kind of error for a status.
func outcome(op Operation, status int) backends.Kind {
	if kind, ok := outcomes[op][status]; ok {
		return kind
	}
	if kind, ok := outcomes[op][status/100*100+anyOf]; ok {
		return kind
	}
	return operations[op].interrupted
}

// Explanation is what a service says about one of its errors.
type Explanation struct {
	Code    string
	Message string
	Param   string // the service's name of the invalid field

	// Reason is the reason of the code. If it is empty, the status decides.
	Reason backends.Reason

	// Kind replaces the kind of the status if it is not empty.
	Kind backends.Kind
}

// Messages for the caller, about errors of the configuration, the service or the
// network.
const (
	messageFailed      = "the generation service failed"
	messageAccount     = "the generation service does not accept the gateway's account"
	messageBusy        = "the generation service is busy; try again later"
	messageUnconfirmed = "the generation service did not confirm whether it has accepted the job"
	messageGone        = "the generation service no longer knows the job"
)

// statusReasons are the reasons of statuses that do not depend on the job. Any
// other 4xx means that the input is invalid.
var statusReasons = map[int]backends.Reason{
	http.StatusUnauthorized:          backends.UpstreamError,
	http.StatusPaymentRequired:       backends.UpstreamError,
	http.StatusForbidden:             backends.UpstreamError,
	http.StatusNotFound:              backends.UpstreamError,
	http.StatusMethodNotAllowed:      backends.UpstreamError,
	http.StatusProxyAuthRequired:     backends.UpstreamError,
	http.StatusMisdirectedRequest:    backends.UpstreamError,
	http.StatusRequestEntityTooLarge: backends.InvalidInput,
}

// statusError returns the error of an answer whose status is not 2xx.
func (c *Client) statusError(op Operation, answer Response) *backends.Error {
	var explanation Explanation
	if c.Explain != nil && len(answer.Body) <= MaxResponse {
		explanation = c.Explain(answer.Status, answer.Body)
	}
	return c.StatusError(op, answer, explanation)
}

// StatusError returns the error of an answer with its explanation. Adapters
// call it for services that report errors with status 200.
func (c *Client) StatusError(op Operation, answer Response, explanation Explanation) *backends.Error {
	kind := cmp.Or(explanation.Kind, outcome(op, answer.Status))
	reason := explanation.Reason
	if reason == "" {
		switch row, has := statusReasons[answer.Status]; {
		case has:
			reason = row
		case kind == backends.Busy:
			reason = backends.UpstreamBusy
		case answer.Status/100 == 4 && kind == backends.Refused:
			reason = backends.InvalidInput
		default:
			reason = backends.UpstreamError
		}
	}
	e := &backends.Error{
		Kind:       kind,
		Reason:     reason,
		RetryAfter: RetryAfter(answer.Header),
		Status:     answer.Status,
		Code:       c.clean(explanation.Code),
		Detail: c.clean(fmt.Sprintf("%s answered the %s with %d %s %s",
			c.Service, operations[op].name, answer.Status, explanation.Code, explanation.Message)),
	}
	switch {
	case kind == backends.Gone:
		e.Message = messageGone
	case kind == backends.Busy:
		e.Message = messageBusy
	case kind == backends.Unconfirmed:
		e.Message = messageUnconfirmed
	case reason == backends.InvalidInput, reason == backends.ContentRejected:
		e.Message = c.Failure(reason, "", explanation.Message).Message
		e.Param = c.Params[explanation.Param]
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusPaymentRequired, answer.Status == http.StatusForbidden:
		e.Message = messageAccount
	default:
		e.Message = messageFailed
	}
	return e
}

// incomplete returns the error of a 2xx answer that cannot be decoded. A
// submission with such an answer was probably accepted.
func (c *Client) incomplete(op Operation, reason string) *backends.Error {
	return c.newError(op, operations[op].interrupted, fmt.Sprintf("%s: %s: %s", c.Service, operations[op].name, reason))
}

// Unreadable returns the error of a 2xx answer that does not have the expected
// form. The error does not quote the answer, which is untrusted.
func (c *Client) Unreadable(op Operation, reason string) *backends.Error {
	return c.incomplete(op, "the answer cannot be read: "+reason)
}

// transportError returns the error of a call without an answer.
func (c *Client) transportError(op Operation, connected bool, err error) *backends.Error {
	kind := backends.Busy
	if connected {
		kind = operations[op].interrupted
	}
	// The error contains only the cause. The URL is internal and may contain the
	// job's id.
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		err = urlErr.Err
	}
	reason := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		reason = "the call was cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		reason = "no answer in time"
	}
	return c.newError(op, kind, fmt.Sprintf("%s: %s: %s", c.Service, operations[op].name, reason))
}

func (c *Client) newError(op Operation, kind backends.Kind, detail string) *backends.Error {
	e := &backends.Error{Kind: kind, Reason: backends.UpstreamError, Message: messageFailed, Detail: c.clean(detail)}
	switch {
	case kind == backends.Busy:
		e.Reason, e.Message = backends.UpstreamBusy, messageBusy
	case op == Submitting:
		e.Message = messageUnconfirmed
	}
	return e
}

// Failure is [backends.Fail] without the credential. Its message does not name
// the host of the service.
func (c *Client) Failure(reason backends.Reason, code, message string) *backends.Failure {
	f := backends.Fail(reason, c.clean(code), c.clean(message))
	if base, err := url.Parse(c.Base); err == nil {
		f.Message = backends.RedactAddresses(f.Message, strings.ToLower(base.Hostname()))
	}
	return f
}

// clean returns a service's text as [backends.Text] does, without the
// credential. The credential is removed first, because cutting the text could
// leave half of it.
func (c *Client) clean(text string) string {
	if secret := c.Secret.Reveal(); secret != "" {
		text = strings.ReplaceAll(text, secret, c.Secret.String())
	}
	return backends.Text(text)
}

// maxRetryAfter is the longest wait that a service can require.
const maxRetryAfter = time.Hour

// RetryAfter reads the Retry-After header (RFC 9110, section 10.2.3): seconds,
// or a date relative to that of the answer. It returns zero if the header is
// absent or invalid, and at most an hour.
func RetryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	from, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return max(0, min(until.Sub(from), maxRetryAfter))
}
