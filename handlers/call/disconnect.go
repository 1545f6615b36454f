package call

import (
	"context"
	"math"
	"net/http"
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

// deliveryTimeout is how long a backend may take to receive the body of a call whose caller has
// disconnected.
const deliveryTimeout = 5 * time.Second

const (
	// slowCallerBound is how long writes to a caller may block in total. Above it, the rest of the answer
	// that the backend has already sent is read and charged when the caller disconnects.
	slowCallerBound = 50 * time.Millisecond

	// catchUpGap is the longest pause while that rest is read, and catchUpTimeout the longest time for it.
	catchUpGap     = 500 * time.Millisecond
	catchUpTimeout = 10 * time.Second
)

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
//
// While a backend receives the body, the call is detached and nothing is decided yet: a backend may
// have the whole body although the call is cancelled, and would run it.
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
	delivering := c.bill.price != nil && !c.submitted && c.delivery.await() // before finishFor: it may end meanwhile
	finish, shown := a.finishFor()
	if finish == 0 && delivering {
		a.undecided, finish = true, deliveryTimeout
	}
	perUser, all := c.block.app.Limits.DetachedPerUser, c.block.app.Limits.Detached
	if c.request.Background || a.undecided || shown { // a cancellation would make these too cheap
		perUser, all = math.MaxInt64, math.MaxInt64
	}
	switch {
	case finish == 0 && a.callerIsBehind():
		_ = c.runtime.Detached.TryAcquire(c.principal.UserID, math.MaxInt64, math.MaxInt64) // also above the limits: it ends within catchUpTimeout
		c.rule = usage.Cancel
		c.stopExit = caddymodule.OnExit(c.exit)
		a.watch.catchUp(a)
		return
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

// decide detaches or cancels an undecided call once the backend has the body, has answered, or cannot be
// reached. The mutex is held.
func (a *answer) decide() {
	c := a.call
	if !a.undecided || a.closed || c.cause() != nil {
		return
	}
	a.undecided = false
	if finish, _ := a.finishFor(); finish > 0 {
		a.watch.endBy = time.Time{}
		a.watch.endWithin(finish)
		return
	}
	c.rule = usage.Cancel
	c.cancel(context.Canceled)
}

// deliveryEnded is called when the delivery of the body has ended, after the caller has disconnected.
func (c *call) deliveryEnded() {
	c.answer.mu.Lock()
	defer c.answer.mu.Unlock()
	c.answer.decide()
}

// finishFor returns for how long the call may continue without its caller; zero
// means that it is cancelled. shown reports whether the caller has got content. The mutex is held.
func (a *answer) finishFor() (finish time.Duration, shown bool) {
	c := a.call
	switch {
	case c.bill.price == nil || !a.sent() || c.submitted:
		return 0, false
	case c.request.Background:
		return submissionTimeout, false
	}
	unseen, finished := c.bill.unseen, false
	if a.meter != nil {
		shown, unseen, finished = a.meter.Shown(), unseen || a.meter.CostsUnseen(), a.meter.Finished()
	}
	finish = c.bill.price.FinishFor(c.block.app.OnDisconnect, c.request.Stream, shown, unseen)
	if finished {
		finish = max(finish, reportTimeout)
	}
	return finish, shown
}

// callerIsBehind reports whether the backend may have sent more than was written to the caller,
// because writes to the caller blocked. The mutex is held.
func (a *answer) callerIsBehind() bool {
	return a.call.bill.price != nil && a.passed && a.meter != nil && !a.call.submitted && a.blocked >= slowCallerBound
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

// detached reports whether the call continues after its caller has disconnected: to its end, or while the
// rest of its answer is read. The mutex is held, or the answer has ended.
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
	if a.watch.gap == 0 && (a.meter == nil || !a.meter.Finished()) {
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
