package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

// calls goes through the records of a user's calls, and the index of those under
// way, which has the same order.
func (v *verification) calls(records, open *cursor, b *books) error {
	for {
		key, val, err := records.take(b.user)
		if err != nil {
			return err
		}
		if key == nil {
			_, err := v.indexed(open, b.user, "")
			return err
		}
		v.Calls++
		rest := string(key[len(callPrefix):])
		indexed, err := v.indexed(open, b.user, rest)
		if err != nil {
			return err
		}
		c, err := decodeCall(key, val)
		if err != nil {
			v.tell(whereCall(b.user, rest), "its record cannot be read: %v", err)
			continue
		}
		if err := v.call(&c, indexed, b); err != nil {
			return err
		}
	}
}

// call looks at one record.
func (v *verification) call(c *callRecord, indexed bool, b *books) error {
	where := "call " + c.ID + " of " + c.User
	switch {
	case c.Ended == "" && !indexed:
		v.tell(where, "it is under way, but not in the index of those")
	case c.Ended != "" && indexed:
		v.tell(where, "it has ended, but is in the index of those under way")
	}
	left := c.Cost
	for _, p := range c.Paid {
		left -= p.Amount
		if err := v.payment(where, c, p, b); err != nil {
			return err
		}
	}
	if left != 0 {
		v.tell(where, "it has cost %v, and paid %v", c.Cost, c.Cost-left)
	}
	if c.day() >= v.wholeFrom {
		b.count(Usage{
			Day: c.day(), User: c.User, Key: c.Key, Model: c.countedModel(),
			Calls: 1, Tokens: c.Tokens, Cost: c.Cost, Lost: c.Lost,
		})
	}
	return nil
}

// payment looks at one payment of a call. Its transfer need not have a leg on the
// account: what several calls paid and were given back there may come to nothing.
func (v *verification) payment(where string, c *callRecord, p payment, b *books) error {
	account := Account(userPrefix + c.User + "/" + p.Account)
	if !account.kept() {
		v.tell(where, "it has paid from %s, where no money is kept", account)
		return nil
	}
	if !p.Transfer.before(v.paidFrom) {
		add(b.paid, account, -p.Amount)
		if len(c.Paid) >= maxPaid && firstTimed(time.UnixMilli(c.Time)).before(v.paidFrom) {
			b.vague[account] = true
		}
	}
	if v.filter.has(account, p.Transfer) {
		return nil
	}
	x, found, err := v.transfer(p.Transfer)
	switch {
	case err != nil:
		return err
	case !found:
		v.tell(where, "it has paid from %s by transfer %v, which is missing", account, p.Transfer)
	case x != nil && x.Kind != Calls:
		v.tell(where, "it has paid from %s by transfer %v, which is a %s", account, p.Transfer, x.Kind)
	}
	return nil
}

// indexed reports whether the call whose key ends with rest is in the index of calls under way.
// It must be called for all calls of a user in the order of their keys, and last with an empty
// rest. It reports index keys that it passes as keys without a record.
func (v *verification) indexed(open *cursor, user, rest string) (bool, error) {
	for {
		have, more, err := open.user()
		if err != nil || !more || have != user {
			return false, err
		}
		name, _, err := open.rest()
		if err != nil || rest != "" && name > rest {
			return false, err
		}
		open.advance()
		if name == rest {
			return true, nil
		}
		v.tell(whereCall(user, name), "it is in the index of those under way, but has no record")
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
func (v *verification) usage(records *cursor, b *books) error {
	for {
		key, val, err := records.take(b.user)
		if err != nil || key == nil {
			return err
		}
		where := whereUsage(string(key))
		var u Usage
		if err := storage.DecodeRecord(val, &u); err != nil {
			v.tell(where, "its record cannot be read: %v", err)
			continue
		}
		if string(u.key()) != string(key) {
			v.tell(where, "its record is that of %s", whereUsage(string(u.key())))
		}
		b.spent -= u.Cost
		if u.Day >= v.wholeFrom {
			b.count(Usage{
				Day: u.Day, User: u.User, Key: u.Key, Model: u.Model,
				Calls: -u.Calls, Tasks: -u.Tasks, Tokens: usage.Tokens{}.Minus(u.Tokens), Cost: -u.Cost, Lost: -u.Lost,
			})
		}
	}
}

// whereUsage names the sums of a day by their key.
func whereUsage(key string) string {
	return "usage " + strings.TrimPrefix(key, usagePrefix)
}
