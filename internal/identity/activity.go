package identity

import (
	"context"

	"github.com/caddy-modelgate/modelgate/storage"
)

// activityPrefix begins the keys of the events of one user:
// activity/<user>/<inverted time, ns>/<random>, newest first.
func activityPrefix(userID string) []byte { return []byte("activity/" + userID + "/") }

// You stands for the user himself where his activity names who did something.
const You = "you"

// MaxActivity is how many events of a user are counted and shown, so that no
// request reads more than these.
const MaxActivity = 10_000

// Activity returns what was done to the account of a user, by him or by others,
// newest first: limit events after the first skip, and how many there are in
// all. It goes back [MaxActivity] events and no further. The actor
// is "you", "operator", or a provider of payments.
func (d *Directory) Activity(ctx context.Context, userID string, skip, limit int64) ([]Event, int64, error) {
	events := []Event{}
	var total int64
	err := d.store.View(ctx, func(r storage.Reader) error {
		var bad error
		prefix := activityPrefix(userID)
		err := r.Scan(prefix, storage.PrefixEnd(prefix), func(_, val []byte) bool {
			total++
			more := total < MaxActivity
			if total <= skip || total > skip+limit {
				return more
			}
			var e Event
			if bad = storage.DecodeRecord(val, &e); bad != nil {
				return false
			}
			if e.Actor == userID {
				e.Actor = You
			}
			e.User = "" // it is his own
			events = append(events, e)
			return more
		})
		if err == nil {
			err = bad
		}
		return err
	})
	return events, total, unavailable(err)
}
