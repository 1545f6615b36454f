package catalog

import (
	"cmp"
	"math"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Charge is the charge of a call, from the usage report of its backend.
type Charge struct {
	Amount money.Amount
	Tokens usage.Tokens // charged tokens of all passes
	Cut    bool         // the backend has reported more than the limits of the call

	// Unlisted is the reported tier or region if the price lists only others. The
	// call is then charged at the highest of the listed rates.
	Unlisted string

	// Units is the number of charged images, characters or seconds.
	Units int64

	price *Price // of the model that answered; nil: free
	own   part   // the call itself, or its first pass
	more  []part // the other passes
	tools []ToolCharge
}

// Charge returns the charge of a call. The rates are those for the length of its prompt (above),
// replaced by those of its tier, multiplied by the factor of the region. The sum is rounded up once;
// the request and the tool uses are added. The charge is at most the highest charge of b.
func (p *Price) Charge(b Bounds, r *usage.Report) Charge {
	served, b := b.options.servedBy(p, b, r)
	c := p.charge(served, b, r)
	served.chargeUnits(&c, b.units, r, false)
	return c.within(b)
}

// maxExcess limits Excess to a multiple of the highest charge, because a larger report is probably an
// error.
const maxExcess = 10

// Excess returns the cost of the reported usage without limits, minus the charge. The operator pays
// this amount, not the user.
func (p *Price) Excess(b Bounds, r *usage.Report, charged money.Amount) money.Amount {
	served, b := b.options.servedBy(p, b, r)
	limit, ok := times(int64(b.maxCharge), maxExcess)
	if !ok {
		limit = int64(money.Max - b.maxCharge)
	}
	unlimited := p.charge(served, Bounds{Input: math.MaxInt64, Output: math.MaxInt64, unbounded: true, options: b.options}, r)
	served.chargeUnits(&unlimited, b.units, r, true)
	return min(max(unlimited.Amount-charged, 0), money.Amount(limit))
}

// charge is [Price.Charge] at the price of the model that answered, without the limit of the sum.
func (p *Price) charge(served *Price, b Bounds, r *usage.Report) Charge {
	if !p.hasRules() && b.options == nil && len(r.Passes) == 0 {
		kept, cut := p.Cut(b, r.Tokens)
		return Charge{Amount: p.Cost(kept), Tokens: kept, Cut: cut, price: p, own: part{Pass: usage.Pass{Tokens: kept}}}
	}
	s := serving{price: served, options: b.options, report: r, unbounded: b.unbounded}
	var c Charge
	var sum money.Sum
	if served == nil {
		c.Tokens = r.Tokens
	} else {
		sum, c = s.call(b)
	}
	c.price = served
	for i := range r.Passes {
		pass := &r.Passes[i]
		price, output := served, int64(0)
		switch pass.Kind {
		case usage.CompactionPass:
		case usage.AdvisorPass:
			m, before := b.options.advisor(r.Passes[:i], pass)
			if before >= m.uses() && !b.unbounded {
				c.Cut = true
				continue
			}
			if m.Name != "" {
				price, output = m.Price, m.MaxTokens
			}
		default:
			continue
		}
		if price == nil {
			c.Tokens = c.Tokens.Plus(pass.Tokens)
			continue
		}
		// A price without a limit has zero.
		input := max(cmp.Or(price.Context, math.MaxInt64), b.text)
		output = min(cmp.Or(output, math.MaxInt64), cmp.Or(price.MaxOutput, math.MaxInt64))
		if b.unbounded {
			input, output = b.Input, b.Output
		}
		cost, extra, cut := serving{price: price, options: b.options, report: r}.
			pass(pass.Tokens, pass.Tokens.AllInput(), input, output)
		extra.Kind, extra.Model, extra.price = pass.Kind, pass.Model, price
		sum.Plus(cost)
		c.Tokens, c.Cut = c.Tokens.Plus(extra.Tokens), c.Cut || cut
		c.more = append(c.more, extra)
	}
	amount, ok := sum.Amount()
	if served != nil && ok {
		amount, ok = amount.Add(served.Request)
		if ok {
			tools, cut := s.tools(&c)
			c.Cut = c.Cut || cut
			amount, ok = amount.Add(tools)
		}
	}
	c.Amount = inRange(amount, ok)
	return c
}

// within limits c to the highest charge of b.
func (c Charge) within(b Bounds) Charge {
	if c.Amount > b.maxCharge {
		c.Amount, c.Cut = b.maxCharge, true
	}
	return c
}

// serving is the price with the tier, region and options that apply to the call.
type serving struct {
	price     *Price
	options   *options // nil: no rare options
	report    *usage.Report
	unbounded bool // the number of tool uses is not limited
}

// call returns the cost of the call's own tokens, without additional passes.
func (s serving) call(b Bounds) (sum money.Sum, c Charge) {
	_, c.Unlisted = s.tiers()
	if _, _, unlisted := s.geo(); unlisted != "" {
		c.Unlisted = unlisted
	}
	// The vendor bills each pass as a separate call with its own prompt. The
	// reported tokens of the call are the sum of the passes.
	longest, each := s.report.Tokens.AllInput(), usage.Tokens{}
	own := s.ownPasses()
	if len(own) > 0 {
		longest = 0
	}
	for _, pass := range own {
		longest = max(longest, pass.Tokens.AllInput())
		each = each.Plus(pass.Tokens)
	}
	sum, c.own, c.Cut = s.pass(s.report.Tokens, longest, b.Input, b.Output)
	c.Tokens = c.own.Tokens
	if len(own) > 1 && !c.Cut && each == s.report.Tokens {
		sum = money.Sum{}
		for _, pass := range own {
			cost, part, _ := s.pass(pass.Tokens, pass.Tokens.AllInput(), math.MaxInt64, math.MaxInt64)
			sum.Plus(cost)
			c.more = append(c.more, part)
		}
		c.own, c.more = c.more[0], c.more[1:]
	}
	return sum, c
}

// ownPasses returns the passes whose tokens belong to the call. If a fallback has answered, these are
// only the passes of the fallback.
func (s serving) ownPasses() (own []usage.Pass) {
	kind := usage.MessagePass
	if slices.ContainsFunc(s.report.Passes, func(p usage.Pass) bool { return p.Kind == usage.FallbackPass }) {
		kind = usage.FallbackPass
	}
	for _, p := range s.report.Passes {
		if p.Kind == kind {
			own = append(own, p)
		}
	}
	return own
}

// pass returns the tokens of a pass within the limits input and output, and their cost at the highest
// of the tiers that may apply.
func (s serving) pass(t usage.Tokens, prompt, input, output int64) (highest money.Sum, p part, cut bool) {
	tiers, _ := s.tiers()
	geo, name, _ := s.geo()
	first, _ := s.price.at(prompt, tiers[0])
	p = part{tier: tiers[0], prompt: min(prompt, input), geo: name}
	if name != "" {
		p.factor = geo
	}
	p.Tokens, cut = first.cut(input, output, t)
	for _, tier := range tiers {
		r, factor := s.price.at(p.prompt, tier)
		if sum := r.cost(p.Tokens, money.FactorOf(factor, geo)); highest.Less(&sum) {
			highest, p.tier = sum, tier
		}
	}
	return highest, p, cut
}

// noTier is the result of tiers if the rates of the price itself apply.
var noTier = []*Tier{nil}

// tiers returns the tiers that may apply, where nil is the price itself. unlisted is the reported
// name if the price lists only others.
func (s serving) tiers() (tiers []*Tier, unlisted string) {
	if len(s.price.Tier) == 0 {
		return noTier, ""
	}
	for _, name := range [...]string{
		cmp.Or(s.report.Tier, s.options.requested("service_tier")), cmp.Or(s.report.Speed, s.options.requested("speed")),
	} {
		if slices.Contains(usualTiers, name) {
			continue
		}
		if t := s.price.tier(name); t != nil {
			tiers = append(tiers, t)
			continue
		}
		tiers = []*Tier{nil}
		for i := range s.price.Tier {
			tiers = append(tiers, &s.price.Tier[i])
		}
		return tiers, name
	}
	if len(tiers) == 0 {
		tiers = noTier
	}
	return tiers, ""
}

// geo returns the factor of the region that served the call, and its name if the price has factors for
// regions. If the price lists only other regions, unlisted is the name, too.
func (s serving) geo() (factor money.Amount, name, unlisted string) {
	region := cmp.Or(s.report.Geo, s.options.requested("inference_geo"))
	if len(s.price.Geo) == 0 || slices.Contains(usualGeos, region) {
		return money.Unit, "", ""
	}
	if g := s.price.geo(region); g != nil {
		return g.Factor, region, ""
	}
	return s.price.highestGeo(""), region, region
}

// countedTools are the tools whose uses a vendor reports; it reports the last two as items of a response.
// For any other declared tool, one use is charged. If the answer reports no tool uses, one use is charged
// for these tools, too.
var countedTools = []string{"web_search", "web_fetch", "file_search", "code_interpreter"}

// tools adds the tool uses to c, and returns their cost and whether more uses of a tool were reported
// than can be charged.
func (s serving) tools(c *Charge) (sum money.Amount, cut bool) {
	for _, price := range s.price.Call {
		n := int64(0)
		i := slices.IndexFunc(s.report.Tools, func(u usage.ToolUse) bool { return u.Name == price.Tool })
		switch {
		case i >= 0:
			n = s.report.Tools[i].Uses
		case !s.options.declares(price.Tool):
		case !s.report.CountsTools || !slices.Contains(countedTools, price.Tool):
			n = 1
		}
		limit := s.maxUses(price.Tool)
		if s.unbounded {
			limit = n
		}
		cut = cut || n > limit
		if n = min(n, limit); n > 0 {
			c.tools = append(c.tools, ToolCharge{price.Tool, n, price.Price})
		}
		cost, ok := times(n, int64(price.Price))
		if ok {
			sum, ok = sum.Add(money.Amount(cost))
		}
		if !ok {
			return money.Max, cut
		}
	}
	return sum, cut
}

// maxUses returns the maximum number of charged uses of a tool: the number that its declarations
// reserve. For an undeclared tool, it is the default of a declaration without a limit.
func (s serving) maxUses(tool string) (n int64) {
	if !s.options.declares(tool) {
		return s.price.uses(&ServerTool{Name: tool})
	}
	for i := range s.options.tools {
		if t := &s.options.tools[i]; t.Name == tool {
			n = addAtMost(n, s.price.uses(t))
		}
	}
	return n
}
