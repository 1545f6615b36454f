package billing

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Result is what became of a notice. All of them are acknowledged.
type Result string

// The results.
const (
	Applied    Result = "applied"    // what it tells is in the books
	Repeated   Result = "repeated"   // it was there already
	Ignored    Result = "ignored"    // it tells nothing that counts here
	Mismatched Result = "mismatched" // it fits no order: nothing was done, and an operator should look
)

// Outcome is what became of a notice.
type Outcome struct {
	Result Result
	Reason string // of a mismatch
}

// eventRecord tells that a notice has been applied. It goes with its order.
type eventRecord struct {
	Time    int64     `json:"time"`
	TradeNo string    `json:"trade_no"`
	By      ledger.ID `json:"by"`   // the attempt that did it
	Said    ledger.ID `json:"said"` // what it told
}

// said stands for what a notice tells. Whether the service's mode and the currency
// are the ones that are configured is none of that.
func said(n payments.Notice) ledger.ID {
	return ledger.IDOf(n.TradeNo, n.Payment, n.Dispute, n.Amount.String())
}

// application is a notice being applied.
type application struct {
	desk     *Desk
	provider string
	notice   payments.Notice
	attempt  ledger.ID
	currency string // of the ledger; empty: none is recorded

	outcome Outcome
	event   *identity.Event // to be told when it is durable
}

// errOvertaken is why a transaction is run again from the start: another notice
// has changed the order since it was looked at.
var errOvertaken = errors.New("the order has changed meanwhile")

// Apply does what a well-signed notice of a service tells: it credits an order
// that was paid, or takes back what was refunded or disputed, in one transaction
// and once. A notice that does not fit its order in every particular changes
// nothing and is listed for operators. An error is one of the store: the service
// should send the notice again.
//
// The services promise no order. A refund or a dispute that comes before the
// payment it is about is kept, and counts as soon as that comes.
func (d *Desk) Apply(ctx context.Context, provider string, n payments.Notice) (Outcome, error) {
	if n.Kind == payments.Ignored && n.Mismatch == "" {
		return Outcome{Result: Ignored}, nil
	}
	a := &application{desk: d, provider: provider, notice: checked(n)}
	_, _ = rand.Read(a.attempt[:])
	err := a.try(ctx)
	for errors.Is(err, errOvertaken) {
		err = a.try(ctx)
	}
	if err != nil {
		return Outcome{}, unavailable(err)
	}
	if a.event != nil {
		d.directory.Told(*a.event)
		if a.outcome.Result == Mismatched {
			d.log.Warn("a payment notice fits no order", zap.String("provider", provider), zap.String("kind", string(n.Kind)),
				zap.String("event", a.notice.Event), zap.String("trade_no", a.notice.TradeNo), zap.String("reason", a.outcome.Reason))
		}
	}
	return a.outcome, nil
}

// checked takes out of a notice what cannot be an id. A service that sends such
// a thing breaks its promise, and nothing is credited by it.
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

// try looks for the order, reserves what the notice will take of the wallet, and
// applies it. Notices of one order wait for each other: else each would reserve,
// and the one that takes would find less than there is.
func (a *application) try(ctx context.Context) error {
	var order orderRecord
	find := func(r storage.Reader) (err error) {
		order, _, err = a.find(r)
		return err
	}
	d := a.desk
	if err := d.store.View(ctx, find); err != nil {
		return err
	}
	if order.User == "" {
		return d.store.Update(ctx, func(t storage.Txn) error { return a.apply(ctx, t, "", 0, 0) })
	}
	done, err := d.locks.Lock(ctx, "order/"+order.TradeNo)
	if err != nil {
		return err
	}
	defer done()
	if err := d.store.View(ctx, find); err != nil {
		return err
	}
	user, expected := order.User, money.Amount(0)
	if a.mismatch(&order, d.store.Now()) == "" && order.PaidAt != 0 && order.note(a.notice) {
		expected = max(0, order.due())
	}
	var r *ledger.Reservation
	var reserved money.Amount
	if expected > 0 {
		if r, err = d.ledger.ReserveUpTo(ctx, user, expected); err != nil {
			return err
		}
		reserved = r.Amount()
	}
	return d.ledger.Update(ctx, user, r, func(t *ledger.Txn) error { return a.apply(ctx, t, user, expected, reserved) })
}

// find returns the order that the notice is about; of no user, when there is
// none. Why there is none is the reason.
func (a *application) find(r storage.Reader) (order orderRecord, reason string, err error) {
	n := a.notice
	if a.currency, err = ledger.Currency(r); err != nil {
		return order, "", err
	}
	paid := ""
	if n.Payment != "" {
		if _, err := storage.GetRecord(r, storage.Key(paymentPrefix, a.provider, n.Payment), &paid); err != nil {
			return order, "", err
		}
	}
	tradeNo := n.TradeNo
	switch {
	case tradeNo == "" && paid == "":
		return order, unknownPayment, nil
	case tradeNo == "":
		tradeNo = paid
	case paid != "" && paid != tradeNo:
		return order, "the payment has paid another order, " + paid, nil
	}
	order, found, err := readOrder(r, tradeNo)
	if err == nil && !found {
		reason = "there is no such order"
	}
	return order, reason, err
}

// unknownPayment is why a notice waits.
const unknownPayment = "it names no order, and no payment that is known"

// mismatch is why a notice cannot be about an order, or about any when there is
// none; empty when it can.
func (a *application) mismatch(o *orderRecord, now time.Time) string {
	n := a.notice
	_, follows := moveKinds[n.Kind]
	disputes := n.Kind == payments.Disputed || n.Kind == payments.Restored
	switch {
	case n.Mismatch != "":
		return n.Mismatch
	case !follows && n.Kind != payments.Paid && n.Kind != payments.Failed:
		return "it is of a kind that this build does not know"
	case n.Amount <= 0 && n.Kind != payments.Failed:
		return "the amount is not more than zero"
	case disputes && n.Dispute == "":
		return "its dispute has no id"
	case o.User == "":
		return ""
	case o.Provider != a.provider:
		return "the order is one of the service " + o.Provider
	case n.Kind == payments.Failed:
		return ""
	case a.foreign(o):
		return "the order is in " + o.Currency + ", and the money here in " + a.currency
	case n.Currency != o.Currency:
		return "the order is in " + o.Currency
	case o.Payment != "" && n.Payment != "" && o.Payment != n.Payment:
		return "the order was paid by another payment, " + o.Payment
	case n.Kind == payments.Paid && n.Amount != o.Amount:
		return "the order is over " + o.Amount.String()
	case n.Kind == payments.Paid && o.PaidAt == 0 && o.Undated && now.Unix() >= o.ExpiresAt:
		return "the order had expired, and the service does not sign the time"
	}
	return ""
}

// foreign reports whether the notice would credit an order in a currency that is not
// that of the ledger: an operator has changed it since the order was opened.
func (a *application) foreign(o *orderRecord) bool {
	return a.notice.Kind == payments.Paid && o.PaidAt == 0 && a.currency != "" && o.Currency != a.currency
}

// review keeps an order for the operator that was paid and cannot be credited. It
// knows its payment, so that what is told of that finds the order.
func (a *application) review(t storage.Txn, o *orderRecord) error {
	if o.Status == Review {
		return nil
	}
	if o.Payment = a.notice.Payment; o.Payment != "" {
		if err := storage.SetRecord(t, storage.Key(paymentPrefix, o.Provider, o.Payment), o.TradeNo); err != nil {
			return err
		}
	}
	return o.become(t, Review)
}

// apply does in a transaction what the notice tells about an order of user, of
// whose wallet reserved was set aside for the expected sum; user is empty when
// there was no order.
func (a *application) apply(ctx context.Context, t storage.Txn, user string, expected, reserved money.Amount) error {
	now := a.desk.store.Now()
	key := storage.Key(eventPrefix, a.provider, string(a.notice.Kind), a.notice.Event)
	var before eventRecord
	found, err := storage.GetRecord(t, key, &before)
	if err != nil || found && before.By == a.attempt {
		return err // a run before this one was committed
	}
	order, reason, err := a.find(t)
	switch {
	case err != nil:
		return err
	case order.User != user:
		return errOvertaken
	case found && before.Said == said(a.notice):
		a.outcome, a.event = Outcome{Result: Repeated}, nil
		return nil
	case found:
		return a.decline(ctx, t, now, order.User, "a notice of the same id told something else of the order "+before.TradeNo)
	}
	if why := a.mismatch(&order, now); why != "" {
		reason = why
	}
	if reason != "" {
		if order.User != "" && order.Provider == a.provider && a.notice.Mismatch == "" && a.notice.Amount > 0 && a.foreign(&order) {
			if err := a.review(t, &order); err != nil {
				return err
			}
		}
		return a.decline(ctx, t, now, order.User, reason)
	}
	changed, err := a.settle(t, now, &order, expected, reserved)
	if err != nil {
		return err
	}
	a.outcome, a.event = Outcome{Result: Repeated}, nil
	if !changed {
		return nil
	}
	a.outcome.Result = Applied
	a.event = &identity.Event{
		Actor: a.provider, Action: "topup." + string(a.notice.Kind), User: user,
		Detail: detail("order "+order.TradeNo, amountOf(a.told(&order), order.Currency), a.notice.Payment, a.notice.Dispute),
	}
	if err := identity.Record(ctx, t, now, a.event); err != nil {
		return err
	}
	return t.Set(key, storage.EncodeRecord(eventRecord{now.Unix(), order.TradeNo, a.attempt, said(a.notice)}), order.purge())
}

// told is the amount that a notice is about.
func (a *application) told(o *orderRecord) money.Amount {
	if a.notice.Kind == payments.Failed {
		return o.Amount
	}
	return a.notice.Amount
}
