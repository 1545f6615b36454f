package catalog

import (
	"math"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Charge is what a call costs by the report of its backend.
type Charge struct {
	Amount money.Amount
	Tokens usage.Tokens // that are charged, those of all passes together
	Cut    bool         // the backend reports more than the call can have used

	// Unlisted is the tier or the region that the backend reports, where the
	// price lists others. The call is charged at the dearest of these.
	Unlisted string
}

// Charge returns what a call costs: the rates by the length of its prompt
// (above), then those of the tier that served it, times the factor of the region,
// rounded up once, and then the request and the uses of tools. It is never more
// than the greatest price within b.
func (p *Price) Charge(b Bounds, r *usage.Report) Charge {
	served, b := b.options.servedBy(p, b, r)
	return p.charge(served, b, r).within(b)
}

// maxExcess is by how much more than it can be charged a call may have cost,
// as a multiple of that. Beyond, a report is taken for an error.
const maxExcess = 10

// Excess returns how much more than charged the reported usage costs without any
// bound. That is nothing a user pays: the operator bears it.
func (p *Price) Excess(b Bounds, r *usage.Report, charged money.Amount) money.Amount {
	served, b := b.options.servedBy(p, b, r)
	most, ok := times(int64(b.most), maxExcess)
	if !ok {
		most = int64(money.Max - b.most)
	}
	whole := p.charge(served, Bounds{Input: math.MaxInt64, Output: math.MaxInt64, unbounded: true, options: b.options}, r)
	return min(max(whole.Amount-charged, 0), money.Amount(most))
}

// charge is Charge at the price that served the call, without the bound of its sum.
func (p *Price) charge(served *Price, b Bounds, r *usage.Report) Charge {
	if !p.hasRules() && b.options == nil && len(r.Passes) == 0 {
		kept, cut := p.Cut(b, r.Tokens)
		return Charge{Amount: p.Cost(kept), Tokens: kept, Cut: cut}
	}
	s := serving{price: served, options: b.options, report: r, unbounded: b.unbounded}
	var c Charge
	var sum money.Sum
	if served == nil {
		c.Tokens = r.Tokens
	} else {
		sum, c = s.call(b)
	}
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
		input := max(orUnbounded(price.Context), b.text)
		output = min(orUnbounded(output), orUnbounded(price.MaxOutput))
		if b.unbounded {
			input, output = b.Input, b.Output
		}
		cost, kept, cut := serving{price: price, options: b.options, report: r}.
			pass(pass.Tokens, pass.Tokens.AllInput(), input, output)
		sum.Plus(cost)
		c.Tokens, c.Cut = c.Tokens.Plus(kept), c.Cut || cut
	}
	amount, ok := sum.Amount()
	if served != nil && ok {
		amount, ok = amount.Add(served.Request)
		if ok {
			tools, cut := s.tools()
			c.Cut = c.Cut || cut
			amount, ok = amount.Add(tools)
		}
	}
	c.Amount = inRange(amount, ok)
	return c
}

func orUnbounded(tokens int64) int64 {
	if tokens == 0 {
		return math.MaxInt64
	}
	return tokens
}

// within bounds c by the greatest price.
func (c Charge) within(b Bounds) Charge {
	if c.Amount > b.most {
		c.Amount, c.Cut = b.most, true
	}
	return c
}

// serving is how a price applies to what served a call.
type serving struct {
	price     *Price
	options   *options // nil: none
	report    *usage.Report
	unbounded bool // tools may be used any number of times
}

// call returns what the tokens of the call itself cost, without the passes beside
// it.
func (s serving) call(b Bounds) (sum money.Sum, c Charge) {
	_, c.Unlisted = s.tiers()
	if _, unlisted := s.geo(); unlisted != "" {
		c.Unlisted = unlisted
	}
	// Each pass is a call of its own to the vendor, with a prompt of its own; the
	// tokens of the call are the sum of theirs.
	longest, each := s.report.Tokens.AllInput(), usage.Tokens{}
	own := s.ownPasses()
	if len(own) > 0 {
		longest = 0
	}
	for _, pass := range own {
		longest = max(longest, pass.Tokens.AllInput())
		each = each.Plus(pass.Tokens)
	}
	sum, c.Tokens, c.Cut = s.pass(s.report.Tokens, longest, b.Input, b.Output)
	if len(own) > 1 && !c.Cut && each == s.report.Tokens {
		sum = money.Sum{}
		for _, pass := range own {
			cost, _, _ := s.pass(pass.Tokens, pass.Tokens.AllInput(), math.MaxInt64, math.MaxInt64)
			sum.Plus(cost)
		}
	}
	return sum, c
}

// ownPasses returns the passes whose tokens are those of the call: where a
// fallback answered, only its own.
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

// pass returns what of the tokens of a pass lies within input and output, and
// what that costs at the dearest of the tiers that may have served it.
func (s serving) pass(t usage.Tokens, prompt, input, output int64) (dearest money.Sum, kept usage.Tokens, cut bool) {
	tiers, _ := s.tiers()
	geo, _ := s.geo()
	first, _ := s.price.at(prompt, tiers[0])
	kept, cut = first.cut(input, output, t)
	prompt = min(prompt, input)
	for _, tier := range tiers {
		r, factor := s.price.at(prompt, tier)
		if sum := r.cost(kept, money.FactorOf(factor, geo)); dearest.Less(&sum) {
			dearest = sum
		}
	}
	return dearest, kept, cut
}

// tiers returns the tiers that may have served the call, nil for the price
// itself, and the name that the price does not list though it lists others.
func (s serving) tiers() (tiers []*Tier, unlisted string) {
	if len(s.price.Tier) == 0 {
		return []*Tier{nil}, ""
	}
	for _, said := range [...]string{
		orAsked(s.report.Tier, s.options.said("service_tier")), orAsked(s.report.Speed, s.options.said("speed")),
	} {
		if slices.Contains(usualTiers, said) {
			continue
		}
		if t := s.price.tier(said); t != nil {
			tiers = append(tiers, t)
			continue
		}
		tiers = []*Tier{nil}
		for i := range s.price.Tier {
			tiers = append(tiers, &s.price.Tier[i])
		}
		return tiers, said
	}
	if len(tiers) == 0 {
		tiers = []*Tier{nil}
	}
	return tiers, ""
}

// geo returns the factor of the region that served the call.
func (s serving) geo() (factor money.Amount, unlisted string) {
	said := orAsked(s.report.Geo, s.options.said("inference_geo"))
	if len(s.price.Geo) == 0 || slices.Contains(usualGeos, said) {
		return money.Unit, ""
	}
	if g := s.price.geo(said); g != nil {
		return g.Factor, ""
	}
	return s.price.dearestGeo(""), said
}

// orAsked returns what was reported, or else what was asked for.
func orAsked(reported, asked string) string {
	if reported != "" {
		return reported
	}
	return asked
}

// countedTools are the tools whose uses a vendor reports when there are any. Of
// any other one that a call declares, and of these where the answer counts no
// tools, one use is charged.
var countedTools = []string{"web_search", "web_fetch"}

// tools returns what the uses of tools cost, and whether more uses of one were
// reported than the call may be charged.
func (s serving) tools() (sum money.Amount, cut bool) {
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
		most := s.mostUses(price.Tool)
		if s.unbounded {
			most = n
		}
		cut = cut || n > most
		cost, ok := times(min(n, most), int64(price.Price))
		if ok {
			sum, ok = sum.Add(money.Amount(cost))
		}
		if !ok {
			return money.Max, cut
		}
	}
	return sum, cut
}

// mostUses returns how many uses of a tool the call is charged at most: those that
// its declarations reserve, or for a tool that it does not declare, those that a
// declaration without a bound would.
func (s serving) mostUses(tool string) (n int64) {
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
