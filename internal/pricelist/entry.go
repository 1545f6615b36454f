package pricelist

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/money"
)

// entry is a model of the list whose price is being read.
type entry struct {
	*reader
	key    string // in the list
	price  catalog.Price
	reason string // why it is skipped: the first reason

	withoutTokens bool // the price needs no price of tokens
}

// refuse records why the entry is skipped, unless a reason is recorded already.
func (e *entry) refuse(format string, args ...any) {
	if e.reason == "" {
		e.reason = fmt.Sprintf(format, args...)
	}
}

// decimal matches the numbers that are read. The limits of digits and exponents bound the memory that a
// number needs.
var decimal = regexp.MustCompile(`^-?[0-9]{1,30}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,2})?$`)

// number returns a number of the list exactly; nil if it is absent, malformed or not above zero. A
// zero is often a placeholder, so it counts as absent and is named among the ignored members.
func (e *entry) number(member string, value any) *big.Rat {
	text, _ := value.(json.Number)
	if value != nil && !decimal.MatchString(string(text)) {
		e.refuse("%s is not a number", member)
	}
	if e.reason != "" || value == nil {
		return nil
	}
	n, _ := new(big.Rat).SetString(string(text))
	switch n.Sign() {
	case -1:
		e.refuse("%s is negative", member)
	case 0:
		e.ignored[member+" where it is 0"] = true
	default:
		return n
	}
	return nil
}

// amount returns an amount that the list gives in this unit of the currency, times the factor.
func (e *entry) amount(member string, value any, unit int64) *money.Amount {
	return e.product(member, value, unit, e.Factor)
}

// product returns a number of the list times unit and factor, rounded up to the last decimal place of
// an amount. It returns nil where [entry.number] does.
func (e *entry) product(member string, value any, unit int64, factor money.Amount) *money.Amount {
	n := e.number(member, value)
	if n == nil {
		return nil
	}
	n.Mul(n, big.NewRat(unit, 1)).Mul(n, big.NewRat(int64(factor), 1)) // in units of the last place
	rounded := new(big.Int).Add(n.Num(), n.Denom())
	rounded.Sub(rounded, big.NewInt(1)).Quo(rounded, n.Denom())
	if !rounded.IsInt64() {
		e.refuse("%s is out of range", member)
		return nil
	}
	return new(money.Amount(rounded.Int64()))
}

// count returns a number of tokens. Without one, the entry is skipped.
func (e *entry) count(member string, value any) int64 {
	n := e.number(member, value)
	if n == nil || !n.IsInt() || n.Cmp(big.NewRat(catalog.MaxTokens, 1)) > 0 {
		e.refuse("it has no %s from 1 to %d", member, catalog.MaxTokens)
		return 0
	}
	return n.Num().Int64()
}

// writable matches the names of models that need no quotes in a Caddyfile and are no pattern.
var writable = regexp.MustCompile(`^[A-Za-z0-9@][A-Za-z0-9@._:/+~=-]{0,255}$`)

// finish adds the price, or the reason why the entry is skipped.
func (e *entry) finish(model string) {
	e.price.Model = catalog.Pattern(model)
	for _, a := range e.price.Above {
		if a.Tokens == e.price.Context { // some lists do this if a header extends the context
			e.price.Context++
		}
	}
	switch {
	case !writable.MatchString(model):
		e.refuse("its name cannot be written in a Caddyfile")
	case !e.withoutTokens && (e.price.Input == nil || e.price.Output == nil):
		e.refuse("it has no price above 0 for input or for output")
	default:
		if err := e.price.Validate(); err != nil {
			e.refuse("%s", strings.TrimPrefix(err.Error(), "price "+model+": "))
		}
	}
	if e.reason != "" {
		e.list.Skipped = append(e.list.Skipped, Skipped{e.key, e.reason})
		return
	}
	e.found[model] = append(e.found[model], e)
}

// set sets the price of a kind of tokens by its word.
func set(into *catalog.TokenPrices, word string, a *money.Amount) {
	for _, w := range into.Words() {
		if w.Word == word {
			*w.Amount = a
		}
	}
}

// object returns value if it is an object, else nil.
func object(value any) map[string]any {
	o, _ := value.(map[string]any)
	return o
}

// sorted returns the keys of o in order.
func sorted(o map[string]any) []string { return slices.Sorted(maps.Keys(o)) }

// completeReasoning sets missing prices of reasoning. If the list says that the model reasons and has no
// price of it, the price of output is used, so that a call whose caller disconnects continues until its
// reasoning is reported. If the list has one, blocks whose output costs more use their price of output.
func (e *entry) completeReasoning(value any) {
	p := &e.price
	listed := p.Reasoning
	if listed == nil && value != true {
		return
	}
	complete := func(t *catalog.TokenPrices) {
		if t.Output != nil && t.Reasoning == nil && (listed == nil || *t.Output > *listed) {
			t.Reasoning = t.Output
		}
	}
	complete(&p.TokenPrices)
	for i := range p.Above {
		complete(&p.Above[i].TokenPrices)
	}
	for i := range p.Tier {
		complete(&p.Tier[i].TokenPrices)
		for j := range p.Tier[i].Above {
			complete(&p.Tier[i].Above[j].TokenPrices)
		}
	}
}
