package billing

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Receipt is what a purchase, a claim, a renewal or a grant came to.
type Receipt struct {
	Subscription
	Order    string       `json:"order"` // the id of the transfer
	Wallet   WalletCharge `json:"wallet"`
	Replayed bool         `json:"replayed"` // it was done before, under this idempotency key
}

// WalletCharge is what a purchase did to the wallet.
type WalletCharge struct {
	Balance money.Amount `json:"balance"` // afterwards
	Charged money.Amount `json:"charged"`
}

// deal is a sale about to be made.
type deal struct {
	kind          saleKind
	plan          Plan         // read once: what was reserved for it is what is charged
	price         money.Amount // to be charged
	currency      string
	id            journal.ID // of the transfer
	actor, reason string     // the operator's; empty when the user acts
}

// transferKinds are the kinds of the transfers of sales.
var transferKinds = map[saleKind]journal.Kind{
	bought: journal.Purchase, claimed: journal.Purchase, granted: journal.Grant, renewed: journal.Renewal,
}

// actions are the words of the audit for sales.
var actions = map[saleKind]string{
	bought: "subscription.buy", claimed: "subscription.claim", granted: "subscription.grant", renewed: "subscription.renew",
}

// maxLive is how many running subscriptions one user may have. Every change of the user's money
// goes through all of them, and after midnight one transaction opens all of their periods.
const maxLive = 1000

// begin makes a new subscription of a deal.
func (x deal) begin(t *ledger.Txn, now time.Time, user string) (Receipt, audit.Event, error) {
	r, err := readSummary(t, user, now)
	if err != nil {
		return Receipt{}, audit.Event{}, err
	}
	if x.kind == bought {
		if err := r.mayBuy(x.plan); err != nil {
			return Receipt{}, audit.Event{}, err
		}
		r.countPurchase(x.plan.ID)
	}
	var id int64
	if _, err := storage.GetRecord(t, counterKey, &id); err != nil {
		return Receipt{}, audit.Event{}, err
	}
	id++
	s := &subscriptionRecord{
		ID: id, User: user, PlanID: x.plan.ID, Start: now.Unix(), Claimed: x.kind == claimed, First: &firstSale{x.kind, x.id},
	}
	if err := storage.SetRecord(t, counterKey, id); err != nil {
		return Receipt{}, audit.Event{}, err
	}
	receipt, event, err := x.sell(t, now, nil, s, r)
	if err == nil && len(r.Running) > maxLive {
		err = fault.New(fault.PurchaseLimitReached, "there are %d subscriptions running, which is the most there can be", maxLive)
	}
	return receipt, event, err
}

// extend renews a subscription by a deal. It begins where the subscription ends,
// or now when that has passed.
func (x deal) extend(t *ledger.Txn, now time.Time, s *subscriptionRecord) (Receipt, audit.Event, error) {
	before := *s
	r, err := readSummary(t, s.User, now)
	if err == nil {
		err = s.unfold(t)
	}
	if err != nil {
		return Receipt{}, audit.Event{}, err
	}
	r.remove(s.ID)
	return x.sell(t, now, &before, s, r)
}

// sell moves the money and the quota, writes the sale and the subscription, and
// puts it in the summary.
func (x deal) sell(t *ledger.Txn, now time.Time, before, s *subscriptionRecord, r *summary) (Receipt, audit.Event, error) {
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
	s.Title, s.Terms, s.End = x.plan.Title, made.Terms, made.Until
	if s.First == nil {
		err = sales.Put(t, nil, &made)
	}
	if err := cmp.Or(err, subscriptions.Put(t, before, s)); err != nil {
		return Receipt{}, event, err
	}
	p, err := r.enter(t, now, s, made)
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
	receipt.Subscription, err = s.showIn(t, now, p)
	event.Detail = detail(reference(s.ID), "plan "+strconv.FormatInt(s.PlanID, 10), amountOf(x.price, x.currency), x.reason)
	return receipt, event, err
}

// enter puts a subscription that was sold in the summary, and returns the period
// that it is in now.
func (r *summary) enter(t storage.Txn, now time.Time, s *subscriptionRecord, made sale) (p period, err error) {
	if made.From == made.Time { // the period begins with the sale, which has granted it
		p = made.at(now)
		p.quota, p.opened = made.Quota, true
	} else if p, _, err = s.periodAt(t, now); err != nil {
		return p, err
	}
	x := running{ID: s.ID, End: s.End}
	if p.opened {
		x.presence = p.presence()
	}
	r.add(x)
	return p, nil
}

// saleOf returns the sale that a deal makes of a subscription.
func (x deal) saleOf(r storage.Reader, now time.Time, s *subscriptionRecord) (sale, error) {
	from := max(now.Unix(), s.End)
	made := sale{
		User: s.User, Subscription: s.ID,
		Kind: x.kind, Transfer: x.id, Time: now.Unix(), From: from, Since: from,
		Until: x.plan.Duration.After(time.Unix(from, 0)).Unix(),
		Terms: Terms{
			Price: x.price, Currency: x.currency, Duration: x.plan.Duration,
			Quota: x.plan.Quota, QuotaReset: x.plan.QuotaReset,
		},
	}
	if from == now.Unix() { // after a gap, if anything was before
		return made, nil
	}
	last, found, err := s.saleAt(r, from)
	if found && last.Until == from && last.QuotaReset == made.QuotaReset {
		made.Since = last.Since
	}
	return made, err
}

// book books the transfer of a sale: from the wallet to what was sold, and from
// what was granted to the quota. Its id stands for the idempotency key, or for the mark of a
// free plan that was claimed, which was looked for before.
func (x deal) book(t *ledger.Txn, now time.Time, s *subscriptionRecord, made sale) error {
	transfer := journal.Transfer{
		ID: x.id, Kind: transferKinds[x.kind], User: s.User, Reference: reference(s.ID), Actor: x.actor, Reason: x.reason,
		Legs: journal.LegsBetween(journal.Wallet(s.User), journal.Sold, x.price),
	}
	if start, ok := made.grants(); ok {
		if err := s.grant(t, start, made); err != nil {
			return err
		}
		transfer.Legs = append(transfer.Legs, journal.LegsBetween(journal.Granted, s.quotaAccount(start), made.Quota)...)
	}
	booked, err := t.BookNew(now, transfer)
	if err == nil && !booked {
		err = fmt.Errorf("billing: the transfer %s of a sale exists without its idempotency key", x.id)
	}
	return err
}

// grant notes the quota that comes with a sale in the record of its period.
func (s *subscriptionRecord) grant(t storage.Txn, start int64, made sale) error {
	if s.First != nil {
		return nil
	}
	have, err := periods.GetOrZero(t, s.User, s.ID, start) // the sale may add to a period that is open
	if err != nil {
		return err
	}
	// The sum cannot overflow unnoticed: the account is checked when it is booked.
	return periods.Put(t, nil, &periodRecord{s.User, s.ID, start, have.Granted + made.Quota})
}

// onSale returns the plan with this id, or why it is not sold. param names what
// the buyer named it by.
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

// charge reserves what a plan costs today.
func (b *Service) charge(ctx context.Context, user string, plan Plan, param string) (*ledger.Reservation, error) {
	if plan.Price == 0 {
		return nil, fault.At(fault.PlanFree, param, "the plan %d is free: it is claimed, once, and not paid for", plan.ID)
	}
	return b.ledger.ReserveWallet(ctx, user, plan.Price)
}

// checkPlanID refuses what cannot be the number of a plan.
func checkPlanID(id int64) error {
	if id < 1 {
		return fault.At(fault.InvalidParameter, "plan_id", "plan_id is greater than 0, this is %d", id)
	}
	return nil
}

// never is the purge time of what is kept for ever.
var never time.Time
