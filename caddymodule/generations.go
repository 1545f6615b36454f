package caddymodule

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// Generation is a checked request for an image or a video, with its backend and its
// price.
type Generation struct {
	generation.Checked

	// Backend is the name of the backend that runs it.
	Backend string

	// Price is the price of its model; nil if it is free.
	Price *catalog.Price

	// Quote is what is held for it, and by which rule.
	Quote catalog.Quote

	notifyURL string
}

// Families returns what models take, by their names.
func (a *App) Families() *catalog.Families { return a.families }

// Generation checks a request against the family of its model, finds the backend that
// runs it, and prices it. A model without a backend, and
// one without a price where others have one and the configuration does not say
// unpriced allow, is MODEL_NOT_FOUND.
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
	prices := a.generationPrices[checked.Kind]
	g.Price, ok = prices.Find(checked.Kind, checked.Model)
	if !ok && (a.prices.Len() > 0 && a.Unpriced != AllowUnpriced || prices.Bars(checked.Kind, checked.Model)) {
		return Generation{}, fault.At(fault.ModelNotFound, "model", "there is no model %q here: it has no price for generations", checked.Model)
	}
	if !ok {
		g.Quote = catalog.Quote{Kind: checked.Kind, Rule: "free of charge"}
		return g, nil
	}
	if g.Quote, refused = checked.Quote(g.Price); refused != nil {
		return Generation{}, refused
	}
	return g, nil
}

// generationPrices are what generations cost, by kind.
type generationPrices map[catalog.Kind]*catalog.Models[*catalog.Price]

// newGenerationPrices finds the prices for generations among all, which are valid
// together.
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

// Submission is the generation as the task engine takes it. What makes it
// repeatable, IdempotencyKey and Fingerprint, is the caller's to add.
func (g *Generation) Submission(payer ledger.Payer, key string) task.Submission {
	job := g.Job()
	job.NotifyURL = g.notifyURL
	return task.Submission{
		Payer: payer, Key: key, Backend: g.Backend, Job: job,
		SessionID: g.SessionID, SessionContext: g.SessionContext, Quote: g.Quote,
	}
}

// checkDefaultModel refuses a default that no backend runs.
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

// validateDefaultModel refuses a default that is not the name of one model.
func validateDefaultModel(name string) error {
	if p, err := catalog.ParsePattern(name); err != nil || !p.Exact() {
		return fmt.Errorf("default_model %q: it is the name of one model", name)
	}
	return nil
}
