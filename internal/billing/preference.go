package billing

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
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
	User       string     `json:"user"`
	Preference Preference `json:"preference,omitempty"`

	// WrittenOff is what the user owed after disputes and refunds and the operator has
	// borne. What comes back of it from a dispute is the operator's.
	WrittenOff money.Amount `json:"written_off,omitempty"`
}

func (a *accountRecord) preference() Preference {
	if a.Preference == "" {
		return SubscriptionFirst
	}
	return a.Preference
}

func readAccount(r storage.Reader, user string) (*accountRecord, error) {
	a, err := accounts.GetOrZero(r, user)
	if err == nil {
		a.User = user
	}
	return a, err
}

// Preference returns the order in which a user's calls are paid.
func (b *Service) Preference(ctx context.Context, user string) (p Preference, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		account, err := readAccount(r, user)
		if err == nil {
			p = account.preference()
		}
		return err
	})
	return p, err
}

// SetPreference changes that order, from the next call on.
func (b *Service) SetPreference(ctx context.Context, user string, p Preference) error {
	switch p {
	case SubscriptionFirst, WalletFirst, SubscriptionOnly, WalletOnly:
	default:
		return fault.At(fault.InvalidParameter, "preference", "preference is %s, %s, %s or %s",
			SubscriptionFirst, WalletFirst, SubscriptionOnly, WalletOnly)
	}
	var event *audit.Event
	err := b.ledger.Update(ctx, user, nil, func(t *ledger.Txn) error {
		account, err := readAccount(t, user)
		if err != nil || account.preference() == p {
			return err
		}
		account.Preference = p
		event = &audit.Event{Actor: user, Action: "subscription.preference", User: user, Detail: string(p)}
		now := b.store.Now()
		if err := errors.Join(audit.Record(ctx, t, now, event), accounts.Put(t, nil, account)); err != nil {
			return err
		}
		r, err := readSummary(t, user, now)
		if err != nil {
			return err
		}
		_, err = spend(t, now, r)
		return err
	})
	if err == nil && event != nil {
		b.directory.Audit.OnAudit(*event)
	}
	return err
}
