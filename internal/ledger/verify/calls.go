package verify

import (
	"fmt"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

// calls checks the records of a user's calls and the index of running calls, which has the same
// order.
func (v *verification) calls(records, open *cursor, b *totals) {
	for key, val := range records.of(b.user) {
		v.Calls++
		rest := string(key[len(journal.CallPrefix):])
		indexed := v.indexed(open, b.user, rest)
		c, err := journal.DecodeCall(key, val)
		if err != nil {
			v.report(whereCall(b.user, rest), "its record cannot be read: %v", err)
			continue
		}
		v.call(&c, indexed, b)
	}
	v.indexed(open, b.user, "")
}

// call checks one record.
func (v *verification) call(c *journal.CallRecord, indexed bool, b *totals) {
	where := "call " + c.ID + " of " + c.User
	switch {
	case c.Ended == "" && !indexed:
		v.report(where, "it is running, but not in the index of running calls")
	case c.Ended != "" && indexed:
		v.report(where, "it has ended, but is in the index of running calls")
	}
	left := c.Cost
	for _, p := range c.Paid {
		left -= p.Amount
		v.payment(where, c, p, b)
	}
	if left != 0 {
		v.report(where, "it cost %v, but paid %v", c.Cost, c.Cost-left)
	}
	if c.Day() >= v.completeFrom {
		b.addUsage(journal.Usage{
			Day: c.Day(), User: c.User, Key: c.Key, Model: c.CountedModel(),
			Calls: 1, Tokens: c.Tokens, Cost: c.Cost, Uncollected: c.Uncollected,
		})
	}
}

// payment checks one payment of a call. Its transfer may have no leg on the account if the
// payments of several calls in the transfer add up to zero there.
func (v *verification) payment(where string, c *journal.CallRecord, p journal.Payment, b *totals) {
	account := journal.Account(journal.UserPrefix + c.User + "/" + p.Account)
	if !account.NonNegative() {
		v.report(where, "it has paid from %s, which holds no money", account)
		return
	}
	if !p.Transfer.Before(v.paidFrom) {
		add(b.paid, account, -p.Amount)
		if len(c.Paid) >= journal.MaxPaid && journal.FirstTimed(time.UnixMilli(c.Time)).Before(v.paidFrom) {
			b.partial[account] = true
		}
	}
	if v.filter.has(account, p.Transfer) {
		return
	}
	switch x, found := v.transfer(p.Transfer); {
	case !found:
		v.report(where, "it has paid from %s by transfer %v, which is missing", account, p.Transfer)
	case x != nil && x.Kind != journal.Calls:
		v.report(where, "it has paid from %s by transfer %v, which is a %s", account, p.Transfer, x.Kind)
	}
}

// indexed reports whether the call whose key ends with rest is in the index of calls under way.
// It must be called for all calls of a user in the order of their keys, and last with an empty
// rest. It reports index keys that it passes as keys without a record.
func (v *verification) indexed(open *cursor, user, rest string) bool {
	for {
		have, more := open.user()
		if !more || have != user {
			return false
		}
		name, _ := open.rest()
		if rest != "" && name > rest {
			return false
		}
		open.next()
		if name == rest {
			return true
		}
		v.report(whereCall(user, name), "it is in the index of running calls, but has no record")
	}
}

// whereCall names a call by the end of its key: <user>/<^time>/<id>.
func whereCall(user, rest string) string {
	if from := len(user) + len("/########/"); len(rest) > from {
		return "call " + rest[from:] + " of " + user
	}
	return fmt.Sprintf("call %q", rest)
}

// usage checks the usage of a user's days.
func (v *verification) usage(records *cursor, b *totals) {
	var day journal.Day // of the record before
	for key, val := range records.of(b.user) {
		where := whereUsage(string(key))
		var u journal.Usage
		if err := storage.DecodeRecord(val, &u); err != nil {
			v.report(where, "its record cannot be read: %v", err)
			continue
		}
		if string(u.StoreKey()) != string(key) {
			v.report(where, "its record is that of %s", whereUsage(string(u.StoreKey())))
		}
		if u.Day != day {
			if day = u.Day; v.get(journal.ActiveKey(day, u.User)) == nil && v.err == nil {
				v.report(where, "its user is not in the index of active users of the day")
			}
		}
		b.spent -= u.Cost
		if u.Day >= v.completeFrom {
			b.addUsage(journal.Usage{
				Day: u.Day, User: u.User, Key: u.Key, Model: u.Model,
				Calls: -u.Calls, Tasks: -u.Tasks, Tokens: usage.Tokens{}.Minus(u.Tokens), Cost: -u.Cost, Uncollected: -u.Uncollected,
			})
		}
	}
}

// whereUsage names the sums of a day by their key.
func whereUsage(key string) string {
	return "usage " + strings.TrimPrefix(key, journal.Usages.Name+"/")
}
