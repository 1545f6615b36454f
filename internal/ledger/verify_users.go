package ledger

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// userRecords are cursors over all that users have, each in the order of users.
type userRecords struct {
	states, entries           *cursor
	holds, calls, open, usage *cursor
}

// users goes through all that there is of users, one user at a time.
func (v *verification) users() error {
	end := string(storage.PrefixEnd([]byte(userPrefix)))
	records := userRecords{
		states:  newCursor(v.Reader, accountPrefix, userPrefix, end),
		entries: newCursor(v.Reader, entryPrefix, userPrefix, end),
		holds:   newCursor(v.Reader, holdPrefix, "", ""),
		calls:   newCursor(v.Reader, callPrefix, "", ""),
		open:    newCursor(v.Reader, openPrefix, "", ""),
		usage:   newCursor(v.Reader, usagePrefix, "", ""),
	}
	for {
		user, more, err := records.next()
		if err != nil || !more {
			return err
		}
		v.Users++
		v.filter.resetIfFull()
		b := newBooks(user)
		for _, step := range []func() error{
			func() error { return v.fold(records.states, records.entries, b) },
			func() error { return v.holds(records.holds, b) },
			func() error { return v.calls(records.calls, records.open, b) },
			func() error { return v.usage(records.usage, b) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		v.balance(b)
	}
}

// next returns the first user of whom there is any record.
func (u *userRecords) next() (first string, some bool, err error) {
	for _, c := range []*cursor{u.states, u.entries, u.holds, u.calls, u.open, u.usage} {
		user, more, err := c.user()
		if err != nil {
			return "", false, err
		}
		// As keys are ordered: with what follows the user in them.
		if more && (!some || user+"/" < first+"/") {
			first, some = user, true
		}
	}
	return first, some, nil
}

// user returns whose record the cursor stands on; false at the end.
func (c *cursor) user() (string, bool, error) {
	rest, more, err := c.rest()
	if c.prefix == accountPrefix || c.prefix == entryPrefix {
		rest = strings.TrimPrefix(rest, userPrefix)
	}
	user, _, _ := strings.Cut(rest, "/")
	return user, more, err
}

// take returns the record that the cursor stands on and goes on, as long as it
// is one of the user.
func (c *cursor) take(user string) (key, val []byte, err error) {
	have, more, err := c.user()
	if err != nil || !more || have != user {
		return nil, nil, err
	}
	key, val, err = c.peek()
	c.advance()
	return key, val, err
}

// books are the sums that the accounts of a user and other records must agree on. Each is what
// the one side has less what the other has: zero in the end.
type books struct {
	user  string
	paid  map[Account]money.Amount // from each account by calls whose records are there; by those
	spent money.Amount             // by calls and tasks, ever; by the sums of days
	days  map[string]Usage         // what they came to on days of which all calls are there; by the sums

	// vague are the accounts from which a call has paid of which it is not known how
	// much was before the time that paid counts from.
	vague map[Account]bool
}

func newBooks(user string) *books {
	return &books{
		user: user, paid: make(map[Account]money.Amount),
		days: make(map[string]Usage), vague: make(map[Account]bool),
	}
}

// taken counts an entry by which calls took money of the user.
func (b *books) taken(a Account, e Entry, paidFrom ID) {
	b.spent -= e.Amount
	if !e.Transfer.before(paidFrom) {
		add(b.paid, a, -e.Amount)
	}
}

// add changes the sum of an account, and keeps only those that are not zero.
func add(sums map[Account]money.Amount, a Account, by money.Amount) {
	if sums[a] += by; sums[a] == 0 {
		delete(sums, a)
	}
}

// count adds to what a day came to.
func (b *books) count(by Usage) {
	key := string(by.key())
	day, met := b.days[key]
	if !met {
		day = Usage{Day: by.Day, User: by.User, Key: by.Key, Model: by.Model}
	}
	day.add(by)
	b.days[key] = day
}

// balance reports the sums on which the two sides differ.
func (v *verification) balance(b *books) {
	for _, a := range slices.Sorted(maps.Keys(b.paid)) {
		if b.vague[a] {
			continue
		}
		v.tell("account "+string(a), "what calls took from it differs by %v from what their records have paid", b.paid[a])
	}
	if b.spent != 0 {
		v.tell("user "+b.user, "what calls and tasks took differs by %v from what the usage of all days comes to", b.spent)
	}
	for _, key := range slices.Sorted(maps.Keys(b.days)) {
		u := b.days[key]
		if u.Calls != 0 || u.Tasks != 0 || u.Tokens != (usage.Tokens{}) || u.Cost != 0 || u.Lost != 0 {
			v.tell(whereUsage(key), "its calls and tasks differ from it by %d calls, %d tasks, %d tokens in and %d out, %v charged and %v uncollected",
				u.Calls, u.Tasks, u.Tokens.AllInput(), u.Tokens.AllOutput(), u.Cost, u.Lost)
		}
	}
}
