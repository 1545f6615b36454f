package ledger

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Call is the record of a model call that was sent to a backend.
type Call struct {
	ID        string       `json:"id"`   // of the request
	Time      int64        `json:"time"` // when it came, Unix milliseconds
	User      string       `json:"user"`
	Key       string       `json:"key"`
	Model     string       `json:"model"`
	Route     string       `json:"route"`
	Stream    bool         `json:"stream,omitempty"`
	Status    int          `json:"status,omitempty"` // as the caller got it
	Ended     usage.Ended  `json:"ended,omitempty"`  // empty while it is under way
	Usage     usage.Basis  `json:"usage,omitempty"`
	Rule      usage.Rule   `json:"rule,omitempty"` // by which it was charged, or not
	Tokens    usage.Tokens `json:"tokens,omitzero"`
	Cost      money.Amount `json:"cost"`                  // charged in all
	Lost      money.Amount `json:"uncollected,omitempty"` // the part of its cost that could not be charged; the operator's loss
	FirstByte int64        `json:"first_byte,omitempty"`  // milliseconds from Time; zero when nothing came
	Duration  int64        `json:"duration,omitempty"`    // milliseconds
}

// Crashed is how a call ended that a crash of the gateway interrupted.
const Crashed usage.Ended = "crash"

// callRecord is a call as it is stored, with what it has paid.
type callRecord struct {
	Call
	Number int       `json:"n"` // of its last settlement
	Paid   []payment `json:"paid,omitempty"`
}

// maxPaid is how many payments a record tells one by one. A call that is settled
// more often, because it takes long, tells the first ones together: its record
// is written anew each time.
const maxPaid = 8

// pay adds a payment.
func (c *callRecord) pay(p payment) {
	c.Paid = append(c.Paid, p)
	if len(c.Paid) <= maxPaid {
		return
	}
	for i := range c.Paid[:len(c.Paid)-1] {
		first := c.Paid[i]
		for j := i + 1; j < len(c.Paid); j++ {
			if c.Paid[j].Account == first.Account {
				c.Paid[j].Amount += first.Amount
				c.Paid = slices.Delete(c.Paid, i, i+1)
				return
			}
		}
	}
}

// payment is what one settlement took from an account, by the transfer it is in.
type payment struct {
	Transfer ID           `json:"t"`
	Account  string       `json:"a"` // its own name: "wallet"
	Amount   money.Amount `json:"m"`
}

// Keys of the store:
//
//	call/<user>/<^time>/<request id>       records of calls, newest first
//	callopen/<user>/<^time>/<request id>   those under way that have been settled in between
//	usage/<user>/<day>/<key>/<model>       sums of a UTC day, for ever
const (
	callPrefix  = "call/"
	openPrefix  = "callopen/"
	usagePrefix = "usage/"
)

func (c *Call) key() []byte { return c.keyUnder(callPrefix) }

func (c *Call) keyUnder(prefix string) []byte {
	key := make([]byte, 0, len(prefix)+len(c.User)+len(c.ID)+10)
	key = append(append(append(key, prefix...), c.User...), '/')
	key = binary.BigEndian.AppendUint64(key, uint64(math.MaxInt64-c.Time))
	return append(append(key, '/'), c.ID...)
}

// Day is a UTC day, as 20261120.
type Day string

// DayOf returns the day that t lies in.
func DayOf(t time.Time) Day { return Day(t.UTC().Format("20060102")) }

// ParseDay reads a day as people write it, 2026-11-20.
func ParseDay(text string) (Day, error) {
	t, err := time.Parse(time.DateOnly, text)
	return DayOf(t), err
}

// String returns the day as people write it, 2026-11-20.
func (d Day) String() string {
	if t, err := time.Parse("20060102", string(d)); err == nil {
		return t.Format(time.DateOnly)
	}
	return string(d)
}

// countedModel returns the model by which a call counts. What a backend refuses
// costs nothing and may name any model: all of that counts together, without
// one, or a key could fill the store with rows that are never purged.
func (c *Call) countedModel() string {
	if c.Ended == usage.Refused {
		return ""
	}
	return c.Model
}

func (c *Call) day() Day { return DayOf(time.UnixMilli(c.Time)) }

// Usage is what the calls and tasks of a day by one key to one model came to. A
// call counts for the day on which it came, a task for that on which it was
// charged; one that was not does not count.
type Usage struct {
	Day    Day          `json:"day"`
	User   string       `json:"user"`
	Key    string       `json:"key"`
	Model  string       `json:"model"`
	Calls  int64        `json:"calls"`
	Tasks  int64        `json:"tasks,omitempty"`
	Tokens usage.Tokens `json:"tokens,omitzero"`
	Cost   money.Amount `json:"cost"`
	Lost   money.Amount `json:"uncollected,omitempty"`
}

// usages are the sums of days. They are kept for ever.
var usages = table.Table[Usage]{
	Name: "usage",
	Key:  func(u *Usage) table.Key { return table.Key{u.User, string(u.Day), u.Key, u.Model} },
}

func (u Usage) key() []byte {
	return []byte(usagePrefix + u.User + "/" + string(u.Day) + "/" + u.Key + "/" + u.Model)
}

// add counts by more of everything.
func (u *Usage) add(by Usage) {
	u.Calls += by.Calls
	u.Tasks += by.Tasks
	u.Tokens = u.Tokens.Plus(by.Tokens)
	u.Cost += by.Cost
	u.Lost += by.Lost
}

// count adds this to what is there of its day, key and model.
func (u Usage) count(t storage.Txn) error {
	have, err := usages.GetOrZero(t, u.User, string(u.Day), u.Key, u.Model)
	if err != nil {
		return err
	}
	u.add(*have)
	return usages.Put(t, nil, &u)
}

// Sum is what calls and tasks came to together, as users are shown it.
type Sum struct {
	Calls  int64        `json:"calls"`
	Tasks  int64        `json:"tasks"`
	Tokens usage.Tokens `json:"tokens"`
	Cost   money.Amount `json:"cost"`
}

// Add counts a row of usage.
func (s *Sum) Add(u Usage) {
	s.Calls += u.Calls
	s.Tasks += u.Tasks
	s.Tokens = s.Tokens.Plus(u.Tokens)
	s.Cost += u.Cost
}

// CallFilter says which calls are wanted. Empty fields want all.
type CallFilter struct {
	Key, Model  string
	From, Until time.Time // of Call.Time, half open
}

// ScanCalls calls fn for the calls of a user, newest first, until fn returns
// false. Those before [Ledger.CallsFrom] are left out.
func (l *Ledger) ScanCalls(ctx context.Context, user string, f CallFilter, fn func(Call) bool) error {
	prefix := []byte(callPrefix + user + "/")
	lo := prefix
	if !f.Until.IsZero() {
		lo = binary.BigEndian.AppendUint64(append([]byte(nil), prefix...), uint64(math.MaxInt64-f.Until.UnixMilli()+1))
	}
	return fault.OfStore(l.store.View(ctx, func(r storage.Reader) error {
		kept, err := readKeeping(r)
		if err != nil {
			return err
		}
		from := kept.from(l.store.Now())
		if f.From.After(from) {
			from = f.From
		}
		hi := binary.BigEndian.AppendUint64(append([]byte(nil), prefix...), uint64(math.MaxInt64-from.UnixMilli()+1))
		var bad error
		err = r.Scan(lo, hi, func(key, val []byte) bool {
			var c callRecord
			if c, bad = decodeCall(key, val); bad != nil {
				return false
			}
			if f.Key != "" && c.Key != f.Key || f.Model != "" && c.Model != f.Model {
				return true
			}
			return fn(c.Call)
		})
		return cmp.Or(err, bad)
	}))
}

// ScanUsage calls fn for the usage of a user between two days, both included,
// day by day; of all users when user is empty, user by user. Empty days are
// open ends.
func (l *Ledger) ScanUsage(ctx context.Context, user string, from, to Day, fn func(Usage) bool) error {
	in := usages.Under()
	if user != "" {
		in = usages.Under(user).From(user, string(from))
	}
	return fault.OfStore(l.store.View(ctx, func(r storage.Reader) error {
		for u, err := range usages.Scan(r, in) {
			if err != nil {
				return err
			}
			if u.Day >= from && (to == "" || u.Day <= to) && !fn(*u) {
				break
			}
		}
		return nil
	}))
}

// closeCrashed closes the calls that were under way when the process ended
// without settling them. A store that does not tell how long it keeps calls is
// refused here: no settlement could be written to it.
func (l *Ledger) closeCrashed(ctx context.Context) error {
	var left [][]byte
	var kept keeping
	err := l.store.View(ctx, func(r storage.Reader) (err error) {
		if kept, err = readKeeping(r); err != nil {
			return err
		}
		return r.Scan([]byte(openPrefix), storage.PrefixEnd([]byte(openPrefix)), func(key, _ []byte) bool {
			left = append(left, append([]byte(nil), key...))
			return true
		})
	})
	for _, open := range left {
		if err != nil {
			break
		}
		err = l.store.Update(ctx, func(t storage.Txn) error {
			key := []byte(callPrefix + strings.TrimPrefix(string(open), openPrefix))
			c, found, err := readCall(t, key)
			if err != nil {
				return err
			}
			if found && c.Ended == "" {
				c.Ended = Crashed
				if err := t.Set(key, c.encode(key), l.store.Now().Add(kept.Kept)); err != nil {
					return err
				}
			}
			return t.Delete(open)
		})
	}
	return err
}
