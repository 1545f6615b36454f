package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Above is the price of a whole call whose prompt has more than Tokens tokens,
// including cached ones. Prices that it does not set are unchanged. If several
// blocks apply, the block with the highest Tokens is used.
type Above struct {
	Tokens int64 `json:"tokens"`
	TokenPrices
}

// Tier is the price of calls at a service tier or speed that the backend reports. It is a factor, or
// prices that replace the others. Prices that it does not set are unchanged.
type Tier struct {
	// The tier's names as backends report them, in service_tier or in speed.
	Names []string `json:"names"`

	// The factor of all prices per token: 0.0001 to 1000.
	Factor money.Amount `json:"factor,omitempty"`

	TokenPrices

	// Prices of calls at this tier with a long prompt.
	Above []Above `json:"above,omitempty"`
}

// Geo is a region that backends report in inference_geo, with the factor of all
// prices per token: 0.0001 to 1000.
type Geo struct {
	Name   string       `json:"name"`
	Factor money.Amount `json:"factor"`
}

// ToolPrice is the price of one use of a tool that backends run.
type ToolPrice struct {
	Tool  string       `json:"tool"` // as "web_search"
	Price money.Amount `json:"price"`

	// The number of uses to reserve if a call sets none: 1 to 1000. Default:
	// 10.
	Max int64 `json:"max,omitempty"`
}

const (
	// DefaultUses is the number of reserved uses of a tool if neither the call
	// nor the price sets one.
	DefaultUses = 10

	// MaxUses is the maximum number that a price may set.
	MaxUses = 1000
)

// usualTiers and usualGeos mean that the price's own rates apply.
var (
	usualTiers = []string{"", "auto", "default", "standard", "standard_only", "none"}
	usualGeos  = []string{"", "default", "global", "not_available"}
)

// UsualService reports whether the price's own rates apply to a reported tier,
// speed or region.
func UsualService(name string) bool {
	return slices.Contains(usualTiers, name) || slices.Contains(usualGeos, name)
}

// anyTier reports whether the backend may choose the tier if a request has this value.
func anyTier(value string) bool { return value == "" || value == "auto" || value == "none" }

// hasRules reports whether the price of a call depends on more than the kinds
// of its tokens.
func (p *Price) hasRules() bool {
	return len(p.Above) > 0 || len(p.Tier) > 0 || len(p.Geo) > 0 || len(p.Call) > 0
}

// first returns the first of rows that is the wanted one, or nil.
func first[T any](rows []T, wanted func(row *T) bool) *T {
	for i := range rows {
		if wanted(&rows[i]) {
			return &rows[i]
		}
	}
	return nil
}

func (p *Price) tier(name string) *Tier {
	return first(p.Tier, func(t *Tier) bool { return slices.Contains(t.Names, name) })
}

func (p *Price) geo(name string) *Geo {
	return first(p.Geo, func(g *Geo) bool { return g.Name == name })
}

func (p *Price) tool(name string) *ToolPrice {
	return first(p.Call, func(t *ToolPrice) bool { return t.Tool == name })
}

// blockFor returns the block that applies to a prompt, or nil.
func blockFor(blocks []Above, prompt int64) (best *Above) {
	for i := range blocks {
		if b := &blocks[i]; prompt > b.Tokens && (best == nil || b.Tokens > best.Tokens) {
			best = b
		}
	}
	return best
}

// at returns the rates and the factor for a prompt of this length at a tier. tier may be nil.
func (p *Price) at(prompt int64, tier *Tier) (rates, money.Amount) {
	if len(p.Above) == 0 && tier == nil {
		return p.rates(), money.Unit
	}
	prices, factor := p.TokenPrices, money.Unit
	if block := blockFor(p.Above, prompt); block != nil {
		prices = prices.with(&block.TokenPrices)
	}
	if tier != nil {
		prices = prices.with(&tier.TokenPrices)
		if block := blockFor(tier.Above, prompt); block != nil {
			prices = prices.with(&block.TokenPrices)
		}
		if tier.Factor > 0 {
			factor = tier.Factor
		}
	}
	return prices.rates(), factor
}

// thresholds calls f with the longest prompt of each range in which p has the same rates, for prompts
// of up to longest tokens.
func (p *Price) thresholds(tier *Tier, longest int64, f func(prompt int64)) {
	f(longest)
	for _, block := range p.Above {
		if block.Tokens < longest {
			f(block.Tokens)
		}
	}
	if tier != nil {
		for _, block := range tier.Above {
			if block.Tokens < longest {
				f(block.Tokens)
			}
		}
	}
}

func (p *Price) validateRules() error {
	if !p.hasRules() {
		return nil
	}
	if err := validateAbove(p.Above, p.Context); err != nil {
		return err
	}
	var tiers, geos, tools []string
	for _, t := range p.Tier {
		if err := t.validate(p.Context); err != nil {
			return fmt.Errorf("tier %s: %w", strings.Join(t.Names, " "), err)
		}
		tiers = append(tiers, t.Names...)
	}
	for _, g := range p.Geo {
		if !money.ValidFactor(g.Factor) {
			return fmt.Errorf("geo %s: %w", g.Name, errFactor)
		}
		geos = append(geos, g.Name)
	}
	for _, c := range p.Call {
		switch {
		case c.Price < 0:
			return fmt.Errorf("call %s: %v must not be negative", c.Tool, c.Price)
		case c.Max < 0 || c.Max > MaxUses:
			return fmt.Errorf("call %s: max must be from 1 to %d", c.Tool, MaxUses)
		}
		tools = append(tools, c.Tool)
	}
	return errors.Join(validateNames("tier", tiers, usualTiers), validateNames("geo", geos, usualGeos), validateNames("call", tools, nil))
}

var errFactor = errors.New("the factor must be from 0.0001 to 1000, with at most four decimal places")

func (t *Tier) validate(context int64) error {
	block := t.TokenPrices != (TokenPrices{}) || len(t.Above) > 0
	switch {
	case len(t.Names) == 0:
		return errors.New("it has no name")
	case block == (t.Factor != 0):
		return errors.New("it needs either a factor, such as x0.5, or a block of prices")
	case !block && !money.ValidFactor(t.Factor):
		return errFactor
	}
	if err := t.TokenPrices.validate(); err != nil {
		return err
	}
	return validateAbove(t.Above, context)
}

func validateAbove(blocks []Above, context int64) error {
	for i, b := range blocks {
		switch {
		case b.Tokens < 1 || b.Tokens >= context:
			return fmt.Errorf("above %d: it must be from 1 to less than context, which is %d", b.Tokens, context)
		case b.TokenPrices == TokenPrices{}:
			return fmt.Errorf("above %d: it names no price", b.Tokens)
		case slices.ContainsFunc(blocks[:i], func(o Above) bool { return o.Tokens == b.Tokens }):
			return fmt.Errorf("above %d is given twice", b.Tokens)
		}
		if err := b.validate(); err != nil {
			return fmt.Errorf("above %d: %w", b.Tokens, err)
		}
	}
	return nil
}

// validateNames returns an error for invalid names, for duplicates, and for names to which the price's
// own rates apply.
func validateNames(word string, names, usual []string) error {
	for i, name := range names {
		switch {
		case name == "" || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-.") != "":
			return fmt.Errorf("%s %q: a name has 1 to 32 lower-case letters, digits, `_`, `-` and `.`", word, name)
		case slices.Contains(usual, name):
			return fmt.Errorf("%s %s: the rates of the price itself apply to it: set those", word, name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("%s %s is given twice", word, name)
		}
	}
	return nil
}

// cost returns the cost of one pass's tokens at these rates.
func (r *rates) cost(t usage.Tokens, factor money.Factor) (sum money.Sum) {
	for kind, n := range t.ByKind() {
		sum.Add(money.Item{Count: n, Rate: r[kind]}, factor)
	}
	return sum
}
