package billing

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
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
	Claimed   bool   `json:"claimed,omitempty"`   // its first sale was a claim

	// First is what else there is to say of its sale, until it has another. The
	// period that the sale has opened needs no record as long.
	First *firstSale `json:"first,omitempty"`

	Terms
}

// firstSale is what a subscription does not say itself of its only sale.
type firstSale struct {
	Kind     saleKind   `json:"kind"`
	Transfer journal.ID `json:"transfer"`
}

func (s *subscriptionRecord) quotaAccount(start int64) journal.Account {
	return quotaAccount(s.User, s.ID, start)
}

// first is the only sale of a subscription that has First.
func (s *subscriptionRecord) first() sale {
	return sale{
		User: s.User, Subscription: s.ID, Kind: s.First.Kind, Transfer: s.First.Transfer, Time: s.Start, From: s.Start, Until: s.End, Since: s.Start, Terms: s.Terms,
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
		sales.Put(t, nil, &first),
		periods.Put(t, nil, &periodRecord{s.User, s.ID, first.Since, first.Quota}),
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

// ownerOf returns the user of a subscription; empty if there is none. It reads the keys of all
// subscriptions, since only operators ask: an index would be written with every purchase.
func ownerOf(r storage.Reader, id int64) (user string, err error) {
	suffix := string(storage.AppendKey(nil, id))
	for key, err := range subscriptions.PrimaryKeys(r, subscriptions.Under()) {
		if user, found := strings.CutSuffix(key, suffix); found || err != nil {
			return user, err
		}
	}
	return "", nil
}

// readSubscription returns a subscription of a user. A subscription of another user gets the same
// error as one that does not exist.
func readSubscription(r storage.Reader, user string, id int64) (*subscriptionRecord, error) {
	s, err := subscriptions.Get(r, user, id)
	if err == nil && s == nil {
		err = fault.At(fault.SubscriptionNotFound, "subscription_id", "there is no subscription %d", id)
	}
	return s, err
}

// Subscriptions returns all subscriptions of a user, the latest first.
func (b *Service) Subscriptions(ctx context.Context, user string) ([]Subscription, error) {
	return b.list(ctx, subscriptions.Under(user))
}

// AllSubscriptions returns the subscriptions of the user with this id or name,
// for operators; those of all users when it is empty.
func (b *Service) AllSubscriptions(ctx context.Context, idOrName string) ([]Subscription, error) {
	if idOrName == "" {
		return b.list(ctx, subscriptions.Under())
	}
	user, err := b.directory.User(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	return b.Subscriptions(ctx, user.ID)
}

func (b *Service) list(ctx context.Context, in table.Range) ([]Subscription, error) {
	shown := []Subscription{}
	err := b.view(ctx, func(r storage.Reader) error {
		for s, err := range subscriptions.Scan(r, in) {
			if err != nil {
				return err
			}
			one, err := s.show(r, b.store.Now())
			if err != nil {
				return err
			}
			shown = append(shown, one)
		}
		return nil
	})
	slices.SortFunc(shown, func(a, b Subscription) int { return int(b.ID - a.ID) })
	return shown, err
}

// Cancel ends a subscription at once, for an operator. What is left of its quota
// cannot be spent any more; nothing is paid back.
func (b *Service) Cancel(ctx context.Context, actor string, id int64, reason string) (Subscription, error) {
	if err := checkReason(reason, false); err != nil {
		return Subscription{}, err
	}
	var user string
	err := b.view(ctx, func(r storage.Reader) (err error) {
		user, err = ownerOf(r, id)
		return err
	})
	if err != nil {
		return Subscription{}, err
	}
	c, err := idempotencyKey(operatorScope(user), drawn(""), "cancel", strconv.FormatInt(id, 10))
	if err != nil {
		return Subscription{}, err
	}
	shown, _, err := once(ctx, b, user, c, nil, func(t *ledger.Txn, now time.Time) (Subscription, audit.Event, error) {
		e := audit.Event{Actor: actor, Action: "subscription.cancel", User: user, Detail: detail(reference(id), reason)}
		s, err := readSubscription(t, user, id)
		if err != nil {
			return Subscription{}, e, err
		}
		if s.Cancelled != 0 {
			return Subscription{}, e, alreadyCancelled(id)
		}
		r, err := readSummary(t, user, now)
		if err != nil {
			return Subscription{}, e, err
		}
		r.remove(id)
		before := *s
		s.Cancelled = now.Unix()
		if err := subscriptions.Put(t, &before, s); err != nil {
			return Subscription{}, e, err
		}
		if _, err := spend(t, now, r); err != nil {
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
func quotaAccount(user string, id, start int64) journal.Account {
	return journal.Quota(user, id, time.Unix(start, 0))
}
