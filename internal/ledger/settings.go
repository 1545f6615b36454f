package ledger

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// CallsKept is how long the records of calls are kept unless it is configured
// otherwise.
const CallsKept = 90 * 24 * time.Hour

// keepingKey is where a store says how long it keeps the records of calls, if
// not for [CallsKept]: in the store, so that what is written, listed and verified
// goes by the same figure, and a backup has it too.
var keepingKey = []byte("meta/calls")

// keeping is how long the records of calls are kept, from when each was last
// written.
type keeping struct {
	Kept   time.Duration `json:"kept_ns"`          // those that are written now
	Before []shorter     `json:"before,omitempty"` // those that were written for less, oldest first
}

// shorter is how long records were kept that were written until some time.
type shorter struct {
	Until int64         `json:"until"` // Unix milliseconds
	Kept  time.Duration `json:"kept_ns"`
}

func readKeeping(r storage.Reader) (keeping, error) {
	k := keeping{Kept: CallsKept}
	_, err := storage.GetRecord(r, keepingKey, &k)
	return k, err
}

// from returns since when all that was written is there.
func (k keeping) from(now time.Time) time.Time {
	from := now.Add(-k.Kept).UnixMilli()
	for _, b := range k.Before {
		from = max(from, min(b.Until, now.Add(-b.Kept).UnixMilli()))
	}
	return time.UnixMilli(from)
}

// become returns how long records are kept when those that are written from now
// on are kept for a time of their own. Of the times before, it has the shorter
// ones of which the end is not long ago.
func (k keeping) become(kept time.Duration, now time.Time) keeping {
	next := keeping{Kept: kept}
	for _, b := range append(k.Before, shorter{now.UnixMilli(), k.Kept}) {
		if b.Kept < kept && b.Until > now.Add(-kept).UnixMilli() {
			next.Before = append(next.Before, b)
		}
	}
	return next
}

// KeepCalls sets how long the records of calls are kept that are written from now on. Records
// that were written before keep the time that was set then. Calls that are older than the new
// time are not listed any more.
func (l *Ledger) KeepCalls(ctx context.Context, kept time.Duration) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error {
		have, err := readKeeping(t)
		if err != nil || have.Kept == kept {
			return err
		}
		return storage.SetRecord(t, keepingKey, have.become(kept, l.store.Now()))
	}))
}

// CallsFrom returns the time since which all calls are there. [Ledger.ScanCalls] lists
// no earlier ones.
func (l *Ledger) CallsFrom(ctx context.Context) (from time.Time, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		k, err := readKeeping(r)
		from = k.from(l.store.Now())
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
	err = r.Scan([]byte(transferPrefix), storage.PrefixEnd([]byte(transferPrefix)), func(_, _ []byte) bool {
		moved = true
		return false
	})
	if err == nil && moved {
		err = fault.New(fault.Conflict, "the money in this store is in %s, the configuration says currency %s: a store has one currency", have, code)
	}
	return false, err
}
