package billing

import (
	"cmp"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// firstRoster makes the roster of a user who has none: he never had a
// subscription, or nobody has looked at them since there are rosters.
func firstRoster(r storage.Reader, user string, now time.Time) (*roster, error) {
	made := new(roster)
	if err := made.enlist(r, user, now); err != nil {
		return nil, err
	}
	lo, hi := storage.Below(purchasesPrefix, user)
	err := scan(r, lo, hi, func(key []byte, times int64) bool {
		made.bought = append(made.bought, count{integer(key, len(lo)), times})
		return true
	})
	if err != nil {
		return nil, err
	}
	account, err := readAccount(r, user)
	made.due = account.Due
	made.older = made.due != 0 || made.struck != 0 || len(made.bought) > 0 || len(made.running) > 0
	return made, err
}

// dropOlder takes away what a roster has come in place of.
func dropOlder(t storage.Txn, user string) error {
	for _, prefix := range []string{livePrefix, purchasesPrefix} {
		lo, hi := storage.Below(prefix, user)
		keys, err := keysBetween(t, lo, hi, 0)
		for _, key := range keys {
			err = cmp.Or(err, t.Delete(key))
		}
		if err != nil {
			return err
		}
	}
	lo, hi := storage.Below(subscriptionPrefix, user)
	keys, err := keysBetween(t, lo, hi, 0)
	for _, key := range keys {
		err = cmp.Or(err, t.Delete(storage.Key(ownerPrefix, integer(key, len(lo)))))
	}
	if err != nil {
		return err
	}
	account, err := readAccount(t, user)
	if err != nil || account.Due == 0 {
		return err
	}
	account.Due = 0
	return account.write(t, user)
}
