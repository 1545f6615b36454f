package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// checkPrices searches for models whose calls are all refused or all free, and for prices
// of models without a route.
func checkPrices(config any) []Finding {
	prices := pricesOf(config)
	if len(prices) == 0 {
		if !sells(config) {
			return nil
		}
		return []Finding{{
			"warning", "apps.modelgate", "plans or top-ups are on sale, but no model has a price: every call is free",
			"add a price block for the models: price <pattern> { input … output … context … max_output … }",
		}}
	}
	priced := make(map[catalog.Unit]catalog.Patterns)
	for i := range prices {
		for _, unit := range []catalog.Unit{catalog.NoUnit, catalog.AnyUnit} {
			if prices[i].ForCalls(unit) {
				priced[unit] = append(priced[unit], prices[i].Model)
			}
		}
	}
	free := at(config, "apps", "modelgate", "unpriced") == caddymodule.AllowUnpriced
	var findings []Finding
	var matched, matchedMedia catalog.Patterns
	for _, b := range blocksOf(config) {
		matched = append(matched, b.matched...)
		unit := catalog.NoUnit
		if b.media {
			unit, matchedMedia = catalog.AnyUnit, append(matchedMedia, b.matched...)
		}
		findings = append(findings, b.check(priced[unit], free)...)
	}
	generations := patternsOf(config, "backends")
	for i := range prices {
		p := &prices[i]
		path := fmt.Sprintf("apps.modelgate.prices[%d]", i)
		generated := slices.ContainsFunc(generations, func(models catalog.Pattern) bool { return overlapGenerations(p.Model, models) })
		if (p.ForCalls(catalog.NoUnit) || len(p.Per) > 0) && !generated && !overlapsAny(p.Model, matched) {
			findings = append(findings, Finding{
				"warning", path, fmt.Sprintf("%s has a price for calls, but no route matches it: every call of it returns 404 MODEL_NOT_FOUND", p.Model),
				"add a route for it to modelgate_messages, modelgate_completions or modelgate_openai, or remove the price",
			})
		}
		drawn := len(p.Second) == 0 && overlapsAny(p.Model, matchedMedia) // by /v1/images/generations
		if len(p.Image)+len(p.Second) > 0 && !generated && !drawn {
			findings = append(findings, Finding{
				"warning", path, fmt.Sprintf("%s has a price for generations, but no backend runs it: every task of it is refused", p.Model),
				"add it to the models of a backend, or remove the price",
			})
		}
	}
	return findings
}

// pricesOf returns the prices. If they cannot be decoded, it returns none: Caddy reports
// the error when it starts the configuration.
func pricesOf(config any) []catalog.Price {
	var prices []catalog.Price
	raw, err := json.Marshal(at(config, "apps", "modelgate", "prices"))
	if err == nil {
		err = json.Unmarshal(raw, &prices)
	}
	if err != nil {
		return nil
	}
	return prices
}

// sells reports whether users can buy plans or top up wallets.
func sells(config any) bool {
	return len(get[[]any](config, "apps", "modelgate", "plans"))+len(paymentsOf(config)) > 0
}

// block is a directive of model calls.
type block struct {
	path    string
	media   bool              // it serves images and audio
	listed  []catalog.Pattern // by the word models
	matched []catalog.Pattern // that its routes match; aliases are replaced by their models

	fallbacks any  // its word fallbacks
	own       bool // users may name the objects that the vendor keeps for them
}

// blocksOf returns the directives of model calls.
func blocksOf(config any) (blocks []block) {
	aliases := aliasesOf(config)
	resolve := func(list []catalog.Pattern) []catalog.Pattern {
		for i, model := range list {
			if target, ok := aliases[string(model)]; ok {
				list[i] = catalog.Pattern(target)
			}
		}
		return list
	}
	everywhere := get[string](config, "apps", "modelgate", "state")
	walk(config, "", func(path string, object map[string]any) {
		if handler, _ := object["handler"].(string); slices.Contains(callHandlers, handler) {
			blocks = append(blocks, block{
				own:  caddymodule.VendorState(cmp.Or(get[string](object, "state"), everywhere)) == caddymodule.StateOwn,
				path: path, media: handler == "modelgate_openai",
				listed: resolve(patterns(object["models"])), matched: resolve(matchedPatterns(object["routes"])), fallbacks: object["fallbacks"],
			})
		}
	})
	return blocks
}

// matchedPatterns returns the models that routes can match: every model, unless a route has the
// matcher modelgate_model.
func matchedPatterns(routes any) (matched []catalog.Pattern) {
	for _, route := range get[[]any](routes) {
		sets := get[[]any](route, "match")
		for _, set := range sets {
			if models := patterns(at(set, "modelgate_model", "patterns")); len(models) > 0 {
				matched = append(matched, models...)
			} else {
				matched = append(matched, "*")
			}
		}
		if len(sets) > 0 {
			continue
		}
		for _, handler := range get[[]any](route, "handle") {
			switch name := get[string](handler, "handler"); name {
			case "subroute":
				matched = append(matched, matchedPatterns(at(handler, "routes"))...)
			case "headers", "vars", "map", "log_append", "request_body", "rewrite": // these do not answer requests
			default:
				matched = append(matched, "*")
			}
		}
	}
	return matched
}

// check returns the findings about the models of the block. priced has the patterns with a
// price for calls; free means that calls of other models are free.
func (b block) check(priced catalog.Patterns, free bool) []Finding {
	if !free && !slices.ContainsFunc(b.matched, func(models catalog.Pattern) bool { return overlapsAny(models, priced) }) {
		return []Finding{{
			"error", b.path, "there are prices, but none for calls of a model that this block takes: every call of it is refused",
			"add a price for calls: price <model> { input … output … context … max_output … }, or let models without a price be free: unpriced allow",
		}}
	}
	var findings []Finding
	add := func(path, what, remedy string) {
		findings = append(findings, Finding{"warning", path, what, remedy})
	}
	const allowUnpriced = "let models without a price be free: unpriced allow"
	for _, models := range b.matched {
		if !free && !overlapsAny(models, priced) {
			add(b.path+".routes", fmt.Sprintf("a route matches %s, which has no price: every call of it is refused", models), "give it a price, remove the route, or "+allowUnpriced)
		}
	}
	for _, model := range b.listed {
		if !free && !overlapsAny(model, priced) {
			add(b.path+".models", fmt.Sprintf("%s is listed but has no price: every call of it is refused", model), "give it a price, remove it from the list, or "+allowUnpriced)
		}
		if !overlapsAny(model, b.matched) {
			add(b.path+".models", fmt.Sprintf("%s is listed but no route matches it: every call of it returns 404 MODEL_NOT_FOUND", model), "add a route for it, or remove it from the list")
		}
	}
	return findings
}

// patterns decodes a list of patterns.
func patterns(value any) (list []catalog.Pattern) {
	for _, word := range get[[]any](value) {
		list = append(list, catalog.Pattern(get[string](word)))
	}
	return list
}

// patternsOf returns the models of the rows of a list of the app, such as backends.
func patternsOf(config any, list string) (models []catalog.Pattern) {
	for _, row := range get[[]any](config, "apps", "modelgate", list) {
		models = append(models, patterns(at(row, "models"))...)
	}
	return models
}

// overlap reports whether any model can match both patterns.
func overlap(a, b catalog.Pattern) bool {
	return a.Match(strings.TrimSuffix(string(b), "*")) || b.Match(strings.TrimSuffix(string(a), "*"))
}

// overlapsAny reports whether any model can match both a pattern and one of the others.
func overlapsAny(pattern catalog.Pattern, others []catalog.Pattern) bool {
	return slices.ContainsFunc(others, func(other catalog.Pattern) bool { return overlap(pattern, other) })
}

// overlapGenerations is overlap for generations: it ignores the prefix of a kind, such as
// video-.
func overlapGenerations(a, b catalog.Pattern) bool { return overlap(bare(a), bare(b)) }

func bare(pattern catalog.Pattern) catalog.Pattern {
	for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
		pattern = catalog.Pattern(strings.TrimPrefix(string(pattern), string(kind)+"-"))
	}
	return pattern
}
