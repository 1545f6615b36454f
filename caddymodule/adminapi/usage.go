package adminapi

import (
	"cmp"
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// UsageRow is a row of the usage report. Fields that the report is not grouped by are
// empty.
type UsageRow struct {
	Day    journal.Day `json:"day,omitempty"`
	UserID string      `json:"user_id,omitempty"`
	User   string      `json:"user,omitempty"`
	KeyRef
	Model  string       `json:"model,omitempty"`
	Calls  int64        `json:"calls"`
	Tasks  int64        `json:"tasks"` // number of charged tasks
	Tokens usage.Tokens `json:"tokens"`
	Cost   money.Amount `json:"cost"`
	Lost   money.Amount `json:"uncollected,omitempty"`
}

// KeyRef names a key in a report.
type KeyRef struct {
	KeyID      string `json:"key_id,omitempty"`
	KeyName    string `json:"key_name,omitempty"`
	ConsoleKey bool   `json:"console_key,omitempty"` // the hidden key of tasks that were made in the console
}

// groupings are the fields by which a usage report can be grouped.
var groupings = map[string]func(row *UsageRow, u *journal.Usage){
	"day":   func(row *UsageRow, u *journal.Usage) { row.Day = u.Day },
	"user":  func(row *UsageRow, u *journal.Usage) { row.UserID = u.User },
	"key":   func(row *UsageRow, u *journal.Usage) { row.UserID, row.KeyID = u.User, u.Key },
	"model": func(row *UsageRow, u *journal.Usage) { row.Model = u.Model },
}

// reportUsage sums up the usage and the cost of calls and tasks. Every figure comes from
// the ledger: the sum of all costs is the revenue of calls and tasks.
func reportUsage(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	from, to := c.day("from"), c.day("to")
	if from != "" && to != "" && from > to {
		c.q.Refuse("to", "must not be before `from`")
	}
	by := c.groups("day", "user", "key", "model")
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	all := make(sums[UsageRow])
	err = c.Ledger.ScanUsage(c.ctx(), user.ID, from, to, func(u journal.Usage) bool {
		var row UsageRow
		for _, group := range by {
			groupings[group](&row, &u)
		}
		sum := all.of(row)
		sum.Calls += u.Calls
		sum.Tasks += u.Tasks
		sum.Tokens = sum.Tokens.Plus(u.Tokens)
		sum.Cost += u.Cost
		sum.Lost += u.Uncollected
		return true
	})
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, slices.Collect(maps.Keys(all)), func(row UsageRow) string { return row.UserID })
	if err != nil {
		return nil, err
	}
	owners := make(map[string]string)
	for row := range all {
		if row.KeyID != "" {
			owners[row.KeyID] = row.UserID
		}
	}
	labels, err := c.Directory.KeyLabels(c.ctx(), owners)
	if err != nil {
		return nil, err
	}
	for _, row := range all {
		row.User, row.KeyRef = names[row.UserID], KeyRef{row.KeyID, labels[row.KeyID].Name, labels[row.KeyID].Console}
	}
	rows := all.sorted(func(a, b UsageRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.User, b.User), cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Model, b.Model))
	})
	return reported(c, rows, WriteUsageCSV)
}

// day returns a day of the query, such as 2026-11-20, or an empty one for no bound.
func (c *call) day(param string) journal.Day {
	text := c.q.Text(param)
	if text == "" {
		return ""
	}
	day, err := journal.ParseDay(text)
	if err != nil {
		c.q.Refuse(param, "must be a day such as 2026-11-20")
	}
	return day
}
