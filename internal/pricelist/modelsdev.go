package pricelist

import (
	"regexp"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// modelsDev is the format of https://models.dev/api.json: providers with their models. Amounts are per
// million tokens.
var modelsDev = format{
	name: "models.dev", source: "https://models.dev/api.json (github.com/anomalyco/models.dev)", licence: "MIT",
	matches: func(top map[string]any) bool {
		for _, provider := range top {
			if object(object(provider)["models"]) == nil {
				return false
			}
		}
		return true
	},
	read: func(r *reader, top map[string]any) {
		for _, provider := range sorted(top) {
			if r.Provider != "" && r.Provider != provider {
				continue
			}
			models := object(object(top[provider])["models"])
			for _, model := range sorted(models) {
				if key := provider + "/" + model; r.selects(key, model) {
					e := &entry{reader: r, key: key}
					e.readModelsDev(object(models[model]))
					e.finish(model)
				}
			}
		}
	},
}

// modelsDevWords are the words of the members of a cost.
var modelsDevWords = map[string]string{
	"input": "input", "output": "output", "cache_read": "cache_read", "cache_write": "cache_write",
	"reasoning": "reasoning", "input_audio": "audio_input", "output_audio": "audio_output",
}

func (e *entry) readModelsDev(model map[string]any) {
	if model["status"] == "deprecated" {
		e.refuse("it is deprecated")
		return
	}
	p, limit := &e.price, object(model["limit"])
	p.Context = e.count("limit.context", limit["context"])
	p.MaxOutput = e.count("limit.output", limit["output"])
	e.cost("cost", object(model["cost"]), &p.TokenPrices, &p.Above)
	modes := object(object(model["experimental"])["modes"])
	for _, name := range sorted(modes) {
		e.mode(name, object(modes[name]))
	}
	e.completeReasoning(model["reasoning"])
}

// cost reads a cost and its costs of long prompts.
func (e *entry) cost(path string, cost map[string]any, into *catalog.TokenPrices, above *[]catalog.Above) {
	e.tokens(path, cost, into, "tiers", "context_over_200k")
	tiers, _ := cost["tiers"].([]any)
	for _, value := range tiers {
		tier := object(object(value)["tier"])
		if kind := tier["type"]; kind != nil && kind != "context" {
			e.ignored[path+".tiers of another type than context"] = true
		} else {
			e.long(path+".tiers", object(value), e.count(path+".tiers.tier.size", tier["size"]), above)
		}
	}
	// The list repeats its tiers in this member for older programs, whatever their size.
	if over := object(cost["context_over_200k"]); over != nil && len(*above) == 0 {
		e.long(path+".context_over_200k", over, 200_000, above)
	}
}

// long reads the cost of prompts that have more than size tokens.
func (e *entry) long(path string, cost map[string]any, size int64, above *[]catalog.Above) {
	var prices catalog.TokenPrices
	e.tokens(path, cost, &prices, "tier")
	if prices != (catalog.TokenPrices{}) {
		*above = append(*above, catalog.Above{Tokens: size, TokenPrices: prices})
	}
}

// tokens reads the prices of tokens. It ignores other members, except those that the caller reads.
func (e *entry) tokens(path string, cost map[string]any, into *catalog.TokenPrices, read ...string) {
	for _, member := range sorted(cost) {
		switch word := modelsDevWords[member]; {
		case word != "":
			set(into, word, e.amount(path+"."+member, cost[member], 1))
		case !slices.Contains(read, member):
			e.ignored[path+"."+member] = true
		}
	}
}

// tierName matches the names of tiers that are written. A name with digits could be read as a factor.
var tierName = regexp.MustCompile(`^[a-z][a-z_-]{0,31}$`)

// mode reads the price of a mode. Its names are those by which requests choose it and answers report
// it.
func (e *entry) mode(name string, mode map[string]any) {
	var tier catalog.Tier
	body := object(object(mode["provider"])["body"])
	names := []any{body["speed"], body["service_tier"]}
	if name == "fast" {
		names = append(names, name)
	}
	for _, value := range names {
		if word, _ := value.(string); tierName.MatchString(word) && !slices.Contains(tier.Names, word) {
			tier.Names = append(tier.Names, word)
		}
	}
	path := "experimental.modes." + name
	e.cost(path+".cost", object(mode["cost"]), &tier.TokenPrices, &tier.Above)
	if len(tier.Names) > 0 && tier.TokenPrices != (catalog.TokenPrices{}) {
		e.price.Tier = append(e.price.Tier, tier)
	} else {
		e.ignored[path] = true
	}
}
