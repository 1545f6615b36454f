package ledger

import (
	"cmp"
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// CallInfo is a call as the console and the admin API show it.
type CallInfo struct {
	RequestID string       `json:"request_id"`
	Time      int64        `json:"time"` // when it began, Unix seconds
	KeyID     string       `json:"key_id"`
	Model     string       `json:"model"`
	Route     string       `json:"route"`
	Stream    bool         `json:"stream"`
	Status    int          `json:"status"` // 0 while it runs
	Ended     usage.Ended  `json:"ended"`  // empty while it runs
	Usage     usage.Basis  `json:"usage"`
	Rule      usage.Rule   `json:"rule,omitempty"` // the rule for the charge, if the caller disconnected or the call failed
	Tokens    usage.Tokens `json:"tokens"`
	Cost      money.Amount `json:"cost"`
	FirstByte int64        `json:"first_byte_ms,omitempty"` // since it began
	Duration  int64        `json:"duration_ms"`
}

// InfoOf returns the description of a call.
func InfoOf(c *journal.Call) CallInfo {
	return CallInfo{
		RequestID: c.ID, Time: c.Time / 1000, KeyID: c.Key, Model: c.Model, Route: c.Route, Stream: c.Stream,
		Status: c.Status, Ended: c.Ended, Usage: c.Usage, Rule: c.Rule, Tokens: c.Tokens, Cost: c.Cost,
		FirstByte: c.FirstByte, Duration: c.Duration,
	}
}

// CallFilter selects calls. An empty field selects all.
type CallFilter struct {
	Key, Model  string
	From, Until time.Time // of Call.Time; Until is excluded
}

// ScanCalls calls fn for the calls of a user, newest first, until fn returns false or ctx ends.
// It omits calls before [Ledger.CallsFrom].
func (l *Ledger) ScanCalls(ctx context.Context, user string, f CallFilter, fn func(journal.CallRecord) bool) error {
	return fault.OfStore(l.store.View(ctx, func(r storage.Reader) error {
		kept, err := journal.ReadRetention(r)
		if err != nil {
			return err
		}
		f.From = latest(f.From, kept.From(l.store.Now()))
		return scanCalls(ctx, r, user, f, fn)
	}))
}

// scanCalls is ScanCalls within a transaction. It also reads calls whose retention has ended.
func scanCalls(ctx context.Context, r storage.Reader, user string, f CallFilter, fn func(journal.CallRecord) bool) error {
	before := func(t time.Time) []byte {
		return (&journal.Call{User: user, Time: t.UnixMilli() - 1}).StoreKey(journal.CallPrefix)
	}
	lo := []byte(journal.CallPrefix + user + "/")
	if !f.Until.IsZero() {
		lo = before(f.Until)
	}
	var bad error
	err := r.Scan(lo, before(f.From), func(key, val []byte) bool {
		var c journal.CallRecord
		if c, bad = journal.DecodeCall(key, val); bad == nil {
			bad = ctx.Err()
		}
		if bad != nil {
			return false
		}
		return f.Key != "" && c.Key != f.Key || f.Model != "" && c.Model != f.Model || fn(c)
	})
	return cmp.Or(err, bad)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// FindCall returns the call of a request of a user, or of any user if user is empty, and whether there
// is one. The id contains the time, so FindCall reads one record, or one for each user who was active on
// that day.
func (l *Ledger) FindCall(ctx context.Context, id, user string) (c journal.CallRecord, found bool, err error) {
	at, ok := requestid.Time(id)
	if !ok {
		return c, false, nil
	}
	err = l.store.View(ctx, func(r storage.Reader) error {
		kept, err := journal.ReadRetention(r)
		if err != nil || at.Before(kept.From(l.store.Now())) {
			return err
		}
		users := []string{user}
		if day := journal.DayOf(at); user == "" {
			if _, users, err = journal.ActiveUsers(r, journal.DayOf(at.AddDate(0, 0, 1)), day); err != nil {
				return err
			}
		}
		for _, user := range users {
			key := (&journal.Call{User: user, Time: at.UnixMilli(), ID: id}).StoreKey(journal.CallPrefix)
			if c, found, err = journal.ReadCall(r, key); err != nil || found {
				return err
			}
		}
		return nil
	})
	return c, found, fault.OfStore(err)
}

// CallPayment is what a settlement of a call took from an account.
type CallPayment struct {
	Transfer    journal.ID   `json:"transfer_id"`
	Time        int64        `json:"time"`    // Unix seconds
	Account     string       `json:"account"` // wallet or quota/<subscription>/<start>
	Amount      money.Amount `json:"amount"`
	Settlements int          `json:"settlements"` // in the transfer, of all users
}

// PaymentsOf returns what paid for a call.
func (l *Ledger) PaymentsOf(ctx context.Context, c *journal.CallRecord) ([]CallPayment, error) {
	payments := make([]CallPayment, len(c.Paid))
	for i, p := range c.Paid {
		transfer, err := l.Transfer(ctx, p.Transfer)
		if err != nil {
			return nil, err
		}
		payments[i] = CallPayment{p.Transfer, transfer.Time / 1000, p.Account, p.Amount, transfer.Count}
	}
	return payments, nil
}

// ScanUsage calls fn for the usage of a user between two days, both included, day by day. If user
// is empty, it does so for all users, user by user. An empty day is an open end.
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
