package call

import (
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
)

const usagePath = "/v1/usage"

// keyUsage is what GET /v1/usage tells a key of itself. Sums are those of the
// ledger: a call counts in them when it has been settled.
type keyUsage struct {
	Object   string      `json:"object"`
	KeyID    string      `json:"key_id"`
	Currency string      `json:"currency"`
	Budget   *budgetUsed `json:"budget"` // null: there is none
	Rates    keyRates    `json:"rates"`
	Today    ledger.Sum  `json:"today"` // the present day, in UTC
	Month    ledger.Sum  `json:"month"` // the present calendar month, in UTC
}

type budgetUsed struct {
	Limit     money.Amount   `json:"limit"`
	Used      money.Amount   `json:"used"`
	Remaining money.Amount   `json:"remaining"`
	Reset     calendar.Reset `json:"reset"`
	ResetsAt  int64          `json:"resets_at,omitempty"` // Unix seconds
}

// keyRates are null where there is no limit.
type keyRates struct {
	RequestsPerSecond *int64 `json:"requests_per_second"`
	Streams           *int64 `json:"streams"`
	TokensPerMinute   *int64 `json:"tokens_per_minute"`
}

// serveUsage answers the limits of a key and what it has used.
func (b *block) serveUsage(w http.ResponseWriter, r *http.Request, node *caddymodule.Node, p *identity.Principal, requestID string) *fault.Fault {
	rates := b.app.Limits.OfKey(p)
	answer := keyUsage{
		Object: "usage", KeyID: p.KeyID, Currency: b.app.Currency,
		Rates: keyRates{limited(rates.RequestsPerSecond), limited(rates.Streams), limited(rates.TokensPerMinute)},
	}
	for _, b := range auth.KeyBudgets(p) {
		if b.Limit == 0 {
			continue
		}
		used, next, err := node.Ledger.BudgetUsed(r.Context(), p.UserID, b)
		if err != nil {
			return storeSilent
		}
		left := max(0, b.Limit-used)
		if answer.Budget != nil && answer.Budget.Remaining <= left {
			continue
		}
		answer.Budget = &budgetUsed{Limit: b.Limit, Used: used, Remaining: left, Reset: b.Reset}
		if !next.IsZero() {
			answer.Budget.ResetsAt = next.Unix()
		}
	}
	now := node.Store.Now()
	today := ledger.DayOf(now)
	err := node.Ledger.ScanUsage(r.Context(), p.UserID, ledger.DayOf(calendar.Month.Start(now)), today, func(u ledger.Usage) bool {
		if u.Key == p.KeyID {
			answer.Month.Add(u)
			if u.Day == today {
				answer.Today.Add(u)
			}
		}
		return true
	})
	if err != nil {
		return storeSilent
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, reply.DialectOf(r, b.app.VersionHeader), requestID, answer)
	return nil
}

// storeSilent is what a caller hears of a store that does not answer.
var storeSilent = fault.New(fault.StoreUnavailable, "the gateway cannot answer now; try again later").After(5 * time.Second)

func limited(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
