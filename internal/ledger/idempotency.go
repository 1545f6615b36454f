package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// IdempotencyKey identifies an operation that runs once. A repeated key with the same fingerprint
// gets the first result. With another fingerprint it is refused.
type IdempotencyKey struct {
	Scope       string     // owner of the key: the id of a user or of an API key
	Key         string     // 1 to 255 printable ASCII characters
	Fingerprint journal.ID // of the operation and all of its parameters
}

// Validate returns a fault if the key is empty, too long, or not printable ASCII. param is the
// name of the request field.
func (c IdempotencyKey) Validate(param string) *fault.Fault {
	if c.Key == "" {
		return fault.At(fault.MissingParameter, param, "%s is required: a unique word such as a UUID, by which this is done once", param)
	}
	if len(c.Key) > 255 {
		return fault.At(fault.InvalidParameter, param, "%s has at most 255 characters, this has %d", param, len(c.Key))
	}
	for _, b := range []byte(c.Key) {
		if b < ' ' || b > '~' {
			return fault.At(fault.InvalidParameter, param, "%s has printable ASCII characters only", param)
		}
	}
	return nil
}

// IdempotencyRecord returns the record of the operation that was done under an idempotency key, with
// any fingerprint; nil: the key is free.
func (l *Ledger) IdempotencyRecord(ctx context.Context, c IdempotencyKey) (record *journal.IdempotencyRecord, err error) {
	err = l.store.View(ctx, func(r storage.Reader) (err error) {
		record, err = c.read(r)
		return err
	})
	return record, fault.OfStore(err)
}

// read returns the record of the key, or nil if the key is free.
func (c IdempotencyKey) read(r storage.Reader) (*journal.IdempotencyRecord, error) {
	return journal.IdempotencyRecords.Get(r, c.Scope, journal.IDOf(c.Key).String())
}

// Once runs an operation of one user once. reserve reserves the amount that the operation debits;
// it may be nil. do runs in a transaction as in [Ledger.Update] and returns the result for this
// and all later requests with the key. If do fails, the key can be used again. If c has no key, Once runs
// do without a record.
func (l *Ledger) Once(ctx context.Context, user string, c IdempotencyKey,
	reserve func() (*Reservation, error), do func(*Txn) (any, error),
) (result json.RawMessage, replayed bool, err error) {
	if c.Key != "" {
		// A concurrent attempt at this node waits for the first one. So it gets that result, and is not
		// refused because of the money that the first one has reserved.
		done, err := l.idempotencyKeys.Lock(ctx, c.Scope+"/"+c.Key)
		if err != nil {
			return nil, false, err
		}
		defer done()
		var have *journal.IdempotencyRecord
		err = l.store.View(ctx, func(r storage.Reader) (err error) {
			have, err = c.read(r)
			return err
		})
		if err != nil {
			return nil, false, fault.OfStore(err)
		}
		if have != nil {
			return c.answer(have)
		}
	}
	var reservation *Reservation
	if reserve != nil {
		if reservation, err = reserve(); err != nil {
			return nil, false, err
		}
	}
	var attempt journal.ID
	_, _ = rand.Read(attempt[:])
	err = l.Update(ctx, user, reservation, func(t *Txn) error {
		replayed = false
		if c.Key != "" {
			have, err := c.read(t)
			if err != nil {
				return err
			}
			if have != nil {
				result, replayed, err = c.answer(have)
				replayed = replayed && have.By != attempt
				return err
			}
		}
		if err := reservation.Confirm(t); err != nil { // after the key was looked up, because another node may have used it
			return err
		}
		answer, err := do(t)
		if err != nil {
			return err
		}
		if result, err = json.Marshal(answer); err != nil || c.Key == "" {
			return err
		}
		return journal.IdempotencyRecords.Put(t, nil, &journal.IdempotencyRecord{
			Scope: c.Scope, Hash: journal.IDOf(c.Key), Fingerprint: c.Fingerprint, Time: l.store.Now().Unix(), By: attempt, Result: result,
		})
	})
	if err != nil {
		return nil, false, err
	}
	return result, replayed, nil
}

// answer returns the stored result. If the fingerprint differs, it returns
// [fault.IdempotencyKeyReused].
func (c IdempotencyKey) answer(have *journal.IdempotencyRecord) (json.RawMessage, bool, error) {
	if have.Fingerprint != c.Fingerprint {
		return nil, false, fault.At(fault.IdempotencyKeyReused, "idempotency_key",
			"this idempotency key was used at %s for something else; use a new one", time.Unix(have.Time, 0).UTC().Format(time.RFC3339))
	}
	return have.Result, true, nil
}
