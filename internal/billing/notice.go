package billing

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Result is the result of a notice. All notices are acknowledged.
type Result string

// The results.
const (
	Applied    Result = "applied"    // it changed an order
	Repeated   Result = "repeated"   // it was applied before
	Ignored    Result = "ignored"    // it changes no order
	Mismatched Result = "mismatched" // it fits no order: it changed nothing and is listed for operators
)

// Outcome is the result of a notice with its reason.
type Outcome struct {
	Result Result
	Reason string // set for a mismatch
}

// record returns the record of a notice that is applied to an order.
func (a *application) record(n payments.Notice, now time.Time, o *records.OrderRecord) *records.NoticeRecord {
	return &records.NoticeRecord{Provider: a.provider, Kind: n.Kind, Event: n.Event, Time: now.Unix(), TradeNo: o.TradeNo, By: a.attempt, ContentHash: contentHash(n), Purge: o.Purge()}
}

// contentHash returns a hash of the content of a notice, without the service's mode and
// the currency.
func contentHash(n payments.Notice) journal.ID {
	return journal.IDOf(n.TradeNo, n.Payment, n.Dispute, n.Amount.String())
}

// application is the state of applying one notice.
type application struct {
	service  *Service
	provider string
	notice   payments.Notice
	attempt  journal.ID
	currency string // of the ledger; empty: none is recorded

	outcome Outcome
	event   *audit.Event // for [audit.Log.OnAudit] when it is durable
}

// errChanged says that another notice has changed the order since it was read. The notice is
// applied again from the start.
var errChanged = errors.New("the order was changed meanwhile")

// Apply applies a notice with a valid signature. It credits a paid order, or takes back a refunded
// or disputed amount, once and in one transaction. A notice that contradicts its order changes
// nothing and is listed for operators. Apply returns only errors of the store; the service should
// then send the notice again.
//
// Services may send notices in any order. A refund or a dispute that arrives before its
// payment is kept, and counts when the payment arrives.
func (b *Service) Apply(ctx context.Context, provider string, n payments.Notice) (Outcome, error) {
	if n.Kind == payments.Ignored && n.Mismatch == "" {
		return Outcome{Result: Ignored}, nil
	}
	a := &application{service: b, provider: provider, notice: checked(n)}
	_, _ = rand.Read(a.attempt[:])
	err := a.try(ctx)
	for errors.Is(err, errChanged) {
		err = a.try(ctx)
	}
	if err != nil {
		return Outcome{}, fault.OfStore(err)
	}
	if a.event != nil {
		b.directory.Audit.OnAudit(*a.event)
		if a.outcome.Result == Mismatched {
			b.log.Warn("a payment notice fits no order", zap.String("provider", provider), zap.String("kind", string(n.Kind)),
				zap.String("event", a.notice.Event), zap.String("trade_no", a.notice.TradeNo), zap.String("reason", a.outcome.Reason))
		}
	}
	return a.outcome, nil
}

// checked removes invalid ids from a notice and marks it as a mismatch, so that it credits
// nothing.
func checked(n payments.Notice) payments.Notice {
	if n.Event == "" && n.Mismatch == "" {
		n.Mismatch = "it has no id"
	}
	for _, id := range []*string{&n.Event, &n.TradeNo, &n.Payment, &n.Dispute} {
		if *id != "" && !payments.IsReference(*id) {
			*id, n.Mismatch = "", "one of its ids is not 1 to 255 printable characters"
		}
	}
	return n
}

// try finds the order, reserves the amount that the notice takes from the wallet, and applies the
// notice. Notices about one order are applied one after another. Otherwise each would reserve the
// amount, and the wallet would have too little for the second. On a shared store the amount is reserved
// in the transaction, because another node may apply the other notice.
func (a *application) try(ctx context.Context) error {
	var order *records.OrderRecord
	find := func(r storage.Reader) (err error) {
		order, _, err = a.find(r)
		return err
	}
	b := a.service
	if err := b.store.View(ctx, find); err != nil {
		return err
	}
	if order.User == "" {
		return b.store.Update(ctx, func(t storage.Txn) error { return a.apply(ctx, t, "", 0, 0) })
	}
	done, err := b.locks.Lock(ctx, "order/"+order.TradeNo)
	if err != nil {
		return err
	}
	defer done()
	if err := b.store.View(ctx, find); err != nil {
		return err
	}
	user, expected := order.User, money.Amount(0)
	if a.mismatch(order, b.store.Now()) == "" && order.PaidAt != 0 && order.Note(a.notice) {
		expected = max(0, order.Due())
	}
	var r *ledger.Reservation
	if expected > 0 {
		if r, err = b.ledger.ReserveUpTo(ctx, user, expected); err != nil {
			return err
		}
	}
	return b.ledger.Update(ctx, user, r, func(t *ledger.Txn) error {
		if err := r.Confirm(t); err != nil {
			return err
		}
		return a.apply(ctx, t, user, expected, r.Amount())
	})
}

// find returns the order that the notice is about. If there is none, it returns an empty order and
// the reason.
func (a *application) find(r storage.Reader) (order *records.OrderRecord, reason string, err error) {
	none, n := new(records.OrderRecord), a.notice
	if a.currency, err = ledger.Currency(r); err != nil {
		return none, "", err
	}
	var paid *records.OrderRecord
	if n.Payment != "" {
		if paid, err = records.Orders.Find(r, &records.OrderPayments, a.provider, n.Payment); err != nil {
			return none, "", err
		}
	}
	switch {
	case n.TradeNo == "" && paid == nil:
		return none, records.UnknownPayment, nil
	case paid != nil && n.TradeNo != "" && n.TradeNo != paid.TradeNo:
		return none, "the payment has paid another order, " + paid.TradeNo, nil
	case paid != nil:
		return paid.Read(), "", nil
	}
	order, err = records.ReadOrder(r, n.TradeNo)
	if err != nil || order == nil {
		return none, "there is no such order", err
	}
	return order, "", nil
}

// mismatch returns why the notice does not fit an order, or "" if it fits. The order is empty if
// none was found.
func (a *application) mismatch(o *records.OrderRecord, now time.Time) string {
	n := a.notice
	_, follows := records.FollowingKinds[n.Kind]
	disputes := n.Kind == payments.Disputed || n.Kind == payments.Restored
	switch {
	case n.Mismatch != "":
		return n.Mismatch
	case !follows && n.Kind != payments.Paid && n.Kind != payments.Failed:
		return "its kind is not known to this build"
	case n.Amount <= 0 && n.Kind != payments.Failed:
		return "the amount is not more than zero"
	case disputes && n.Dispute == "":
		return "its dispute has no id"
	case o.User == "":
		return ""
	case o.Provider != a.provider:
		return "the order belongs to the service " + o.Provider
	case n.Kind == payments.Failed:
		return ""
	case a.foreign(o):
		return "the order is in " + o.Currency + ", and the money here in " + a.currency
	case n.Currency != o.Currency:
		return "the order is in " + o.Currency
	case o.Payment != "" && n.Payment != "" && o.Payment != n.Payment:
		return "the order was paid by another payment, " + o.Payment
	case n.Kind == payments.Paid && n.Amount != o.Amount:
		return "the order is for " + o.Amount.String()
	case n.Kind == payments.Paid && o.PaidAt == 0 && o.Undated && now.Unix() >= o.ExpiresAt:
		return "the order has expired, and the service does not sign the time"
	}
	return ""
}

// foreign reports whether the notice pays an order in another currency than that of the ledger. An
// operator has then changed the currency after the order was opened.
func (a *application) foreign(o *records.OrderRecord) bool {
	return a.notice.Kind == payments.Paid && o.PaidAt == 0 && a.currency != "" && o.Currency != a.currency
}

// review marks a paid order that cannot be credited, so that the operator decides. It records the
// payment, so that later notices about the payment find the order.
func (a *application) review(t storage.Txn, now time.Time, o *records.OrderRecord) error {
	if o.Status == records.Review {
		return nil
	}
	o.Payment = a.notice.Payment
	return o.Become(t, now, records.Review)
}

// apply applies the notice in a transaction. reserved is the amount that was reserved in the
// wallet of user for the expected amount. user is empty if no order was found.
func (a *application) apply(ctx context.Context, t storage.Txn, user string, expected, reserved money.Amount) error {
	now := a.service.store.Now()
	before, err := records.Notices.Get(t, a.provider, string(a.notice.Kind), a.notice.Event)
	if err != nil || before != nil && before.By == a.attempt {
		return err // nil if an earlier run was committed
	}
	order, reason, err := a.find(t)
	switch {
	case err != nil:
		return err
	case order.User != user:
		return errChanged
	case before != nil && before.ContentHash == contentHash(a.notice):
		a.outcome, a.event = Outcome{Result: Repeated}, nil
		return nil
	case before != nil:
		return a.decline(ctx, t, now, order, "a notice with the same id and other content was applied to the order "+before.TradeNo)
	}
	if mismatch := a.mismatch(order, now); mismatch != "" {
		reason = mismatch
	}
	if reason != "" {
		if order.User != "" && order.Provider == a.provider && a.notice.Mismatch == "" && a.notice.Amount > 0 && a.foreign(order) {
			if err := a.review(t, now, order); err != nil {
				return err
			}
		}
		return a.decline(ctx, t, now, order, reason)
	}
	order.AddNotice(now, a.notice)
	changed, err := a.settle(t, now, order, expected, reserved)
	if err != nil {
		return err
	}
	a.outcome, a.event = Outcome{Result: Repeated}, nil
	if !changed {
		return nil
	}
	a.outcome.Result = Applied
	a.event = &audit.Event{
		Actor: a.provider, Action: "topup." + string(a.notice.Kind), User: user,
		Detail: detail("order "+order.TradeNo, amountOf(a.amount(order), order.Currency), a.notice.Payment, a.notice.Dispute),
	}
	if err := audit.Record(ctx, t, now, a.event); err != nil {
		return err
	}
	return records.Notices.Put(t, nil, a.record(a.notice, now, order))
}

// amount returns the amount of the notice.
func (a *application) amount(o *records.OrderRecord) money.Amount {
	if a.notice.Kind == payments.Failed {
		return o.Amount
	}
	return a.notice.Amount
}
