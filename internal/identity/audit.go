package identity

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Event is one line of the audit: who did what to whom. It is written in the
// transaction of what it tells, so neither exists without the other.
type Event struct {
	Time   int64  `json:"time"`             // Unix seconds
	Actor  string `json:"actor"`            // "operator", or the id of a user
	Action string `json:"action"`           // "key.revoke"
	User   string `json:"user,omitempty"`   // whose account it concerns
	Key    string `json:"key,omitempty"`    // which key, if one
	Detail string `json:"detail,omitempty"` // never a secret

	// Address is where it was done from, where that tells a person something.
	Address string `json:"address,omitempty"`

	// RequestID is the id of the request that did it, as in X-Request-Id; empty if
	// the gateway did it by itself.
	RequestID string `json:"request_id,omitempty"`
}

// AuditKept is how long events are kept unless it is configured otherwise.
const AuditKept = 400 * 24 * time.Hour

// auditKeptKey is where a store says how long it keeps events, if not for
// [AuditKept]: in the store, so that whoever records one need not be told.
var auditKeptKey = []byte("meta/audit")

func auditKept(r storage.Reader) (time.Duration, error) {
	kept := AuditKept
	_, err := storage.GetRecord(r, auditKeptKey, &kept)
	return kept, err
}

// KeepAudit says how long events are kept that are recorded from now on. The
// others go when it was said as they were recorded.
func (d *Directory) KeepAudit(ctx context.Context, kept time.Duration) error {
	return unavailable(d.store.Update(ctx, func(t storage.Txn) error {
		have, err := auditKept(t)
		if err != nil || have == kept {
			return err
		}
		return storage.SetRecord(t, auditKeptKey, kept)
	}))
}

// auditPrefix begins the keys of the events that concern no user:
// audit/<inverted time, ns>/<random>, newest first.
const auditPrefix = "audit/"

// Record writes an event of the time now, in the transaction of what it tells:
// into the activity of the user whom it concerns, if it concerns one. It sets the
// event's time and the id of the request that ctx belongs to. When the
// transaction is durable, [Directory.Told] tells the log of it. What a user does to
// his own account too often in a day is refused: RATE_LIMITED.
func Record(ctx context.Context, t storage.Txn, now time.Time, e *Event) error {
	if err := countOwn(t, now, *e); err != nil {
		return err
	}
	kept, err := auditKept(t)
	if err != nil {
		return err
	}
	e.Time, e.RequestID = now.Unix(), requestid.Of(ctx)
	key := []byte(auditPrefix)
	if e.User != "" {
		key = activityPrefix(e.User)
	}
	key = binary.BigEndian.AppendUint64(key, uint64(math.MaxInt64-now.UnixNano()))
	key = appendRandom62(append(key, '/'), 8)
	return t.Set(key, storage.EncodeRecord(*e), now.Add(kept))
}

// Told writes an event that was recorded to the audit log. It belongs after the
// commit: the log must not tell what did not happen.
func (d *Directory) Told(e Event) {
	d.audit.Info(e.Action, zap.String("actor", e.Actor), zap.String("user_id", e.User),
		zap.String("key_id", e.Key), zap.String("detail", e.Detail), zap.String("address", e.Address),
		zap.String("request_id", e.RequestID))
}

// ownChanges are what a user may do to his own account again and again, at no
// cost to him. What ends an access is not among them, nor what proves who he is: that
// is never refused for what was done before.
var ownChanges = map[string]bool{
	"profile.change": true, "key.create": true, "key.change": true, "key.rotate": true,
	"key.callback_secret": true, "token.mint": true, "subscription.preference": true,
}

// maxOwnChanges bounds those of one user in a day (UTC), so that nobody fills the
// store and the audit at will: each of his keys may be changed once.
//
// One more is refused, rather than made without its event: an operator who reads
// the audit log relies on its telling every change, and whoever has stolen an account
// must not be able to write on unseen.
const maxOwnChanges = MaxKeys

// ownRecord is how many of them were made on a day.
type ownRecord struct {
	UserID string `json:"user_id"`
	Day    int64  `json:"day"` // since 1970
	Made   int    `json:"made"`
}

func ownKey(userID string) []byte { return []byte("changes/" + userID) }

// countOwn counts an event where it is such a change, by the user himself, or
// refuses it: RATE_LIMITED.
func countOwn(t storage.Txn, now time.Time, e Event) error {
	if e.Actor != e.User || !ownChanges[e.Action] {
		return nil
	}
	const day = int64(24 * time.Hour / time.Second)
	var have ownRecord
	if _, err := storage.GetRecord(t, ownKey(e.User), &have); err != nil {
		return err
	}
	today := now.Unix() / day
	if have.Day != today {
		have = ownRecord{Day: today}
	}
	tomorrow := time.Unix((today+1)*day, 0)
	if have.Made >= maxOwnChanges {
		return fault.New(fault.RateLimited, "an account makes at most %d changes of its keys, token, profile and preference in a day (UTC)", maxOwnChanges).
			After(tomorrow.Sub(now).Truncate(time.Second) + time.Second)
	}
	have.Made++
	return t.Set(ownKey(e.User), storage.EncodeRecord(have), tomorrow)
}

// change runs fn in one transaction with the event that it returns, if one, and
// tells the audit log of it when both are durable.
func (d *Directory) change(ctx context.Context, fn func(storage.Txn) (*Event, error)) error {
	var told *Event
	err := d.store.Update(ctx, func(t storage.Txn) error {
		e, err := fn(t)
		if told = e; err != nil || e == nil {
			return err
		}
		return Record(ctx, t, d.store.Now(), e)
	})
	if err == nil && told != nil {
		d.Told(*told)
	}
	return err
}
