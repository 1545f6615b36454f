package billing

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
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

// Subscription is a plan that a user has, as it stands at a moment. Times are
// Unix seconds.
type Subscription struct {
	ID            int64        `json:"subscription_id"`
	User          string       `json:"user"`
	PlanID        int64        `json:"plan_id"`
	Title         string       `json:"title"`
	Status        Status       `json:"status"`
	QuotaTotal    money.Amount `json:"quota_total"` // of the present period, or of the last
	QuotaUsed     money.Amount `json:"quota_used"`
	QuotaHeld     money.Amount `json:"quota_held,omitempty"` // of what is left, set aside by tasks
	StartTime     int64        `json:"start_time"`
	EndTime       int64        `json:"end_time"`
	NextResetTime int64        `json:"next_reset_time,omitempty"` // zero: the quota lasts to the end

	Terms // of the last purchase or renewal
}

// subscriptionRecord is a subscription as it is stored. What time changes is not
// in it.
type subscriptionRecord struct {
	ID        int64  `json:"id"`
	User      string `json:"user"`
	PlanID    int64  `json:"plan_id"`
	Title     string `json:"title"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Cancelled int64  `json:"cancelled,omitempty"` // when

	// First is what else there is to say of its sale, until it has another. The
	// period that the sale has opened needs no record as long.
	First *firstSale `json:"first,omitempty"`

	Terms
}

// firstSale is what a subscription does not say itself of its only sale.
type firstSale struct {
	Kind     saleKind  `json:"kind"`
	Transfer ledger.ID `json:"transfer"`
}

func (s *subscriptionRecord) key() []byte { return storage.Key(subscriptionPrefix, s.User, s.ID) }

func (s *subscriptionRecord) saleKey(from int64) []byte {
	return storage.Key(salePrefix, s.User, s.ID, storage.Inverted(from))
}

func (s *subscriptionRecord) periodKey(start int64) []byte {
	return storage.Key(periodPrefix, s.User, s.ID, start)
}

func (s *subscriptionRecord) quotaAccount(start int64) ledger.Account {
	return quotaAccount(s.User, s.ID, start)
}

// first is the only sale of a subscription that has First.
func (s *subscriptionRecord) first() sale {
	return sale{
		Kind: s.First.Kind, Transfer: s.First.Transfer, Time: s.Start, From: s.Start, Until: s.End, Since: s.Start, Terms: s.Terms,
	}
}

// unfold gives the only sale, and the period that it has opened, records of their
// own: another is to come.
func (s *subscriptionRecord) unfold(t storage.Txn) error {
	if s.First == nil {
		return nil
	}
	first := s.first()
	s.First = nil
	return cmp.Or(
		storage.SetRecord(t, s.saleKey(first.From), first),
		storage.SetRecord(t, s.periodKey(first.Since), periodRecord{first.Quota}),
	)
}

func (s *subscriptionRecord) status(now time.Time) Status {
	switch {
	case s.Cancelled != 0:
		return Cancelled
	case now.Unix() >= s.End:
		return Expired
	}
	return Active
}

// show returns the subscription as it stands now. One that has ended shows its
// last period.
func (s *subscriptionRecord) show(r storage.Reader, now time.Time) (Subscription, error) {
	moment := now
	switch s.status(now) {
	case Expired:
		moment = time.Unix(s.End-1, 0)
	case Cancelled:
		moment = time.Unix(max(s.Start, min(s.Cancelled, s.End-1)), 0)
	}
	p, _, err := s.periodAt(r, moment)
	if err != nil {
		return Subscription{}, err
	}
	return s.showIn(r, now, p)
}

// showIn returns the subscription as it stands now, with a period of it; the
// zero one when there is none.
func (s *subscriptionRecord) showIn(r storage.Reader, now time.Time, p period) (shown Subscription, err error) {
	shown = Subscription{
		ID: s.ID, User: s.User, PlanID: s.PlanID, Title: s.Title, Status: s.status(now),
		QuotaTotal: p.quota, StartTime: s.Start, EndTime: s.End, Terms: s.Terms,
	}
	if shown.Status == Active && p.resets < s.End {
		shown.NextResetTime = p.resets
	}
	shown.QuotaUsed, shown.QuotaHeld, err = s.used(r, p)
	return shown, err
}

// reference names a subscription in transfers.
func reference(id int64) string { return "subscription/" + strconv.FormatInt(id, 10) }

// ownerOf returns whose a subscription is; empty when there is none. It looks
// through all of them, for the one operator who asks: an index would be written
// with every purchase.
func ownerOf(r storage.Reader, id int64) (user string, err error) {
	lo, hi := storage.Below(subscriptionPrefix)
	err = r.Scan(lo, hi, func(key, _ []byte) bool {
		at := len(key) - 8
		if at > len(lo) && integer(key, at) == id {
			user = string(key[len(lo) : at-1])
		}
		return user == ""
	})
	return user, err
}

// readSubscription returns a subscription of a user. One that is not there and
// one of somebody else are refused alike.
func readSubscription(r storage.Reader, user string, id int64) (s subscriptionRecord, err error) {
	found, err := storage.GetRecord(r, storage.Key(subscriptionPrefix, user, id), &s)
	if err == nil && !found {
		err = fault.At(fault.SubscriptionNotFound, "subscription_id", "there is no subscription %d", id)
	}
	return s, err
}

// Subscriptions returns all subscriptions of a user, the latest first.
func (d *Desk) Subscriptions(ctx context.Context, user string) ([]Subscription, error) {
	lo, hi := storage.Below(subscriptionPrefix, user)
	return d.subscriptions(ctx, lo, hi)
}

// AllSubscriptions returns the subscriptions of the user with this id or name,
// for operators; those of all users when it is empty.
func (d *Desk) AllSubscriptions(ctx context.Context, idOrName string) ([]Subscription, error) {
	if idOrName == "" {
		lo, hi := storage.Below(subscriptionPrefix)
		return d.subscriptions(ctx, lo, hi)
	}
	user, err := d.directory.User(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	return d.Subscriptions(ctx, user.ID)
}

func (d *Desk) subscriptions(ctx context.Context, lo, hi []byte) ([]Subscription, error) {
	shown := []Subscription{}
	err := d.view(ctx, func(r storage.Reader) error {
		var records []subscriptionRecord
		err := scan(r, lo, hi, func(_ []byte, s subscriptionRecord) bool {
			records = append(records, s)
			return true
		})
		for _, s := range records {
			if err != nil {
				break
			}
			var one Subscription
			one, err = s.show(r, d.store.Now())
			shown = append(shown, one)
		}
		return err
	})
	slices.SortFunc(shown, func(a, b Subscription) int { return int(b.ID - a.ID) })
	return shown, err
}

// Cancel ends a subscription at once, for an operator. What is left of its quota
// cannot be spent any more; nothing is paid back.
func (d *Desk) Cancel(ctx context.Context, actor string, id int64, reason string) (Subscription, error) {
	if err := checkReason(reason, false); err != nil {
		return Subscription{}, err
	}
	var user string
	err := d.view(ctx, func(r storage.Reader) (err error) {
		user, err = ownerOf(r, id)
		return err
	})
	if err != nil {
		return Subscription{}, err
	}
	c, err := claim(operatorScope(user), drawn(""), "cancel", strconv.FormatInt(id, 10))
	if err != nil {
		return Subscription{}, err
	}
	shown, _, err := once(ctx, d, user, c, nil, func(t *ledger.Txn, now time.Time) (Subscription, identity.Event, error) {
		e := identity.Event{Actor: actor, Action: "subscription.cancel", User: user, Detail: detail(reference(id), reason)}
		s, err := readSubscription(t, user, id)
		if err != nil {
			return Subscription{}, e, err
		}
		if s.Cancelled != 0 {
			return Subscription{}, e, alreadyCancelled(id)
		}
		r, err := readRoster(t, user, now)
		if err != nil {
			return Subscription{}, e, err
		}
		r.remove(id)
		s.Cancelled = now.Unix()
		if err := storage.SetRecord(t, s.key(), s); err != nil {
			return Subscription{}, e, err
		}
		if _, err := spend(t, now, user, r); err != nil {
			return Subscription{}, e, err
		}
		shown, err := s.show(t, now)
		return shown, e, err
	})
	return shown, err
}

func alreadyCancelled(id int64) error {
	return fault.At(fault.SubscriptionCancelled, "subscription_id", "the subscription %d was cancelled already", id)
}

// detail joins the words of an audit line that are there.
func detail(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), ", ")
}

// amountOf writes an amount with its currency.
func amountOf(amount money.Amount, currency string) string {
	return amount.String() + " " + currency
}

// quotaAccount is the account of a period that starts at a Unix second.
func quotaAccount(user string, id, start int64) ledger.Account {
	return ledger.Quota(user, id, time.Unix(start, 0))
}
