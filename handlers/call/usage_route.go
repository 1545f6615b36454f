package call

import (
	"context"
	"net/http"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/money"
)

const usagePath = "/v1/usage"

// keyUsage is the answer of GET /v1/usage. The sums come from the ledger: a call counts
// after it is settled.
type keyUsage struct {
	Object   string      `json:"object"`
	KeyID    string      `json:"key_id"`
	Currency string      `json:"currency"`
	Budget   *budgetUsed `json:"budget"` // null: there is none
	Rates    rates       `json:"rates"`
	User     userLimits  `json:"user"`
	Today    journal.Sum `json:"today"` // the current day, in UTC
	Month    journal.Sum `json:"month"` // the current calendar month, in UTC
}

type budgetUsed struct {
	Limit     money.Amount   `json:"limit"`
	Used      money.Amount   `json:"used"`
	Remaining money.Amount   `json:"remaining"`
	Reset     calendar.Reset `json:"reset"`
	ResetsAt  int64          `json:"resets_at,omitempty"` // Unix seconds
}

// userLimits are the limits of the user over all keys.
type userLimits struct {
	Budget *budgetUsed `json:"budget"` // null: there is none
	Rates  rates       `json:"rates"`
}

// rates are the rate limits; null: no limit.
type rates struct {
	RequestsPerSecond *int64 `json:"requests_per_second"`
	Streams           *int64 `json:"streams"`
	TokensPerMinute   *int64 `json:"tokens_per_minute"`
}

// serveUsage writes the limits and the usage of a key.
func (b *block) serveUsage(w http.ResponseWriter, r *http.Request, runtime *caddymodule.Runtime, p *identity.Principal, requestID string) *fault.Fault {
	key, user := auth.Subjects(p, &b.app.Limits)
	answer := keyUsage{
		Object: "usage", KeyID: p.KeyID, Currency: b.app.Currency, Rates: ratesOf(key), User: userLimits{Rates: ratesOf(user)},
	}
	budgets := auth.Payer(p).Budgets
	var err error
	if answer.Budget, err = leastLeft(r.Context(), runtime, p.UserID, budgets[:2]); err != nil {
		return fault.FromStore(err)
	}
	if answer.User.Budget, err = leastLeft(r.Context(), runtime, p.UserID, budgets[2:]); err != nil {
		return fault.FromStore(err)
	}
	now := runtime.Store.Now()
	today := journal.DayOf(now)
	err = runtime.Ledger.ScanUsage(r.Context(), p.UserID, journal.DayOf(calendar.Month.Start(now)), today, func(u journal.Usage) bool {
		if u.Key == p.KeyID {
			answer.Month.Add(u)
			if u.Day == today {
				answer.Today.Add(u)
			}
		}
		return true
	})
	if err != nil {
		return fault.FromStore(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, reply.DialectOf(r, b.app.VersionHeader), requestID, answer)
	return nil
}

// leastLeft returns the budget with the least amount left. It returns nil if none has a
// limit.
func leastLeft(ctx context.Context, runtime *caddymodule.Runtime, user string, budgets []ledger.Budget) (least *budgetUsed, err error) {
	for _, b := range budgets {
		if b.Limit == 0 {
			continue
		}
		used, next, err := runtime.Ledger.BudgetUsed(ctx, user, b)
		if err != nil {
			return nil, err
		}
		left := max(0, b.Limit-used)
		if least != nil && least.Remaining <= left {
			continue
		}
		least = &budgetUsed{Limit: b.Limit, Used: used, Remaining: left, Reset: b.Reset}
		if !next.IsZero() {
			least.ResetsAt = next.Unix()
		}
	}
	return least, nil
}

func ratesOf(s limit.Subject) rates {
	return rates{limited(s.Rates.Requests.Limit), limited(s.Rates.Concurrent), limited(s.Rates.Units.Limit)}
}

func limited(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
