package billing

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Preference is the order in which a user wants calls and tasks to be paid.
type Preference string

// The preferences. Subscriptions are spent soonest to end first.
const (
	SubscriptionFirst Preference = "subscription_first" // the default
	WalletFirst       Preference = "wallet_first"
	SubscriptionOnly  Preference = "subscription_only"
	WalletOnly        Preference = "wallet_only"
)

// accountRecord is what there is one of for each user.
type accountRecord struct {
	Preference Preference `json:"preference,omitempty"`

	// WrittenOff is what he owed after disputes and refunds and the operator has
	// borne; of that, what comes back from a dispute is the operator's.
	WrittenOff money.Amount `json:"written_off,omitempty"`
}

func (a *accountRecord) preference() Preference {
	if a.Preference == "" {
		return SubscriptionFirst
	}
	return a.Preference
}

func readAccount(r storage.Reader, user string) (a accountRecord, err error) {
	_, err = storage.GetRecord(r, storage.Key(accountPrefix, user), &a)
	return a, err
}

func (a *accountRecord) write(t storage.Txn, user string) error {
	return storage.SetRecord(t, storage.Key(accountPrefix, user), *a)
}

// Preference returns the order in which a user's calls are paid.
func (d *Desk) Preference(ctx context.Context, user string) (p Preference, err error) {
	err = d.view(ctx, func(r storage.Reader) error {
		account, err := readAccount(r, user)
		p = account.preference()
		return err
	})
	return p, err
}

// SetPreference changes that order, from the next call on.
func (d *Desk) SetPreference(ctx context.Context, user string, p Preference) error {
	switch p {
	case SubscriptionFirst, WalletFirst, SubscriptionOnly, WalletOnly:
	default:
		return fault.At(fault.InvalidParameter, "preference", "preference is %s, %s, %s or %s",
			SubscriptionFirst, WalletFirst, SubscriptionOnly, WalletOnly)
	}
	var event *identity.Event
	err := d.ledger.Update(ctx, user, nil, func(t *ledger.Txn) error {
		account, err := readAccount(t, user)
		if err != nil || account.preference() == p {
			return err
		}
		account.Preference = p
		event = &identity.Event{Actor: user, Action: "subscription.preference", User: user, Detail: string(p)}
		now := d.store.Now()
		if err := errors.Join(identity.Record(ctx, t, now, event), account.write(t, user)); err != nil {
			return err
		}
		r, err := readRoster(t, user, now)
		if err != nil {
			return err
		}
		_, err = spend(t, now, user, r)
		return err
	})
	if err == nil && event != nil {
		d.directory.Told(*event)
	}
	return err
}
