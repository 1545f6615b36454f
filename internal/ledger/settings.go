package ledger

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// SetCallRetention sets how long call records are kept that are written from now on. Earlier
// records keep their retention. Calls older than the new retention are no longer listed.
func (l *Ledger) SetCallRetention(ctx context.Context, kept time.Duration) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error { return journal.SetRetention(t, kept, l.store.Now()) }))
}

// CallsFrom returns the time since which no call record has expired. [Ledger.ScanCalls] lists no
// earlier calls.
func (l *Ledger) CallsFrom(ctx context.Context) (from time.Time, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		k, err := journal.ReadRetention(r)
		from = k.From(l.store.Now())
		return err
	})
	return from, fault.OfStore(err)
}

var currencyKey = []byte("meta/currency")

// UseCurrency records the currency of the amounts of this ledger. It returns [fault.Conflict] if
// the ledger already has transfers in another currency.
func (l *Ledger) UseCurrency(ctx context.Context, code string) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error {
		recorded, err := hasCurrency(t, code)
		if err != nil || recorded {
			return err
		}
		return storage.SetRecord(t, currencyKey, code)
	}))
}

// Currency returns the recorded currency of a ledger, or an empty string if none is recorded.
func Currency(r storage.Reader) (code string, err error) {
	_, err = storage.GetRecord(r, currencyKey, &code)
	return code, err
}

// CheckCurrency returns the error that [Ledger.UseCurrency] would return for this currency, and
// whether the currency is already recorded. It changes nothing.
func (l *Ledger) CheckCurrency(ctx context.Context, code string) (recorded bool, err error) {
	err = l.store.View(ctx, func(r storage.Reader) (err error) {
		recorded, err = hasCurrency(r, code)
		return err
	})
	return recorded, fault.OfStore(err)
}

// hasCurrency reports whether code is the recorded currency. It returns [fault.Conflict] if there
// are transfers in another currency.
func hasCurrency(r storage.Reader, code string) (recorded bool, err error) {
	have, err := Currency(r)
	if err != nil || have == "" || have == code {
		return have != "", err
	}
	moved := false
	err = r.Scan([]byte(journal.TransferPrefix), storage.PrefixEnd([]byte(journal.TransferPrefix)), func(_, _ []byte) bool {
		moved = true
		return false
	})
	if err == nil && moved {
		err = fault.New(fault.Conflict, "the money in this store is in %s, the configuration says currency %s: a store has one currency", have, code)
	}
	return false, err
}
