package journal

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"
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

// Begin returns when the day begins.
func (d Day) Begin() time.Time {
	t, _ := time.Parse("20060102", string(d))
	return t
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

// ActivePrefix is the prefix of the keys of the users who have a sum on a day:
//
//	active/<^day>/<user>   latest day first
//
// Lists of the calls of all users read only the calls of these. An index of calls by time would be one
// more key for each call, which costs half as much as its settlement: 10 µs beside 21 µs.
const ActivePrefix = "active/"

// ActiveKey returns the key of a user with a sum on a day.
func ActiveKey(day Day, user string) []byte {
	n, _ := strconv.ParseInt(string(day), 10, 64)
	return storage.Key(strings.TrimSuffix(ActivePrefix, "/"), storage.Inverted(n), user)
}

// ActiveUsers returns the latest day, before a day and not before floor, on which users have a sum, and
// these users. Without such a day, users is empty.
func ActiveUsers(r storage.Reader, before, floor Day) (day Day, users []string, err error) {
	const dayEnd = len(ActivePrefix) + 8
	const userAt = dayEnd + len("/")
	lo, hi := append(ActiveKey(before, ""), 0xff), append(ActiveKey(floor, ""), 0xff)
	err = r.Scan(lo, hi, func(key, _ []byte) bool {
		if len(key) < userAt {
			return true
		}
		on := Day(strconv.FormatInt(storage.Inverted(int64(binary.BigEndian.Uint64(key[dayEnd-8:dayEnd]))), 10)) //nolint:gosec // ActiveKey wrote an int64
		day = cmp.Or(day, on)
		if on != day {
			return false
		}
		users = append(users, string(key[userAt:]))
		return true
	})
	return day, users, err
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
	have, err := Usages.Get(t, u.User, string(u.Day), u.Key, u.Model)
	switch {
	case err != nil:
		return err
	case have != nil:
		u.Add(*have)
	default:
		if err := t.Set(ActiveKey(u.Day, u.User), nil, time.Time{}); err != nil {
			return err
		}
	}
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
