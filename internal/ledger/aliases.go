package ledger

import "github.com/caddy-modelgate/modelgate/internal/ledger/journal"

// Names of package journal that callers still reach by this package.
type (
	Account  = journal.Account
	Call     = journal.Call
	Day      = journal.Day
	Entry    = journal.Entry
	HoldInfo = journal.HoldInfo
	ID       = journal.ID
	Kind     = journal.Kind
	Leg      = journal.Leg
	Sum      = journal.Sum
	Transfer = journal.Transfer
	Usage    = journal.Usage
)

const (
	CallsKept = journal.CallsKept
	Clear     = journal.Clear
	Credit    = journal.Credit
	Debit     = journal.Debit
	Dispute   = journal.Dispute
	Grant     = journal.Grant
	Granted   = journal.Granted
	Held      = journal.Held
	Hold      = journal.Hold
	Operator  = journal.Operator
	Purchase  = journal.Purchase
	Refund    = journal.Refund
	Renewal   = journal.Renewal
	Restore   = journal.Restore
	Settled   = journal.Settled
	Sold      = journal.Sold
	TopUp     = journal.TopUp
	Voided    = journal.Voided
)

var (
	Book          = journal.Book
	DayOf         = journal.DayOf
	EndHold       = journal.EndHold
	HasTransfer   = journal.HasTransfer
	IDOf          = journal.IDOf
	LegsBetween   = journal.LegsBetween
	Paid          = journal.Paid
	ParseDay      = journal.ParseDay
	Quota         = journal.Quota
	ReadHold      = journal.ReadHold
	ReadState     = journal.ReadState
	ReadTransfer  = journal.ReadTransfer
	Receivable    = journal.Receivable
	ScanAnswers   = journal.ScanAnswers
	ScanEntries   = journal.ScanEntries
	ScanOpenHolds = journal.ScanOpenHolds
	ScanTransfers = journal.ScanTransfers
	Wallet        = journal.Wallet
)
