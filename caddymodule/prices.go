package caddymodule

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/settings"
)

// The values of unpriced.
const (
	// AllowUnpriced allows calls of models without a price, free of charge.
	AllowUnpriced = "allow"

	refuseUnpriced = "refuse"
)

// Prices returns the prices of models.
func (a *App) Prices() *catalog.Prices { return a.prices }

// PriceOf returns the price for calls of a model or an alias that are measured in unit, nil if they are
// free, and whether the model may be called. Without any price in the configuration, all calls are free. If the
// configuration has prices, a model without one may be called only with unpriced allow. It
// may never be called if a pattern of a price bars its name.
func (a *App) PriceOf(model string, unit catalog.Unit) (price *catalog.Price, ok bool) {
	if a.prices.Len() == 0 {
		return nil, true
	}
	model = a.Resolve(model)
	if price, ok = a.prices.Find(model); ok && price.ForCalls(unit) {
		return price, true
	}
	return nil, a.Unpriced == AllowUnpriced && !a.prices.Bars(model)
}

// CallsCost reports whether every model call costs money, for each model.
func (a *App) CallsCost() bool { return a.callsCost }

// GenerationsCost reports whether every generation costs money, for each model.
func (a *App) GenerationsCost() bool { return a.generationsCost }

// findFree sets the results of CallsCost and GenerationsCost. A price with an amount only
// for output counts as free, because a call can have no output.
func (a *App) findFree() {
	cost := len(a.PriceRows) > 0 && a.Unpriced != AllowUnpriced
	a.callsCost, a.generationsCost = cost, cost
	for i := range a.PriceRows {
		p := &a.PriceRows[i]
		if p.Request > 0 {
			continue
		}
		if p.Input != nil && *p.Input == 0 || p.Input == nil && slices.ContainsFunc(p.Per, func(u catalog.UnitPrice) bool { return u.Price == 0 }) {
			a.callsCost = false
		}
		for _, row := range slices.Concat(p.Image, p.Second) {
			if row.Price == 0 {
				a.callsCost, a.generationsCost = false, false
			}
		}
	}
}

// unmarshalPrice reads one price:
//
//	price <pattern> {
//		input          <amount>
//		output         <amount>
//		cache_read     <amount>
//		cache_write    <amount>
//		cache_write_1h <amount>
//		reasoning      <amount>
//		audio_input    <amount>
//		audio_output   <amount>
//		image_input    <amount>
//		image_output   <amount>
//		request        <amount>
//		context        <tokens>
//		max_output     <tokens>
//		on_disconnect  finish <duration> | cancel
//		charge_failed_input [on|off]
//		per    character|second|minute <amount> [max <seconds>]
//		image  [<resolution>] <amount>
//		second [<resolution>] [audio] <amount>
//		above <tokens> { the words from input to image_output }
//		tier <name...> x<factor>
//		tier <name...> { as above, and above }
//		geo  <name> x<factor>
//		call <tool> <amount> [max <uses>]
//	}
func (a *App) unmarshalPrice(d *caddyfile.Dispenser) error {
	at := *d
	var p catalog.Price
	if err := settings.Parsed(&p.Model, catalog.ParsePattern)(d); err != nil {
		return err
	}
	if slices.ContainsFunc(a.PriceRows, func(other catalog.Price) bool { return other.Model == p.Model }) {
		return d.Errf("price %s is given twice", p.Model)
	}
	words := tokenWords(&p.TokenPrices)
	maps.Copy(words, map[string]settings.Reader{
		"request":       settings.Parsed(&p.Request, parseAmount),
		"context":       settings.Count(&p.Context, catalog.MaxTokens),
		"max_output":    settings.Count(&p.MaxOutput, catalog.MaxTokens),
		"on_disconnect": onDisconnect(&p.OnDisconnect),
		"charge_failed_input": func(d *caddyfile.Dispenser) error {
			p.ChargeFailedInput = new(bool)
			return settings.OnOff(p.ChargeFailedInput)(d)
		},
		"per":    settings.Into(&p.Per, unitPrice),
		"image":  settings.Into(&p.Image, variant),
		"second": settings.Into(&p.Second, variant),
		"above":  settings.Into(&p.Above, above),
		"tier":   settings.Into(&p.Tier, tier),
		"geo":    settings.Into(&p.Geo, geo),
		"call":   settings.Into(&p.Call, toolPrice),
	})
	if err := settings.Block(d, words, "per", "image", "second", "above", "tier", "geo", "call"); err != nil {
		return err
	}
	a.PriceRows = append(a.PriceRows, p)
	return settings.Located(&at, p.Validate())
}

// tokenWords are the words of prices per million tokens.
func tokenWords(into *catalog.TokenPrices) map[string]settings.Reader {
	words := make(map[string]settings.Reader)
	for _, w := range into.Words() {
		words[w.Word] = optionalAmount(w.Amount)
	}
	return words
}

// above reads the prices of long prompts. [catalog.Price.Validate] checks them.
func above(d *caddyfile.Dispenser, into *[]catalog.Above) error {
	var block catalog.Above
	if err := settings.Count(&block.Tokens, catalog.MaxTokens)(d); err != nil {
		return err
	}
	if err := settings.Block(d, tokenWords(&block.TokenPrices)); err != nil {
		return err
	}
	*into = append(*into, block)
	return nil
}

// tier reads the price of service tiers or speeds: a factor or a block.
func tier(d *caddyfile.Dispenser, into *[]catalog.Tier) error {
	var t catalog.Tier
	t.Names = d.RemainingArgs()
	if n := len(t.Names) - 1; n >= 0 && isFactor(t.Names[n]) {
		if err := factor(d, t.Names[n], &t.Factor); err != nil {
			return err
		}
		t.Names = t.Names[:n]
	}
	if len(t.Names) == 0 {
		return d.ArgErr()
	}
	words := tokenWords(&t.TokenPrices)
	words["above"] = func(d *caddyfile.Dispenser) error { return above(d, &t.Above) }
	if err := settings.Block(d, words, "above"); err != nil {
		return err
	}
	*into = append(*into, t)
	return nil
}

// geo reads the factor of a region.
func geo(d *caddyfile.Dispenser, into *[]catalog.Geo) error {
	words := d.RemainingArgs()
	if len(words) != 2 {
		return d.ArgErr()
	}
	g := catalog.Geo{Name: words[0]}
	if err := factor(d, words[1], &g.Factor); err != nil {
		return err
	}
	*into = append(*into, g)
	return nil
}

// toolPrice reads the price of one use of a tool, and the number of uses to reserve.
func toolPrice(d *caddyfile.Dispenser, into *[]catalog.ToolPrice) error {
	words := d.RemainingArgs()
	if len(words) != 2 && (len(words) != 4 || words[2] != "max") {
		return d.Errf("call: wrong arguments; allowed: <tool> <amount> [max <uses>]")
	}
	price, err := parseAmount(words[1])
	if err != nil {
		return d.WrapErr(err)
	}
	c := catalog.ToolPrice{Tool: words[0], Price: price}
	if len(words) == 4 {
		c.Max, err = strconv.ParseInt(words[3], 10, 64)
		if err != nil || c.Max < 1 || c.Max > catalog.MaxUses {
			return d.Errf("max %q is not supported; allowed: 1 to %d", words[3], catalog.MaxUses)
		}
	}
	*into = append(*into, c)
	return nil
}

// unitPrice reads the price of a character, a second or a minute. A minute is 60 seconds; the price of
// a second is rounded up.
func unitPrice(d *caddyfile.Dispenser, into *[]catalog.UnitPrice) error {
	words := d.RemainingArgs()
	if len(words) != 2 && (len(words) != 4 || words[2] != "max") {
		return d.Errf("per: wrong arguments; allowed: character|second|minute <amount> [max <seconds>]")
	}
	price, err := parseAmount(words[1])
	if err != nil {
		return d.WrapErr(err)
	}
	u := catalog.UnitPrice{Unit: catalog.Unit(words[0]), Price: price}
	if words[0] == "minute" {
		u.Unit, u.Price = catalog.SecondUnit, (price+59)/60
	}
	if len(words) == 4 {
		if u.Max, err = strconv.ParseInt(words[3], 10, 64); err != nil || u.Max < 1 {
			return d.Errf("max %q is not supported; allowed: 1 to %d seconds", words[3], catalog.MaxRecording)
		}
	}
	*into = append(*into, u)
	return nil
}

// isFactor reports whether a word begins like a factor: with x and a digit.
func isFactor(word string) bool {
	return len(word) > 1 && word[0] == 'x' && '0' <= word[1] && word[1] <= '9'
}

// factor reads a factor, such as x0.5.
func factor(d *caddyfile.Dispenser, word string, into *money.Amount) error {
	var err error
	if isFactor(word) {
		*into, err = money.Parse(word[1:])
	}
	if err != nil || !money.ValidFactor(*into) {
		return d.Errf("%q is not a factor; allowed: x0.0001 to x1000 with at most four decimal places, such as x0.5", word)
	}
	return nil
}

// onDisconnect reads the arguments of on_disconnect.
func onDisconnect(into *catalog.OnDisconnect) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		var err error
		*into, err = catalog.ParseOnDisconnect(d.RemainingArgs()...)
		return settings.Located(d, err)
	}
}

// variant reads the arguments of image or second: a resolution and the word audio, both
// optional, and an amount.
func variant(d *caddyfile.Dispenser, into *[]catalog.Variant) error {
	var v catalog.Variant
	words := d.RemainingArgs()
	if len(words) == 0 {
		return d.ArgErr()
	}
	var err error
	if v.Price, err = parseAmount(words[len(words)-1]); err != nil {
		return d.WrapErr(err)
	}
	words = words[:len(words)-1]
	if n := len(words); n > 0 && words[n-1] == "audio" {
		v.Audio, words = true, words[:n-1]
	}
	if len(words) > 1 {
		return d.Errf("%q: only a resolution, the word audio and an amount are allowed", strings.Join(words, " "))
	}
	if len(words) == 1 {
		v.Resolution = words[0]
	}
	*into = append(*into, v)
	return nil
}

func optionalAmount(into **money.Amount) func(*caddyfile.Dispenser) error {
	return settings.One(func(word string) error {
		a, err := parseAmount(word)
		*into = &a
		return err
	})
}

func parseAmount(word string) (money.Amount, error) {
	a, err := money.Parse(word)
	if err == nil && a < 0 {
		err = fmt.Errorf("%s: the amount is negative; allowed: 0 and above", word)
	}
	return a, err
}

func validateUnpriced(word string) error {
	if word != AllowUnpriced && word != refuseUnpriced {
		return fmt.Errorf("unpriced: %q is not supported; allowed: allow, refuse", word)
	}
	return nil
}

func validateCurrency(word string) error {
	if len(word) != 3 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("currency: %q is not supported; allowed: three capital letters of ISO 4217, such as USD", word)
	}
	return nil
}
