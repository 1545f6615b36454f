package verify

import (
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// users verifies the records of all users, one user at a time. end is the first key after the
// accounts of users.
func (v *verification) users(end string) {
	states, entries := v.cursor(journal.AccountPrefix, journal.UserPrefix, end), v.cursor(journal.EntryPrefix, journal.UserPrefix, end)
	holds, usage := v.cursor(journal.Holds.Name+"/", "", ""), v.cursor(journal.Usages.Name+"/", "", "")
	calls, open := v.cursor(journal.CallPrefix, "", ""), v.cursor(journal.OpenCallPrefix, "", "")
	callHolds := v.cursor(journal.CallHoldName+"/", "", "")
	for {
		user, found := "", false
		for _, c := range [...]*cursor{states, entries, holds, callHolds, calls, open, usage} {
			// The slash that follows a user in the keys decides their order.
			if have, more := c.user(); more && (!found || have+"/" < user+"/") {
				user, found = have, true
			}
		}
		if !found {
			return
		}
		v.Users++
		v.filter.resetIfFull()
		b := newTotals(user)
		v.callHolds(callHolds, b)
		v.rebuildAccounts(states, entries, b)
		v.holds(holds, b)
		v.calls(calls, open, b)
		v.usage(usage, b)
		v.balance(b)
	}
}

// totals has the differences between pairs of records of the same amounts of a user. Each is zero
// if the records agree.
type totals struct {
	user string
	paid map[journal.Account]money.Amount // entries of calls minus payments in call records
	// reserved has the holds of open calls by account, until the account is checked.
	reserved map[journal.Account]money.Amount

	spent money.Amount             // entries of calls and tasks minus usage of all days
	days  map[string]journal.Usage // calls and tasks minus usage, of days whose calls are all kept

	// partial has the accounts that cannot be compared, because a call whose older payments are not
	// in paid has paid from them.
	partial map[journal.Account]bool
}

func newTotals(user string) *totals {
	return &totals{
		user: user, paid: make(map[journal.Account]money.Amount), reserved: make(map[journal.Account]money.Amount),
		days: make(map[string]journal.Usage), partial: make(map[journal.Account]bool),
	}
}

// addEntry adds an entry of calls.
func (b *totals) addEntry(a journal.Account, e journal.Entry, paidFrom journal.ID) {
	b.spent -= e.Amount
	if !e.Transfer.Before(paidFrom) {
		add(b.paid, a, -e.Amount)
	}
}

// add adds to the sum of an account, and removes a sum of zero.
func add(sums map[journal.Account]money.Amount, a journal.Account, by money.Amount) {
	if sums[a] += by; sums[a] == 0 {
		delete(sums, a)
	}
}

// addUsage adds to the usage of a day.
func (b *totals) addUsage(by journal.Usage) {
	key := string(by.StoreKey())
	day, found := b.days[key]
	if !found {
		day = journal.Usage{Day: by.Day, User: by.User, Key: by.Key, Model: by.Model}
	}
	day.Add(by)
	b.days[key] = day
}

// balance reports the totals that are not zero.
func (v *verification) balance(b *totals) {
	for _, a := range slices.Sorted(maps.Keys(b.reserved)) {
		v.report("account "+string(a), "calls hold %v, but it has no record", b.reserved[a])
	}
	for _, a := range slices.Sorted(maps.Keys(b.paid)) {
		if b.partial[a] {
			continue
		}
		v.report("account "+string(a), "the entries and the records of calls differ by %v", b.paid[a])
	}
	if b.spent != 0 {
		v.report("user "+b.user, "the charges of calls and tasks and the usage of all days differ by %v", b.spent)
	}
	for _, key := range slices.Sorted(maps.Keys(b.days)) {
		u := b.days[key]
		if u.Calls != 0 || u.Tasks != 0 || u.Tokens != (usage.Tokens{}) || u.Cost != 0 || u.Uncollected != 0 {
			v.report(whereUsage(key), "the calls and tasks of the day differ from it by %d calls, %d tasks, %d tokens in and %d out, %v charged and %v uncollected",
				u.Calls, u.Tasks, u.Tokens.AllInput(), u.Tokens.AllOutput(), u.Cost, u.Uncollected)
		}
	}
}
