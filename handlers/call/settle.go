package call

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// settle decides how the call ended, completes or replaces the answer, and charges
// the call. It runs deferred, exactly once per call. It panics with
// http.ErrAbortHandler if the caller's connection must be closed: an incomplete
// answer must not look complete.
func (c *call) settle(r *http.Request, panicked any, err error) error {
	a := c.answer
	a.end()
	defer c.endDetached()
	if panicked != nil && panicked != http.ErrAbortHandler { //nolint:errorlint // net/http also compares the value
		err = errors.New("a handler panicked")
	}

	abort := false
	switch {
	case a.fault != nil:
		c.ended, c.refusal = usage.UpstreamError, a.fault
	case a.passed:
		abort = c.conclude(panicked != nil, err)
	default:
		c.beforeAnswer(err)
	}

	if a.callerGone && !a.headSent {
		// The caller does not read this status. The access log records it, as in
		// Caddy's reverse_proxy.
		c.status = statusClientGone
		a.ResponseWriter.WriteHeader(c.status)
	}
	c.conclusion()
	c.charge()
	c.forgetUnfinished()
	c.route.metrics.InFlight.Dec()
	c.report()
	a.release()
	switch {
	case panicked != nil && panicked != http.ErrAbortHandler: //nolint:errorlint // see above
		panic(panicked)
	case abort:
		panic(http.ErrAbortHandler)
	}
	return nil
}

// beforeAnswer ends a call before anything was written to the caller.
func (c *call) beforeAnswer(err error) {
	c.ended = usage.UpstreamError
	switch {
	case c.timedOut():
		c.ended, c.refusal = usage.Timeout, timedOut
	case errors.Is(c.cause(), caddymodule.ErrEnding):
		c.refusal = drained
	case errors.Is(c.cause(), context.Canceled):
		c.ended = usage.ClientGone
		return
	case errors.Is(err, errNoRoute):
		c.ended, c.failure = usage.Refused, err
		c.refusal = noModel(fault.ModelNotFound, "model", c.request.Model)
		if c.backend == "" { // the store keeps no record of a refused call that no backend received
			c.bill.reservation.Release()
			c.bill.reservation = nil
		}
	case c.misplaced && c.route.object == nil:
		c.ended, c.failure = usage.Refused, err
		c.refusal = fault.At(fault.InvalidParameter, c.request.References[0].Param,
			"`%s` names an object at another backend than that of the model %q", c.request.References[0].Param, c.request.Model)
	case err != nil:
		c.refusal, c.failure = routeFault(err), err
		if c.refusal.Status() < 500 {
			c.ended = usage.Refused
		}
	default: // the routes wrote nothing: Caddy would answer an empty 200
		c.refusal = unavailable
	}
	if c.answer.callerGone {
		return
	}
	c.answer.replace(c.refusal)
}

// statusClientGone is the status of a request whose caller disconnected, as in the logs
// of nginx and Caddy.
const statusClientGone = 499

// conclude ends a call whose answer has begun. It returns true if the caller's
// connection must be closed.
func (c *call) conclude(broken bool, err error) (abort bool) {
	a := c.answer
	if a.status >= 300 {
		c.ended = usage.UpstreamError
		if a.status < 500 {
			c.ended = usage.Refused
		}
		return broken
	}
	switch {
	case a.complete(!broken && err == nil):
		c.finished = true
		if a.callerGone && !c.readAll {
			c.ended = usage.ClientGone
			return true
		}
		// Many callers disconnect after the last event, before the backend
		// closes its connection.
		c.ended = usage.Complete
		return broken && !a.stream
	case a.page(), a.meter != nil && a.meter.Failed():
		c.ended = usage.UpstreamError // the caller has received the backend's own error
		return broken && !a.intact()
	case c.timedOut():
		c.ended, c.refusal = usage.Timeout, timedOut
	case errors.Is(c.cause(), errMoneyOut):
		c.ended, c.refusal = usage.MoneyOut, c.bill.short.Fault("the rest of this answer", "")
	case errors.Is(c.cause(), caddymodule.ErrEnding):
		c.ended, c.refusal = usage.UpstreamError, drained
	case errors.Is(c.cause(), context.Canceled):
		c.ended = usage.ClientGone
		return true
	default:
		c.ended = usage.UpstreamError
		c.refusal = fault.New(fault.UpstreamUnavailable, "the backend ended its answer before it was complete")
	}
	if !a.intact() {
		return true
	}
	_ = a.emit(c.route.Dialect.Event(c.refusal, c.id))
	_ = a.control.Flush()
	return false
}

// routeFault returns the fault for an error of the operator's routes: of reverse_proxy,
// or of an error directive in the block.
func routeFault(err error) *fault.Fault {
	var handler caddyhttp.HandlerError
	if !errors.As(err, &handler) {
		return unavailable
	}
	var own *fault.Fault
	if errors.As(handler.Err, &own) {
		return own
	}
	message := http.StatusText(handler.StatusCode)
	switch handler.StatusCode {
	case http.StatusBadRequest:
		return fault.New(fault.InvalidParameter, "%s", message)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Forbidden, "this call is not allowed here")
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "there is nothing for this call here")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.MethodNotAllowed, "%s", message)
	case http.StatusRequestEntityTooLarge:
		return fault.New(fault.PayloadTooLarge, "the body is too large for this model")
	case http.StatusTooManyRequests:
		return fault.New(fault.RateLimited, "too many calls at this time").After(5 * time.Second)
	case http.StatusGatewayTimeout:
		return timedOut
	}
	return unavailable
}
