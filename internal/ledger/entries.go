package ledger

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// EntryInfo is an entry as people read it, with what its transfer was for.
type EntryInfo struct {
	Number    uint64       `json:"number"` // from 1, without gaps
	Time      int64        `json:"time"`   // Unix seconds
	Kind      journal.Kind `json:"kind"`
	Amount    money.Amount `json:"amount"`         // the change of the balance
	Held      money.Amount `json:"held,omitempty"` // the change of what is held
	Balance   money.Amount `json:"balance"`        // after it
	Transfer  journal.ID   `json:"transfer_id"`
	Reference string       `json:"reference,omitempty"`
	Reason    string       `json:"reason,omitempty"` // an operator's
	Count     int          `json:"count,omitempty"`  // of settlements, for calls
}

// Entries returns the entries of an account, newest first, without the first skip of
// them, and how many there are in all.
func (l *Ledger) Entries(ctx context.Context, a journal.Account, skip, limit int64) (lines []EntryInfo, total int64, err error) {
	lines = []EntryInfo{}
	err = l.store.View(ctx, func(r storage.Reader) error {
		state, err := journal.ReadState(r, a)
		if total = int64(state.Entries); err != nil || skip >= total {
			return err
		}
		var bad error
		err = journal.ScanEntries(r, a, uint64(total-skip+1), func(e journal.Entry) bool {
			if int64(len(lines)) == limit {
				return false
			}
			var x journal.Transfer
			if x, _, bad = journal.ReadTransfer(r, e.Transfer); bad != nil {
				return false
			}
			lines = append(lines, EntryInfo{
				Number: e.Number, Time: e.Time.Unix(), Kind: e.Kind, Amount: e.Amount, Held: e.Held,
				Balance: e.After.Balance, Transfer: e.Transfer, Reference: x.Reference, Reason: x.Reason, Count: x.Count,
			})
			return true
		})
		if err == nil {
			err = bad
		}
		return err
	})
	return lines, total, fault.OfStore(err)
}
