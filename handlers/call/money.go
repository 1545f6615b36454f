package call

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// bill is the money side of a call. Its price is that of the configuration in
// which the call began, whatever is loaded while it runs.
type bill struct {
	price       *catalog.Price // nil where the call costs nothing
	bounds      catalog.Bounds
	unseen      bool // the call asks for what its text does not show; see [catalog.Ask.CostsUnseen]
	restricted  bool // the call reserves the whole context, because earlier ones left too much uncollected
	input       inputFacts
	pcm         bool                // the call asks for speech that is not compressed
	reservation *ledger.Reservation // nil for calls that are no one's to pay
	grant       limit.Grant

	settled  time.Time     // when it last was, while the call runs
	foreseen bool          // the reported input was compared with what is reserved
	short    *ledger.Short // why not all that it comes to could be reserved; nil: it could, or did not have to

	charged     money.Amount
	uncollected money.Amount // part of the cost that was not charged
	cut         bool         // the backend claims more than the call can have used

	unlisted string // the tier or region that served the call, where the price lists only others
}

// price finds what the call costs, and refuses a model that is not for sale.
func (c *call) findPrice() *fault.Fault {
	if f := c.checkNamed(); f != nil {
		return f
	}
	if c.route.free {
		return nil
	}
	price, ok := c.block.app.PriceOf(c.request.Model)
	if !ok {
		c.failure = errNoPrice
		return noModel(fault.ModelNotFound, "model", c.request.Model)
	}
	if price == nil {
		return nil
	}
	f := c.request.RefuseUnpriced(c.body.bytes(), c.block.passMembers)
	if f != nil {
		return f
	}
	ask := c.request.Ask(c.body.bytes(), c.bill.restricted)
	if c.bill.bounds, f = price.Bounds(ask); f == nil {
		c.bill.price, c.bill.unseen = price, ask.CostsUnseen()
		c.bill.input = inputFacts{media: ask.Media, links: ask.Links, unmeasured: ask.FullContext}
		c.bill.pcm = ask.Audio && c.request.AsksPCM(c.body.bytes())
	}
	if f == nil && price.Context > 0 && ask.PromptTokens > price.Context {
		f = c.request.CheckPrompts(c.body.bytes(), price.Context)
	}
	return f
}

// errNoPrice is why a model is not for sale, in the log line.
var errNoPrice = errors.New("the model has no price for calls")

// noModel refuses a model without a price or a route. The log line has the reason, which only the
// operator can use.
func noModel(code fault.Code, param, model string) *fault.Fault {
	return fault.At(code, param, "there is no model %q here; GET /v1/models lists those there are", model)
}

// checkNamed holds the models that the body names beside its own to what holds
// for that one: they have a name, the key's scope takes them in, and they have a
// price where models have one.
func (c *call) checkNamed() *fault.Fault {
	app := c.block.app
	for i := range c.request.Named {
		m := &c.request.Named[i]
		if f := catalog.CheckName(m.Param, m.Name); f != nil {
			return f
		}
		if f := c.mayUse(m.Param, m.Name); f != nil {
			return f
		}
		if c.route.free {
			continue
		}
		if m.Param == "fallbacks" && m.Name == "default" && app.Prices().Len() > 0 {
			return fault.At(fault.InvalidParameter, m.Param, "`fallbacks` must name the models, each of which needs a price here: \"default\" leaves the choice to the vendor")
		}
		var ok bool
		if m.Price, ok = app.PriceOf(m.Name); !ok {
			c.failure = errNoPrice
			return noModel(fault.InvalidParameter, m.Param, m.Name)
		}
		if own, _ := app.PriceOf(c.request.Model); own == nil && m.Price != nil {
			return fault.At(fault.InvalidParameter, m.Param, "a call of %q is free and may not name %q, which has a price", c.request.Model, m.Name)
		}
	}
	return nil
}

// admit holds the caller to the rates, as far as they concern a call whose body is not
// read yet, and refuses a caller without money where each call costs some.
func (c *call) admit(r *http.Request) *fault.Fault {
	limits := &c.block.app.Limits
	key, user := auth.Subjects(c.principal, limits)
	grant, refused := c.runtime.Rates.Admit(c.started, limit.Request{Key: key, User: user, Units: usage.Estimate(max(r.ContentLength, 0))})
	if refused != nil {
		c.rateLimits = refused.Status
		return auth.RateLimited(refused)
	}
	c.bill.grant, c.rateLimits = grant, grant.Status
	var f *fault.Fault
	switch {
	case c.route.free:
		if refused = c.runtime.Rates.Take(c.started, "count_tokens/"+c.principal.UserID, 1, limit.PerMinute(limits.CountTokensPerMinute)); refused != nil {
			f = fault.New(fault.RateLimited, "the limit of %d counts of tokens per minute of your account is reached", refused.Limit).After(refused.RetryAfter)
		}
	case c.block.app.CallsCost():
		f = auth.CheckFunds(r.Context(), c.runtime, c.principal)
	}
	if f != nil {
		c.bill.release(c.started)
	}
	return f
}

// extend holds the caller to the rates that depend on the body.
func (c *call) extend() *fault.Fault {
	refused := c.runtime.Rates.Extend(c.started, &c.bill.grant, c.estimate(int64(len(c.body.bytes()))), c.request.Stream)
	c.rateLimits = c.bill.grant.Status
	if refused != nil {
		return auth.RateLimited(refused)
	}
	return nil
}

// estimate is the input of the call, in tokens, where so many bytes of its body
// are text: each token of a prompt that is given as tokens is one.
func (c *call) estimate(text int64) int64 {
	tokens, bytes := c.request.PromptTokens()
	return usage.Estimate(max(text-bytes, 0)) + tokens
}

// reserve gives the call its greatest price, or refuses it.
func (c *call) reserve(ctx context.Context) *fault.Fault {
	if c.route.free {
		return nil
	}
	var greatest money.Amount
	if c.bill.price != nil {
		greatest = c.bill.price.Greatest(c.bill.bounds)
	}
	payer := auth.Payer(c.principal)
	payer.Tolerance = c.block.app.Tolerance()
	r, err := c.runtime.Ledger.Reserve(ctx, payer, greatest)
	if errors.Is(err, ledger.ErrFullContext) {
		c.bill.restricted, payer.FullContext = true, true
		var f *fault.Fault
		if c.bill.bounds, f = c.bill.price.Bounds(c.request.Ask(c.body.bytes(), true)); f != nil {
			return f
		}
		r, err = c.runtime.Ledger.Reserve(ctx, payer, c.bill.price.Greatest(c.bill.bounds))
	}
	if err == nil {
		c.bill.reservation, c.bill.settled = r, c.started
		return nil
	}
	var short *ledger.Short
	switch {
	case errors.Is(err, ledger.ErrOneAtATime):
		return oneAtATime
	case errors.As(err, &short):
		return c.unaffordable(short)
	}
	return fault.FromStore(err)
}

// oneAtATime refuses a call while another one is under way, if the user is restricted
// because of uncollected amounts.
var oneAtATime = fault.New(fault.RateLimited, "earlier calls of your account cost more than could be collected: "+
	"until that is less than the operator tolerates, your calls are made one at a time").After(time.Second)

// unaffordable says what is needed, what is there, and with which max_tokens
// the call could be paid.
func (c *call) unaffordable(short *ledger.Short) *fault.Fault {
	hint := ""
	if short.Owed == 0 {
		hint = c.affordable(short.Available)
		if c.bill.restricted {
			hint += "; it reserves the whole context, because earlier calls of your account cost more than could be collected"
		}
	}
	return short.Fault("this call", hint)
}

func (c *call) affordable(available money.Amount) string {
	a := c.request.Ask(c.body.bytes(), c.bill.restricted)
	if !a.HasMaxTokens {
		a.BodyBytes += int64(len(`,"max_completion_tokens":1000000`)) // a caller who adds it sends more
	}
	fits := c.bill.price.Fits(a, available)
	if fits == 0 {
		return ""
	}
	return fault.New("", "; a max_tokens of at most %d would fit", fits).Message
}

// release gives back what a call has that came to no settlement.
func (b *bill) release(now time.Time) {
	b.reservation.Release()
	b.grant.End(now, 0)
}

// outcome is what the billing rule looks at, of a call that has ended so, or is
// under way, and what its backend reported.
func (c *call) outcome(ended usage.Ended) (o usage.Outcome, report usage.Report) {
	o = usage.Outcome{Ended: ended, Finished: c.finished}
	if c.bill.price != nil {
		o.Sent, o.FailedInput = c.answer.sent(), c.block.app.ChargeFailedInput
		if own := c.bill.price.ChargeFailedInput; own != nil {
			o.FailedInput = *own
		}
	}
	if meter := c.answer.meter; meter != nil && !c.answer.page() {
		report = meter.Report()
		o.Began, o.Foreign, o.Declined = meter.Began(), meter.Foreign(), report.Declined
		o.Tokens, o.Input, o.Output = report.Tokens, report.Input, report.Output
		o.DeliveredBytes, o.Media = meter.TextBytes(), c.estimateMedia(meter)
	}
	if o.EstimatesInput() {
		o.EstimatedInput = c.estimateInput(&o)
	}
	return o, report
}

// cost is what a call costs by a report, when it is charged at all.
func (b *bill) cost(report *usage.Report, basis usage.Basis) catalog.Charge {
	switch {
	case basis == usage.None:
		return catalog.Charge{}
	case b.price == nil:
		return catalog.Charge{Tokens: report.All()}
	}
	return b.price.Charge(b.bounds, report)
}

// settleEvery is how much of a long call a crash can forget.
const settleEvery = 10 * time.Second

// errMoneyOut cancels a call that costs more than is available.
var errMoneyOut = errors.New("the money has run out")

// pay looks at a stream while it runs: once it has begun, whether the input that
// was reported comes to more than is reserved, and every now and then what is to
// be settled in between. It returns errMoneyOut when the call must end.
func (c *call) pay(now time.Time) error {
	b := &c.bill
	if b.reservation == nil {
		return nil
	}
	if b.price != nil && !b.foreseen && c.answer.meter.Began() {
		b.foreseen = true
		b.short = b.foresee(c.answer.meter)
	}
	if now.Sub(b.settled) < settleEvery && b.short == nil {
		return nil
	}
	o, report := c.outcome("") // as it would be charged, were it broken off now
	tokens, basis := o.Bill()
	report.Tokens = tokens
	charge := b.cost(&report, basis)
	if b.short != nil && charge.Amount > b.reservation.Amount() {
		return errMoneyOut
	}
	if now.Sub(b.settled) >= settleEvery && basis != usage.None {
		b.settled = now
		record := c.record()
		record.Tokens, record.Usage, record.Breakdown = charge.Tokens, basis, charge.Breakdown()
		b.reservation.Settle(record, charge.Amount, false)
	}
	return nil
}

// foresee reserves more where the input that a stream reports at its start, with
// all the output that was asked for, comes to more than is reserved. If that is not
// there, it reserves what is available, and returns the missing amount.
func (b *bill) foresee(meter *usage.Reader) *ledger.Short {
	report := meter.Report()
	if !report.Input {
		return nil
	}
	t := &report.Tokens
	t.Output, t.Reasoning, t.AudioOutput, t.ImageOutput = b.bounds.Output, 0, 0, 0
	more := b.price.Charge(b.bounds, &report).Amount - b.reservation.Amount()
	if more <= 0 {
		return nil
	}
	_, lacks := b.reservation.Grow(more)
	return lacks
}

// charge settles the call for good, by the billing rule and as far as it could
// be reserved.
func (c *call) charge() {
	b := &c.bill
	o, report := c.outcome(c.ended)
	report.Tokens, c.basis = o.Bill()
	charge := b.cost(&report, c.basis)
	c.tokens = charge.Tokens
	c.tier, c.speed, c.geo = report.Tier, report.Speed, report.Geo
	b.cut, b.unlisted = charge.Cut, charge.Unlisted
	switch {
	case o.ChargesFailedInput():
		c.rule = usage.FailedInput
	case c.ended != usage.ClientGone:
		c.rule = ""
	case c.rule == usage.Cancel && c.basis == usage.None && b.price != nil && !o.Sent:
		c.rule = usage.Unsent // whatever on_disconnect is
	}
	b.grant.End(time.Now(), c.tokens.AllInput()+c.tokens.AllOutput())
	if b.reservation == nil {
		return
	}
	cost := charge.Amount
	if more := cost - b.reservation.Amount(); more > 0 && c.ended != usage.MoneyOut {
		_, _ = b.reservation.Grow(more) // the missing amount is uncollected
	}
	record := c.record()
	record.Breakdown = charge.Breakdown()
	if b.cut { // of a report: an estimate that is cut tells nothing of the cost
		report.Tokens = o.Tokens
		record.Uncollected = b.price.Excess(b.bounds, &report, cost)
	}
	b.charged = b.reservation.Settle(record, cost, true)
	b.uncollected = cost - b.charged + record.Uncollected
	c.route.metrics.Charged(b.charged, b.uncollected, b.cut)
	if b.uncollected > 0 || b.cut {
		c.block.logger.Warn("a backend reports more usage than can be charged", zap.String("request_id", c.id),
			zap.String("model", c.request.Model), zap.Bool("usage_cut", b.cut), zap.Stringer("uncollected", b.uncollected))
	}
	if b.unlisted != "" {
		c.block.logger.Warn("a backend served a tier or region that the price does not list; the most expensive listed one is charged",
			zap.String("request_id", c.id), zap.String("model", c.request.Model), zap.String("served", b.unlisted))
	}
}

// record is the call as the ledger keeps it.
func (c *call) record() journal.Call {
	return journal.Call{
		ID: c.id, Time: c.started.UnixMilli(), User: c.principal.UserID, Key: c.principal.KeyID,
		Model: c.request.Model, Route: c.route.name, Stream: c.request.Stream,
		Status: c.status, Ended: c.ended, Usage: c.basis, Rule: c.rule, Tokens: c.tokens,
		FirstByte: c.firstByte.Milliseconds(), Duration: c.duration.Milliseconds(),
		Backend: c.backend, Answered: c.answer.status,
	}
}
