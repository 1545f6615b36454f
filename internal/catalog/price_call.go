package catalog

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Bounds are the limits of the reservation and of the charge of a call. They hold for every report of
// the backend. If a price has no context or no max_output, that side has no limit.
type Bounds struct {
	Reserve int64 // input tokens that are reserved: the maximum that the body can contain, at most Input
	Input   int64 // maximum of charged input tokens of all kinds
	Output  int64 // output tokens of all kinds that are reserved, and the maximum that is charged

	text      int64        // maximum of input tokens of inline text
	pass      int64        // maximum of input tokens of one pass
	unbounded bool         // no limits apply; see [Price.Excess]
	reserved  money.Amount // highest cost of Reserve and Output
	maxCharge money.Amount // highest charge
	options   *options     // nil: no rare options
	units     *Units       // nil: the call has none
}

// HighestCost returns the amount that is reserved before a call. It is the price of Reserve and
// Output at the highest rates that may apply, plus the prices of the request and of the tools.
func (p *Price) HighestCost(b Bounds) money.Amount { return b.reserved }

// Bounds returns the limits of a call. It returns UNPRICED_OPTION if the price does not cover an
// option. It returns INVALID_PARAMETER if prompts, choices and tool uses together could exceed the
// range of an amount. So no sum within these limits can overflow.
func (p *Price) Bounds(a CallSpec) (Bounds, *fault.Fault) {
	if f := p.unpriced(&a); f != nil {
		return Bounds{}, f
	}
	b, ok := p.bounds(a)
	if !ok {
		return Bounds{}, outOfRange(&a)
	}
	if len(a.Tiers) > 0 || a.Geo.Value != "" || len(a.Tools) > 0 || len(a.Models) > 0 {
		b.options = newOptions(&a)
		if f := b.options.addAlternatives(a, &b); f != nil {
			return Bounds{}, f
		}
	}
	return b, nil
}

// bounds returns the limits of a call at p itself, or false if the amount is out of range. Inline
// text may exceed the context of p, because some members and headers of a call extend it.
func (p *Price) bounds(a CallSpec) (b Bounds, ok bool) {
	prompts, choices, rounds := max(a.Prompts, 1), max(a.Choices, 1), p.rounds(&a)
	b = Bounds{Input: math.MaxInt64, Output: math.MaxInt64, text: a.text(), pass: math.MaxInt64}
	ok = true
	if p.Context > 0 {
		if b.pass, ok = times(p.Context, prompts); ok {
			b.pass = max(b.pass, b.text)
			b.Input, ok = times(b.pass, rounds)
		}
	}
	if p.MaxOutput > 0 && ok {
		each := p.MaxOutput
		if a.HasMaxTokens && !a.FullOutput {
			each = min(max(a.MaxTokens, 0), p.MaxOutput)
		}
		if b.Output, ok = times(choices, prompts); ok {
			if b.Output, ok = times(b.Output, each); ok {
				if b.Output, ok = times(b.Output, rounds); ok {
					b.Output = addTokens(b.Output, a.PartialOutput)
				}
			}
		}
	}
	if !ok {
		return b, false
	}
	if a.NoOutput {
		b.Output = 0
	}
	b.Reserve = b.Input
	loops := len(a.Tools) > 0 || slices.ContainsFunc(a.Models, func(m NamedModel) bool { return m.isAdditional() })
	if !a.FullContext && a.Links == 0 && !loops {
		if n, fits := times(min(b.text+a.InlineInput, b.pass), rounds); fits {
			b.Reserve = min(n, b.Input)
		}
	}
	if b.maxCharge, ok = p.highestCost(&a, b.Input, b.Output); ok {
		b.reserved, ok = p.highestCost(&a, b.Reserve, b.Output)
	}
	if a.Units.Unit != NoUnit && ok {
		units := a.Units
		b.units = &units
		var reserved, highest money.Amount
		if reserved, highest, ok = p.reserveUnits(b.units); ok {
			b.reserved, ok = b.reserved.Add(reserved)
		}
		if ok {
			b.maxCharge, ok = b.maxCharge.Add(highest)
		}
	}
	return b, ok
}

// addTokens returns a + b, at most the highest number of tokens.
func addTokens(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

func outOfRange(a *CallSpec) *fault.Fault {
	param := "n"
	switch {
	case a.Choices > 1:
	case a.Prompts > 1 || len(a.Tools)+len(a.Models) == 0:
		param = cmp.Or(a.PromptParam, "prompt")
	default:
		return fault.At(fault.InvalidParameter, "tools", "the cost of so many tool uses is out of range; allow fewer uses")
	}
	return fault.At(fault.InvalidParameter, param,
		"the cost of %d choices for each of %d prompts is out of range; request fewer", max(a.Choices, 1), max(a.Prompts, 1))
}

// rounds returns the maximum number of runs of the model of a call. There is one, one more after
// each tool use, and one to compact the context.
func (p *Price) rounds(a *CallSpec) int64 {
	rounds := int64(1)
	for i := range a.Tools {
		rounds = addAtMost(rounds, p.uses(&a.Tools[i]))
	}
	for i := range a.Models {
		if m := &a.Models[i]; m.isAdditional() {
			rounds = addAtMost(rounds, m.uses())
		}
	}
	if a.Compaction {
		rounds++
	}
	return rounds
}

func addAtMost(a, b int64) int64 { return min(a, math.MaxInt32) + min(b, math.MaxInt32) }

// uses returns the maximum number of uses of a tool.
func (p *Price) uses(tool *ServerTool) int64 {
	if tool.MaxUses > 0 {
		return tool.MaxUses
	}
	if price := p.tool(tool.Name); price != nil && price.Max > 0 {
		return price.Max
	}
	return DefaultUses
}

// isAdditional reports whether the model runs in addition to the model of the call.
func (m *NamedModel) isAdditional() bool { return strings.HasPrefix(m.Param, "tools") }

// isAlternative reports whether the model may answer instead of the model of the call. A model for
// moderation may not.
func (m *NamedModel) isAlternative() bool {
	return !m.isAdditional() && !strings.HasPrefix(m.Param, "moderation")
}

func (m *NamedModel) uses() int64 {
	return cmp.Or(max(m.MaxUses, 0), DefaultUses)
}

// highestCost returns the cost of these tokens at the highest rates that may apply, plus the
// request, the tools and additional models. It returns false if the cost is out of range.
func (p *Price) highestCost(a *CallSpec, input, output int64) (money.Amount, bool) {
	if !p.hasRules() && len(a.Models) == 0 {
		r := p.rates()
		in, out := r.highest(a.Audio, a.Image, a.ImageOut)
		sum, ok := money.Cost(money.Item{Count: input, Rate: in}, money.Item{Count: output, Rate: out})
		if !ok {
			return 0, false
		}
		return sum.Add(p.Request)
	}
	sum := p.highestTokenCost(a, input, output)
	calls := p.Request
	ok := true
	for i := range a.Tools {
		if price := p.tool(a.Tools[i].Name); price != nil && ok {
			var n int64
			if n, ok = times(p.uses(&a.Tools[i]), int64(price.Price)); ok {
				calls, ok = calls.Add(money.Amount(n))
			}
		}
	}
	for i := range a.Models {
		m := &a.Models[i]
		if !m.isAdditional() || m.Price == nil || !ok {
			continue
		}
		var in, out int64
		each := m.Price.MaxOutput
		if m.MaxTokens > 0 {
			each = min(each, m.MaxTokens)
		}
		if in, ok = times(max(m.Price.Context, a.text()), m.uses()); ok {
			out, ok = times(each, m.uses())
		}
		sum.Plus(m.Price.highestTokenCost(a, in, out))
	}
	tokens, fits := sum.Amount()
	if !fits || !ok {
		return 0, false
	}
	return tokens.Add(calls)
}

// highestTokenCost returns the cost of these tokens at the highest rates and factors that may apply.
func (p *Price) highestTokenCost(a *CallSpec, input, output int64) (highest money.Sum) {
	geo := p.highestGeo(a.Geo.Value)
	try := func(tier *Tier) {
		p.thresholds(tier, input, func(prompt int64) {
			r, factor := p.at(prompt, tier)
			in, out := r.highest(a.Audio, a.Image, a.ImageOut)
			var sum money.Sum
			sum.Add(money.Item{Count: input, Rate: in}, money.FactorOf(factor, geo))
			sum.Add(money.Item{Count: output, Rate: out}, money.FactorOf(factor, geo))
			if highest.Less(&sum) {
				highest = sum
			}
		})
	}
	open := true // the backend chooses the tier
	for _, o := range a.Tiers {
		if o.Param == "service_tier" {
			open = anyTier(o.Value)
		}
		try(p.tier(o.Value))
	}
	if open {
		try(nil)
		for i := range p.Tier {
			try(&p.Tier[i])
		}
	}
	return highest
}

// highestGeo returns the factor of the region that a request names. Without a region, the operator's
// account at the vendor decides, so highestGeo returns the highest factor.
func (p *Price) highestGeo(region string) money.Amount {
	if g := p.geo(region); g != nil {
		return g.Factor
	}
	factor := money.Unit
	if region == "" {
		for _, g := range p.Geo {
			factor = max(factor, g.Factor)
		}
	}
	return factor
}

// Fits returns the highest max_tokens for which available covers the highest cost of a call. It
// returns zero if there is none, if the price has no max_output, or if max_tokens does not limit the
// call.
func (p *Price) Fits(a CallSpec, available money.Amount) int64 {
	a.HasMaxTokens = true
	return int64(sort.Search(int(p.MaxOutput), func(i int) bool {
		a.MaxTokens = int64(i) + 1
		b, refused := p.Bounds(a)
		return refused != nil || p.HighestCost(b) > available
	}))
}

// Cost returns the cost of a call's tokens and of the request at the price's own rates. It computes in
// 128 bits and rounds up once. Within the limits it cannot overflow; beyond them it may be
// [money.Max]. The caller decides whether the call is charged.
func (p *Price) Cost(t usage.Tokens) money.Amount {
	r := p.rates()
	var items [usage.Kinds]money.Item
	for kind, n := range t.ByKind() {
		items[kind] = money.Item{Count: n, Rate: r[kind]}
	}
	sum, ok := money.Cost(items[:]...)
	if ok {
		sum, ok = sum.Add(p.Request)
	}
	return inRange(sum, ok)
}

// Cut returns the part of t within b, and whether tokens were removed. It removes tokens of the most
// expensive kinds first, in favour of the user.
func (p *Price) Cut(b Bounds, t usage.Tokens) (kept usage.Tokens, cut bool) {
	r := p.rates()
	return r.cut(b.Input, b.Output, t)
}

// sumFits reports whether no count is negative and the sum of all counts is at most limit.
func sumFits(limit int64, counts ...int64) bool {
	for _, n := range counts {
		if n < 0 || n > limit {
			return false
		}
		limit -= n
	}
	return true
}

// cut is [Price.Cut] at these rates.
func (r *rates) cut(input, output int64, t usage.Tokens) (kept usage.Tokens, cut bool) {
	kept = t
	if !sumFits(input, t.Input, t.CacheRead, t.CacheWrite5m, t.CacheWrite1h, t.AudioInput, t.ImageInput) {
		keepCheapest(input, []kind{
			{&kept.Input, r[usage.KindInput]},
			{&kept.CacheRead, r[usage.KindCacheRead]},
			{&kept.CacheWrite5m, r[usage.KindCacheWrite5m]},
			{&kept.CacheWrite1h, r[usage.KindCacheWrite1h]},
			{&kept.AudioInput, r[usage.KindAudioInput]},
			{&kept.ImageInput, r[usage.KindImageInput]},
		})
	}
	if !sumFits(output, t.Output, t.Reasoning, t.AudioOutput, t.ImageOutput) {
		keepCheapest(output, []kind{
			{&kept.Output, r[usage.KindOutput]},
			{&kept.Reasoning, r[usage.KindReasoning]},
			{&kept.AudioOutput, r[usage.KindAudioOutput]},
			{&kept.ImageOutput, r[usage.KindImageOutput]},
		})
	}
	return kept, kept != t
}

// kind is the tokens of one kind and their price.
type kind struct {
	count *int64
	rate  money.Rate
}

// keepCheapest reduces kinds to a total of at most limit tokens. Kinds of equal price keep their
// order. It does not add counts, so it cannot overflow.
func keepCheapest(limit int64, kinds []kind) {
	for i := range kinds {
		for j := i; j > 0 && kinds[j].rate < kinds[j-1].rate; j-- {
			kinds[j], kinds[j-1] = kinds[j-1], kinds[j]
		}
	}
	for _, k := range kinds {
		*k.count = min(max(*k.count, 0), limit)
		limit -= *k.count
	}
}

// times returns a × b for numbers that are not negative, or false if the
// product is out of range.
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
