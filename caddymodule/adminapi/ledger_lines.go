package adminapi

import (
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// LedgerLine is an entry of an account with the calls, the task, the order or the
// subscription that it is for.
type LedgerLine struct {
	ledger.EntryInfo
	Requests     []string `json:"request_ids,omitempty"`     // of the settled calls
	Task         string   `json:"task_id,omitempty"`         // of a hold or a charge
	Order        string   `json:"trade_no,omitempty"`        // that was paid, refunded or disputed
	Subscription int64    `json:"subscription_id,omitempty"` // that was sold, or whose quota was granted
	From         int64    `json:"period_start,omitempty"`    // of the subscription or quota, in Unix seconds
	Until        int64    `json:"period_end,omitempty"`      // Unix seconds
}

func listLines(c *call) (any, error) {
	user, err := c.Directory.User(c.ctx(), c.path("user"))
	if err != nil {
		return nil, err
	}
	account, err := c.Billing.Account(c.ctx(), user.ID, c.q.Text("account"))
	if err != nil {
		return nil, err
	}
	p := c.q.Lines()
	entries, total, err := c.Ledger.Entries(c.ctx(), account, p.Skip, p.Limit)
	if err != nil {
		return nil, err
	}
	calls, err := c.Ledger.CallsOf(c.ctx(), account, entries)
	if err != nil {
		return nil, err
	}
	spans, err := c.Billing.Spans(c.ctx(), user.ID, account, entries)
	lines := make([]LedgerLine, len(entries))
	for i, entry := range entries {
		span := spans[entry.Transfer]
		lines[i] = LedgerLine{
			EntryInfo: entry, Requests: calls[entry.Transfer],
			Subscription: span.Subscription, From: span.From, Until: span.Until,
		}
		switch entry.Kind {
		case journal.Hold, journal.Settle, journal.Void:
			lines[i].Task = entry.Reference
		case journal.TopUp, journal.Refund, journal.Dispute, journal.Restore:
			lines[i].Order = entry.Reference
		}
	}
	return struct {
		Account string       `json:"account"`
		Items   []LedgerLine `json:"items"`
		Total   int64        `json:"total"`
	}{account.Own(), lines, total}, err
}
