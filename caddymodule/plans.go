package caddymodule

import (
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/settings"
)

// Plans returns the plans on sale.
func (a *App) Plans() *billing.Plans { return a.plans }

// unmarshalPlan reads one plan:
//
//	plan <id> <title> {
//		price          <amount>
//		quota          <amount>
//		duration       <count> hour|day|month|year
//		quota_reset    never|day|week|month
//		purchase_limit <count>
//		disabled
//	}
func (a *App) unmarshalPlan(d *caddyfile.Dispenser) error {
	at := *d
	var id string
	var p billing.Plan
	if !d.Args(&id, &p.Title) || d.NextArg() {
		return d.ArgErr()
	}
	var err error
	if p.ID, err = strconv.ParseInt(id, 10, 64); err != nil || p.ID < 1 {
		return d.Errf("plan %q: the id is not a number; allowed: 1 and above", id)
	}
	if slices.ContainsFunc(a.PlanRows, func(other billing.Plan) bool { return other.ID == p.ID }) {
		return d.Errf("plan %d is given twice", p.ID)
	}

	priced := false
	err = settings.Block(d, map[string]settings.Reader{
		"price": settings.One(func(word string) (err error) {
			priced = true
			p.Price, err = parseAmount(word)
			return err
		}),
		"quota":          settings.Parsed(&p.Quota, parseAmount),
		"duration":       settings.Into(&p.Duration, calendarDuration),
		"quota_reset":    settings.Parsed(&p.QuotaReset, calendar.ParseReset),
		"purchase_limit": settings.Count(&p.PurchaseLimit, maxPurchases),
		"disabled":       settings.Flag(&p.Disabled),
	})
	if err != nil {
		return err
	}
	if !priced {
		return at.Errf("plan %d: price is missing; write price 0 for a free plan", p.ID)
	}
	a.PlanRows = append(a.PlanRows, p)
	return settings.Located(&at, p.Validate())
}

// maxPurchases bounds purchase_limit.
const maxPurchases = 1_000_000

// calendarDuration reads a count and a unit, in the singular or the plural.
func calendarDuration(d *caddyfile.Dispenser, into *calendar.Duration) error {
	var n, unit string
	if !d.Args(&n, &unit) || d.NextArg() {
		return d.ArgErr()
	}
	var err error
	if into.Count, err = strconv.Atoi(n); err != nil {
		return d.Errf("%q is not a number from 1 to %d", n, calendar.MaxCount)
	}
	if into.Unit, err = calendar.ParseUnit(unit); err != nil {
		return d.WrapErr(err)
	}
	return settings.Located(d, into.Validate())
}
