package ledger

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// transferBatch is the number of bytes of transfers that ScanTransfers reads in one snapshot.
const transferBatch = 256 << 10

// ScanTransfers calls fn for all transfers in [from, until), in the order of their ids, until fn
// returns an error. A zero until is an open end. No snapshot is open while fn runs, so fn may take
// long; transfers that are booked meanwhile may be missing. If a transfer cannot be decoded, it
// returns [storage.ErrUnreadable].
func (l *Ledger) ScanTransfers(ctx context.Context, from, until time.Time, fn func(*journal.Transfer) error) error {
	lo, hi := []byte(journal.TransferPrefix), storage.PrefixEnd([]byte(journal.TransferPrefix))
	for more := true; more; {
		var batch []journal.Transfer
		var bad error
		size := 0
		err := l.store.View(ctx, func(r storage.Reader) error {
			more = false
			return r.Scan(lo, hi, func(key, record []byte) bool {
				if size >= transferBatch {
					lo, more = bytes.Clone(key), true
					return false
				}
				size += len(record)
				x, err := journal.DecodeTransfer(key, record)
				if err != nil {
					bad = fmt.Errorf("transfer %v: %w: %w", x.ID, storage.ErrUnreadable, err)
				} else if x.Time >= from.UnixMilli() && (until.IsZero() || x.Time < until.UnixMilli()) {
					batch = append(batch, x)
				}
				return bad == nil
			})
		})
		if err = cmp.Or(err, bad, ctx.Err()); err != nil {
			return fault.OfStore(err)
		}
		for i := range batch {
			if err := fn(&batch[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
