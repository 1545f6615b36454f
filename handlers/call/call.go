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
	"github.com/caddy-modelgate/modelgate/internal/forwarding"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/ownership"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// callVar is the request variable that holds the call, for the matcher.
const callVar = "modelgate.call"

// call is the state of one model call. It is used until the access log is written, because
// placeholders read it.
type call struct {
	block   *block
	route   *route
	id      string
	started time.Time

	runtime    *caddymodule.Runtime
	principal  *identity.Principal
	rateLimits limit.RateLimitStatus // when the call began
	schema     *modelcall.Schema     // of the body
	formType   string                // the Content-Type of a form; empty: the body is JSON
	fields     []byte                // of a form, as JSON; nil: the body is JSON
	modelField [2]int                // where a form has the name of its model: from and to, in bytes
	request    modelcall.Request
	asked      string // the model as the caller named it, if another one is called
	trimsUsage bool   // the gateway requested the usage chunk, and removes it from the stream
	body       *body
	answer     *answer
	bill       bill
	fallbacks  fallbacks
	cacheKey   string   // prompt_cache_key of the body, if a route uses it
	selected   []string // upstreams that Affinity has selected in this attempt

	query      string             // of a request for stored objects, as it is sent
	pin        *ownership.Object  // a stored object that the call names; it decides the upstream
	upstream   string             // that was selected last
	misplaced  bool               // no upstream of the route has the stored object
	submitted  bool               // a background response was submitted
	job        *ownership.Running // that settles it
	reading    *ownership.Reading // of a background response
	continues  bool               // the call reads from the middle of its text on
	background string             // of the log line: submitted or settled
	unrecorded bool               // an id could not be recorded, so the answer was not passed on

	lifetime context.Context // the parent of ctx
	ctx      context.Context // of the attempt to call the backend; it is cancelled with a cause
	cancel   context.CancelCauseFunc
	delivery delivery
	backend  string      // the address to which reverse_proxy sent the last request; empty if it sent none
	stopExit func() bool // not nil: the call continues without its caller
	readAll  bool        // the caller disconnected after the end of the answer
	finished bool        // the answer is complete, whether the caller was connected or not

	ended     usage.Ended
	basis     usage.Basis
	rule      usage.Rule // that decided the charge, if the call did not complete normally
	tokens    usage.Tokens
	tier      string // the service tier, speed and region in the answer
	speed     string
	geo       string
	refusal   *fault.Fault
	failure   error         // of the routes before an answer, such as a refused connection
	method    string        // of the request, cut to maxMethod bytes; empty in the second line of a background call
	status    int           // that was sent to the caller; 499: the caller had disconnected before
	firstByte time.Duration // from started; zero: no byte arrived
	duration  time.Duration // from started to the end
	bodyBytes int
}

func newCall(b *block, rt *route) *call {
	now := time.Now()
	schema := rt.schema
	if schema == nil {
		schema = rt.form
	}
	return &call{block: b, route: rt, schema: schema, id: requestid.At(now), started: now}
}

// serve checks a call, forwards it and settles it. If f is not nil, it refuses the call with f.
func (c *call) serve(w http.ResponseWriter, r *http.Request, f *fault.Fault) error {
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(c.placeholder)
	}
	c.method = r.Method[:min(len(r.Method), maxMethod)]
	if f == nil {
		var leave func()
		if c.runtime, leave, f = c.block.app.Enter(r.Context()); f == nil {
			defer leave()
			f = c.gate(w, r)
		}
	}
	if f != nil {
		return c.refuse(w, r, f)
	}
	defer c.body.retire()
	defer c.bill.release(c.started) // no effect after forward has settled the call
	return c.forward(w, r)
}

// gate decides whether the call is forwarded. It reads the body only after it has
// authenticated the caller and checked rates and funds.
func (c *call) gate(w http.ResponseWriter, r *http.Request) (f *fault.Fault) {
	if c.principal, f = auth.Authenticate(r, c.runtime.Directory); f != nil {
		return f
	}
	if f = checkEncoding(r.Header); f != nil {
		return f
	}
	if f = c.chooseSchema(r.Header); f != nil {
		return f
	}
	if c.route.versioned {
		if f = checkVersion(r.Header[c.block.version], c.block.app.VersionHeader); f != nil {
			return f
		}
	}
	if r.ContentLength > c.route.MaxBody {
		return tooLarge(c.route.MaxBody)
	}
	if f = c.admit(r); f != nil {
		return f
	}
	if c.route.object != nil {
		if f = c.gateObject(w, r); f != nil {
			c.bill.release(c.started)
			if c.body != nil {
				c.body.retire()
			}
		}
		return f
	}
	if c.body, f = readBody(w, r, c.runtime, c.principal.UserID, c.route.MaxBody, &c.block.app.Limits); f == nil {
		c.bodyBytes = len(c.body.bytes())
		if f = c.checkAndReserve(r.Context()); f != nil {
			c.body.retire()
		}
	}
	if f != nil {
		c.bill.release(c.started)
	}
	return f
}

// checkAndReserve checks the body of a call and the caller's rights, and reserves the
// maximum price of the call.
func (c *call) checkAndReserve(ctx context.Context) (f *fault.Fault) {
	if f = c.parse(); f != nil {
		return f
	}
	if f = c.nameModel(); f != nil {
		return f
	}
	if f = c.resolveAliases(); f != nil {
		return f
	}
	if f = c.mayUse("model", c.request.Model); f != nil {
		return f
	}
	if f = c.checkOwner(ctx); f != nil {
		return f
	}
	if f = c.findPrice(); f != nil {
		return f
	}
	c.findFallbacks()
	if f = c.extend(); f != nil {
		return f
	}
	return c.reserve(ctx)
}

// mayUse refuses a model outside the scope of the key.
func (c *call) mayUse(param, model string) *fault.Fault {
	if !c.principal.MayUse(model) {
		return fault.At(fault.Forbidden, param, "this API key may not use the model %q", model)
	}
	return nil
}

// refuse answers a call that the gate refused.
func (c *call) refuse(w http.ResponseWriter, r *http.Request, f *fault.Fault) error {
	c.ended, c.basis, c.refusal = usage.Refused, usage.None, f
	c.route.Dialect.ShowRateLimits(w.Header(), f, c.rateLimits, c.started)
	if c.body == nil {
		c.route.Dialect.RefuseUnread(w, r, f, c.id)
	} else {
		c.route.Dialect.Refuse(w, f, c.id)
	}
	c.conclusion()
	c.report()
	return nil
}

// forward runs the operator's routes and settles the call, even if they panic.
func (c *call) forward(w http.ResponseWriter, r *http.Request) (err error) {
	if c.block.affine {
		c.cacheKey = c.request.CacheKey(c.members())
	}
	forwarding.CleanRequest(r, c.block.upstream, c.request.Stream || c.owns())
	forwarding.OwnIdempotencyKey(r.Header, c.principal.KeyID)
	if c.formType != "" {
		r.Header["Content-Type"] = []string{c.formType}
	}
	if c.schema.AsksUsage && c.request.Stream {
		if edit, ok := c.request.AskForUsage(c.body.bytes(), c.bill.price != nil); ok {
			c.body.edit(edit)
			c.trimsUsage = true
		}
	}
	if c.route.object != nil {
		c.prepareObject(r)
	}
	c.body.send(r)
	caddyhttp.SetVar(r.Context(), callVar, c)

	// disconnected handles the end of the caller's request. The call to the backend may
	// continue.
	c.lifetime = c.runtime.Lifetime(r.Context())
	c.ctx, c.cancel = context.WithCancelCause(c.lifetime)
	defer func() { c.cancel(nil) }()
	c.answer = newAnswer(w, c)
	c.answer.watch.start(c.answer)
	defer context.AfterFunc(r.Context(), c.disconnected)()

	c.route.metrics.InFlight.Inc()
	defer func() {
		// reverse_proxy panics if the caller disconnects, and if the backend ends an
		// answer early.
		err = c.settle(r, recover(), err)
	}()
	r = r.WithContext(c.ctx)
	if c.fallbacks.named != nil {
		return c.forwardWithFallbacks(r)
	}
	return c.block.backend.ServeHTTP(c.answer, r)
}

// cause returns why the call to the backend was cancelled, or nil.
func (c *call) cause() error { return context.Cause(c.ctx) }

// drained is the error of a call that the end of the process interrupts.
var drained = fault.New(fault.Overloaded, "the gateway restarts; try again").After(5 * time.Second)

// timedOut reports whether the watch cancelled the call.
func (c *call) timedOut() bool { return errors.Is(c.cause(), errTimeout{}) }
