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

// IdempotencyKey names what a caller wants done once. The same key with the same
// fingerprint is answered what was answered the first time; with another
// fingerprint it is refused.
type IdempotencyKey struct {
	Scope       string     // whose key: the id of a user, or of an API key
	Key         string     // 1 to 255 printable ASCII characters
	Fingerprint journal.ID // of the operation and all of its parameters
}

// Validate refuses a key that is none. param names the field it came in.
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

// IdempotencyKeyUsed reports whether something was done under an idempotency key before, whatever
// it was.
func (l *Ledger) IdempotencyKeyUsed(ctx context.Context, c IdempotencyKey) (used bool, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		used, err = journal.IdempotencyRecords.Has(r, c.Scope, journal.IDOf(c.Key).String())
		return err
	})
	return used, fault.OfStore(err)
}

// read returns what was answered to the key, or nil if it is free.
func (c IdempotencyKey) read(r storage.Reader) (*journal.IdempotencyRecord, error) {
	return journal.IdempotencyRecords.Get(r, c.Scope, journal.IDOf(c.Key).String())
}

// Once does something of one user once. reserve is called for what it debits,
// and may return nil; do runs in the transaction as in [Ledger.Update], and
// returns what is to be answered, now and whenever the idempotency key comes again. A
// refusal leaves the idempotency key free. If c has no key, do simply runs.
func (l *Ledger) Once(ctx context.Context, user string, c IdempotencyKey,
	reserve func() (*Reservation, error), do func(*Txn) (any, error),
) (result json.RawMessage, replayed bool, err error) {
	if c.Key != "" {
		// The second attempt finds what the first has done, and is not refused
		// for the money that the first has reserved.
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

// answer returns what was answered before, or refuses the key if it was used for something else.
func (c IdempotencyKey) answer(have *journal.IdempotencyRecord) (json.RawMessage, bool, error) {
	if have.Fingerprint != c.Fingerprint {
		return nil, false, fault.At(fault.IdempotencyKeyReused, "idempotency_key",
			"this idempotency key was used at %s for something else; use a new one", time.Unix(have.Time, 0).UTC().Format(time.RFC3339))
	}
	return have.Result, true, nil
}
