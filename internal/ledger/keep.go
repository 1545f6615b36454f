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

// KeepCalls says how long the records of calls are kept that are written from
// now on. The others go when it was said as they were written; what is older
// than is kept now is not listed any more.
func (l *Ledger) KeepCalls(ctx context.Context, kept time.Duration) error {
	return fault.OfStore(l.store.Update(ctx, func(t storage.Txn) error {
		have, err := readKeeping(t)
		if err != nil || have.Kept == kept {
			return err
		}
		return storage.SetRecord(t, keepingKey, have.become(kept, l.store.Now()))
	}))
}

// CallsFrom returns since when all calls are there: [Ledger.ScanCalls] lists
// none that came before.
func (l *Ledger) CallsFrom(ctx context.Context) (from time.Time, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		k, err := readKeeping(r)
		from = k.from(l.store.Now())
		return err
	})
	return from, fault.OfStore(err)
}
