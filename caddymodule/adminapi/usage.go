package adminapi

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// UsageRow is a line of the usage report: what is not grouped by is empty.
type UsageRow struct {
	Day    ledger.Day   `json:"day,omitempty"`
	UserID string       `json:"user_id,omitempty"`
	User   string       `json:"user,omitempty"`
	KeyID  string       `json:"key_id,omitempty"`
	Model  string       `json:"model,omitempty"`
	Calls  int64        `json:"calls"`
	Tasks  int64        `json:"tasks"` // that were charged
	Tokens usage.Tokens `json:"tokens"`
	Cost   money.Amount `json:"cost"`
	Lost   money.Amount `json:"uncollected,omitempty"`
}

// groups are what a usage report can be broken down by.
var groups = map[string]func(row *UsageRow, u *ledger.Usage){
	"day":   func(row *UsageRow, u *ledger.Usage) { row.Day = u.Day },
	"user":  func(row *UsageRow, u *ledger.Usage) { row.UserID = u.User },
	"key":   func(row *UsageRow, u *ledger.Usage) { row.KeyID = u.Key },
	"model": func(row *UsageRow, u *ledger.Usage) { row.Model = u.Model },
}

// reportUsage sums what calls and tasks came to. Every figure is one of the ledger:
// the costs of all rows together are what calls and tasks have brought the house.
func reportUsage(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	query := r.URL.Query()
	user, err := userOf(rt, r, query.Get("user"))
	if err != nil {
		return nil, err
	}
	from, err := dayOf(query.Get("from"), "from")
	if err != nil {
		return nil, err
	}
	to, err := dayOf(query.Get("to"), "to")
	if err != nil {
		return nil, err
	}
	if from != "" && to != "" && from > to {
		return nil, fault.At(fault.InvalidParameter, "to", "the last day is before the first")
	}
	var by []func(*UsageRow, *ledger.Usage)
	for _, group := range query["group"] {
		set, ok := groups[group]
		if !ok {
			return nil, fault.At(fault.InvalidParameter, "group", "usage is grouped by day, user, key or model, not by %q", group)
		}
		by = append(by, set)
	}
	type place struct {
		day              ledger.Day
		user, key, model string
	}
	sums := make(map[place]*UsageRow)
	err = rt.Ledger.ScanUsage(r.Context(), user.ID, from, to, func(u ledger.Usage) bool {
		var row UsageRow
		for _, set := range by {
			set(&row, &u)
		}
		at := place{row.Day, row.UserID, row.KeyID, row.Model}
		sum := sums[at]
		if sum == nil {
			sum = &row
			sums[at] = sum
		}
		sum.Calls += u.Calls
		sum.Tasks += u.Tasks
		sum.Tokens = sum.Tokens.Plus(u.Tokens)
		sum.Cost += u.Cost
		sum.Lost += u.Lost
		return true
	})
	if err != nil {
		return nil, err
	}
	rows := make([]UsageRow, 0, len(sums))
	for _, row := range sums {
		if row.UserID != "" {
			if owner, err := rt.Directory.User(r.Context(), row.UserID); err == nil {
				row.User = owner.Name
			}
		}
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b UsageRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.User, b.User), cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Model, b.Model))
	})
	return listed(rows, nil)
}

// dayOf reads a day such as 2026-11-20; empty is an open end.
func dayOf(word, param string) (ledger.Day, error) {
	if word == "" {
		return "", nil
	}
	day, err := ledger.ParseDay(word)
	if err != nil {
		return "", fault.At(fault.InvalidParameter, param, "%s is a day such as 2026-11-20", param)
	}
	return day, nil
}
