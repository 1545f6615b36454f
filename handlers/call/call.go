package call

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// callVar is the request variable that holds the call, for the matcher.
const callVar = "modelgate.call"

// call is one model call on its way. It lives until the access log has been
// written, since placeholders read it.
type call struct {
	block   *block
	route   *route
	id      string
	started time.Time

	node      *caddymodule.Node
	principal *identity.Principal
	standing  limit.Standing // of the caller's rates, when the call began
	request   request
	body      *body
	answer    *answer
	bill      bill

	ctx    context.Context // of the call to the backend; cancelled with a cause
	cancel context.CancelCauseFunc

	ended     usage.Ended
	basis     usage.Basis
	tokens    usage.Tokens
	refusal   *fault.Fault
	status    int           // as the caller got it; 499 when he had left
	firstByte time.Duration // from started; zero when nothing came
	duration  time.Duration // from started to the end
	bodyBytes int
}

func newCall(b *block, rt *route, requestID string) *call {
	return &call{block: b, route: rt, id: requestID, started: time.Now()}
}

// serve is the whole way of a call: the gate, the operator's routes, the meter.
func (c *call) serve(w http.ResponseWriter, r *http.Request, f *fault.Fault) error {
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(c.placeholder)
	}
	if f == nil {
		var leave func()
		if c.node, leave, f = c.block.app.Enter(r.Context()); f == nil {
			defer leave()
			f = c.gate(w, r)
		}
	}
	if f != nil {
		return c.refuse(w, r, f)
	}
	defer c.body.retire()
	defer c.bill.release(c.started) // of what forward has not settled
	return c.forward(w, r)
}

// gate decides whether the call may go on. Nothing of the body is read before
// the caller is known.
func (c *call) gate(w http.ResponseWriter, r *http.Request) (f *fault.Fault) {
	if c.principal, f = auth.Authenticate(r, c.node.Directory); f != nil {
		return f
	}
	if f = checkEncoding(r.Header); f != nil {
		return f
	}
	if c.route.versioned {
		if f = checkVersion(r.Header[c.block.version], c.block.app.VersionHeader); f != nil {
			return f
		}
	}
	if c.body, f = readBody(w, r, c.node, c.route.limit, c.block.app.Limits); f != nil {
		return f
	}
	c.bodyBytes = len(c.body.bytes())
	if f = c.consider(r.Context()); f != nil {
		c.body.retire()
	}
	return f
}

// consider decides about a call that can be read: whether it may be made, and
// whether it can be paid. The last step reserves what it may cost.
func (c *call) consider(ctx context.Context) (f *fault.Fault) {
	if f = c.request.parse(c.route, c.body.bytes()); f != nil {
		return f
	}
	if !c.principal.MayUse(c.request.model) {
		return fault.At(fault.Forbidden, "model", "this API key may not use the model %q", c.request.model)
	}
	if f = c.findPrice(); f != nil {
		return f
	}
	if f = c.admit(); f != nil {
		return f
	}
	if f = c.reserve(ctx); f != nil {
		c.bill.release(c.started)
	}
	return f
}

// refuse answers what the gate decided.
func (c *call) refuse(w http.ResponseWriter, r *http.Request, f *fault.Fault) error {
	c.ended, c.basis, c.refusal = usage.Refused, usage.None, f
	c.showStanding(w.Header(), f)
	if c.body == nil {
		c.route.dialect.RefuseUnread(w, r, f, c.id)
	} else {
		c.route.dialect.Refuse(w, f, c.id)
	}
	c.conclusion()
	c.report()
	return nil
}

// forward sends the call along the operator's routes and settles it, however
// they return.
func (c *call) forward(w http.ResponseWriter, r *http.Request) (err error) {
	cleanRequest(r, c.request.stream)
	if c.route.asksUsage && c.request.stream {
		c.request.askForUsage(c.body, c.bill.price != nil)
	}
	c.body.send(r)
	caddyhttp.SetVar(r.Context(), callVar, c)

	ctx := r.Context()
	if c.mayAwaitReport() {
		// Then the caller's leaving is told by leave, which may know better than
		// to end the call to the backend at once.
		ctx = context.WithoutCancel(ctx)
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	defer c.node.OnEnd(func() { c.cancel(errDrained) })()
	c.answer = newAnswer(w, c)
	if c.mayAwaitReport() {
		defer context.AfterFunc(r.Context(), c.leave)()
	}
	c.answer.watch.start(c.answer)

	c.route.metrics.InFlight.Inc()
	defer func() {
		// A caller who leaves, and a backend that breaks off, come back from
		// reverse_proxy as a panic.
		err = c.settle(r, recover(), err)
	}()
	return c.block.backend.ServeHTTP(c.answer, r.WithContext(c.ctx))
}

// reportPatience is how long a caller who leaves is outlived by a call whose
// backend has said all but what it came to.
const reportPatience = 800 * time.Millisecond

// mayAwaitReport tells whether the answer is a stream whose usage comes last, and
// has a price.
func (c *call) mayAwaitReport() bool {
	return c.route.asksUsage && c.request.stream && c.bill.price != nil
}

// leave ends the call to the backend when its caller has left: at once, unless
// the answer is complete but for the report of its usage. Leaving just before
// that would otherwise be a way to be billed by an estimate, which leaves out
// what the model has thought.
func (c *call) leave() {
	c.answer.mu.Lock()
	awaits := c.answer.awaitsReport()
	c.answer.mu.Unlock()
	if !awaits {
		c.cancel(context.Canceled)
		return
	}
	timer := time.NewTimer(reportPatience)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.cancel(context.Canceled)
	case <-c.ctx.Done():
	}
}

// cause is why the call to the backend was cancelled, or nil.
func (c *call) cause() error { return context.Cause(c.ctx) }

// errDrained cancels a call that outlasts the process.
var errDrained = errors.New("the process ends")

// drained is what its caller hears.
var drained = fault.New(fault.Overloaded, "the gateway restarts; try again").After(5 * time.Second)

// timedOut tells whether it was the watch that cancelled the call.
func (c *call) timedOut() bool { return errors.Is(c.cause(), errTimeout{}) }
