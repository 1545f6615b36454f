package identity

import (
	"context"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// sealedField is a sealed secret inside a record.
type sealedField struct {
	purpose string
	at      *[]byte // nothing is there when it is empty
}

// sealedTables is every table whose records hold sealed secrets. The secrets are bound to
// the primary key of their record, which is one text.
var sealedTables = []func(ctx context.Context, d *Directory) (resealed int, err error){
	resealing(&totpTable, func(r *totpRecord) []sealedField {
		return []sealedField{{totpPurpose, &r.Seed}, {totpPurpose, &r.Pending}}
	}),
	resealing(&backupTable, func(r *backupRecord) []sealedField {
		return []sealedField{{backupPurpose, &r.Sealed}}
	}),
	resealing(&keyTable, func(r *keyRecord) []sealedField {
		return []sealedField{{callbackPurpose, &r.CallbackSecret}, {callbackPurpose, &r.CallbackPrevious}}
	}),
}

// resealStep is how many records one transaction of [Directory.Reseal] reads.
const resealStep = 256

// resealing returns how the records of a table are resealed.
func resealing[R any](of *table.Table[R], fields func(*R) []sealedField) func(context.Context, *Directory) (int, error) {
	return func(ctx context.Context, d *Directory) (records int, err error) {
		for from := ""; ; {
			var next string
			var resealed int
			err := d.store.Update(ctx, func(t storage.Txn) error {
				next, resealed = "", 0
				seen := 0
				for before, err := range of.Scan(t, of.Under().From(from)) {
					if err != nil {
						return cannotReseal(of.Name, err)
					}
					id := of.Key(before)[0].(string)
					if seen++; seen > resealStep {
						next = id
						return nil
					}
					after := *before
					changed, err := d.reseal(id, fields(&after))
					if err != nil {
						return cannotReseal(of.Name+"/"+id, err)
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

// reseal seals again the fields that are sealed by an older master key, and reports whether there
// was one.
func (d *Directory) reseal(id string, fields []sealedField) (changed bool, err error) {
	for _, field := range fields {
		if len(*field.at) == 0 {
			continue
		}
		sealed, stale, err := d.keyring.For(field.purpose).Reseal(id, *field.at)
		if err != nil {
			return false, err
		}
		if stale {
			*field.at, changed = sealed, true
		}
	}
	return changed, nil
}

func cannotReseal(record string, err error) error {
	return fmt.Errorf("%w: %w", fault.New(fault.Internal, "the record %q cannot be sealed anew, and the old master keys stay: %v", record, err), err)
}

// Reseal seals by the newest master key everything that is sealed by an older one, and returns
// how many records were. When it has returned without an error, the older keys are no longer
// needed. It may be interrupted at any time and run again, because each record names its key.
func (d *Directory) Reseal(ctx context.Context) (records int, err error) {
	// From here on the newest key is needed as well, also if this is cut off.
	if err := d.keyring.Check(ctx, d.store); err != nil {
		return 0, locked(err)
	}
	for _, reseal := range sealedTables {
		resealed, err := reseal(ctx, d)
		records += resealed
		if err != nil {
			return records, fault.OfStore(err)
		}
	}
	if err := d.keyring.Renew(ctx, d.store); err != nil {
		return records, fault.OfStore(err)
	}
	err = d.Audit.Change(ctx, func(storage.Txn) (*audit.Event, error) {
		return &audit.Event{Actor: "operator", Action: "secret.rotate", Detail: fmt.Sprintf("%d records sealed anew", records)}, nil
	})
	return records, fault.OfStore(err)
}
