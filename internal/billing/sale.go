package billing

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Receipt is the result of a purchase, a claim, a renewal or a grant.
type Receipt struct {
	Subscription
	Order    string       `json:"order"` // the id of the transfer
	Wallet   WalletCharge `json:"wallet"`
	Replayed bool         `json:"replayed"` // an earlier request with this idempotency key did it
}

// WalletCharge is the effect of a purchase on the wallet.
type WalletCharge struct {
	Balance money.Amount `json:"balance"` // afterwards
	Charged money.Amount `json:"charged"`
}

// pendingSale is a sale that is not written yet.
type pendingSale struct {
	kind          records.SaleKind
	plan          Plan         // read once, so that the charge equals the reservation
	price         money.Amount // to be charged
	currency      string
	id            journal.ID // of the transfer
	actor, reason string     // of the operator; empty if the user acts
}

// actions are the audit actions of sales.
var actions = map[records.SaleKind]string{
	records.Bought: "subscription.buy", records.Claimed: "subscription.claim", records.Granted: "subscription.grant", records.Renewed: "subscription.renew",
}

// maxRunning is the maximum number of running subscriptions of one user. Every change of the user's
// money reads all of them, and after midnight one transaction opens all of their periods.
const maxRunning = 1000

// begin sells a new subscription.
func (x pendingSale) begin(t *ledger.Txn, now time.Time, user string) (Receipt, audit.Event, error) {
	r, err := records.ReadSummary(t, user, now)
	if err != nil {
		return Receipt{}, audit.Event{}, err
	}
	if x.kind == records.Bought {
		if err := checkPurchaseLimit(r, x.plan); err != nil {
			return Receipt{}, audit.Event{}, err
		}
		r.CountPurchase(x.plan.ID)
	}
	var id int64
	if _, err := storage.GetRecord(t, records.CounterKey, &id); err != nil {
		return Receipt{}, audit.Event{}, err
	}
	id++
	s := &records.SubscriptionRecord{
		ID: id, User: user, PlanID: x.plan.ID, Start: now.Unix(), Claimed: x.kind == records.Claimed, First: &records.FirstSale{Kind: x.kind, Transfer: x.id},
	}
	if err := storage.SetRecord(t, records.CounterKey, id); err != nil {
		return Receipt{}, audit.Event{}, err
	}
	receipt, event, err := x.sell(t, now, nil, s, r)
	if err == nil && len(r.Running) > maxRunning {
		err = fault.New(fault.PurchaseLimitReached, "there are %d subscriptions running, which is the most there can be", maxRunning)
	}
	return receipt, event, err
}

// extend renews a subscription. The extension begins when the subscription ends, or now if it has
// ended.
func (x pendingSale) extend(t *ledger.Txn, now time.Time, s *records.SubscriptionRecord) (Receipt, audit.Event, error) {
	before := *s
	r, err := records.ReadSummary(t, s.User, now)
	if err == nil {
		err = storeFirstSale(t, s)
	}
	if err != nil {
		return Receipt{}, audit.Event{}, err
	}
	r.Remove(s.ID)
	return x.sell(t, now, &before, s, r)
}

// sell moves the money and the quota, writes the sale and the subscription, and
// updates the summary.
func (x pendingSale) sell(t *ledger.Txn, now time.Time, before, s *records.SubscriptionRecord, r *records.Summary) (Receipt, audit.Event, error) {
	event := audit.Event{Actor: x.actor, Action: actions[x.kind], User: s.User}
	if x.actor == "" {
		event.Actor = s.User
	}
	made, err := x.saleOf(t, now, s)
	if err != nil {
		return Receipt{}, event, err
	}
	if err := x.book(t, now, s, made); err != nil {
		return Receipt{}, event, err
	}
	s.Title, s.Terms, s.End, s.Sold = x.plan.Title, made.Terms, made.Until, made.Time
	if s.First == nil {
		err = records.Sales.Put(t, nil, &made)
	}
	if err := cmp.Or(err, records.Subscriptions.Put(t, before, s)); err != nil {
		return Receipt{}, event, err
	}
	p, err := updateSummary(t, now, r, s, made)
	if err == nil {
		_, err = spend(t, now, r)
	}
	if err != nil {
		return Receipt{}, event, err
	}
	receipt := Receipt{Order: x.id.String()}
	wallet, err := journal.ReadState(t, journal.Wallet(s.User))
	if err != nil {
		return receipt, event, err
	}
	receipt.Wallet = WalletCharge{Balance: wallet.Balance, Charged: x.price}
	receipt.Subscription, err = showIn(t, now, s, p)
	event.Detail = detail(records.Reference(s.ID), "plan "+strconv.FormatInt(s.PlanID, 10), amountOf(x.price, x.currency))
	return receipt, event, err
}

// updateSummary adds a sold subscription to the summary, and returns its present
// period.
func updateSummary(t storage.Txn, now time.Time, r *records.Summary, s *records.SubscriptionRecord, made records.Sale) (p records.Period, err error) {
	if made.From == made.Time { // the sale has granted the period that begins with it
		p = made.At(now)
		p.Quota, p.Opened = made.Quota, true
	} else if p, _, err = s.PeriodAt(t, now); err != nil {
		return p, err
	}
	x := records.Running{ID: s.ID, End: s.End}
	if p.Opened {
		x.Presence = p.Presence()
	}
	r.Add(x)
	return p, nil
}

// saleOf returns the record of the sale for a subscription.
func (x pendingSale) saleOf(r storage.Reader, now time.Time, s *records.SubscriptionRecord) (records.Sale, error) {
	from := max(now.Unix(), s.End)
	made := records.Sale{
		User: s.User, Subscription: s.ID,
		Kind: x.kind, Transfer: x.id, Time: now.Unix(), From: from, Since: from,
		Until: x.plan.Duration.After(time.Unix(from, 0)).Unix(),
		Terms: records.Terms{
			Price: x.price, Currency: x.currency, Duration: x.plan.Duration,
			Quota: x.plan.Quota, QuotaReset: x.plan.QuotaReset,
		},
	}
	if from == now.Unix() { // the first sale, or one after a gap
		return made, nil
	}
	last, found, err := s.SaleAt(r, from)
	if found && last.Until == from && last.QuotaReset == made.QuotaReset {
		made.Since = last.Since
	}
	return made, err
}

// book books the transfer of a sale: the price from the wallet to the account of sales, and
// the quota from the account of grants. The id of the transfer follows from the idempotency
// key, or from the claim of a free plan. The caller has checked that neither was used before.
func (x pendingSale) book(t *ledger.Txn, now time.Time, s *records.SubscriptionRecord, made records.Sale) error {
	transfer := journal.Transfer{
		ID: x.id, Kind: records.TransferKinds[x.kind], User: s.User, Reference: records.Reference(s.ID), Actor: x.actor, Reason: x.reason,
		Legs: journal.LegsBetween(journal.Wallet(s.User), journal.Sold, x.price),
	}
	if start, ok := made.Grants(); ok {
		if err := recordGrant(t, s, start, made); err != nil {
			return err
		}
		transfer.Legs = append(transfer.Legs, journal.LegsBetween(journal.Granted, s.QuotaAccount(start), made.Quota)...)
	}
	booked, err := t.BookNew(now, transfer)
	if err == nil && !booked {
		err = fmt.Errorf("billing: the transfer %s of a sale exists without its idempotency key", x.id)
	}
	return err
}

// recordGrant records the quota that is granted with a sale in the record of its period.
func recordGrant(t storage.Txn, s *records.SubscriptionRecord, start int64, made records.Sale) error {
	if s.First != nil {
		return nil
	}
	have, err := records.Periods.GetOrZero(t, s.User, s.ID, start) // the sale may add to a period that is open
	if err != nil {
		return err
	}
	// If the sum overflows, booking the account returns an error.
	return records.Periods.Put(t, nil, &records.PeriodRecord{User: s.User, Subscription: s.ID, Start: start, Granted: have.Granted + made.Quota})
}

// onSale returns the plan with this id, or an error if it is not sold. param is the
// parameter of the error.
func onSale(plans *Plans, id int64, param string) (Plan, error) {
	plan, found := plans.Find(id)
	switch {
	case !found:
		return plan, fault.At(fault.PlanNotFound, param, "there is no plan %d", id)
	case plan.Disabled:
		return plan, fault.At(fault.PlanDisabled, param, "the plan %d is not on sale", id)
	}
	return plan, nil
}

// charge reserves the current price of a plan.
func (b *Service) charge(ctx context.Context, user string, plans *Plans, plan Plan, param string) (*ledger.Reservation, error) {
	switch {
	case plan.Price == 0:
		return nil, fault.At(fault.PlanFree, param, "the plan %d is free: it is claimed, once, and not paid for", plan.ID)
	case plans.shown != nil && *plans.shown != plan.Price:
		return nil, fault.At(fault.Conflict, "price", "the plan %d costs %v now, not %v; nothing was charged", plan.ID, plan.Price, *plans.shown)
	}
	return b.ledger.ReserveWallet(ctx, user, plan.Price)
}

// checkPlanID returns an error if id cannot be the number of a plan.
func checkPlanID(id int64) error {
	if id < 1 {
		return fault.At(fault.InvalidParameter, "plan_id", "plan_id is greater than 0, this is %d", id)
	}
	return nil
}
