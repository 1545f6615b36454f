// Package billing sells plans as subscriptions, and takes payments for wallets. Its main type is
// [Service].
//
// A plan is bought, claimed, renewed or granted in purchase.go; sale.go writes the sale and the
// subscription. A user pays by an order at a payment service. The file checkout.go opens the
// order, notice.go applies a notice of the service, settlement.go credits and takes back money,
// and mismatch.go keeps the notices that fit no order. sweep.go opens new periods and expires
// orders. Package records has the stored records, and package verify checks them.
package billing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
)

// Plan is a kind of subscription: a quota of money to spend on calls for some time.
// Amounts are in the configured currency.
type Plan struct {
	// The number by which the plan is bought, from 1. It must not be given to
	// another plan later: subscriptions keep it.
	ID int64 `json:"plan_id"`

	// The title that buyers see: 1 to 100 characters.
	Title string `json:"title"`

	// The price of a subscription. Zero: it is free, and can be claimed once.
	Price money.Amount `json:"price"`

	// How much a subscriber can spend in each period of quota_reset; more than
	// zero.
	Quota money.Amount `json:"quota"`

	// How long a subscription lasts, by the calendar.
	Duration calendar.Duration `json:"duration"`

	// How often the quota starts anew, in UTC: `never`, `day`, `week` or
	// `month`. Default: `never`, one quota for the whole duration.
	QuotaReset calendar.Reset `json:"quota_reset,omitempty"`

	// How often one user can buy the plan; renewals do not count. Default: no
	// limit.
	PurchaseLimit int64 `json:"purchase_limit,omitempty"`

	// Takes the plan off sale. Subscriptions to it run to their end and are not
	// renewed.
	Disabled bool `json:"disabled,omitempty"`
}

// maxPlanID is the highest integer that every JSON implementation can read exactly.
const maxPlanID = 1<<53 - 1

// Validate returns an error if the plan cannot be sold.
func (p *Plan) Validate() error {
	if p.ID < 1 || p.ID > maxPlanID {
		return fmt.Errorf("plan %d: the id is a number from 1 to %d", p.ID, maxPlanID)
	}
	if err := errors.Join(p.validateTitle(), p.validateTerms()); err != nil {
		return fmt.Errorf("plan %d: %w", p.ID, err)
	}
	return nil
}

func (p *Plan) validateTitle() error {
	if n := utf8.RuneCountInString(p.Title); n < 1 || n > 100 {
		return fmt.Errorf("the title has 1 to 100 characters, this has %d", n)
	}
	if !utf8.ValidString(p.Title) || strings.ContainsFunc(p.Title, unicode.IsControl) || strings.TrimSpace(p.Title) != p.Title {
		return fmt.Errorf("the title %q must be UTF-8 without control characters and without spaces around it", p.Title)
	}
	return nil
}

func (p *Plan) validateTerms() error {
	if p.Price < 0 {
		return fmt.Errorf("the price is %v and must not be negative", p.Price)
	}
	if p.Quota <= 0 {
		return fmt.Errorf("the quota is %v and must be more than zero", p.Quota)
	}
	if p.PurchaseLimit < 0 {
		return fmt.Errorf("purchase_limit is %d and must not be negative", p.PurchaseLimit)
	}
	if _, err := calendar.ParseReset(string(p.QuotaReset)); err != nil {
		return fmt.Errorf("quota_reset: %w", err)
	}
	return p.Duration.Validate()
}

// Plans is an immutable set of configured plans.
type Plans struct {
	rows  []Plan        // in the order of the configuration
	shown *money.Amount // the price that a buyer has seen; nil: any
}

// ShownAt returns the plans for a buyer who has seen a price: a payment of another one is refused.
// nil: the buyer agrees to any price.
func (ps *Plans) ShownAt(price *money.Amount) *Plans { return &Plans{ps.rows, price} }

// NewPlans returns a set of plans. It returns an error if a plan is invalid or two have the same
// id. The default of QuotaReset is never.
func NewPlans(rows []Plan) (*Plans, error) {
	ps := &Plans{rows: slices.Clone(rows)}
	seen := make(map[int64]bool, len(rows))
	for i := range ps.rows {
		p := &ps.rows[i]
		if err := p.Validate(); err != nil {
			return nil, err
		}
		if seen[p.ID] {
			return nil, fmt.Errorf("plan %d is given twice", p.ID)
		}
		seen[p.ID] = true
		p.QuotaReset = cmp.Or(p.QuotaReset, calendar.Never)
	}
	return ps, nil
}

// Find returns the plan with this id, whether or not it is on sale.
func (ps *Plans) Find(id int64) (Plan, bool) {
	for _, p := range ps.rows {
		if p.ID == id {
			return p, true
		}
	}
	return Plan{}, false
}

// OnSale returns the plans that are not disabled, in the order of the configuration.
func (ps *Plans) OnSale() []Plan {
	return slices.DeleteFunc(slices.Clone(ps.rows), func(p Plan) bool { return p.Disabled })
}

// All returns all plans, in the order of the configuration.
func (ps *Plans) All() []Plan { return slices.Clone(ps.rows) }
