package call

import (
	"context"
	"math"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// This file handles calls whose callers disconnect. The call to the backend is
// cancelled, or it continues without its caller: it is detached. Nothing is
// written to the caller of a detached call. Its time is bounded, and it ends
// when the process begins to exit.

// reportTimeout is how long a call continues after its answer is complete and its
// caller has disconnected. Meanwhile the backend sends the final usage report and
// closes the answer.
const reportTimeout = 800 * time.Millisecond

// submissionTimeout is how long the submission of a background response continues without its caller, so
// that the gateway learns the id. The vendor does not end such a response when its connection is closed.
const submissionTimeout = 5 * time.Minute

// disconnected is called when the caller's request ends before the call does.
func (c *call) disconnected() {
	c.answer.mu.Lock()
	defer c.answer.mu.Unlock()
	c.answer.detachOrCancel()
}

// detachOrCancel detaches or cancels a call whose caller has disconnected. Only the
// first call has an effect. The mutex is held.
func (a *answer) detachOrCancel() {
	if a.closed || a.callerGone {
		return
	}
	a.callerGone = true
	a.watch.ping = 0
	c := a.call
	if c.cause() != nil {
		return // the call was cancelled before
	}
	c.readAll = a.meter != nil && a.meter.Finished()
	perUser, all := c.block.app.Limits.DetachedPerUser, c.block.app.Limits.Detached
	if c.request.Background {
		perUser, all = math.MaxInt64, math.MaxInt64
	}
	switch finish := a.finishFor(); {
	case finish == 0:
		c.rule = usage.Cancel
	case !c.runtime.Detached.TryAcquire(c.principal.UserID, perUser, all):
		c.rule = usage.FinishLimit
	default:
		c.rule = usage.Finish
		c.stopExit = caddymodule.OnExit(c.exit)
		a.watch.endWithin(finish)
		return
	}
	c.cancel(context.Canceled)
}

// finishFor returns for how long the call may continue without its caller; zero
// means that it is cancelled. The mutex is held.
func (a *answer) finishFor() time.Duration {
	c := a.call
	switch {
	case c.bill.price == nil || !a.sent() || c.submitted:
		return 0
	case c.request.Background:
		return submissionTimeout
	}
	shown, unseen, finished := false, c.bill.unseen, false
	if a.meter != nil {
		shown, unseen, finished = a.meter.Shown(), unseen || a.meter.CostsUnseen(), a.meter.Finished()
	}
	finish := c.bill.price.FinishFor(c.block.app.OnDisconnect, c.request.Stream, shown, unseen)
	if finished {
		finish = max(finish, reportTimeout)
	}
	return finish
}

// sent reports whether the body was sent to a backend that has not refused the
// call. A status, or an error event before any content, is a refusal. The mutex is
// held, or the answer has ended.
func (a *answer) sent() bool {
	switch {
	case !a.head:
		return a.call.delivery.done()
	case a.status >= http.StatusMultipleChoices:
		return false
	}
	return a.meter == nil || a.meter.Began() || !a.meter.Failed()
}

// detached reports whether the call continues without its caller. The mutex is
// held, or the answer has ended.
func (c *call) detached() bool { return c.stopExit != nil }

// readDetached reads usage from p, a part of the answer that arrives after the caller
// disconnected. It returns errDropped if the call is not detached. The mutex is held.
func (a *answer) readDetached(p []byte) error {
	if a.meter != nil {
		a.meter.Write(p)
		if err := a.recordIDs(); err != nil {
			return err
		}
	}
	if !a.call.detached() || a.call.submitted {
		return errDropped
	}
	if a.meter != nil && a.meter.Finished() {
		if _, _, reported := a.meter.Tokens(); reported {
			a.watch.endWithin(reportTimeout)
		}
	}
	return nil
}

// expire ends a detached call whose time limit has passed. The mutex is held.
func (a *answer) expire() {
	if a.meter == nil || !a.meter.Finished() {
		a.call.rule = usage.FinishTimeout
	}
	a.call.cancel(context.Canceled)
}

// exit ends a detached call when the process begins to exit, because the exit would
// have to wait for it.
func (c *call) exit() {
	c.answer.mu.Lock()
	defer c.answer.mu.Unlock()
	if !c.answer.closed && c.cause() == nil {
		c.rule = usage.FinishShutdown
		c.cancel(context.Canceled)
	}
}

// endDetached releases the resources of a detached call. The answer has ended.
func (c *call) endDetached() {
	if c.detached() {
		c.stopExit()
		c.runtime.Detached.Release(c.principal.UserID)
	}
}

// delivery records whether a backend has received the body of a call. A trip is one
// request to a backend. If the operator's routes retry, a call makes several trips.
type delivery struct {
	trips    uint // the number of trips that have begun
	before   uint // those of earlier attempts of a call with fallbacks
	tried    bool // a trip of this attempt has begun
	answered int  // the status of the answer to the last trip of this attempt; 0: none

	written atomic.Uint32 // a bit per trip: the whole body was written
	refused atomic.Uint32 // a bit per trip: the answer had an error status
}

// begin records a trip that req makes. It returns the request to send instead, and
// the bit of the trip. All trips from the 32nd on share one bit.
//
// The transports of net/http, HTTP/2 and HTTP/3 report through an httptrace that they
// have written the body. begin extends the trace that reverse_proxy puts into the
// context of each trip, which costs one allocation. A second trace would be composed
// with it by reflection, and a wrapped body would be sent in a separate write.
func (d *delivery) begin(req *http.Request) (_ *http.Request, trip uint32) {
	trip = d.next()
	trace := httptrace.ContextClientTrace(req.Context())
	if trace == nil {
		trace = new(httptrace.ClientTrace)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	}
	other := trace.WroteRequest
	trace.WroteRequest = func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			d.written.Or(trip)
		}
		if other != nil {
			other(info)
		}
	}
	return req, trip
}

// next returns the bit of the next trip.
func (d *delivery) next() (trip uint32) {
	trip = 1 << min(d.trips, 31)
	d.trips++
	d.tried, d.answered = true, 0
	return trip
}

// restart forgets the trips of an attempt that failed.
func (d *delivery) restart() { d.before, d.tried, d.answered = d.trips, false, 0 }

// end records the answer of a trip.
func (d *delivery) end(trip uint32, resp *http.Response) {
	d.answered = resp.StatusCode
	if resp.StatusCode >= http.StatusMultipleChoices {
		d.refused.Or(trip)
	}
}

// Delivered records that a handler that answers calls itself, such as modelgate_demo, has
// received the body. The call is then charged if the caller disconnects, as with a backend. The
// handler finds the call in the request variable [callVar].
func (c *call) Delivered() { c.delivery.written.Or(c.delivery.next()) }

// done reports whether a backend has received the body in this attempt and has not refused it.
func (d *delivery) done() bool {
	return d.written.Load()&^d.refused.Load()>>min(d.before, 31) != 0
}
