package journal

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Day is a UTC day, as 20261120.
type Day string

// DayOf returns the UTC day of t, as 20261120.
func DayOf(t time.Time) Day { return Day(t.UTC().Format("20060102")) }

// ParseDay parses a day in the form 2026-11-20.
func ParseDay(text string) (Day, error) {
	t, err := time.Parse(time.DateOnly, text)
	return DayOf(t), err
}

// String returns the day in the form 2026-11-20.
func (d Day) String() string {
	if t, err := time.Parse("20060102", string(d)); err == nil {
		return t.Format(time.DateOnly)
	}
	return string(d)
}

// Usage is the sum of the calls and tasks of one key and one model on a day. A call counts on
// the day of its start, a task on the day of its charge. A task without a charge does not count.
type Usage struct {
	Day         Day          `json:"day"`
	User        string       `json:"user"`
	Key         string       `json:"key"`
	Model       string       `json:"model"`
	Calls       int64        `json:"calls"`
	Tasks       int64        `json:"tasks,omitempty"`
	Tokens      usage.Tokens `json:"tokens,omitzero"`
	Cost        money.Amount `json:"cost"`
	Uncollected money.Amount `json:"uncollected,omitempty"`
}

// Usages is the table of the sums of all days. They are kept forever.
var Usages = table.Table[Usage]{
	Name: "usage",
	Key:  func(u *Usage) table.Key { return table.Key{u.User, string(u.Day), u.Key, u.Model} },
}

// StoreKey returns the key of the record.
func (u *Usage) StoreKey() []byte {
	return storage.Key(Usages.Name, u.User, string(u.Day), u.Key, u.Model)
}

// Add adds the calls, tasks, tokens and amounts of by.
func (u *Usage) Add(by Usage) {
	u.Calls += by.Calls
	u.Tasks += by.Tasks
	u.Tokens = u.Tokens.Plus(by.Tokens)
	u.Cost += by.Cost
	u.Uncollected += by.Uncollected
}

// Count adds u to the stored sum of its day, key and model.
func (u Usage) Count(t storage.Txn) error {
	have, err := Usages.GetOrZero(t, u.User, string(u.Day), u.Key, u.Model)
	if err != nil {
		return err
	}
	u.Add(*have)
	return Usages.Put(t, nil, &u)
}

// Sum is the sum of calls and tasks that users see.
type Sum struct {
	Calls  int64        `json:"calls"`
	Tasks  int64        `json:"tasks"`
	Tokens usage.Tokens `json:"tokens"`
	Cost   money.Amount `json:"cost"`
}

// Add adds a row of usage.
func (s *Sum) Add(u Usage) {
	s.Calls += u.Calls
	s.Tasks += u.Tasks
	s.Tokens = s.Tokens.Plus(u.Tokens)
	s.Cost += u.Cost
}
