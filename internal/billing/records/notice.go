package records

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/payments"
)

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
