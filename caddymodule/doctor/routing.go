package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// aliasesOf returns the aliases and their models. If they cannot be decoded, it returns none.
func aliasesOf(config any) (aliases map[string]string) {
	raw, err := json.Marshal(at(config, "apps", "modelgate", "aliases"))
	if err != nil || json.Unmarshal(raw, &aliases) != nil {
		return nil
	}
	return aliases
}

// checkStored searches for blocks whose users can name conversations but cannot create any: that
// call has no model.
func checkStored(config any) (findings []Finding) {
	for _, b := range blocksOf(config) {
		if b.media && b.own && !slices.Contains(b.matched, "*") {
			findings = append(findings, Finding{
				"warning", b.path + ".routes",
				"state is own, but no route takes POST /v1/conversations, which has no model: it returns 404",
				"add a route without modelgate_model to this block, or with modelgate_model *",
			})
		}
	}
	return findings
}

// checkRouting searches for aliases and fallbacks whose models no route takes.
func checkRouting(config any) (findings []Finding) {
	aliases := aliasesOf(config)
	var matched catalog.Patterns
	blocks := blocksOf(config)
	for _, b := range blocks {
		matched = append(matched, b.matched...)
		for i, row := range get[[]any](b.fallbacks) {
			for _, model := range patterns(at(row, "to")) {
				if target, ok := aliases[string(model)]; ok {
					model = catalog.Pattern(target)
				}
				if !overlapsAny(model, b.matched) {
					findings = append(findings, Finding{
						"warning", fmt.Sprintf("%s.fallbacks[%d]", b.path, i),
						fmt.Sprintf("no route of the block matches the fallback %s: its calls return 404 MODEL_NOT_FOUND", model),
						"add a route for it to this block, or remove it from the fallbacks",
					})
				}
			}
		}
	}
	if len(blocks) == 0 {
		return findings
	}
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if target := catalog.Pattern(aliases[name]); !overlapsAny(target, matched) {
			findings = append(findings, Finding{
				"warning", "apps.modelgate.aliases." + name,
				fmt.Sprintf("no route matches %s, the model of this alias: every call of it returns 404 MODEL_NOT_FOUND", target),
				"add a route for the model, or remove the alias",
			})
		}
	}
	return findings
}
