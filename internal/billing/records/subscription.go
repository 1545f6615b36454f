package records

import (
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
)

// Status is the status of a subscription.
type Status string

// The statuses of a subscription.
const (
	Active    Status = "active"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
)

// Terms are the terms of a plan at the time of the sale.
type Terms struct {
	Price      money.Amount      `json:"price"` // what was charged
	Currency   string            `json:"currency"`
	Duration   calendar.Duration `json:"duration"`
	Quota      money.Amount      `json:"quota"`
	QuotaReset calendar.Reset    `json:"quota_reset"`
}

// SubscriptionRecord is a subscription as it is stored. It has nothing that changes with
// time alone.
type SubscriptionRecord struct {
	ID        int64  `json:"id"`
	User      string `json:"user"`
	PlanID    int64  `json:"plan_id"`
	Title     string `json:"title"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Cancelled int64  `json:"cancelled,omitempty"` // when
	Claimed   bool   `json:"claimed,omitempty"`   // its first sale was a claim

	// First is the rest of its sale while there is only one. Until then the period that the
	// sale has opened has no record either.
	First *FirstSale `json:"first,omitempty"`

	Terms
}

// FirstSale has the fields of the only sale that the subscription does not have.
type FirstSale struct {
	Kind     SaleKind   `json:"kind"`
	Transfer journal.ID `json:"transfer"`
}

// QuotaAccount returns the account of the period that starts at a Unix second.
func (s *SubscriptionRecord) QuotaAccount(start int64) journal.Account {
	return QuotaAccount(s.User, s.ID, start)
}

// OnlySale returns the sale of a subscription that has First.
func (s *SubscriptionRecord) OnlySale() Sale {
	return Sale{
		User: s.User, Subscription: s.ID, Kind: s.First.Kind, Transfer: s.First.Transfer, Time: s.Start, From: s.Start, Until: s.End, Since: s.Start, Terms: s.Terms,
	}
}

// Status returns the status at a time.
func (s *SubscriptionRecord) Status(now time.Time) Status {
	switch {
	case s.Cancelled != 0:
		return Cancelled
	case now.Unix() >= s.End:
		return Expired
	}
	return Active
}

// ReferencePrefix begins the names of subscriptions in transfers.
const ReferencePrefix = "subscription/"

// Reference names a subscription in transfers.
func Reference(id int64) string { return ReferencePrefix + strconv.FormatInt(id, 10) }

// QuotaAccount returns the account of a period that starts at a Unix second.
func QuotaAccount(user string, id, start int64) journal.Account {
	return journal.Quota(user, id, time.Unix(start, 0))
}

// OperatorScope returns the scope of the idempotency keys of operators, which differs from
// the scope of the user whose money they change.
func OperatorScope(user string) string { return "operator/" + user }
