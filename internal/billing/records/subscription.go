package records

import (
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
)

// Status is where a subscription stands.
type Status string

// The statuses of a subscription.
const (
	Active    Status = "active"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
)

// Terms are what was sold, as it was on the day.
type Terms struct {
	Price      money.Amount      `json:"price"` // what was charged
	Currency   string            `json:"currency"`
	Duration   calendar.Duration `json:"duration"`
	Quota      money.Amount      `json:"quota"`
	QuotaReset calendar.Reset    `json:"quota_reset"`
}

// SubscriptionRecord is a subscription as it is stored. What time changes is not
// in it.
type SubscriptionRecord struct {
	ID        int64  `json:"id"`
	User      string `json:"user"`
	PlanID    int64  `json:"plan_id"`
	Title     string `json:"title"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Cancelled int64  `json:"cancelled,omitempty"` // when
	Claimed   bool   `json:"claimed,omitempty"`   // its first sale was a claim

	// First is what else there is to say of its sale, until it has another. The
	// period that the sale has opened needs no record as long.
	First *FirstSale `json:"first,omitempty"`

	Terms
}

// FirstSale is what a subscription does not say itself of its only sale.
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

// QuotaAccount is the account of a period that starts at a Unix second.
func QuotaAccount(user string, id, start int64) journal.Account {
	return journal.Quota(user, id, time.Unix(start, 0))
}

// OperatorScope keeps the keys of operators apart from those of the user whose
// money they change.
func OperatorScope(user string) string { return "operator/" + user }
