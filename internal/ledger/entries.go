package ledger

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// EntryInfo is an entry as the console and the admin API show it.
type EntryInfo struct {
	Number    uint64       `json:"number"` // from 1, without gaps
	Time      int64        `json:"time"`   // Unix seconds
	Kind      journal.Kind `json:"kind"`
	Amount    money.Amount `json:"amount"`         // change of the balance
	Held      money.Amount `json:"held,omitempty"` // change of the held amount
	Balance   money.Amount `json:"balance"`        // after the entry
	Transfer  journal.ID   `json:"transfer_id"`
	Reference string       `json:"reference,omitempty"` // id of an order, a task or a subscription
	Reason    string       `json:"reason,omitempty"`    // text of the operator
	Count     int          `json:"count,omitempty"`     // of settlements, for calls
}

// Entries returns at most limit entries of an account, newest first, after the first skip, and the
// total number of entries.
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
			if x, _, bad = journal.ReadTransfer(r, e.Transfer); bad == nil {
				x.Reference, bad = journal.About(r, &x)
			}
			if bad != nil {
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

// Transfer returns a transfer, or the zero Transfer if there is none.
func (l *Ledger) Transfer(ctx context.Context, id journal.ID) (x journal.Transfer, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		x, _, err = journal.ReadTransfer(r, id)
		return err
	})
	return x, fault.OfStore(err)
}

// About returns the id of the order, subscription or task that a transfer is for; see
// [journal.About].
func (l *Ledger) About(ctx context.Context, x *journal.Transfer) (about string, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		about, err = journal.About(r, x)
		return err
	})
	return about, fault.OfStore(err)
}

// maxCallsRead bounds the number of calls that CallsOf reads.
const maxCallsRead = 100_000

// CallsOf returns the request ids of the calls that lines of an account paid for, by transfer. It
// reads the calls of the user, newest first, until their payments add up to the amounts of all
// lines. It may miss a call whose older payments were merged; see [journal.MaxPaid].
func (l *Ledger) CallsOf(ctx context.Context, a journal.Account, lines []EntryInfo) (of map[journal.ID][]string, err error) {
	left := make(map[journal.ID]money.Amount) // not yet explained by calls
	var newest int64
	for _, line := range lines {
		if line.Kind == journal.Calls {
			left[line.Transfer] = -line.Amount
			newest = max(newest, line.Time)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	of = make(map[journal.ID][]string)
	unexplained, read, own := len(left), 0, a.Own()
	until := time.Unix(newest+60, 0) // the clock may have been set back since a call began
	err = l.ScanCalls(ctx, a.Owner(), CallFilter{Until: until}, func(c journal.CallRecord) bool {
		for _, p := range c.Paid {
			rest, listed := left[p.Transfer]
			if !listed || p.Account != own {
				continue
			}
			of[p.Transfer] = append(of[p.Transfer], c.ID)
			if left[p.Transfer] = rest - p.Amount; rest == p.Amount {
				unexplained--
			}
		}
		read++
		return unexplained > 0 && read < maxCallsRead
	})
	return of, err
}
