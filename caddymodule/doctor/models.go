package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// checkPrices searches for models whose calls are all refused or all free, and for prices of
// models that no route serves.
func checkPrices(config any) []Finding {
	prices := pricesOf(config)
	if len(prices) == 0 {
		if !sells(config) {
			return nil
		}
		return []Finding{{
			"warning", "apps.modelgate", "plans or top-ups are sold, and no model has a price: every call is free",
			"add a price block for what is sold: price <pattern> { input … output … context … max_output … }",
		}}
	}
	var priced catalog.Patterns
	for i := range prices {
		if prices[i].ForCalls() {
			priced = append(priced, prices[i].Model)
		}
	}
	free := at(config, "apps", "modelgate", "unpriced") == caddymodule.AllowUnpriced
	var findings []Finding
	var taken catalog.Patterns
	for _, b := range blocksOf(config) {
		taken = append(taken, b.taken...)
		findings = append(findings, b.check(priced, free)...)
	}
	generated := patternsOf(config, "backends")
	for i := range prices {
		p := &prices[i]
		path := fmt.Sprintf("apps.modelgate.prices[%d]", i)
		made := slices.ContainsFunc(generated, func(models catalog.Pattern) bool { return overlap(p.Model, models) })
		if p.ForCalls() && !made && !meetsAny(p.Model, taken) {
			findings = append(findings, Finding{
				"warning", path, fmt.Sprintf("%s has a price for calls, and no route takes it: every call of it returns 404 MODEL_NOT_FOUND", p.Model),
				"add a route for it to modelgate_messages or modelgate_completions, or remove the price",
			})
		}
		if len(p.Image)+len(p.Second) > 0 && !made {
			findings = append(findings, Finding{
				"warning", path, fmt.Sprintf("%s has a price for generations, and no backend runs it: every task of it is refused", p.Model),
				"add it to the models of a backend, or remove the price",
			})
		}
	}
	return findings
}

// pricesOf returns the prices. If they cannot be decoded, it returns none, because the start of
// the configuration reports the error.
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
	plans, _ := at(config, "apps", "modelgate", "plans").([]any)
	return len(plans)+len(paymentsOf(config)) > 0
}

// block is a directive of model calls.
type block struct {
	path   string
	listed []catalog.Pattern // in the word models
	taken  []catalog.Pattern // matched by its routes
}

// blocksOf returns the directives of model calls.
func blocksOf(config any) (blocks []block) {
	walk(config, "", func(path string, object map[string]any) {
		if handler, _ := object["handler"].(string); handler == "modelgate_messages" || handler == "modelgate_completions" {
			blocks = append(blocks, block{path, patterns(object["models"]), takenBy(object["routes"])})
		}
	})
	return blocks
}

// takenBy returns the models that routes can match: every model, unless a route has the
// matcher modelgate_model.
func takenBy(routes any) (taken []catalog.Pattern) {
	list, _ := routes.([]any)
	for _, route := range list {
		handlers, _ := at(route, "handle").([]any)
		sets, _ := at(route, "match").([]any)
		for _, set := range sets {
			if models := patterns(at(set, "modelgate_model", "patterns")); len(models) > 0 {
				taken = append(taken, models...)
			} else {
				taken = append(taken, "*")
			}
		}
		if len(sets) > 0 {
			continue
		}
		for _, handler := range handlers {
			switch name, _ := at(handler, "handler").(string); name {
			case "subroute":
				taken = append(taken, takenBy(at(handler, "routes"))...)
			case "headers", "vars", "map", "log_append", "request_body", "rewrite": // these do not answer requests
			default:
				taken = append(taken, "*")
			}
		}
	}
	return taken
}

// check returns the findings about the models of the block. It gets the patterns that have a
// price for calls, and whether other models are free.
func (b block) check(priced catalog.Patterns, free bool) []Finding {
	if !free && !slices.ContainsFunc(b.taken, func(models catalog.Pattern) bool { return meetsAny(models, priced) }) {
		return []Finding{{
			"error", b.path, "there are prices, and none for calls of a model that this block takes: every call of it is refused",
			"add a price for calls: price <model> { input … output … context … max_output … }, or let models without a price be free: unpriced allow",
		}}
	}
	var findings []Finding
	add := func(path, what, remedy string) {
		findings = append(findings, Finding{"warning", path, what, remedy})
	}
	const giveOne = "let models without a price be free: unpriced allow"
	for _, models := range b.taken {
		if !free && !meetsAny(models, priced) {
			add(b.path+".routes", fmt.Sprintf("a route takes %s, which has no price: every call of it is refused", models), "give it a price, remove the route, or "+giveOne)
		}
	}
	for _, model := range b.listed {
		if !free && !meetsAny(model, priced) {
			add(b.path+".models", fmt.Sprintf("%s is listed and has no price: every call of it is refused", model), "give it a price, take it off the list, or "+giveOne)
		}
		if !meetsAny(model, b.taken) {
			add(b.path+".models", fmt.Sprintf("%s is listed and no route takes it: every call of it returns 404 MODEL_NOT_FOUND", model), "add a route for it, or take it off the list")
		}
	}
	return findings
}

// patterns decodes a list of patterns.
func patterns(value any) (list []catalog.Pattern) {
	words, _ := value.([]any)
	for _, word := range words {
		pattern, _ := word.(string)
		list = append(list, catalog.Pattern(pattern))
	}
	return list
}

// patternsOf returns the models of the rows of a list of the app, such as backends.
func patternsOf(config any, list string) (models []catalog.Pattern) {
	rows, _ := at(config, "apps", "modelgate", list).([]any)
	for _, row := range rows {
		models = append(models, patterns(at(row, "models"))...)
	}
	return models
}

// meet reports whether any model can match both patterns.
func meet(a, b catalog.Pattern) bool {
	return a.Match(strings.TrimSuffix(string(b), "*")) || b.Match(strings.TrimSuffix(string(a), "*"))
}

// meetsAny reports whether any model can match both a pattern and one of the others.
func meetsAny(pattern catalog.Pattern, others []catalog.Pattern) bool {
	return slices.ContainsFunc(others, func(other catalog.Pattern) bool { return meet(pattern, other) })
}

// overlap is meet for generations: the prefix of a kind, such as video-, is ignored.
func overlap(a, b catalog.Pattern) bool { return meet(bare(a), bare(b)) }

func bare(pattern catalog.Pattern) catalog.Pattern {
	for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
		pattern = catalog.Pattern(strings.TrimPrefix(string(pattern), string(kind)+"-"))
	}
	return pattern
}
