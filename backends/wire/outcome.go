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

// Act is the purpose of a call.
type Act int

// The acts.
const (
	Submitting Act = iota
	Polling
	Cancelling
	Fetching
	Checking
)

// acts are what the acts are called, and what an act has come to that was
// begun and not ended: asking again is never wrong, doing again may be.
var acts = map[Act]struct {
	name  string
	begun backends.Kind
}{
	Submitting: {"submission", backends.Doubtful},
	Polling:    {"poll", backends.Busy},
	Cancelling: {"cancellation", backends.Doubtful},
	Fetching:   {"fetching", backends.Busy},
	Checking:   {"check", backends.Busy},
}

// anyOf stands for the statuses of a hundred that have no row of their own.
const anyOf = 0

// outcomes say what a status means, by act. A status without a row is that of
// its hundred.
//
// A redirect that asks for the same request elsewhere (RFC 9110, section 15.4)
// says that this one was not done; 302 and 303 may follow a request that was.
// 409 speaks of a job with our token, so that there may be one.
var outcomes = map[Act]map[int]backends.Kind{
	Submitting: {
		http.StatusMovedPermanently:  backends.Refused,
		http.StatusTemporaryRedirect: backends.Refused,
		http.StatusPermanentRedirect: backends.Refused,
		300 + anyOf:                  backends.Doubtful,
		http.StatusRequestTimeout:    backends.Busy,
		http.StatusConflict:          backends.Doubtful,
		http.StatusTooEarly:          backends.Busy,
		http.StatusTooManyRequests:   backends.Busy,
		400 + anyOf:                  backends.Refused,
		500 + anyOf:                  backends.Doubtful,
	},
	Polling:    asking,
	Fetching:   asking,
	Cancelling: cancelling,
	Checking:   checking,
}

var asking = map[int]backends.Kind{
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

// checking is asking where there is no job that could be gone: what is not there
// is the service.
var checking = func() map[int]backends.Kind {
	kinds := maps.Clone(asking)
	kinds[http.StatusNotFound], kinds[http.StatusGone] = backends.Refused, backends.Refused
	return kinds
}()

var cancelling = map[int]backends.Kind{
	300 + anyOf:                backends.Refused,
	http.StatusNotFound:        backends.Gone,
	http.StatusGone:            backends.Gone,
	http.StatusRequestTimeout:  backends.Busy,
	http.StatusTooEarly:        backends.Busy,
	http.StatusTooManyRequests: backends.Busy,
	400 + anyOf:                backends.Refused,
	500 + anyOf:                backends.Doubtful,
}

// outcome returns what a status means for an act.
func outcome(act Act, status int) backends.Kind {
	if kind, ok := outcomes[act][status]; ok {
		return kind
	}
	if kind, ok := outcomes[act][status/100*100+anyOf]; ok {
		return kind
	}
	return acts[act].begun
}

// Explanation is what a service says about one of its errors.
type Explanation struct {
	Code    string
	Message string
	Param   string // the service's name of the field at fault

	// Reason is the meaning of the code; if it is empty, the status decides.
	Reason backends.Reason

	// Kind is what the code means for the job, if it says more than the status
	// does.
	Kind backends.Kind
}

// What callers are told of errors that are the operator's, the service's or the
// network's.
const (
	messageFailed  = "the generation service failed"
	messageAccount = "the generation service does not accept the gateway's account"
	messageBusy    = "the generation service is busy; try again later"
	messageDoubt   = "the generation service did not say whether it has taken the job"
	messageGone    = "the generation service does not know the job any more"
)

// statusReasons are the reasons of statuses that say nothing about the job
// itself. Of other 4xx the input is the reason.
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

// judge returns the error of an answer whose status is not 2xx.
func (c *Client) judge(act Act, answer Answer) *backends.Error {
	var said Explanation
	if c.Explain != nil && len(answer.Body) <= MaxAnswer {
		said = c.Explain(answer.Status, answer.Body)
	}
	return c.Judge(act, answer, said)
}

// Judge returns the error of an answer and its explanation. It also serves
// services that report errors with status 200.
func (c *Client) Judge(act Act, answer Answer, said Explanation) *backends.Error {
	kind := cmp.Or(said.Kind, outcome(act, answer.Status))
	reason := said.Reason
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
		Code:       c.clean(said.Code),
		Detail: c.clean(fmt.Sprintf("%s answered the %s with %d %s %s",
			c.Service, acts[act].name, answer.Status, said.Code, said.Message)),
	}
	switch {
	case kind == backends.Gone:
		e.Message = messageGone
	case kind == backends.Busy:
		e.Message = messageBusy
	case kind == backends.Doubtful:
		e.Message = messageDoubt
	case reason == backends.InvalidInput, reason == backends.ContentRejected:
		e.Message = c.Failure(reason, "", said.Message).Message
		e.Param = c.Params[said.Param]
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusPaymentRequired, answer.Status == http.StatusForbidden:
		e.Message = messageAccount
	default:
		e.Message = messageFailed
	}
	return e
}

// broken returns the error of a 2xx answer that cannot be decoded. A submission
// with such an answer was probably accepted.
func (c *Client) broken(act Act, why string) *backends.Error {
	return c.failed(act, acts[act].begun, fmt.Sprintf("%s: %s: %s", c.Service, acts[act].name, why))
}

// Unreadable returns the error of a 2xx answer that does not have the expected
// form. The error does not quote the answer, which belongs to the service.
func (c *Client) Unreadable(act Act, why string) *backends.Error {
	return c.broken(act, "the answer cannot be read: "+why)
}

// unanswered returns the error of a call without an answer.
func (c *Client) unanswered(act Act, connected bool, err error) *backends.Error {
	kind := backends.Busy
	if connected {
		kind = acts[act].begun
	}
	// The address is the operator's and may hold the job's id; why is enough.
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	why := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		why = "the call was given up"
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer in time"
	}
	return c.failed(act, kind, fmt.Sprintf("%s: %s: %s", c.Service, acts[act].name, why))
}

func (c *Client) failed(act Act, kind backends.Kind, detail string) *backends.Error {
	e := &backends.Error{Kind: kind, Reason: backends.UpstreamError, Message: messageFailed, Detail: c.clean(detail)}
	switch {
	case kind == backends.Busy:
		e.Reason, e.Message = backends.UpstreamBusy, messageBusy
	case act == Submitting:
		e.Message = messageDoubt
	}
	return e
}

// Failure is [backends.Fail] with the credential removed, and with a message
// that does not name the host of the service.
func (c *Client) Failure(reason backends.Reason, code, words string) *backends.Failure {
	f := backends.Fail(reason, c.clean(code), c.clean(words))
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

// maxRetryAfter is the longest wait that a service can ask for.
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
