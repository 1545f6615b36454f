package ledger

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

var currencyKey = []byte("meta/currency")

// UseCurrency says which currency the amounts of this ledger are in. It is
// refused once money of another has moved: the same figures would mean
// something else.
func (l *Ledger) UseCurrency(ctx context.Context, code string) error {
	return unavailable(l.store.Update(ctx, func(t storage.Txn) error {
		var have string
		found, err := storage.GetRecord(t, currencyKey, &have)
		if err != nil || found && have == code {
			return err
		}
		moved := false
		err = t.Scan([]byte(transferPrefix), storage.PrefixEnd([]byte(transferPrefix)), func(_, _ []byte) bool {
			moved = true
			return false
		})
		switch {
		case err != nil:
			return err
		case found && moved:
			return fault.New(fault.Conflict, "the money in this store is in %s, the configuration says currency %s: a store has one currency", have, code)
		}
		return storage.SetRecord(t, currencyKey, code)
	}))
}
