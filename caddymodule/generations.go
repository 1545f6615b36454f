package caddymodule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// Generation is a checked request for an image or a video, with its backend and its
// price.
type Generation struct {
	generation.Checked

	// Backend is the name of the backend that runs it.
	Backend string

	// Price is the price of its model; nil if it is free.
	Price *catalog.Price

	// Quote is the amount that is held for it, and its rule.
	Quote catalog.Quote

	notifyURL string
}

// Families returns the options of models, by their names.
func (a *App) Families() *catalog.Families { return a.families }

// Generation checks a request against the family of its model, finds its backend and
// calculates its price. It returns MODEL_NOT_FOUND for a model without a backend. It also
// does so for a model without a price, unless no model has one or the configuration has
// unpriced allow.
func (a *App) Generation(r generation.Request) (Generation, *fault.Fault) {
	if r.Model == "" && r.Passing() {
		r.Model = a.DefaultModel
	}
	checked, refused := generation.Check(a.families, r)
	if refused != nil {
		return Generation{}, refused
	}
	backend, ok := a.routes.Find(checked.Kind, checked.Model)
	if !ok {
		return Generation{}, fault.At(fault.ModelNotFound, "model", "there is no model %q here", checked.Model)
	}
	g := Generation{Checked: checked, Backend: backend.Name, notifyURL: a.notifyURL(backend)}
	if g.Price, ok = a.generationPrice(checked.Kind, checked.Model); !ok {
		return Generation{}, fault.At(fault.ModelNotFound, "model", "there is no model %q here: it has no price for generations", checked.Model)
	}
	if g.Price == nil {
		g.Quote = catalog.Quote{Kind: checked.Kind, Rule: "free of charge"}
		return g, nil
	}
	if g.Quote, refused = checked.Quote(g.Price); refused != nil {
		return Generation{}, refused
	}
	return g, nil
}

// generationPrice returns the price of a model, nil if it is free, and whether it may be used.
func (a *App) generationPrice(kind catalog.Kind, model string) (price *catalog.Price, ok bool) {
	prices := a.generationPrices[kind]
	if price, ok = prices.Find(kind, model); ok {
		return price, true
	}
	return nil, (a.prices.Len() == 0 || a.Unpriced == AllowUnpriced) && !prices.Bars(kind, model)
}

// Estimate is the answer to a dry run, which keeps nothing, holds no money and calls no backend.
type Estimate struct {
	DryRun   bool         `json:"dry_run"` // true
	Model    string       `json:"model"`
	Family   string       `json:"family,omitempty"`
	Price    money.Amount `json:"price"` // of the requested result
	Hold     money.Amount `json:"hold"`  // the amount that would be held until the result is delivered
	Currency string       `json:"currency"`
	Rule     string       `json:"rule"` // how the price is computed, as text
	Ignored  []string     `json:"ignored,omitempty"`
}

// Estimate returns the answer to a dry run of a generation.
func (a *App) Estimate(g *Generation) Estimate {
	return Estimate{
		DryRun: true, Model: g.Model, Family: g.Family,
		Price: g.Quote.Cost(), Hold: g.Quote.Hold, Currency: a.Currency, Rule: g.Quote.Rule,
	}
}

// GenerationModel is a model that the site serves for platform tasks, and what it takes.
type GenerationModel struct {
	Model   string `json:"model"`
	Pattern string `json:"pattern,omitempty"` // all models of this pattern are alike; Model is an example
	catalog.Family
	Request money.Amount      `json:"price_per_task,omitzero"`
	Second  []catalog.Variant `json:"price_per_second,omitempty"`
	Image   []catalog.Variant `json:"price_per_image,omitempty"`
}

// GenerationModel returns a model by its name; false if the site does not serve it.
func (a *App) GenerationModel(model string) (m GenerationModel, ok bool) {
	prefix, _, _ := strings.Cut(model, "-")
	kind := catalog.Kind(prefix)
	if kind != catalog.Video && kind != catalog.Image {
		return m, false
	}
	family, refused := a.families.Of(kind, model)
	if _, ok = a.routes.Find(kind, model); !ok || refused != nil {
		return m, false
	}
	price, ok := a.generationPrice(kind, model)
	m = GenerationModel{Model: model, Family: family}
	switch {
	case price == nil:
	case kind == catalog.Image:
		m.Request, m.Image = price.Request, price.Image
	default:
		m.Request, m.Second = price.Request, price.Second
	}
	return m, ok
}

// GenerationModels returns the models that the site serves for platform tasks, in the order of
// their names. It has the models that the configuration names, and one for each pattern.
func (a *App) GenerationModels() (models []GenerationModel) {
	patterns := []catalog.Pattern{catalog.Pattern(a.DefaultModel)}
	for _, row := range a.FamilyRows {
		patterns = append(patterns, row.Models...)
	}
	for _, row := range a.BackendRows {
		patterns = append(patterns, row.Models...)
	}
	for i := range a.PriceRows {
		patterns = append(patterns, a.PriceRows[i].Model)
	}
	for _, pattern := range patterns {
		for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
			models = append(models, a.modelsOf(kind, string(pattern))...)
		}
	}
	slices.SortStableFunc(models, func(a, b GenerationModel) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.Pattern, a.Pattern))
	})
	return slices.CompactFunc(models, func(a, b GenerationModel) bool { return a.Model == b.Model })
}

// modelsOf returns the model of a kind that a pattern names, or an example of them; none if the site
// does not serve it.
func (a *App) modelsOf(kind catalog.Kind, pattern string) []GenerationModel {
	name := strings.TrimPrefix(pattern, string(kind)+"-")
	if other := map[catalog.Kind]string{catalog.Video: "image-", catalog.Image: "video-"}[kind]; strings.HasPrefix(name, other) {
		return nil
	}
	name = string(kind) + "-" + name
	prefix, isPattern := strings.CutSuffix(name, "*")
	endings := []string{""}
	if isPattern {
		endings = []string{"1", "1-1"} // a name has three parts at least
	}
	for _, ending := range endings {
		if m, ok := a.GenerationModel(prefix + ending); ok {
			if isPattern {
				m.Pattern = name
			}
			return []GenerationModel{m}
		}
	}
	return nil
}

// generationPrices are the prices of generations, by kind.
type generationPrices map[catalog.Kind]*catalog.Models[*catalog.Price]

// newGenerationPrices returns the prices of generations among valid prices.
func newGenerationPrices(rows []catalog.Price) generationPrices {
	all := make(generationPrices)
	for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
		all[kind] = new(catalog.Models[*catalog.Price])
		for i := range rows {
			if p := &rows[i]; p.ForGenerations(kind) {
				all[kind].Add(p.Model, p)
			}
		}
	}
	return all
}

// Submission returns the generation in the form of the task engine. The caller adds
// IdempotencyKey and Fingerprint.
func (g *Generation) Submission(payer ledger.Payer, key string) task.Submission {
	job := g.Job()
	job.NotifyURL = g.notifyURL
	return task.Submission{
		Payer: payer, Key: key, Backend: g.Backend, Job: job,
		SessionID: g.SessionID, SessionContext: g.SessionContext, Quote: g.Quote,
	}
}

// checkDefaultModel returns an error if no backend runs the default model.
func (a *App) checkDefaultModel() error {
	if a.DefaultModel == "" {
		return nil
	}
	if err := validateDefaultModel(a.DefaultModel); err != nil {
		return err
	}
	if _, ok := a.routes.Find(catalog.Video, a.DefaultModel); !ok {
		return fmt.Errorf("default_model %s: no backend runs it", a.DefaultModel)
	}
	return nil
}

// validateDefaultModel returns an error if the default is not the name of one model.
func validateDefaultModel(name string) error {
	if p, err := catalog.ParsePattern(name); err != nil || !p.Exact() {
		return fmt.Errorf("default_model %q: a pattern is not allowed; allowed: the name of one model", name)
	}
	return nil
}
