// Package records has the records of billing: subscriptions with their sales and periods, the
// summary of a user, orders, notices and mismatches. It declares their tables, and computes values
// that follow from a single record. Package billing changes them, and package verify checks them.
// It imports the ledger for accounts and transfers.
package records

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// CounterKey is the key of the id of the last subscription.
var CounterKey = []byte("meta/subscriptions")

// The tables of billing. Apart from the counter, its records are read and written only through
// them. Times in keys are Unix seconds; [storage.Inverted] puts the latest first.
var (
	Subscriptions = table.Table[SubscriptionRecord]{
		Name:    "sub",
		Key:     func(s *SubscriptionRecord) table.Key { return table.Key{s.User, s.ID} },
		Indexes: []*table.Index[SubscriptionRecord]{&ClaimedPlans, &LatestSales},
	}

	// LatestSales has the subscriptions by the time of their latest sale, latest first.
	LatestSales = table.Index[SubscriptionRecord]{Name: "subsold", Fields: func(s *SubscriptionRecord) table.Key {
		return table.Key{storage.Inverted(s.Sold)}
	}}

	// ClaimedPlans lets each user claim a free plan once.
	ClaimedPlans = table.Index[SubscriptionRecord]{Name: "claimed", Unique: true, Fixed: true, Fields: func(s *SubscriptionRecord) table.Key {
		if !s.Claimed { // the usual case; keyIf would allocate the fields
			return nil
		}
		return table.Key{s.User, s.PlanID}
	}}

	// Sales has the sales of renewed subscriptions, latest first.
	Sales = table.Table[Sale]{
		Name: "sale",
		Key: func(s *Sale) table.Key {
			return table.Key{s.User, s.Subscription, storage.Inverted(s.From)}
		},
	}

	// Periods are the periods of quota, except that of the only sale of a subscription.
	Periods = table.Table[PeriodRecord]{
		Name: "quota",
		Key:  func(p *PeriodRecord) table.Key { return table.Key{p.User, p.Subscription, p.Start} },
	}

	// Summaries has one record for each user with subscriptions. Every change of the user's
	// money reads it.
	Summaries = table.Table[Summary]{
		Name:    "subsummary",
		Key:     func(s *Summary) table.Key { return table.Key{s.User} },
		Indexes: []*table.Index[Summary]{&DueSummaries},
		Encode:  (*Summary).encode,
		Decode:  decodeSummary,
	}

	// DueSummaries orders summaries by Due, for the sweeper.
	DueSummaries = table.Index[Summary]{Name: "subdue", Fields: func(s *Summary) table.Key {
		return keyIf(s.Due != 0, s.Due)
	}}

	Accounts = table.Table[AccountRecord]{
		Name: "billing",
		Key:  func(a *AccountRecord) table.Key { return table.Key{a.User} },
	}

	Orders = table.Table[OrderRecord]{
		Name:    "order",
		Key:     func(o *OrderRecord) table.Key { return table.Key{o.TradeNo} },
		Indexes: []*table.Index[OrderRecord]{&UserOrders, &OpenOrders, &DueOrders, &UnpaidOrders, &OrderKeys, &OrderPayments, &LatestOrders, &LatestTransfers},
		Expires: (*OrderRecord).Purge,
	}

	// UserOrders lists the orders of a user by number, since many may be opened within a second.
	UserOrders = table.Index[OrderRecord]{Name: "userorder", Fixed: true, Fields: func(o *OrderRecord) table.Key {
		return table.Key{o.User, storage.Inverted(o.Number)}
	}}

	// OpenOrders has the pending orders of a user. DueOrders has all pending orders by expiry.
	OpenOrders = table.Index[OrderRecord]{Name: "orderopen", Fields: func(o *OrderRecord) table.Key {
		return keyIf(o.Status == Pending, o.User)
	}}
	DueOrders = table.Index[OrderRecord]{Name: "orderdue", Fields: func(o *OrderRecord) table.Key {
		return keyIf(o.Status == Pending, o.ExpiresAt)
	}}

	// UnpaidOrders has the unpaid orders of a user, latest first.
	UnpaidOrders = table.Index[OrderRecord]{Name: "orderunpaid", Fields: func(o *OrderRecord) table.Key {
		return keyIf(o.PaidAt == 0, o.User, storage.Inverted(o.Created))
	}}

	// OrderKeys assigns each idempotency key of a user to one order.
	OrderKeys = table.Index[OrderRecord]{Name: "orderkey", Unique: true, Fields: func(o *OrderRecord) table.Key {
		return keyIf(o.KeyHash != "", o.User, o.KeyHash)
	}}

	// OrderPayments assigns each payment of a service to one order.
	OrderPayments = table.Index[OrderRecord]{Name: "payref", Unique: true, Fields: func(o *OrderRecord) table.Key {
		return keyIf(o.Payment != "", o.Provider, o.Payment)
	}}

	LatestOrders = table.Index[OrderRecord]{Name: "orderat", Fixed: true, Fields: func(o *OrderRecord) table.Key {
		return table.Key{storage.Inverted(o.Created)}
	}}

	// LatestTransfers has the orders for which money was moved by the time of their latest transfer,
	// latest first.
	LatestTransfers = table.Index[OrderRecord]{Name: "ordermoved", Fields: func(o *OrderRecord) table.Key {
		return keyIf(o.Moved != 0, storage.Inverted(o.Moved))
	}}

	// Notices are the payment notices that were applied.
	Notices = table.Table[NoticeRecord]{
		Name:    "payevent",
		Key:     func(n *NoticeRecord) table.Key { return table.Key{n.Provider, string(n.Kind), n.Event} },
		Expires: func(n *NoticeRecord) time.Time { return n.Purge },
	}

	// Mismatches are the notices that fit no order.
	Mismatches = table.Table[MismatchRecord]{
		Name:    "mismatch",
		Key:     func(m *MismatchRecord) table.Key { return table.Key{m.Digest()} },
		Indexes: []*table.Index[MismatchRecord]{&LatestMismatches, &WaitingMismatches, &OrderMismatches, &PaymentMismatches},
		Expires: func(m *MismatchRecord) time.Time { return time.UnixMilli(m.Time).Add(MismatchRetention) },
	}

	LatestMismatches = table.Index[MismatchRecord]{Name: "mismatchat", Fixed: true, Fields: func(m *MismatchRecord) table.Key {
		return table.Key{storage.Inverted(m.Time)}
	}}

	// WaitingMismatches has the notices about an unknown payment, oldest first.
	WaitingMismatches = table.Index[MismatchRecord]{Name: "paywait", Fixed: true, Fields: func(m *MismatchRecord) table.Key {
		if _, follows := FollowingKinds[m.Kind]; !follows || m.Reason != UnknownPayment || m.Payment == "" {
			return nil
		}
		return table.Key{PaymentHash(m.Provider, m.Payment), m.Time}
	}}

	// OrderMismatches is the index of mismatches by order, oldest first.
	OrderMismatches = table.Index[MismatchRecord]{Name: "mismatchorder", Fixed: true, Fields: func(m *MismatchRecord) table.Key {
		return keyIf(m.about() != "", m.about(), m.Time)
	}}

	// PaymentMismatches is the index of mismatches by payment, latest first.
	PaymentMismatches = table.Index[MismatchRecord]{Name: "mismatchpay", Fixed: true, Fields: func(m *MismatchRecord) table.Key {
		if m.Payment == "" {
			return nil
		}
		return table.Key{PaymentHash(m.Provider, m.Payment), storage.Inverted(m.Time)}
	}}
)

// keyIf returns the fields of an index key, or nil if the record is not in the index.
func keyIf(indexed bool, fields ...any) table.Key {
	if !indexed {
		return nil
	}
	return fields
}

// PaymentHash returns a fixed-length key of a payment, for keys with further fields.
func PaymentHash(provider, payment string) string { return journal.IDOf(provider, payment).String() }
