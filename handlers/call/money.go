package call

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// bill is the money side of a call. Its price is that of the configuration in
// which the call began, whatever is loaded while it runs.
type bill struct {
	price       *catalog.Price // nil where the call costs nothing
	bounds      catalog.Bounds
	reservation *ledger.Reservation // nil for calls that are no one's to pay
	grant       limit.Grant

	settled  time.Time // when it last was, while the call runs
	foreseen bool      // the reported input was compared with what is reserved
	short    bool      // and comes to more than could be reserved
	asked    int64     // bytes of text in the request, once they were counted; -1 before

	charged money.Amount
	lost    money.Amount // came to, and nobody had it
	cut     bool         // the backend claims more than the call can have used
}

// price finds what the call costs, and refuses a model that is not for sale.
func (c *call) findPrice() *fault.Fault {
	if c.route.free {
		return nil
	}
	price, ok := c.block.app.PriceOf(c.request.model)
	if !ok {
		return fault.At(fault.ModelNotFound, "model", "there is no model %q here: it has no price for calls", c.request.model)
	}
	if price == nil {
		return nil
	}
	var f *fault.Fault
	if c.bill.bounds, f = price.Bounds(c.ask()); f == nil {
		c.bill.price = price
	}
	return f
}

// ask is what the call asks for, as far as it decides the greatest price.
func (c *call) ask() catalog.Ask {
	json := c.body.bytes()
	a := catalog.Ask{BodyBytes: int64(len(json)), Prompts: 1, Choices: 1}
	if prompt := c.request.fields[slotPrompt]; prompt.Kind == strictjson.Array {
		a.Prompts = int64(max(prompt.Len, 1))
	}
	for _, slot := range []int{slotChoices, slotBestOf} {
		if n, ok := c.request.fields[slot].Int(json); ok {
			a.Choices = max(a.Choices, n)
		}
	}
	// Some backends know only one of the two names, and some take 0 for no
	// bound at all: the greater counts, and 0 does not.
	for _, slot := range []int{slotMaxCompletionTokens, slotMaxTokens} {
		if n, ok := c.request.fields[slot].Int(json); ok && n > a.MaxTokens {
			a.MaxTokens, a.HasMaxTokens = n, true
		}
	}
	return a
}

// admit holds the caller to his rates.
func (c *call) admit() *fault.Fault {
	key, user := auth.Subjects(c.principal, &c.block.app.Limits)
	grant, refused := c.node.Rates.Admit(c.started, limit.Call{
		Key:    key,
		User:   user,
		Tokens: usage.Estimate(int64(len(c.body.bytes()))),
		Stream: c.request.stream,
	})
	if refused != nil {
		c.standing = refused.Standing
		return refused.Fault()
	}
	c.bill.grant, c.standing = grant, grant.Standing
	return nil
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
	r, err := c.node.Ledger.Reserve(ctx, auth.Payer(c.principal), greatest)
	if err == nil {
		c.bill.reservation, c.bill.settled, c.bill.asked = r, c.started, -1
		return nil
	}
	var short *ledger.Short
	var f *fault.Fault
	switch {
	case errors.As(err, &short):
		return c.unaffordable(short)
	case errors.As(err, &f):
		return f
	}
	return storeSilent
}

// unaffordable says what is needed, what is there, and with which max_tokens
// the call could be paid.
func (c *call) unaffordable(short *ledger.Short) *fault.Fault {
	switch {
	case short.Owed > 0:
		return fault.New(fault.InsufficientQuota, "spending is paused, because %v is owed after a refund or a dispute; ask the operator", short.Owed)
	case short.Budget != "" && short.Budget != ledger.UserScope:
		return fault.New(fault.InsufficientKeyQuota, "this call may cost up to %v, and the budget of this API key has %v left%s",
			short.Needed, short.Available, c.affordable(short.Available))
	case short.Budget != "":
		return fault.New(fault.InsufficientQuota, "this call may cost up to %v, and the budget of your account has %v left%s",
			short.Needed, short.Available, c.affordable(short.Available))
	}
	return fault.New(fault.InsufficientQuota, "this call may cost up to %v, and %s%s",
		short.Needed, short.There(), c.affordable(short.Available))
}

func (c *call) affordable(available money.Amount) string {
	a := c.ask()
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

// soFar is what has been used up to now, by the rule for a call that is broken
// off at this moment.
func (c *call) soFar(ended usage.Ended) (usage.Tokens, usage.Basis) {
	o := usage.Outcome{Ended: ended}
	if meter := c.answer.meter; meter != nil {
		o.Began = meter.Began()
		o.Tokens, o.Input, o.Output = meter.Tokens()
		o.DeliveredBytes = meter.TextBytes()
		if o.Began && !o.Input {
			if c.bill.asked < 0 {
				c.bill.asked = usage.RequestText(c.body.bytes())
			}
			o.AskedText = c.bill.asked
		}
	}
	tokens, basis := o.Bill()
	if c.bill.price == nil || basis == usage.None {
		return tokens, basis
	}
	kept, cut := c.bill.price.Cut(c.bill.bounds, tokens)
	c.bill.cut = cut
	return kept, basis
}

// cost is what tokens cost, when they are charged at all.
func (b *bill) cost(t usage.Tokens, basis usage.Basis) money.Amount {
	if b.price == nil || basis == usage.None {
		return 0
	}
	return b.price.Cost(t)
}

// settleEvery is how much of a long call a crash can forget.
const settleEvery = 10 * time.Second

// errMoneyOut cancels a call that came to more than there is.
var errMoneyOut = errors.New("the money has run out")

// moneyOut is what its caller hears.
var moneyOut = fault.New(fault.InsufficientQuota, "the balance, or a budget, does not suffice for the rest of this answer")

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
		b.short = !b.foresee(c.answer.meter)
	}
	if now.Sub(b.settled) < settleEvery && !b.short {
		return nil
	}
	tokens, basis := c.soFar(usage.Timeout)
	cost := b.cost(tokens, basis)
	if b.short && cost > b.reservation.Amount() {
		return errMoneyOut
	}
	if now.Sub(b.settled) >= settleEvery && basis != usage.None {
		b.settled = now
		record := c.record()
		record.Tokens, record.Usage = tokens, basis
		b.reservation.Settle(record, cost, false)
	}
	return nil
}

// foresee reserves more where the input that a stream reports at its start, with
// all the output that was asked for, comes to more than is reserved. It returns
// false when that is not there.
func (b *bill) foresee(meter *usage.Reader) bool {
	tokens, input, _ := meter.Tokens()
	if !input {
		return true
	}
	tokens.Output, tokens.Reasoning = b.bounds.Output, 0
	tokens, _ = b.price.Cut(b.bounds, tokens)
	more := b.price.Cost(tokens) - b.reservation.Amount()
	return more <= 0 || b.reservation.Grow(more) == more
}

// charge settles the call for good, by the billing rule and as far as it could
// be reserved.
func (c *call) charge() {
	b := &c.bill
	c.tokens, c.basis = c.soFar(c.ended)
	b.grant.End(time.Now(), c.tokens.AllInput()+c.tokens.AllOutput())
	if b.reservation == nil {
		return
	}
	cost := b.cost(c.tokens, c.basis)
	if more := cost - b.reservation.Amount(); more > 0 && c.ended != usage.MoneyOut {
		b.reservation.Grow(more)
	}
	record := c.record()
	b.charged = b.reservation.Settle(record, cost, true)
	b.lost = cost - b.charged
	c.route.metrics.Charged(b.charged, b.lost, b.cut)
	if b.lost > 0 || b.cut {
		c.block.logger.Warn("a backend reports more usage than can be charged", zap.String("request_id", c.id),
			zap.String("model", c.request.model), zap.Bool("usage_cut", b.cut), zap.Stringer("uncollected", b.lost))
	}
}

// record is the call as the ledger keeps it.
func (c *call) record() ledger.Call {
	return ledger.Call{
		ID: c.id, Time: c.started.UnixMilli(), User: c.principal.UserID, Key: c.principal.KeyID,
		Model: c.request.model, Route: c.route.name, Stream: c.request.stream,
		Status: c.status, Ended: c.ended, Usage: c.basis, Tokens: c.tokens,
		FirstByte: c.firstByte.Milliseconds(), Duration: c.duration.Milliseconds(),
	}
}
