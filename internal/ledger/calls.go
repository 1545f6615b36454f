package ledger

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// CallFilter says which calls are wanted. Empty fields want all.
type CallFilter struct {
	Key, Model  string
	From, Until time.Time // of Call.Time, half open
}

// ScanCalls calls fn for the calls of a user, newest first, until fn returns
// false. Those before [Ledger.CallsFrom] are left out.
func (l *Ledger) ScanCalls(ctx context.Context, user string, f CallFilter, fn func(journal.Call) bool) error {
	before := func(t time.Time) []byte {
		return (&journal.Call{User: user, Time: t.UnixMilli() - 1}).StoreKey(journal.CallPrefix)
	}
	lo := []byte(journal.CallPrefix + user + "/")
	if !f.Until.IsZero() {
		lo = before(f.Until)
	}
	return fault.OfStore(l.store.View(ctx, func(r storage.Reader) error {
		kept, err := journal.ReadKeeping(r)
		if err != nil {
			return err
		}
		from := kept.From(l.store.Now())
		if f.From.After(from) {
			from = f.From
		}
		var bad error
		err = r.Scan(lo, before(from), func(key, val []byte) bool {
			var c journal.CallRecord
			if c, bad = journal.DecodeCall(key, val); bad != nil {
				return false
			}
			return f.Key != "" && c.Key != f.Key || f.Model != "" && c.Model != f.Model || fn(c.Call)
		})
		return cmp.Or(err, bad)
	}))
}

// ScanUsage calls fn for the usage of a user between two days, both included,
// day by day; of all users when user is empty, user by user. Empty days are
// open ends.
func (l *Ledger) ScanUsage(ctx context.Context, user string, from, to journal.Day, fn func(journal.Usage) bool) error {
	in := journal.Usages.Under()
	if user != "" {
		in = journal.Usages.Under(user).From(user, string(from))
	}
	return fault.OfStore(l.store.View(ctx, func(r storage.Reader) error {
		for u, err := range journal.Usages.Scan(r, in) {
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
	var kept journal.Keeping
	err := l.store.View(ctx, func(r storage.Reader) (err error) {
		if kept, err = journal.ReadKeeping(r); err != nil {
			return err
		}
		return r.Scan([]byte(journal.OpenCallPrefix), storage.PrefixEnd([]byte(journal.OpenCallPrefix)), func(key, _ []byte) bool {
			left = append(left, append([]byte(nil), key...))
			return true
		})
	})
	for _, open := range left {
		if err != nil {
			break
		}
		err = l.store.Update(ctx, func(t storage.Txn) error {
			key := []byte(journal.CallPrefix + strings.TrimPrefix(string(open), journal.OpenCallPrefix))
			c, found, err := journal.ReadCall(t, key)
			if err != nil {
				return err
			}
			if found && c.Ended == "" {
				c.Ended = journal.Crashed
				if err := t.Set(key, c.Encode(key), l.store.Now().Add(kept.Kept)); err != nil {
					return err
				}
			}
			return t.Delete(open)
		})
	}
	return err
}
