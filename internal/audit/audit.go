// Package audit records changes of accounts and of the gateway. [Record] writes an [Event] in the
// transaction of the change, so neither exists without the other. [Log] writes the event to the audit
// log when the transaction is durable, lists the events of a user, and sets how long events are kept.
// The domains (identity, billing, tasks) and the admin API import this package.
package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Event is one line of the audit log: who changed what, and for which user.
type Event struct {
	Time   int64  `json:"time"`             // Unix seconds
	Actor  string `json:"actor"`            // "operator", or the id of a user
	Action string `json:"action"`           // "key.revoke"
	User   string `json:"user,omitempty"`   // whose account it concerns
	Key    string `json:"key,omitempty"`    // which key, if one
	Detail string `json:"detail,omitempty"` // never a secret

	// Before and After are the value that the action changed, where it changed one.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`

	// Reason is why an operator or administrator did it, as they gave it; see [WithReason].
	Reason string `json:"reason,omitempty"`

	// Address is where the request of a user or an administrator came from. It is empty for the
	// operator, whose requests come through Caddy's admin endpoint.
	Address string `json:"address,omitempty"`

	// RequestID is the id of the request that made the change, as in X-Request-Id. It is empty
	// if no request made it.
	RequestID string `json:"request_id,omitempty"`
}

// record is an event as it is stored.
type record struct {
	Event
	Nano int64         `json:"nano"` // the time in Unix nanoseconds
	ID   string        `json:"id"`   // random, for events of the same nanosecond
	Kept time.Duration `json:"kept"` // how long events were kept when it was recorded
}

// events are listed by the user in User, newest first. User may be empty.
var events = table.Table[record]{
	Name:    "audit",
	Key:     func(e *record) table.Key { return table.Key{e.User, storage.Inverted(e.Nano), e.ID} },
	Expires: func(e *record) time.Time { return time.Unix(0, e.Nano).Add(e.Kept) },
}

// DefaultRetention is how long events are kept unless it is configured otherwise.
const DefaultRetention = 400 * 24 * time.Hour

// retentionKey is the key of the retention if it is not [DefaultRetention]. The store has it,
// so that callers of Record need not pass it.
var retentionKey = []byte("meta/audit")

func retention(r storage.Reader) (time.Duration, error) {
	kept := DefaultRetention
	_, err := storage.GetRecord(r, retentionKey, &kept)
	return kept, err
}

// Record writes an event of the time now, in the transaction of the change that it
// reports. It sets the event's time and the id of the request that ctx belongs to. When the
// transaction is durable, the caller passes the event to [Log.OnAudit]. Record also sets the reason
// of ctx, and its address if the event has none. If a user makes too many changes of their own
// account in a day, it fails with RATE_LIMITED.
func Record(ctx context.Context, t storage.Txn, now time.Time, e *Event) error {
	if err := countOwn(t, now, *e); err != nil {
		return err
	}
	keep, err := retention(t)
	if err != nil {
		return err
	}
	e.Time, e.RequestID, e.Reason = now.Unix(), requestid.Of(ctx), reasonOf(ctx)
	e.Address = cmp.Or(e.Address, addressOf(ctx))
	return events.Put(t, nil, &record{*e, now.UnixNano(), rand.Text()[:10], keep})
}

// Log is the audit of one store. Its methods may be called concurrently.
type Log struct {
	store *storage.Store
	log   *zap.Logger
}

// New returns the audit of a store, whose events are written to a logger when they are durable.
func New(store *storage.Store, logger *zap.Logger) *Log { return &Log{store, logger} }

// SetRetention sets how long later events are kept. The expiry of earlier events is unchanged.
func (l *Log) SetRetention(ctx context.Context, kept time.Duration) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error {
		have, err := retention(t)
		if err != nil || have == kept {
			return err
		}
		return storage.SetRecord(t, retentionKey, kept)
	}))
}

// OnAudit writes a recorded event to the audit log. It is called after the commit, so that the
// log reports nothing that did not happen.
func (l *Log) OnAudit(e Event) {
	l.log.Info(e.Action, zap.String("actor", e.Actor), zap.String("user_id", e.User),
		zap.String("key_id", e.Key), zap.String("detail", e.Detail), zap.String("before", e.Before), zap.String("after", e.After),
		zap.String("reason", e.Reason), zap.String("address", e.Address), zap.String("request_id", e.RequestID))
}

// Change runs fn in one transaction with the event that it returns, if it is not nil, and writes the
// event to the audit log when both are durable. Its errors are those of [fault.OfStore].
func (l *Log) Change(ctx context.Context, fn func(storage.Txn) (*Event, error)) error {
	var recorded *Event
	err := l.store.Update(ctx, func(t storage.Txn) error {
		e, err := fn(t)
		if recorded = e; err != nil || e == nil {
			return err
		}
		return Record(ctx, t, l.store.Now(), e)
	})
	if err == nil && recorded != nil {
		l.OnAudit(*recorded)
	}
	return fault.OfStore(err)
}

// You is the actor of an activity if it is the user.
const You = "you"

// MaxActivity is how many events of a user are counted and listed at most.
const MaxActivity = 10_000

// Activity returns what was done to the account of a user, by the user or by others,
// newest first: limit events after the first skip, and how many there are in
// all, at most [MaxActivity]. The actor is "you", "operator" (also for an administrator), or a
// provider of payments. The reason and the address of an administrator are left out: only
// operators see them.
func (l *Log) Activity(ctx context.Context, userID string, skip, limit int64) (list []Event, total int64, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		page, n, err := events.Page(r, events.Under(userID), skip, limit, MaxActivity)
		list, total = make([]Event, len(page)), n
		for i, e := range page {
			list[i] = e.Event
			switch {
			case e.Actor == userID:
				list[i].Actor = You
			case strings.HasPrefix(e.Actor, "usr_"):
				list[i].Actor, list[i].Address = "operator", ""
			}
			list[i].User, list[i].Reason = "", ""
		}
		return err
	})
	return list, total, fault.OfStore(err)
}

// Events returns at most limit events about a user as they were recorded, newest first, that follow
// the cursor after. If there may be more, next is their cursor.
func (l *Log) Events(ctx context.Context, userID, after string, limit int64) (list []Event, next string, err error) {
	in := events.Under(userID)
	var nano int64
	var id string
	if after != "" {
		time, rest, _ := strings.Cut(after, "-")
		if nano, err = strconv.ParseInt(time, 10, 64); err != nil || nano < 0 || rest == "" {
			return nil, "", fault.At(fault.InvalidParameter, "after", "after must be the `next` of the previous page")
		}
		id = rest
		in = in.From(userID, storage.Inverted(nano), id)
	}
	err = l.store.View(ctx, func(r storage.Reader) error {
		page, last, err := events.Matching(r, in, limit, limit+1, func(e *record) bool { return e.Nano != nano || e.ID != id })
		list, next = make([]Event, len(page)), ""
		for i, e := range page {
			list[i] = e.Event
		}
		if last != nil {
			next = strconv.FormatInt(last.Nano, 10) + "-" + last.ID
		}
		return err
	})
	return list, next, fault.OfStore(err)
}

// MaxReason is the maximum length of a reason, in characters.
const MaxReason = 500

// CheckReason returns a fault if a reason is too long, is not UTF-8, has control characters, or is
// empty although required.
func CheckReason(reason string, required bool) error {
	switch n := utf8.RuneCountInString(reason); {
	case strings.TrimSpace(reason) == "" && required:
		return fault.At(fault.MissingParameter, "reason", "reason is required; the audit records it")
	case n > MaxReason:
		return fault.At(fault.InvalidParameter, "reason", "reason has at most %d characters, this has %d", MaxReason, n)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		return fault.At(fault.InvalidParameter, "reason", "reason must be UTF-8 without control characters")
	}
	return nil
}

type (
	reasonKey  struct{}
	addressKey struct{}
)

// WithReason returns a context in which [Record] gives every event this reason.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

// WithAddress returns a context in which [Record] gives every event this address of the caller,
// unless the event has one.
func WithAddress(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

func addressOf(ctx context.Context) string {
	address, _ := ctx.Value(addressKey{}).(string)
	return address
}

func reasonOf(ctx context.Context) string {
	reason, _ := ctx.Value(reasonKey{}).(string)
	return reason
}
