package billing

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// counterKey is where the number of the last subscription is stored.
var counterKey = []byte("meta/subscriptions")

// The tables of this package. Apart from the counter, it reads and writes its records only
// through them. Times in keys are Unix seconds; [storage.Inverted] puts the latest first.
var (
	subscriptions = table.Table[subscriptionRecord]{
		Name:    "sub",
		Key:     func(s *subscriptionRecord) table.Key { return table.Key{s.User, s.ID} },
		Indexes: []*table.Index[subscriptionRecord]{&claimedPlans},
	}

	// claimedPlans lets each user claim a free plan once.
	claimedPlans = table.Index[subscriptionRecord]{Name: "claimed", Unique: true, Fixed: true, Fields: func(s *subscriptionRecord) table.Key {
		return keyIf(s.Claimed, s.User, s.PlanID)
	}}

	// sales are those of subscriptions that were renewed, latest first.
	sales = table.Table[sale]{
		Name: "sale",
		Key: func(s *sale) table.Key {
			return table.Key{s.User, s.Subscription, storage.Inverted(s.From)}
		},
	}

	// periods are the periods of quota that were opened after the sale, or added to.
	periods = table.Table[periodRecord]{
		Name: "quota",
		Key:  func(p *periodRecord) table.Key { return table.Key{p.User, p.Subscription, p.Start} },
	}

	// summaries has one record for each user with subscriptions. Whatever changes the money of
	// a user reads it.
	summaries = table.Table[summary]{
		Name:    "subsummary",
		Key:     func(s *summary) table.Key { return table.Key{s.User} },
		Indexes: []*table.Index[summary]{&dueSummaries},
		Encode:  (*summary).encode,
		Decode:  decodeSummary,
	}

	// dueSummaries holds when time changes the subscriptions of a user.
	dueSummaries = table.Index[summary]{Name: "subdue", Fields: func(s *summary) table.Key {
		return keyIf(s.Due != 0, s.Due)
	}}

	accounts = table.Table[accountRecord]{
		Name: "billing",
		Key:  func(a *accountRecord) table.Key { return table.Key{a.User} },
	}

	orders = table.Table[orderRecord]{
		Name:    "order",
		Key:     func(o *orderRecord) table.Key { return table.Key{o.TradeNo} },
		Indexes: []*table.Index[orderRecord]{&userOrders, &openOrders, &dueOrders, &unpaidOrders, &orderKeys, &orderPayments},
		Expires: (*orderRecord).purge,
	}

	// userOrders lists the orders of a user by number, since many may be opened within a second.
	userOrders = table.Index[orderRecord]{Name: "userorder", Fixed: true, Fields: func(o *orderRecord) table.Key {
		return table.Key{o.User, storage.Inverted(o.Number)}
	}}

	// openOrders and dueOrders hold the pending orders of a user, and all pending ones by expiry.
	openOrders = table.Index[orderRecord]{Name: "orderopen", Fields: func(o *orderRecord) table.Key {
		return keyIf(o.Status == Pending, o.User)
	}}
	dueOrders = table.Index[orderRecord]{Name: "orderdue", Fields: func(o *orderRecord) table.Key {
		return keyIf(o.Status == Pending, o.ExpiresAt)
	}}

	// unpaidOrders holds the orders of a user that were not paid, latest first.
	unpaidOrders = table.Index[orderRecord]{Name: "orderunpaid", Fields: func(o *orderRecord) table.Key {
		return keyIf(o.PaidAt == 0, o.User, storage.Inverted(o.Created))
	}}

	// orderKeys gives each idempotency key of a user to one order.
	orderKeys = table.Index[orderRecord]{Name: "orderkey", Unique: true, Fields: func(o *orderRecord) table.Key {
		return keyIf(o.KeyHash != "", o.User, o.KeyHash)
	}}

	// orderPayments gives each payment of a service to one order.
	orderPayments = table.Index[orderRecord]{Name: "payref", Unique: true, Fields: func(o *orderRecord) table.Key {
		return keyIf(o.Payment != "", o.Provider, o.Payment)
	}}

	// notices are the payment notices that were applied.
	notices = table.Table[noticeRecord]{
		Name:    "payevent",
		Key:     func(n *noticeRecord) table.Key { return table.Key{n.Provider, string(n.Kind), n.Event} },
		Expires: func(n *noticeRecord) time.Time { return n.Purge },
	}

	// mismatches are the notices that fitted no order.
	mismatches = table.Table[mismatchRecord]{
		Name:    "mismatch",
		Key:     func(m *mismatchRecord) table.Key { return table.Key{m.digest()} },
		Indexes: []*table.Index[mismatchRecord]{&latestMismatches, &waitingMismatches},
		Expires: func(m *mismatchRecord) time.Time { return time.UnixMilli(m.Time).Add(mismatchesKept) },
	}

	latestMismatches = table.Index[mismatchRecord]{Name: "mismatchat", Fixed: true, Fields: func(m *mismatchRecord) table.Key {
		return table.Key{storage.Inverted(m.Time)}
	}}

	// waitingMismatches leads from a payment to what was told of it before it was known, oldest
	// first.
	waitingMismatches = table.Index[mismatchRecord]{Name: "paywait", Fixed: true, Fields: func(m *mismatchRecord) table.Key {
		if _, follows := followingKinds[m.Kind]; !follows || m.Reason != unknownPayment || m.Payment == "" {
			return nil
		}
		return table.Key{paymentHash(m.Provider, m.Payment), m.Time}
	}}
)

// keyIf returns the fields of an index key, or nil if the index leaves the record out.
func keyIf(indexed bool, fields ...any) table.Key {
	if !indexed {
		return nil
	}
	return fields
}

// paymentHash stands for a payment in keys where more fields follow.
func paymentHash(provider, payment string) string { return journal.IDOf(provider, payment).String() }
