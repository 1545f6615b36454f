package verify

import (
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// users goes through all that there is of users, one user at a time. The keys of their accounts
// lie before end.
func (v *verification) users(end string) {
	states, entries := v.cursor(journal.AccountPrefix, journal.UserPrefix, end), v.cursor(journal.EntryPrefix, journal.UserPrefix, end)
	holds, usage := v.cursor(journal.Holds.Name+"/", "", ""), v.cursor(journal.Usages.Name+"/", "", "")
	calls, open := v.cursor(journal.CallPrefix, "", ""), v.cursor(journal.OpenCallPrefix, "", "")
	for {
		user, some := "", false
		for _, c := range [...]*cursor{states, entries, holds, calls, open, usage} {
			// As keys are ordered: with what follows the user in them.
			if have, more := c.user(); more && (!some || have+"/" < user+"/") {
				user, some = have, true
			}
		}
		if !some {
			return
		}
		v.Users++
		v.filter.resetIfFull()
		b := newBooks(user)
		v.fold(states, entries, b)
		v.holds(holds, b)
		v.calls(calls, open, b)
		v.usage(usage, b)
		v.balance(b)
	}
}

// books are the sums that the accounts of a user and other records must agree on. Each is what
// the one side has less what the other has: zero in the end.
type books struct {
	user  string
	paid  map[journal.Account]money.Amount // from each account by calls whose records are there; by those
	spent money.Amount                     // by calls and tasks, ever; by the sums of days
	days  map[string]journal.Usage         // what they came to on days of which all calls are there; by the sums

	// vague are the accounts from which a call has paid of which it is not known how
	// much was before the time that paid counts from.
	vague map[journal.Account]bool
}

func newBooks(user string) *books {
	return &books{
		user: user, paid: make(map[journal.Account]money.Amount),
		days: make(map[string]journal.Usage), vague: make(map[journal.Account]bool),
	}
}

// taken counts an entry by which calls took money of the user.
func (b *books) taken(a journal.Account, e journal.Entry, paidFrom journal.ID) {
	b.spent -= e.Amount
	if !e.Transfer.Before(paidFrom) {
		add(b.paid, a, -e.Amount)
	}
}

// add changes the sum of an account, and keeps only those that are not zero.
func add(sums map[journal.Account]money.Amount, a journal.Account, by money.Amount) {
	if sums[a] += by; sums[a] == 0 {
		delete(sums, a)
	}
}

// count adds to what a day came to.
func (b *books) count(by journal.Usage) {
	key := string(by.StoreKey())
	day, met := b.days[key]
	if !met {
		day = journal.Usage{Day: by.Day, User: by.User, Key: by.Key, Model: by.Model}
	}
	day.Add(by)
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
		if u.Calls != 0 || u.Tasks != 0 || u.Tokens != (usage.Tokens{}) || u.Cost != 0 || u.Uncollected != 0 {
			v.tell(whereUsage(key), "its calls and tasks differ from it by %d calls, %d tasks, %d tokens in and %d out, %v charged and %v uncollected",
				u.Calls, u.Tasks, u.Tokens.AllInput(), u.Tokens.AllOutput(), u.Cost, u.Uncollected)
		}
	}
}
