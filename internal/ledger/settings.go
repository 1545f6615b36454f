package ledger

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// KeepCalls sets how long the records of calls are kept that are written from now on. Records
// that were written before keep the time that was set then. Calls that are older than the new
// time are not listed any more.
func (l *Ledger) KeepCalls(ctx context.Context, kept time.Duration) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error { return journal.Keep(t, kept, l.store.Now()) }))
}

// CallsFrom returns the time since which all calls are there. [Ledger.ScanCalls] lists
// no earlier ones.
func (l *Ledger) CallsFrom(ctx context.Context) (from time.Time, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		k, err := journal.ReadKeeping(r)
		from = k.From(l.store.Now())
		return err
	})
	return from, fault.OfStore(err)
}

var currencyKey = []byte("meta/currency")

// UseCurrency records which currency the amounts of this ledger are in. It returns
// a conflict if money of another currency has moved: the same figures would mean
// something else.
func (l *Ledger) UseCurrency(ctx context.Context, code string) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error {
		recorded, err := hasCurrency(t, code)
		if err != nil || recorded {
			return err
		}
		return storage.SetRecord(t, currencyKey, code)
	}))
}

// Currency returns the currency that the amounts of a ledger are in; empty: none is
// recorded.
func Currency(r storage.Reader) (code string, err error) {
	_, err = storage.GetRecord(r, currencyKey, &code)
	return code, err
}

// CheckCurrency returns the error that [Ledger.UseCurrency] would return for this
// currency, and whether it is the recorded one already. It changes nothing.
func (l *Ledger) CheckCurrency(ctx context.Context, code string) (recorded bool, err error) {
	err = l.store.View(ctx, func(r storage.Reader) (err error) {
		recorded, err = hasCurrency(r, code)
		return err
	})
	return recorded, fault.OfStore(err)
}

// hasCurrency reports whether code is the recorded currency. It returns a conflict
// if money of another currency has moved.
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
