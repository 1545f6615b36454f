package call

import (
	"context"
	"errors"
	"math"
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

// bill is the price, the reservation and the charge of a call. A reload of the
// configuration does not change the price of a running call.
type bill struct {
	price       *catalog.Price // nil: the call costs nothing
	bounds      catalog.Bounds
	unseen      bool // the cost may include more than the text shows; see [catalog.CallSpec.CostsUnseen]
	restricted  bool // the call reserves the whole context, because too much of earlier calls is uncollected
	input       inputFacts
	pcm         bool                // the call asks for uncompressed speech
	units       catalog.Units       // that the call asks for
	reservation *ledger.Reservation // nil on routes that are free
	grant       limit.Grant

	settled      time.Time         // when a running call was last settled
	inputChecked bool              // the reported input was compared with the reservation
	short        *ledger.Shortfall // set if the reported input could not be reserved completely

	charged     money.Amount
	uncollected money.Amount // part of the cost that was not charged
	counted     int64        // images, characters or seconds that were charged
	cut         bool         // the backend reported more than the call can have used

	unlisted string // the tier or region that served the call, if the price does not list it
}

// findPrice sets the price and the bounds of the call. It refuses a model without a price.
func (c *call) findPrice() *fault.Fault {
	if f := c.checkNamed(); f != nil {
		return f
	}
	if c.route.free {
		return nil
	}
	unit := c.schema.Unit
	price, ok := c.block.app.PriceOf(c.request.Model, unit)
	if !ok {
		c.failure = errNoPrice
		return noModel(fault.ModelNotFound, "model", c.request.Model)
	}
	if price == nil {
		return nil
	}
	bounds, f := c.boundsOf(price, c.request.Model)
	if f == nil {
		c.bill.price, c.bill.bounds = price, bounds
	}
	return f
}

// spec returns the properties of the call that decide its maximum cost.
func (c *call) spec() catalog.CallSpec {
	a := c.request.Spec(c.members(), c.bill.restricted)
	a.NoOutput = c.route.answer.InputOnly
	return a
}

// boundsOf returns the limits of the call at the price of a model. It refuses what the price does not
// cover. It sets the facts of the bill that do not depend on the price.
func (c *call) boundsOf(price *catalog.Price, model string) (bounds catalog.Bounds, f *fault.Fault) {
	if f = c.request.RefuseUnpriced(c.members(), c.block.passMembers); f != nil {
		return bounds, f
	}
	if c.schema.Unit != catalog.NoUnit {
		if f = c.request.RefuseUnreported(c.members(), price.ChargesTokens(), price.PricesUnit(catalog.SecondUnit)); f != nil {
			return bounds, f
		}
	}
	ask := c.spec()
	ask.Model = model
	if bounds, f = price.Bounds(ask); f != nil {
		return bounds, f
	}
	if !c.bill.restricted { // the facts are those of the first reservation
		c.bill.unseen = ask.CostsUnseen()
		c.bill.input = inputFacts{media: ask.Media, links: ask.Links, unmeasured: ask.FullContext}
		c.bill.units = ask.Units
		c.bill.pcm = ask.Audio && c.request.AsksPCM(c.members())
	}
	if price.Context > 0 && ask.PromptTokens > price.Context {
		f = c.request.CheckPrompts(c.members(), price.Context)
	}
	return bounds, f
}

// highest returns the amount to reserve: the maximum price of the call, at the most expensive of the
// models that may serve it.
func (c *call) highest() (highest money.Amount) {
	if c.bill.price != nil {
		highest = c.bill.price.HighestCost(c.bill.bounds)
	}
	for i := range c.fallbacks.next {
		if one := &c.fallbacks.next[i]; one.price != nil {
			highest = max(highest, one.price.HighestCost(one.bounds))
		}
	}
	return highest
}

// errNoPrice is the reason in the log line if a model has no price.
var errNoPrice = errors.New("the model has no price for calls")

// noModel refuses a model without a price or a route. Only the log line has the reason, because
// only the operator can use it.
func noModel(code fault.Code, param, model string) *fault.Fault {
	return fault.At(code, param, "there is no model %q here; GET /v1/models lists the available models", model)
}

// checkNamed checks the further models that the body names, such as fallbacks. Like the
// model of the call, each needs a valid name, the scope of the key and a price.
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
		if m.Price, ok = app.PriceOf(m.Name, c.schema.Unit); !ok {
			c.failure = errNoPrice
			return noModel(fault.InvalidParameter, m.Param, m.Name)
		}
		if own, _ := app.PriceOf(c.request.Model, c.schema.Unit); own == nil && m.Price != nil {
			return fault.At(fault.InvalidParameter, m.Param, "a call of %q is free and may not name %q, which has a price", c.request.Model, m.Name)
		}
	}
	return nil
}

// reserve reserves the maximum price of the call, or refuses the call.
func (c *call) reserve(ctx context.Context) *fault.Fault {
	if c.route.free {
		return nil
	}
	payer := auth.Payer(c.principal)
	payer.Tolerance = c.block.app.Tolerance()
	r, err := c.runtime.Ledger.Reserve(ctx, payer, c.highest())
	if errors.Is(err, ledger.ErrFullContext) {
		c.bill.restricted, payer.FullContext = true, true
		if f := c.findPrice(); f != nil {
			return f
		}
		c.findFallbacks()
		r, err = c.runtime.Ledger.Reserve(ctx, payer, c.highest())
	}
	if err == nil {
		c.bill.reservation, c.bill.settled = r, c.started
		return nil
	}
	var short *ledger.Shortfall
	switch {
	case errors.Is(err, ledger.ErrOneAtATime):
		return oneAtATime
	case errors.As(err, &short):
		return c.unaffordable(short)
	}
	return fault.FromStore(err)
}

// oneAtATime refuses a call while another one is running, if the user is restricted
// because of uncollected amounts.
var oneAtATime = fault.New(fault.RateLimited, "earlier calls of your account cost more than could be collected: "+
	"until that amount is below the operator's tolerance, only one call at a time is allowed").After(time.Second)

// unaffordable returns the fault for missing funds. It names the amounts needed and
// available, and the bound of the output that the available amount would cover.
func (c *call) unaffordable(short *ledger.Shortfall) *fault.Fault {
	hint := ""
	if short.Owed == 0 && c.schema.Unit == catalog.NoUnit {
		hint = c.affordable(short.Available)
		if c.bill.restricted {
			hint += "; it reserves the whole context, because earlier calls of your account cost more than could be collected"
		}
	}
	return short.Fault("this call", hint)
}

// affordable returns the hint with the bound of the output that available would cover, or "".
func (c *call) affordable(available money.Amount) string {
	a := c.spec()
	if !a.HasMaxTokens {
		a.BodyBytes += int64(len(`,"max_completion_tokens":1000000`)) // adding the member makes the body longer
	}
	fits := int64(math.MaxInt64)
	for _, one := range append([]candidate{{price: c.bill.price}}, c.fallbacks.next...) {
		if one.price != nil {
			fits = min(fits, one.price.Fits(a, available))
		}
	}
	if fits == 0 {
		return ""
	}
	return fault.New("", "; a %s of at most %d would fit", c.request.MaxTokensParam(), fits).Message
}

// release ends the reservation and the rate grant of a call that is not settled.
func (b *bill) release(now time.Time) {
	b.reservation.Release()
	b.grant.End(now, 0)
}

// outcome returns the input of the billing rule and the usage report of the backend.
// ended is empty while the call runs.
func (c *call) outcome(ended usage.Ended) (o usage.Outcome, report usage.Report) {
	o = usage.Outcome{Ended: ended, Finished: c.finished}
	if c.bill.price != nil {
		o.Sent, o.FailedInput = c.answer.sent(), c.chargesFailedInput()
	}
	if meter := c.answer.meter; meter != nil && !c.answer.page() {
		report = meter.Report()
		o.Began, o.Foreign, o.Declined = meter.Began(), meter.Foreign(), report.Declined
		o.Tokens, o.Input, o.Output = report.Tokens, report.Input, report.Output
		if !c.route.answer.InputOnly {
			o.DeliveredBytes, o.Media = meter.TextBytes(), c.estimateMedia(meter)
		}
	}
	if c.route.answer.Form != usage.TextForm {
		c.countUnits(&o, &report)
	}
	if o.EstimatesInput() {
		o.EstimatedInput = c.estimateInput(&o)
	}
	return o, report
}

// countUnits sets how a call with images or audio is charged. All images that the call asks for are charged
// if the backend does not report their number, or if the caller disconnected while the backend made them.
func (c *call) countUnits(o *usage.Outcome, report *usage.Report) {
	price, units := c.bill.price, &c.bill.units
	switch {
	case price == nil:
		o.Units = !report.Input && !report.Output
		o.GuessedUnits = o.Units
		return
	case units.Unit == catalog.ImageUnit && (o.Finished && report.Images == 0 && !report.ImagesListed || o.Ended == usage.ClientGone && !o.Finished && o.Sent):
		report.Images, o.GuessedUnits = units.Count, price.PricesUnit(units.Unit)
	case units.Unit == catalog.SecondUnit && report.Seconds == 0 && !units.Exact:
		o.GuessedUnits = price.PricesUnit(units.Unit)
	}
	o.Units = !price.ChargesTokens()
}

// chargesFailedInput reports whether the input is charged if the backend fails before any content.
func (c *call) chargesFailedInput() bool {
	switch {
	case c.bill.price == nil:
		return false
	case c.bill.price.ChargeFailedInput != nil:
		return *c.bill.price.ChargeFailedInput
	}
	return c.block.app.ChargeFailedInput
}

// cost returns the charge for a report, which is nothing if basis is usage.None.
func (b *bill) cost(report *usage.Report, basis usage.Basis) catalog.Charge {
	switch {
	case basis == usage.None:
		return catalog.Charge{}
	case b.price == nil:
		return catalog.Charge{Tokens: report.All()}
	}
	return b.price.Charge(b.bounds, report)
}

// settleEvery is the interval at which a long call is settled. A crash loses at most the
// charge of one interval.
const settleEvery = 10 * time.Second

// errMoneyOut cancels a call that costs more than is available.
var errMoneyOut = errors.New("the call costs more than is available")

// settleRunning checks and settles a stream while it runs. When the stream begins, it
// compares the reported input with the reservation. Every settleEvery, it settles the
// cost so far. It returns errMoneyOut if the call must end.
func (c *call) settleRunning(now time.Time) error {
	b := &c.bill
	if b.reservation == nil {
		return nil
	}
	if b.price != nil && !b.inputChecked && c.answer.meter.Began() {
		b.inputChecked = true
		b.short = b.reserveReported(c.answer.meter)
	}
	if now.Sub(b.settled) < settleEvery && b.short == nil {
		return nil
	}
	o, report := c.outcome("") // what the call would cost if it ended now
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

// reserveReported grows the reservation if it does not cover the input that a stream
// reports at its start, and all output that the call allows. If the balance does not
// cover that, it reserves what is available and returns the shortage.
func (b *bill) reserveReported(meter *usage.Reader) *ledger.Shortfall {
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
	_, short := b.reservation.Grow(more)
	return short
}

// charge settles the ended call by the billing rule. It charges at most the amount that
// can be reserved.
func (c *call) charge() {
	b := &c.bill
	switch {
	case c.submitted:
		c.background = "submitted"
		c.endSubmission()
		return
	case c.route.object != nil:
		b.grant.End(time.Now(), 0)
		c.basis, c.rule = usage.None, ""
		return
	}
	if c.request.Background && c.ended == usage.Complete && c.bill.price != nil {
		c.block.logger.Error("the answer to a background call has no id that can be recorded: the vendor may finish the response, and its cost is not charged", zap.String("request_id", c.id))
	}
	o, report := c.outcome(c.ended)
	if c.unrecorded {
		o = usage.Outcome{Ended: c.ended}
	}
	report.Tokens, c.basis = o.Bill()
	charge := b.cost(&report, c.basis)
	c.tokens = charge.Tokens
	c.tier, c.speed, c.geo = report.Tier, report.Speed, report.Geo
	b.cut, b.unlisted, b.counted = charge.Cut, charge.Unlisted, charge.Units
	switch {
	case o.ChargesFailedInput():
		c.rule = usage.FailedInput
	case c.ended != usage.ClientGone:
		c.rule = ""
	case c.basis == usage.None && b.price != nil && !o.Sent:
		c.rule = usage.Unsent // with every value of on_disconnect
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
	if b.cut { // only a report shows the cost beyond the bounds; an estimate does not
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

// record returns the record of the call for the ledger.
func (c *call) record() journal.Call {
	return journal.Call{
		ID: c.id, Time: c.started.UnixMilli(), User: c.principal.UserID, Key: c.principal.KeyID,
		Model: c.request.Model, Route: c.route.name, Stream: c.request.Stream,
		Status: c.status, Ended: c.ended, Usage: c.basis, Rule: c.rule, Tokens: c.tokens,
		FirstByte: c.firstByte.Milliseconds(), Duration: c.duration.Milliseconds(),
		Backend: c.backend, Answered: c.answer.status,
	}
}
