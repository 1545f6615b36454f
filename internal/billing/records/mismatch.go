package records

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// MismatchRetention is how long mismatches are listed, and how long a notice waits for its payment.
const MismatchRetention = audit.DefaultRetention

// Mismatch is a notice with a valid signature that fits no order. It credited nothing.
type Mismatch struct {
	Time     int64         `json:"time"` // Unix milliseconds
	Provider string        `json:"provider"`
	Kind     payments.Kind `json:"kind"`
	Event    string        `json:"event,omitempty"`
	TradeNo  string        `json:"trade_no,omitempty"`
	Payment  string        `json:"payment,omitempty"`
	Dispute  string        `json:"dispute,omitempty"`
	Amount   money.Amount  `json:"amount,omitempty"`
	Currency string        `json:"currency,omitempty"`
	Reason   string        `json:"reason"`
	Order    string        `json:"order,omitempty"`    // the order that it was matched with, if any
	User     string        `json:"user,omitempty"`     // of that order
	Resolved *Resolution   `json:"resolved,omitempty"` // nil: open
}

// Resolution records that an operator has closed a mismatch.
type Resolution struct {
	Time   int64  `json:"time"` // Unix milliseconds
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

// MismatchRecord is a mismatch as it is stored.
type MismatchRecord struct {
	Mismatch
	By journal.ID `json:"by"` // id of the attempt that wrote it
}

// about returns the number of the order that the notice was matched with, or else the number in the
// notice, or "".
func (m *MismatchRecord) about() string {
	if m.Order == "" && payments.IsTradeNo(m.TradeNo) {
		return m.TradeNo
	}
	return m.Order
}

// Digest returns the same value for all copies of a notice that a service sends.
func (m Mismatch) Digest() string {
	return journal.IDOf(m.Provider, string(m.Kind), m.Event, m.TradeNo, m.Payment, m.Dispute, m.Amount.String(), m.Currency, m.Reason).String()
}

// NoticeRecord records that a notice was applied. The engine drops it with its order.
type NoticeRecord struct {
	Provider    string        `json:"provider"`
	Kind        payments.Kind `json:"kind"`
	Event       string        `json:"event"`
	Time        int64         `json:"time"`
	TradeNo     string        `json:"trade_no"`
	By          journal.ID    `json:"by"` // id of the attempt that applied it
	ContentHash journal.ID    `json:"said"`
	Purge       time.Time     `json:"purge,omitzero"`
}

// UnknownPayment is the reason of a mismatch that waits for its payment.
const UnknownPayment = "it names no order and no known payment"
