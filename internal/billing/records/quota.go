package records

import (
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// A subscription is a chain of sales: the purchase and its renewals, one after the other, each for
// its own time. The terms of the present sale apply, so a renewal does not change the terms of
// earlier sales. Most subscriptions are never renewed. The first sale is in the record of the
// subscription until there is a second one.
//
// A run is a chain of sales without a gap whose quotas reset in the same way; it begins at Since.
// The quota of each period has its own account, named by the start of the period. That is the
// start of the calendar period, or Since if that is later. Starts are unique within a
// subscription, because two runs do not overlap.
//
// A quota that never resets has one period for the whole run, and every sale adds to it at once. A
// quota that resets is granted when its period is first read, at the terms at the start of the
// period. The first period of a run is granted with its sale. A period in which nothing reads the
// account is never opened.

// SaleKind is the operation that made a sale.
type SaleKind string

const (
	Bought  SaleKind = "purchase"
	Claimed SaleKind = "claim"
	Granted SaleKind = "grant" // by an operator
	Renewed SaleKind = "renewal"
)

// TransferKinds are the kinds of the transfers of sales.
var TransferKinds = map[SaleKind]journal.Kind{
	Bought: journal.Purchase, Claimed: journal.Purchase, Granted: journal.Grant, Renewed: journal.Renewal,
}

// Sale is one sale of a subscription. It never changes.
type Sale struct {
	User         string     `json:"user"`
	Subscription int64      `json:"subscription"`
	Kind         SaleKind   `json:"kind"`
	Transfer     journal.ID `json:"transfer"`
	Time         int64      `json:"time"`  // time of the sale, in Unix seconds
	From         int64      `json:"from"`  // begin of the time that was sold
	Until        int64      `json:"until"` // its end, which is excluded
	Since        int64      `json:"since"` // begin of the run of sales
	Terms
}

// Grants returns the start of the period whose quota is granted with the sale. It returns
// false if all its periods are opened later.
func (s *Sale) Grants() (start int64, ok bool) {
	return s.Since, s.QuotaReset == calendar.Never || s.From == s.Time
}

// SaleAt returns the last sale whose time begins at moment or before, in Unix seconds.
func (s *SubscriptionRecord) SaleAt(r storage.Reader, moment int64) (last Sale, found bool, err error) {
	if s.First != nil {
		return s.OnlySale(), s.Start <= moment, nil
	}
	for have, err := range Sales.Scan(r, Sales.Under(s.User, s.ID).From(s.User, s.ID, storage.Inverted(moment))) {
		if err != nil {
			return last, false, err
		}
		return *have, true, nil
	}
	return last, false, nil
}

// Sales yields all sales of a subscription, the latest first. The sequence ends after an error.
func (s *SubscriptionRecord) Sales(r storage.Reader) iter.Seq2[*Sale, error] {
	return func(yield func(*Sale, error) bool) {
		for have, err := range Sales.Scan(r, Sales.Under(s.User, s.ID)) {
			if !yield(have, err) || err != nil {
				return
			}
		}
		if s.First != nil {
			first := s.OnlySale()
			yield(&first, nil)
		}
	}
}

// PeriodRecord is an open period of quota. The period that was granted with the only sale of a
// subscription has no record.
type PeriodRecord struct {
	User         string       `json:"user"`
	Subscription int64        `json:"subscription"`
	Start        int64        `json:"start"`
	Granted      money.Amount `json:"granted"`
}

// Period is the period of quota of a subscription at one time. Times are Unix seconds.
type Period struct {
	Start  int64
	from   int64        // time since which Start, until and Resets have these values
	Quota  money.Amount // granted, or to be granted when the period is opened
	Opened bool
	until  int64 // when the period must be computed again
	Resets int64 // when the next period begins; math.MaxInt64 if there is none
}

// At returns the period at a moment within the time of the sale. It only depends on the sale.
func (s *Sale) At(moment time.Time) Period {
	began := s.QuotaReset.Start(moment).Unix()
	p := Period{Start: max(began, s.Since), from: max(began, s.From), until: s.Until, Resets: math.MaxInt64}
	if next := s.QuotaReset.Next(moment); !next.IsZero() {
		p.Resets = next.Unix()
	}
	p.until = min(p.until, p.Resets)
	return p
}

// PeriodAt returns the period at a moment. It returns false if no sale covers the moment.
func (s *SubscriptionRecord) PeriodAt(r storage.Reader, moment time.Time) (p Period, found bool, err error) {
	x, found, err := s.SaleAt(r, moment.Unix())
	if err != nil || !found || moment.Unix() >= x.Until {
		return p, false, err
	}
	p = x.At(moment)
	if s.First != nil && p.Start == s.Start {
		p.Opened, p.Quota = true, x.Quota
		return p, true, nil
	}
	if p.Resets > x.Until {
		next, _, err := s.SaleAt(r, x.Until)
		if err != nil {
			return p, false, err
		}
		if next.Since == x.Until { // the next sale has another reset
			p.Resets = x.Until
		}
	}

	have, err := Periods.Get(r, s.User, s.ID, p.Start)
	if err != nil {
		return p, false, err
	}
	if p.Opened = have != nil; p.Opened {
		p.Quota = have.Granted
		return p, true, nil
	}
	began, _, err := s.SaleAt(r, p.Start)
	p.Quota = began.Quota
	return p, err == nil, err
}

// Used returns the durable spending of the quota of a period, and the part of the rest that tasks
// hold.
func (s *SubscriptionRecord) Used(r storage.Reader, p Period) (used, held money.Amount, err error) {
	if !p.Opened {
		return 0, 0, nil
	}
	state, err := journal.ReadState(r, s.QuotaAccount(p.Start))
	return p.Quota - state.Balance, state.Held, err
}

// GrantID returns the id of the transfer that opens a period.
func GrantID(id, start int64) journal.ID {
	return journal.IDOf("grant", strconv.FormatInt(id, 10), strconv.FormatInt(start, 10))
}
