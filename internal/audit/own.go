package audit

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// ownActions are the actions of users on their own account that no other limit covers. An action
// that revokes access, or that proves the identity of the user, is never refused, so it is not in
// this table.
var ownActions = map[string]bool{
	"profile.change": true, "key.create": true, "key.change": true, "key.rotate": true,
	"key.callback_secret": true, "token.mint": true, "subscription.preference": true,
}

// MaxOwnChanges is the maximum number of ownActions of one user in a day (UTC). It keeps a user
// from filling the store and the audit log.
//
// Beyond the maximum, the change itself is refused. It is not made without an event, because
// operators rely on the audit log to report every change, also of an attacker who has stolen an
// account.
const MaxOwnChanges = 1000

const day = int64(24 * time.Hour / time.Second)

// ownRecord is the number of ownActions of one user on one day.
type ownRecord struct {
	UserID string `json:"user_id"`
	Day    int64  `json:"day"` // days since 1970-01-01
	Made   int    `json:"made"`
}

func (o *ownRecord) end() time.Time { return time.Unix((o.Day+1)*day, 0) }

var ownChanges = table.Table[ownRecord]{
	Name:    "changes",
	Key:     func(o *ownRecord) table.Key { return table.Key{o.UserID} },
	Expires: (*ownRecord).end,
}

// countOwn counts an event if it is one of ownActions. Beyond the maximum it returns RATE_LIMITED.
func countOwn(t storage.Txn, now time.Time, e Event) error {
	if e.Actor != e.User || !ownActions[e.Action] {
		return nil
	}
	have, err := ownChanges.GetOrZero(t, e.User)
	if err != nil {
		return err
	}
	if today := now.Unix() / day; have.Day != today {
		have = &ownRecord{UserID: e.User, Day: today}
	}
	if have.Made >= MaxOwnChanges {
		return fault.New(fault.RateLimited, "an account makes at most %d changes of its keys, token, profile and preference in a day (UTC)", MaxOwnChanges).
			After(have.end().Sub(now).Truncate(time.Second) + time.Second)
	}
	have.Made++
	return ownChanges.Put(t, nil, have)
}

// ResetOwnChanges resets the count of the changes that a user has made today.
func ResetOwnChanges(t storage.Txn, userID string) error { return ownChanges.Delete(t, userID) }
