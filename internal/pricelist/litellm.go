package pricelist

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/money"
)

// liteLLM is the format of LiteLLM's model_prices_and_context_window.json: one object of models.
// Amounts are per token.
var liteLLM = format{
	name: "litellm", source: "model_prices_and_context_window.json of LiteLLM (github.com/BerriAI/litellm)", licence: "MIT",
	matches: func(top map[string]any) bool {
		known := false
		for _, model := range top {
			if object(model) == nil {
				return false
			}
			known = known || object(model)["litellm_provider"] != nil
		}
		return known
	},
	read: func(r *reader, top map[string]any) {
		for _, key := range sorted(top) {
			model := object(top[key])
			provider, _ := model["litellm_provider"].(string)
			name := key
			if prefix, rest, ok := strings.Cut(key, "/"); ok && isProvider(provider, prefix) {
				name = rest
			}
			if key == "sample_spec" || r.Provider != "" && !isProvider(provider, r.Provider) || !r.selects(key, name) {
				continue
			}
			e := &entry{reader: r, key: key}
			e.readLiteLLM(model)
			e.finish(name)
		}
	},
}

// isProvider reports whether provider has this name, or is a part of that provider, as
// vertex_ai-language-models is of vertex_ai.
func isProvider(provider, name string) bool {
	return provider == name || strings.HasPrefix(provider, name+"-")
}

// liteLLMWords are the words of members without their suffixes.
var liteLLMWords = map[string]string{ //nolint:gosec // tokens of models
	"input_cost_per_token": "input", "output_cost_per_token": "output",
	"cache_read_input_token_cost": "cache_read", "cache_creation_input_token_cost": "cache_write",
	"cache_creation_input_token_cost_above_1hr": "cache_write_1h", "output_cost_per_reasoning_token": "reasoning",
	"input_cost_per_audio_token": "audio_input", "output_cost_per_audio_token": "audio_output",
	"input_cost_per_image_token": "image_input", "output_cost_per_image_token": "image_output",
}

var (
	// liteLLMMember splits a member into its name without suffixes, the threshold in thousands of
	// tokens, and the tier.
	liteLLMMember = regexp.MustCompile(`^(.+?)(?:_above_([0-9]{1,6})k_tokens)?(?:_(priority|flex|batches))?$`)

	// liteLLMPrice matches the members that are probably prices.
	liteLLMPrice = regexp.MustCompile(`cost|pric|multiplier|uplift`)

	// liteLLMModes are the modes that calls of this gateway have. inputOnly is set if a call of the
	// mode has no output tokens, and withoutTokens if its price may have no tokens at all. units has
	// the members that are prices of its units; where several are of one unit, the highest applies.
	liteLLMModes = map[string]struct {
		inputOnly, withoutTokens bool
		units                    map[string]catalog.Unit
	}{
		"chat": {}, "completion": {}, "responses": {},
		"embedding":           {inputOnly: true},
		"rerank":              {inputOnly: true, withoutTokens: true},
		"image_generation":    {withoutTokens: true, units: map[string]catalog.Unit{"input_cost_per_image": catalog.ImageUnit, "output_cost_per_image": catalog.ImageUnit}},
		"audio_speech":        {withoutTokens: true, units: map[string]catalog.Unit{"input_cost_per_character": catalog.CharacterUnit}},
		"audio_transcription": {withoutTokens: true, units: map[string]catalog.Unit{"input_cost_per_second": catalog.SecondUnit, "output_cost_per_second": catalog.SecondUnit}},
	}
)

func (e *entry) readLiteLLM(model map[string]any) {
	name, _ := model["mode"].(string)
	mode, known := liteLLMModes[name]
	date, _ := model["deprecation_date"].(string)
	switch {
	case !known:
		e.refuse("its mode is %q; imported are %s", name, strings.Join(slices.Sorted(maps.Keys(liteLLMModes)), ", "))
		return
	case date != "" && date <= e.Date:
		e.refuse("it is deprecated")
		return
	}
	for _, member := range sorted(model) {
		switch unit := mode.units[member]; {
		case unit != catalog.NoUnit:
			e.addUnit(unit, e.amount(member, model[member], 1))
		case member == "input_cost_per_pixel":
			e.refuse("it is priced by the pixel")
		default:
			e.readMember(member, model[member])
		}
	}
	p := &e.price
	if mode.withoutTokens && p.ForCalls(catalog.AnyUnit) && p.TokenPrices == (catalog.TokenPrices{}) {
		e.withoutTokens = true
		return // their number needs no bound
	}
	e.completeReasoning(model["supports_reasoning"])
	p.Context = e.count("max_input_tokens", model["max_input_tokens"])
	if !mode.inputOnly {
		p.MaxOutput = e.count("max_output_tokens", model["max_output_tokens"])
	} else if p.Output == nil {
		p.Output = new(money.Amount)
	}
}

// addUnit sets the price of a unit, unless it has a higher one.
func (e *entry) addUnit(unit catalog.Unit, a *money.Amount) {
	p := &e.price
	switch {
	case a == nil:
	case unit == catalog.ImageUnit:
		if len(p.Image) == 0 || *a > p.Image[0].Price {
			p.Image = []catalog.Variant{{Price: *a}}
		}
	case len(p.Per) == 0 || *a > p.Per[0].Price:
		p.Per = []catalog.UnitPrice{{Unit: unit, Price: *a}}
	}
}

func (e *entry) readMember(member string, value any) {
	p := &e.price
	switch parts := liteLLMMember.FindStringSubmatch(member); {
	case parts != nil && liteLLMWords[parts[1]] != "":
		if a := e.amount(member, value, money.Million); a != nil {
			set(e.block(parts[2], parts[3]), liteLLMWords[parts[1]], a)
		}
	case member == "input_cost_per_request" || member == "input_cost_per_query":
		if a := e.amount(member, value, 1); a != nil {
			p.Request = *a
		}
	case member == "search_context_cost_per_query":
		sizes := object(value)
		if sizes == nil {
			sizes = map[string]any{"": value}
		}
		for _, size := range sorted(sizes) { // a call chooses the size, so the highest price applies
			if a := e.amount(member, sizes[size], 1); a != nil && (len(p.Call) == 0 || *a > p.Call[0].Price) {
				p.Call = []catalog.ToolPrice{{Tool: "web_search", Price: *a}}
			}
		}
	case member == "provider_specific_entry":
		e.readFactors(member, object(value))
	case liteLLMPrice.MatchString(member) && value != nil:
		e.ignored[member] = true
	}
}

// block returns the prices at a threshold, in thousands of tokens, and a tier. Each may be empty.
func (e *entry) block(thousands, tier string) *catalog.TokenPrices {
	prices, above := &e.price.TokenPrices, &e.price.Above
	if tier != "" {
		if tier == "batches" {
			tier = "batch" // as usage.service_tier reports it
		}
		i := slices.IndexFunc(e.price.Tier, func(t catalog.Tier) bool { return t.Names[0] == tier })
		if i < 0 {
			i = len(e.price.Tier)
			e.price.Tier = append(e.price.Tier, catalog.Tier{Names: []string{tier}})
		}
		prices, above = &e.price.Tier[i].TokenPrices, &e.price.Tier[i].Above
	}
	if thousands == "" {
		return prices
	}
	n, _ := strconv.ParseInt(thousands+"000", 10, 64)
	i := slices.IndexFunc(*above, func(b catalog.Above) bool { return b.Tokens == n })
	if i < 0 {
		i = len(*above)
		*above = append(*above, catalog.Above{Tokens: n})
	}
	return &(*above)[i].TokenPrices
}

// readFactors reads the factors of a region and of a speed.
func (e *entry) readFactors(member string, factors map[string]any) {
	for _, name := range sorted(factors) {
		path := member + "." + name
		if name != "us" && name != "fast" {
			e.ignored[path] = true
		} else if f := e.product(path, factors[name], 1, money.Unit); f != nil && name == "us" {
			e.price.Geo = []catalog.Geo{{Name: name, Factor: *f}}
		} else if f != nil {
			e.price.Tier = append(e.price.Tier, catalog.Tier{Names: []string{name}, Factor: *f})
		}
	}
}
