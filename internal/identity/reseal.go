package identity

import (
	"context"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/identity/reseal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// sealedTables has every table with sealed secrets.
var sealedTables = append(factor.Sealed(), reseal.Of(&keyTable, func(r *keyRecord) []reseal.Field {
	return []reseal.Field{{Purpose: callbackPurpose, At: &r.CallbackSecret}, {Purpose: callbackPurpose, At: &r.CallbackPrevious}}
}))

// Reseal seals all secrets again that are sealed with an older master key, and returns the number
// of their records. After it has returned without an error, the older keys are no longer needed. It
// may be interrupted at any time and run again, because each record names its key. On a shared store
// it returns CONFLICT unless every live node seals with the newest key.
func (d *Directory) Reseal(ctx context.Context) (records int, err error) {
	// From now on the newest key is needed as well, even if Reseal is interrupted.
	if err := d.keyring.BeginRenew(ctx, d.store); err != nil {
		return 0, factor.SealFault(err)
	}
	for _, table := range sealedTables {
		resealed, err := table(ctx, d.store, d.keyring)
		records += resealed
		if err != nil {
			return records, fault.OfStore(err)
		}
	}
	if err := d.keyring.Renew(ctx, d.store); err != nil {
		return records, factor.SealFault(err)
	}
	err = d.Audit.Change(ctx, func(storage.Txn) (*audit.Event, error) {
		return &audit.Event{Actor: "operator", Action: "secret.rotate", Detail: fmt.Sprintf("%d records sealed again", records)}, nil
	})
	return records, fault.OfStore(err)
}
