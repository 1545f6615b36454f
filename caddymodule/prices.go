package caddymodule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/money"
)

// What becomes of calls of a model that has no price.
const (
	allowUnpriced  = "allow"
	refuseUnpriced = "refuse"
)

// Prices returns what models cost.
func (a *App) Prices() *catalog.Prices { return a.prices }

// PriceOf returns what calls of a model cost, nil where they are free, and
// whether it may be called. A configuration without any price charges nothing
// for any model; where there are prices, a model without one for calls is refused
// unless the configuration says unpriced allow.
func (a *App) PriceOf(model string) (price *catalog.Price, ok bool) {
	if a.prices.Len() == 0 {
		return nil, true
	}
	if price, ok = a.prices.Find(model); ok && price.ForCalls() {
		return price, true
	}
	return nil, a.Unpriced == allowUnpriced
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
//		request        <amount>
//		context        <tokens>
//		max_output     <tokens>
//		image  [<resolution>] <amount>
//		second [<resolution>] [audio] <amount>
//	}
func (a *App) unmarshalPrice(d *caddyfile.Dispenser) error {
	at := *d
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	pattern, err := catalog.ParsePattern(word)
	if err != nil {
		return d.WrapErr(err)
	}
	if slices.ContainsFunc(a.PriceRows, func(p catalog.Price) bool { return p.Model == pattern }) {
		return d.Errf("price %s is there twice", pattern)
	}

	p := catalog.Price{Model: pattern}
	err = Block(d, map[string]func(*caddyfile.Dispenser) error{
		"input":          optionalAmount(&p.Input),
		"output":         optionalAmount(&p.Output),
		"cache_read":     optionalAmount(&p.CacheRead),
		"cache_write":    optionalAmount(&p.CacheWrite),
		"cache_write_1h": optionalAmount(&p.CacheWrite1h),
		"reasoning":      optionalAmount(&p.Reasoning),
		"request":        func(d *caddyfile.Dispenser) error { return amount(d, &p.Request) },
		"context":        func(d *caddyfile.Dispenser) error { return count(d, &p.Context, catalog.MaxTokens) },
		"max_output":     func(d *caddyfile.Dispenser) error { return count(d, &p.MaxOutput, catalog.MaxTokens) },
		"image":          func(d *caddyfile.Dispenser) error { return variant(d, &p.Image) },
		"second":         func(d *caddyfile.Dispenser) error { return variant(d, &p.Second) },
	}, "image", "second")
	if err != nil {
		return err
	}
	a.PriceRows = append(a.PriceRows, p)
	return located(&at, p.Validate())
}

// variant reads what follows image or second: a resolution and the word audio,
// both optional, and an amount.
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
	return func(d *caddyfile.Dispenser) error {
		*into = new(money.Amount)
		return amount(d, *into)
	}
}

func amount(d *caddyfile.Dispenser, into *money.Amount) error {
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	var err error
	*into, err = parseAmount(word)
	return located(d, err)
}

func parseAmount(word string) (money.Amount, error) {
	a, err := money.Parse(word)
	if err == nil && a < 0 {
		err = fmt.Errorf("%s: an amount must not be negative here", word)
	}
	return a, err
}

func validateUnpriced(word string) error {
	if word != allowUnpriced && word != refuseUnpriced {
		return fmt.Errorf("unpriced %q: it is allow or refuse", word)
	}
	return nil
}

func validateCurrency(word string) error {
	if len(word) != 3 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("currency %q: it has the three capital letters of ISO 4217, as USD", word)
	}
	return nil
}
