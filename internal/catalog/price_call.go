package catalog

import (
	"math"
	"math/bits"
	"sort"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// Ask is what a call asks for, as far as it decides the greatest price.
type Ask struct {
	BodyBytes    int64 // of the whole request body
	Prompts      int64 // at least 1
	Choices      int64 // for each prompt: the greater of n and best_of, at least 1
	MaxTokens    int64 // for each choice; it counts when HasMaxTokens
	HasMaxTokens bool
}

// Bounds are the numbers of tokens within which a call is reserved for and
// charged, whatever its backend claims. A price that has no context or no
// max_output, because it counts no tokens, leaves that side unbounded.
type Bounds struct {
	Reserve int64 // input to reserve for: what the body can hold, within Input
	Input   int64 // input of all kinds that is charged at most
	Output  int64 // output of all kinds that is reserved for, and charged at most
}

// Bounds returns the bounds of a call. A call of so many prompts and choices
// that its price would leave the range of an amount is an INVALID_PARAMETER; so
// no sum over what is within bounds can overflow.
func (p *Price) Bounds(a Ask) (Bounds, *fault.Fault) {
	prompts, choices := max(a.Prompts, 1), max(a.Choices, 1)
	b := Bounds{Input: math.MaxInt64, Output: math.MaxInt64}
	fits := true
	if p.Context > 0 {
		b.Input, fits = times(p.Context, prompts)
	}
	if p.MaxOutput > 0 && fits {
		each := p.MaxOutput
		if a.HasMaxTokens {
			each = min(max(a.MaxTokens, 0), p.MaxOutput)
		}
		if b.Output, fits = times(choices, prompts); fits {
			b.Output, fits = times(b.Output, each)
		}
	}
	if fits {
		_, fits = p.price(b.Input, b.Output)
	}
	if !fits {
		param := "n"
		if choices == 1 {
			param = "prompt"
		}
		return Bounds{}, fault.At(fault.InvalidParameter, param,
			"%d choices for each of %d prompts would cost more than can be counted", choices, prompts)
	}
	b.Reserve = min(usage.Estimate(a.BodyBytes), b.Input)
	return b, nil
}

// Greatest returns what is reserved before a call: the price of its Reserve and
// its Output at their dearest kinds, and of the request.
func (p *Price) Greatest(b Bounds) money.Amount {
	return inRange(p.price(b.Reserve, b.Output))
}

// price is that of so many tokens at their dearest kinds, and of the request;
// false when it is out of range.
func (p *Price) price(input, output int64) (money.Amount, bool) {
	r := p.rates()
	sum, ok := money.Cost(money.Item{Count: input, Rate: r.dearestInput()}, money.Item{Count: output, Rate: r.dearestOutput()})
	if !ok {
		return 0, false
	}
	return sum.Add(p.Request)
}

// Fits returns the greatest max_tokens with which available covers the greatest
// price of a call. It is zero when none does, and where the model has no
// max_output.
func (p *Price) Fits(a Ask, available money.Amount) int64 {
	a.HasMaxTokens = true
	return int64(sort.Search(int(p.MaxOutput), func(i int) bool {
		a.MaxTokens = int64(i) + 1
		b, refused := p.Bounds(a)
		return refused != nil || p.Greatest(b) > available
	}))
}

// Cost returns what the tokens of a call and the request cost together, formed
// in 128 bits and rounded up once. Within bounds it cannot leave the range;
// tokens that were not cut may, and then cost [money.Max]. Whether the call is
// charged at all is for the caller to decide.
func (p *Price) Cost(t usage.Tokens) money.Amount {
	r := p.rates()
	sum, ok := money.Cost(
		money.Item{Count: t.Input, Rate: r.input},
		money.Item{Count: t.CacheRead, Rate: r.cacheRead},
		money.Item{Count: t.CacheWrite5m, Rate: r.cacheWrite5m},
		money.Item{Count: t.CacheWrite1h, Rate: r.cacheWrite1h},
		money.Item{Count: t.Output, Rate: r.output},
		money.Item{Count: t.Reasoning, Rate: r.reasoning},
	)
	if ok {
		sum, ok = sum.Add(p.Request)
	}
	return inRange(sum, ok)
}

// Cut returns what of t lies within b, and whether that is less than t. What is
// too much is taken from the dearest kinds first, in the customer's favour.
func (p *Price) Cut(b Bounds, t usage.Tokens) (kept usage.Tokens, cut bool) {
	kept = t
	r := p.rates()
	keepCheapest(b.Input, []kind{
		{&kept.Input, r.input},
		{&kept.CacheRead, r.cacheRead},
		{&kept.CacheWrite5m, r.cacheWrite5m},
		{&kept.CacheWrite1h, r.cacheWrite1h},
	})
	keepCheapest(b.Output, []kind{
		{&kept.Output, r.output},
		{&kept.Reasoning, r.reasoning},
	})
	return kept, kept != t
}

// kind is the number of tokens of one kind, and what they cost.
type kind struct {
	count *int64
	rate  money.Rate
}

// keepCheapest leaves at most room tokens in kinds together. Kinds of one price
// keep their order. It forms no sum of them, so that none can overflow.
func keepCheapest(room int64, kinds []kind) {
	for i := range kinds {
		for j := i; j > 0 && kinds[j].rate < kinds[j-1].rate; j-- {
			kinds[j], kinds[j-1] = kinds[j-1], kinds[j]
		}
	}
	for _, k := range kinds {
		*k.count = min(max(*k.count, 0), room)
		room -= *k.count
	}
}

// times returns a × b of two numbers that are not negative, and false when that
// is out of range.
func times(a, b int64) (int64, bool) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	return int64(low), high == 0 && low <= math.MaxInt64
}

func inRange(sum money.Amount, ok bool) money.Amount {
	if !ok {
		return money.Max
	}
	return sum
}

// ForCalls tells whether p says what a model call costs: a price of seconds or
// images alone does not.
func (p *Price) ForCalls() bool {
	return p.Input != nil || p.Output != nil || p.Request > 0
}
