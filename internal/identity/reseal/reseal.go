// Package reseal seals the secrets in the records of a table again, with the newest master key. A
// package with sealed secrets declares a [Table] for each of its tables.
package reseal

import (
	"context"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Field is a sealed secret inside a record.
type Field struct {
	Purpose string
	At      *[]byte // empty: the record has no such secret
}

// Table seals the secrets of a table with the newest master key. It returns how many records had a
// secret that was sealed with an older key.
type Table func(ctx context.Context, store *storage.Store, keyring *seal.Keyring) (records int, err error)

// Step is the maximum number of records that one transaction reads.
const Step = 256

// Of returns the Table of records with these fields. The secrets are bound to the primary key of
// their record, which has one text field.
func Of[R any](of *table.Table[R], fields func(*R) []Field) Table {
	return func(ctx context.Context, store *storage.Store, keyring *seal.Keyring) (records int, err error) {
		for from := ""; ; {
			var next string
			var resealed int
			err := store.Update(ctx, func(t storage.Txn) error {
				next, resealed = "", 0
				seen := 0
				for before, err := range of.Scan(t, of.Under().From(from)) {
					if err != nil {
						return failed(of.Name, err)
					}
					id := of.Key(before)[0].(string)
					if seen++; seen > Step {
						next = id
						return nil
					}
					after := *before
					changed, err := reseal(keyring, id, fields(&after))
					if err != nil {
						return failed(of.Name+"/"+id, err)
					}
					if !changed {
						continue
					}
					if err := of.Put(t, before, &after); err != nil {
						return err
					}
					resealed++
				}
				return nil
			})
			if err != nil {
				return records, err
			}
			records += resealed
			if next == "" {
				return records, nil
			}
			from = next
		}
	}
}

// reseal seals the fields again that are sealed with an older master key, and reports whether it
// changed one.
func reseal(keyring *seal.Keyring, id string, fields []Field) (changed bool, err error) {
	for _, field := range fields {
		if len(*field.At) == 0 {
			continue
		}
		sealed, stale, err := keyring.For(field.Purpose).Reseal(id, *field.At)
		if err != nil {
			return false, err
		}
		if stale {
			*field.At, changed = sealed, true
		}
	}
	return changed, nil
}

func failed(record string, err error) error {
	return fmt.Errorf("%w: %w", fault.New(fault.Internal, "the record %q cannot be sealed again; the old master keys are kept: %v", record, err), err)
}
