package billing

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Preference returns the order in which a user's calls are paid.
func (b *Service) Preference(ctx context.Context, user string) (p records.Preference, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		account, err := records.ReadAccount(r, user)
		if err == nil {
			p = account.Preferred()
		}
		return err
	})
	return p, err
}

// SetPreference changes the preference of a user. It applies from the next call on.
func (b *Service) SetPreference(ctx context.Context, user string, p records.Preference) error {
	switch p {
	case records.SubscriptionFirst, records.WalletFirst, records.SubscriptionOnly, records.WalletOnly:
	default:
		return fault.At(fault.InvalidParameter, "preference", "preference is %s, %s, %s or %s",
			records.SubscriptionFirst, records.WalletFirst, records.SubscriptionOnly, records.WalletOnly)
	}
	var event *audit.Event
	err := b.ledger.Update(ctx, user, nil, func(t *ledger.Txn) error {
		account, err := records.ReadAccount(t, user)
		if err != nil || account.Preferred() == p {
			return err
		}
		account.Preference = p
		event = &audit.Event{Actor: user, Action: "subscription.preference", User: user, Detail: string(p)}
		now := b.store.Now()
		if err := errors.Join(audit.Record(ctx, t, now, event), records.Accounts.Put(t, nil, account)); err != nil {
			return err
		}
		r, err := records.ReadSummary(t, user, now)
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
