package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// clearBatch is how many holds or calls one transaction of EndEpoch ends.
const clearBatch = 200

// EndEpoch clears up after the calls of an ended epoch of a shared store: it releases their holds, and
// closes their records as after a crash. Recorded charges stay. It may be called again, also by two
// nodes at the same time.
func (l *Ledger) EndEpoch(ctx context.Context, epoch int64) error {
	return fault.OfStore(l.endCalls(ctx, func(of int64) bool { return of == epoch }, func(r storage.Reader) error {
		if ended, err := storage.HasEnded(r, epoch); err != nil || ended {
			return err
		}
		return fmt.Errorf("ledger: epoch %d has not ended", epoch)
	}))
}

// endCalls ends the open calls whose epoch is selected; calls of a lone store have the epoch zero. Each
// transaction calls check first. Those that can be read end although others cannot.
func (l *Ledger) endCalls(ctx context.Context, selected func(epoch int64) bool, check func(storage.Reader) error) error {
	var left [][]byte
	var unread error
	var kept journal.Retention
	err := l.store.View(ctx, func(r storage.Reader) (err error) {
		if kept, err = journal.ReadRetention(r); err != nil { // without it, no settlement can be written
			return err
		}
		if err := check(r); err != nil {
			return err
		}
		var bad error
		left = nil
		holds := journal.ScanCallHolds(r, "", func(h journal.CallHold) bool {
			if selected(h.Epoch) {
				left = append(left, h.StoreKey())
			}
			return true
		})
		open := []byte(journal.OpenCallPrefix)
		calls := r.Scan(open, storage.PrefixEnd(open), func(key, val []byte) bool {
			var epoch int64
			if epoch, bad = journal.EpochOfOpenCall(val); bad == nil && selected(epoch) {
				left = append(left, bytes.Clone(key))
			}
			return bad == nil
		})
		unread = errors.Join(holds, calls, bad)
		return nil
	})
	for err == nil && len(left) > 0 {
		n := min(len(left), clearBatch)
		err = l.store.Update(ctx, func(t storage.Txn) error {
			if err := check(t); err != nil {
				return err
			}
			for _, key := range left[:n] {
				if err := l.endCall(t, key, kept); err != nil {
					return err
				}
			}
			return nil
		})
		left = left[n:]
	}
	return errors.Join(err, unread)
}

// endCall ends the hold or the open call at a key.
func (l *Ledger) endCall(t storage.Txn, key []byte, kept journal.Retention) error {
	rest, isCall := bytes.CutPrefix(key, []byte(journal.OpenCallPrefix))
	if !isCall {
		h, err := journal.ReadCallHold(t, key)
		if err != nil || h == nil {
			return err
		}
		return h.End(t)
	}
	record := append([]byte(journal.CallPrefix), rest...)
	c, found, err := journal.ReadCall(t, record)
	if err != nil {
		return err
	}
	if found && c.Ended == "" {
		c.Ended = journal.Crashed
		if err := t.Set(record, c.Encode(record), l.store.Now().Add(kept.Kept)); err != nil {
			return err
		}
	}
	return t.Delete(key)
}
