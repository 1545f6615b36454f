package call

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/ownership"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// This file settles responses that run in the background. The call that submits one hands its
// reservation over to a job before the caller learns the id. The job is settled by what the call still
// reads of the answer, or by a poll; see docs/reference/calls.md#background-responses.

// jobFacts is what the cost of a background response depends on, except for its usage. It is stored,
// so that neither a reload nor a restart changes a price.
type jobFacts struct {
	Price     *catalog.Price   `json:"price,omitempty"` // nil: the call costs nothing
	Spec      catalog.CallSpec `json:"spec"`
	Estimated usage.Tokens     `json:"estimated,omitzero"` // input, if the vendor reports none
}

// submit hands the reservation of the call over to a job.
func (c *call) submit(origin ownership.Object, found []ownership.Found) error {
	c.submitted = true
	facts := jobFacts{Price: c.bill.price, Spec: c.spec()}
	facts.Spec.Model = c.request.Model
	if facts.Price != nil {
		facts.Estimated = c.estimateInput(&usage.Outcome{Ended: usage.Complete})
	}
	encoded, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	record := c.record()
	record.Status = c.answer.status
	origin.Job = &ownership.Job{Call: record, Payer: auth.Payer(c.principal), Amount: c.bill.reservation.Amount(), Facts: encoded}
	c.job, err = c.runtime.Objects.Submit(c.lifetime, origin, c.bill.reservation, c.block.app.ObjectsKept(), found)
	if err == nil {
		c.bill.reservation = nil
	}
	return err
}

// endSubmission ends the call that has submitted a background response. If it has read the end of the
// response, it settles the job. Otherwise the job is polled from now on.
func (c *call) endSubmission() {
	c.bill.grant.End(time.Now(), 0)
	c.basis, c.rule = usage.None, ""
	if c.job == nil {
		return
	}
	if meter := c.answer.meter; meter != nil {
		if result, ended := c.block.resultOf(c.job, meter); ended {
			c.runtime.Objects.Settle(c.job, result)
			return
		}
	}
	c.runtime.Objects.Detach(c.job)
}

// resultOf returns how a background response has ended, or false if the answer does not show its end.
func (b *block) resultOf(r *ownership.Running, meter *usage.Reader) (result ownership.Result, ended bool) {
	o := &r.Object
	status := meter.Status()
	whole := meter.Finished() || meter.Failed()
	var facts jobFacts
	if err := json.Unmarshal(o.Job.Facts, &facts); err != nil {
		b.logger.Error("the facts of a background response cannot be read", zap.String("request_id", o.Job.Call.ID), zap.Error(err))
		return result, false
	}
	report, done := meter.Report(), o.Job.Call
	outcome := usage.Outcome{
		Ended: usage.Complete, Finished: true, Sent: true, Began: meter.Began(), Declined: report.Declined,
		Tokens: report.Tokens, Input: report.Input, Output: report.Output, DeliveredBytes: meter.TextBytes(), EstimatedInput: facts.Estimated,
	}
	done.Rule = ""
	switch {
	case !whole:
		return result, false
	case status == "completed" || status == "incomplete":
		done.Ended = usage.Complete
		report.Tokens, done.Usage = outcome.Bill()
	case status == "failed" || status == "cancelled": // charged as reported, else as a call that was interrupted
		done.Ended = usage.UpstreamError
		if status == "cancelled" {
			done.Ended, done.Rule = usage.ClientGone, usage.Cancel
		}
		outcome.DeliveredBytes = max(outcome.DeliveredBytes, r.Delivered().Bytes)
		outcome.Ended, outcome.Finished, outcome.Began = done.Ended, report.Input || report.Output, outcome.DeliveredBytes > 0
		report.Tokens, done.Usage = outcome.Bill()
	default:
		return result, false
	}
	charging := bill{price: facts.Price}
	if facts.Price != nil {
		bounds, f := facts.Price.Bounds(facts.Spec)
		if f != nil {
			b.logger.Error("the bounds of a background response cannot be calculated: "+f.Message, zap.String("request_id", done.ID))
			return result, false
		}
		charging.bounds = bounds
	}
	charge := charging.cost(&report, done.Usage)
	done.Tokens, done.Breakdown = charge.Tokens, charge.Breakdown()
	done.Duration = time.Now().UnixMilli() - done.Time
	if charge.Cut {
		report.Tokens = outcome.Tokens
		done.Uncollected = facts.Price.Excess(charging.bounds, &report, charge.Amount)
	}
	charging.cut, charging.unlisted = charge.Cut, charge.Unlisted
	return ownership.Result{Call: done, Cost: charge.Amount, Done: func(charged money.Amount) {
		charging.charged, charging.uncollected = charged, charge.Amount-charged+done.Uncollected
		b.reportJob(o, &done, charging, &report)
	}}, true
}

// reportJob writes the log line of a settled job, and counts the call.
func (b *block) reportJob(o *ownership.Object, done *journal.Call, charging bill, report *usage.Report) {
	rt := b.routeNamed(done.Route)
	c := &call{
		block: b, route: rt, schema: rt.schema, id: done.ID, started: time.UnixMilli(done.Time), backend: done.Backend, background: "settled",
		principal: &identity.Principal{UserID: o.User, KeyID: o.Key}, request: modelcall.Request{Model: done.Model, Stream: done.Stream},
		bill: charging, answer: &answer{status: done.Answered}, ended: done.Ended, basis: done.Usage, rule: done.Rule, tokens: done.Tokens,
		tier: report.Tier, status: done.Status, duration: time.Duration(done.Duration) * time.Millisecond,
	}
	rt.metrics.Charged(charging.charged, charging.uncollected, charging.cut)
	c.report()
}

// routeNamed returns the route with this name in metrics and log lines.
func (b *block) routeNamed(name string) *route {
	for _, rt := range b.routes {
		if rt.name == name {
			return rt
		}
	}
	return b.routes[0]
}

// poll asks the backends of the block for the state of a background response. It implements
// [ownership.Poller].
func (b *block) poll(ctx context.Context, job *ownership.Running) (ownership.State, ownership.Result) {
	o, none := &job.Object, ownership.Result{}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	r, err := newObjectRequest(ctx, b, o.ID)
	if err != nil {
		return ownership.Missing, none // no URL can have this id
	}
	c := &call{
		block: b, route: b.routeNamed("response"), schema: modelcall.NoBody, id: requestid.New(), started: time.Now(), body: emptyBody(),
		principal: &identity.Principal{UserID: o.User, KeyID: o.Key}, request: modelcall.Request{Model: o.Model}, pin: o,
	}
	w := &polled{header: make(http.Header), meter: usage.New(usage.Response, false, "")}
	defer w.meter.Release()
	w.meter.CollectIDs(usage.ResponseObject, false)
	repl := caddy.NewReplacer()
	repl.Map(c.placeholder)
	r = caddyhttp.PrepareRequest(r, repl, w, &caddyhttp.Server{})
	caddyhttp.SetVar(r.Context(), callVar, c)
	err = b.servePoll(w, r)
	w.meter.Close()
	switch {
	case c.misplaced, errors.Is(err, errNoRoute):
		return ownership.NotHere, none
	case err == nil && w.status == http.StatusNotFound:
		return ownership.Missing, none
	case err != nil || w.status != http.StatusOK || !w.meter.Finished():
		return ownership.Unreachable, none
	}
	if result, ended := b.resultOf(job, w.meter); ended {
		return ownership.Ended, result
	}
	return ownership.Pending, none
}

// errPollBroken is the error of a poll whose answer ended early.
var errPollBroken = errors.New("the answer to a poll ended early")

func (b *block) servePoll(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http also compares the value
				b.logger.Error("a handler panicked in a poll", zap.Any("panic", p))
			}
			err = errPollBroken
		}
	}()
	return b.backend.ServeHTTP(w, r)
}

// polled reads the answer to a poll. It stores none of it.
type polled struct {
	header http.Header
	status int
	meter  *usage.Reader
}

// Header implements http.ResponseWriter.
func (w *polled) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *polled) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *polled) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.meter.Write(p)
	return len(p), nil
}
