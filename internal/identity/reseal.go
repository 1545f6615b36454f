package identity

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// sealedField is a sealed secret inside a record.
type sealedField struct {
	purpose string
	at      *[]byte // nothing is there when it is empty
}

// sealedRecords is every kind of record that holds sealed secrets: where they
// lie, and how one is brought up to the newest master key. The id to which the
// secrets are bound is what follows the prefix.
var sealedRecords = []struct {
	prefix string
	reseal func(ring *seal.Keyring, id string, record []byte) (resealed []byte, err error)
}{
	{totpPrefix, resealing(func(r *totpRecord) []sealedField {
		return []sealedField{{totpPurpose, &r.Seed}, {totpPurpose, &r.Pending}}
	})},
	{backupPrefix, resealing(func(r *backupRecord) []sealedField {
		return []sealedField{{backupPurpose, &r.Sealed}}
	})},
	{keyRecordPrefix, resealing(func(r *keyRecord) []sealedField {
		return []sealedField{{callbackPurpose, &r.CallbackSecret}, {callbackPurpose, &r.CallbackPrevious}}
	})},
}

// resealing returns how the fields of a record are resealed; nil when all of
// them are up to date.
func resealing[T any](fields func(*T) []sealedField) func(*seal.Keyring, string, []byte) ([]byte, error) {
	return func(ring *seal.Keyring, id string, record []byte) ([]byte, error) {
		var value T
		if err := storage.DecodeRecord(record, &value); err != nil {
			return nil, err
		}
		var changed bool
		for _, field := range fields(&value) {
			if len(*field.at) == 0 {
				continue
			}
			sealed, stale, err := ring.For(field.purpose).Reseal(id, *field.at)
			if err != nil {
				return nil, err
			}
			if stale {
				*field.at, changed = sealed, true
			}
		}
		if !changed {
			return nil, nil
		}
		return storage.EncodeRecord(value), nil
	}
}

// resealStep is how many records one transaction of [Directory.Reseal] reads.
const resealStep = 256

// Reseal seals everything by the newest master key that is sealed by an older
// one, and returns how many records that were. When it has returned without an
// error, the older keys are no longer needed. It may be ended at any time and
// run again: each record says by which key it is sealed.
func (d *Directory) Reseal(ctx context.Context) (records int, err error) {
	// From here on the newest key is needed as well, also if this is cut off.
	if err := d.keyring.Check(ctx, d.store); err != nil {
		return 0, locked(err)
	}
	for _, kind := range sealedRecords {
		for lo := []byte(kind.prefix); lo != nil; {
			var next []byte
			var resealed int
			err := d.store.Update(ctx, func(t storage.Txn) (err error) {
				next, resealed, err = d.resealStep(t, kind.prefix, lo, kind.reseal)
				return err
			})
			if err != nil {
				return records, unavailable(err)
			}
			records += resealed
			lo = next
		}
	}
	if err := d.keyring.Renew(ctx, d.store); err != nil {
		return records, unavailable(err)
	}
	err = d.change(ctx, func(storage.Txn) (*Event, error) {
		return &Event{Actor: "operator", Action: "secret.rotate", Detail: fmt.Sprintf("%d records sealed anew", records)}, nil
	})
	return records, unavailable(err)
}

// resealStep reseals some records from lo on, and returns where to go on; nil
// when that was the last.
func (d *Directory) resealStep(t storage.Txn, prefix string, lo []byte, reseal func(*seal.Keyring, string, []byte) ([]byte, error)) (next []byte, resealed int, err error) {
	type change struct{ key, record []byte }
	var changes []change
	var seen int
	var bad error
	err = t.Scan(lo, storage.PrefixEnd([]byte(prefix)), func(key, val []byte) bool {
		if seen++; seen > resealStep {
			next = append([]byte(nil), key...)
			return false
		}
		record, err := reseal(d.keyring, strings.TrimPrefix(string(key), prefix), val)
		if err != nil {
			bad = fmt.Errorf("%w: %w", fault.New(fault.Internal, "the record %q cannot be sealed anew, and the old master keys stay: %v", key, err), err)
			return false
		}
		if record != nil {
			changes = append(changes, change{append([]byte(nil), key...), record})
		}
		return true
	})
	if err == nil {
		err = bad
	}
	for _, c := range changes {
		if err == nil {
			err = t.Set(c.key, c.record, time.Time{})
		}
	}
	return next, len(changes), err
}
