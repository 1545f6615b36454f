package ledger

import (
	"context"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Line is an entry as people read it, with what its transfer was for.
type Line struct {
	Number    uint64       `json:"number"` // from 1, without gaps
	Time      int64        `json:"time"`   // Unix seconds
	Kind      Kind         `json:"kind"`
	Amount    money.Amount `json:"amount"`         // the change of the balance
	Held      money.Amount `json:"held,omitempty"` // the change of what is held
	Balance   money.Amount `json:"balance"`        // after it
	Transfer  ID           `json:"transfer_id"`
	Reference string       `json:"reference,omitempty"`
	Reason    string       `json:"reason,omitempty"` // an operator's
	Count     int          `json:"count,omitempty"`  // of settlements, for calls
}

// Lines returns the lines of an account, newest first, without the first skip of
// them, and how many there are in all.
func (l *Ledger) Lines(ctx context.Context, a Account, skip uint64, limit int) (lines []Line, total uint64, err error) {
	lines = []Line{}
	err = l.store.View(ctx, func(r storage.Reader) error {
		state, err := ReadState(r, a)
		if total = state.Entries; err != nil || skip >= total {
			return err
		}
		var bad error
		err = ScanEntries(r, a, total-skip+1, func(e Entry) bool {
			if len(lines) == limit {
				return false
			}
			var x Transfer
			if x, _, bad = ReadTransfer(r, e.Transfer); bad != nil {
				return false
			}
			lines = append(lines, Line{
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
	return lines, total, unavailable(err)
}
