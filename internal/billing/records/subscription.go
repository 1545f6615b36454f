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
	Price      money.Amount      `json:"price"` // the charged amount
	Currency   string            `json:"currency"`
	Duration   calendar.Duration `json:"duration"`
	Quota      money.Amount      `json:"quota"`
	QuotaReset calendar.Reset    `json:"quota_reset"`
}

// SubscriptionRecord is a subscription as it is stored. It has no field that changes only because
// time passes.
type SubscriptionRecord struct {
	ID        int64  `json:"id"`
	User      string `json:"user"`
	PlanID    int64  `json:"plan_id"`
	Title     string `json:"title"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Sold      int64  `json:"sold"`                // time of the latest sale
	Cancelled int64  `json:"cancelled,omitempty"` // time of the cancellation; zero: none
	Claimed   bool   `json:"claimed,omitempty"`   // its first sale was a claim

	// First is set while the subscription has only one sale. Then neither the sale nor the period
	// that it has opened has a record of its own.
	First *FirstSale `json:"first,omitempty"`

	Terms
}

// FirstSale has those fields of the only sale that are not in the subscription.
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

// ReferencePrefix is the prefix of the names of subscriptions in transfers.
const ReferencePrefix = "subscription/"

// Reference returns the name of a subscription in transfers.
func Reference(id int64) string { return ReferencePrefix + strconv.FormatInt(id, 10) }

// QuotaAccount returns the account of a period that starts at a Unix second.
func QuotaAccount(user string, id, start int64) journal.Account {
	return journal.Quota(user, id, time.Unix(start, 0))
}

// OperatorScope returns the scope of the idempotency keys of operators, which differs from
// the scope of the user whose money they change.
func OperatorScope(user string) string { return "operator/" + user }
