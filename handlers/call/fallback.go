package call

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// This file makes the further attempts of a call whose model has a fallback. An attempt runs the
// operator's routes once. The next one is made only while the caller has received nothing, and only
// after a failure that the operator named and that is free for the caller; see
// docs/reference/calls.md#fallbacks.

// fallbacks is the state of the fallbacks of a call. It is empty for most calls.
type fallbacks struct {
	named *[maxFailure]bool // the failures after which the next model is called
	next  []candidate       // the models that are left
	tried []string          // each failed model with its failure
	fault bool              // a backend refused the operator's account
}

// candidate is a model that may be called instead, with the limits of the call at its price.
type candidate struct {
	model  string
	price  *catalog.Price // nil: free
	bounds catalog.Bounds
}

// findFallbacks sets the models that may be called instead. It leaves out those that the key may not
// use, and those whose price does not cover the call. A call that names stored objects or runs in the
// background has none: another backend cannot serve it.
func (c *call) findFallbacks() {
	c.fallbacks = fallbacks{}
	f := c.block.fallbackOf(c.request.Model)
	if f == nil || c.pin != nil || c.request.Background {
		return
	}
	for _, model := range f.To {
		if model == c.request.Model || !c.principal.MayUse(model) {
			continue
		}
		one := candidate{model: model}
		if !c.route.free {
			var ok bool
			if one.price, ok = c.block.app.PriceOf(model, c.schema.Unit); !ok || one.price == nil && c.namesPriced() {
				continue
			}
		}
		if one.price != nil {
			bounds, refused := c.boundsOf(one.price, model)
			if refused != nil {
				continue
			}
			one.bounds = bounds
		}
		c.fallbacks.next = append(c.fallbacks.next, one)
	}
	if len(c.fallbacks.next) > 0 {
		c.fallbacks.named = &f.named
	}
}

// namesPriced reports whether the body names another model that has a price.
func (c *call) namesPriced() bool {
	for i := range c.request.Named {
		if c.request.Named[i].Price != nil {
			return true
		}
	}
	return false
}

// withholds reports whether the answer with this status is not passed on, because the next model will
// be called. The mutex of the answer is held.
func (c *call) withholds(status int) bool {
	return len(c.fallbacks.next) > 0 && status < int(maxFailure) && c.fallbacks.named[status] && !c.answer.callerGone
}

// routeGroups is the key under which Caddy keeps the groups of routes that have matched. Each attempt
// needs its own: otherwise no second `handle` would match.
var routeGroups = caddy.CtxKey("route_group")

// forwardWithFallbacks runs the operator's routes until an attempt is passed on or no model is left.
// Each attempt gets the request as it was before the first one, with the body for its model.
func (c *call) forwardWithFallbacks(r *http.Request) error {
	original := r.Clone(r.Context())
	for attempt := 1; ; attempt++ {
		err := c.attempt(r)
		if !c.fallBack(err) {
			return err
		}
		clear(r.Header)
		maps.Copy(r.Header, original.Header.Clone())
		if keys := r.Header["Idempotency-Key"]; len(keys) > 0 {
			keys[0] = fmt.Sprintf("%s-%d", keys[0], attempt+1) // the vendor stores the key with another body
		}
		*r.URL = *original.URL
		r.Method, r.Host, r.RequestURI, r.ContentLength = original.Method, original.Host, original.RequestURI, original.ContentLength
		c.body.send(r)
		r = r.WithContext(context.WithValue(c.ctx, routeGroups, make(map[string]struct{})))
	}
}

// attempt runs the operator's routes once. reverse_proxy panics if it cannot read the rest of an
// answer that is withheld.
func (c *call) attempt(r *http.Request) error {
	defer func() {
		if !c.answer.withheld {
			return
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // net/http also compares the value
			panic(p)
		}
	}()
	return c.block.backend.ServeHTTP(c.answer, r)
}

// fallBack prepares the attempt with the next model, if the last attempt failed in a way that allows
// it. It returns false if the call has ended. err is the error of the routes.
func (c *call) fallBack(err error) bool {
	a := c.answer
	if !a.fallBack(err) {
		return false
	}
	a.watch.start(a)
	return true
}

func (a *answer) fallBack(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.call
	failed := c.failureOf(err)
	switch {
	case len(c.fallbacks.next) == 0 || !c.fallbacks.named[failed] || a.callerGone || a.closed:
		return false
	case failed.mayHaveRun() && c.delivery.done() && c.chargesFailedInput():
		return false // the caller is charged for this attempt
	}
	next := c.fallbacks.next[0]
	before := c.request.Model
	if f := c.renameSent(next.model); f != nil {
		c.block.logger.Error("a body cannot be changed for another model: " + f.Error())
		return false
	}
	c.fallbacks.next = c.fallbacks.next[1:]
	c.fallbacks.fault = c.fallbacks.fault || backendFaults[int(failed)]
	c.fallbacks.tried = append(c.fallbacks.tried, before+" "+failed.String())
	c.route.metrics.FellBack(failed.String())
	if c.asked == "" {
		c.asked = before
	}
	c.bill.price, c.bill.bounds = next.price, next.bounds
	c.delivery.restart()
	c.selected = nil
	c.cancel(nil)
	c.ctx, c.cancel = context.WithCancelCause(c.lifetime)
	a.watch.stop()
	a.restart()
	return true
}

// failureOf returns how the last attempt failed, or noFailure if its answer counts. The mutex of the
// answer is held.
func (c *call) failureOf(err error) failure {
	a := c.answer
	var handler caddyhttp.HandlerError
	var dial reverseproxy.DialError
	switch {
	case a.withheld:
		return failure(a.status)
	case a.head:
		return noFailure
	case c.timedOut():
		return failedTimeout
	case c.cause() != nil || !errors.As(err, &handler) || handler.StatusCode < 500 && c.delivery.answered == 0:
		return noFailure
	case c.delivery.answered != 0: // lb_retry_match has used up its retries
		return failure(min(c.delivery.answered, int(maxFailure)-1))
	case !c.delivery.tried || errors.As(err, &dial) && !c.delivery.done():
		return failedDial
	case handler.StatusCode == http.StatusGatewayTimeout:
		return failedTimeout
	}
	return failedBroken
}

// renameSent replaces the model in a body that a backend has received. A transport may still read the
// old body.
func (c *call) renameSent(model string) (f *fault.Fault) {
	before := c.request
	defer func() {
		if f != nil {
			c.request = before
		}
	}()
	if c.formType == "" { // the gateway may have edited JSON since it was parsed
		if f = c.reparse(); f != nil {
			return f
		}
	}
	c.body.replace(c.modelEdit(model))
	if f = c.reparse(); f != nil {
		return f
	}
	c.request.Named = before.Named // with prices
	return nil
}

// String returns the models that failed, with their failures, for the log line.
func (f *fallbacks) String() string { return strings.Join(f.tried, ", ") }
