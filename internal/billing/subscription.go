package billing

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Subscription is the state of a subscription at one time. Times are Unix seconds.
type Subscription struct {
	ID            int64          `json:"subscription_id"`
	User          string         `json:"user"`
	PlanID        int64          `json:"plan_id"`
	Title         string         `json:"title"`
	Status        records.Status `json:"status"`
	QuotaTotal    money.Amount   `json:"quota_total"` // of the present period, or of the last
	QuotaUsed     money.Amount   `json:"quota_used"`
	QuotaHeld     money.Amount   `json:"quota_held,omitempty"` // part of the unused quota that tasks hold
	StartTime     int64          `json:"start_time"`
	EndTime       int64          `json:"end_time"`
	NextResetTime int64          `json:"next_reset_time,omitempty"` // zero: the quota lasts to the end

	records.Terms // of the last purchase or renewal
}

// storeFirstSale writes separate records for the only sale and its period, before a
// second sale is added.
func storeFirstSale(t storage.Txn, s *records.SubscriptionRecord) error {
	if s.First == nil {
		return nil
	}
	first := s.OnlySale()
	s.First = nil
	return cmp.Or(
		records.Sales.Put(t, nil, &first),
		records.Periods.Put(t, nil, &records.PeriodRecord{User: s.User, Subscription: s.ID, Start: first.Since, Granted: first.Quota}),
	)
}

// show returns the present state of a subscription. If it has ended, that includes its
// last period.
func show(r storage.Reader, now time.Time, s *records.SubscriptionRecord) (Subscription, error) {
	moment := now
	switch s.Status(now) {
	case records.Expired:
		moment = time.Unix(s.End-1, 0)
	case records.Cancelled:
		moment = time.Unix(max(s.Start, min(s.Cancelled, s.End-1)), 0)
	}
	p, _, err := s.PeriodAt(r, moment)
	if err != nil {
		return Subscription{}, err
	}
	return showIn(r, now, s, p)
}

// showIn returns the present state of a subscription with its period p, which is zero if
// there is none.
func showIn(r storage.Reader, now time.Time, s *records.SubscriptionRecord, p records.Period) (shown Subscription, err error) {
	shown = Subscription{
		ID: s.ID, User: s.User, PlanID: s.PlanID, Title: s.Title, Status: s.Status(now),
		QuotaTotal: p.Quota, StartTime: s.Start, EndTime: s.End, Terms: s.Terms,
	}
	if shown.Status == records.Active && p.Resets < s.End {
		shown.NextResetTime = p.Resets
	}
	shown.QuotaUsed, shown.QuotaHeld, err = s.Used(r, p)
	return shown, err
}

// ownerOf returns the id of the user who has a subscription, or "" if it does not exist. It reads
// the keys of all subscriptions. Only operators need it, and an index would slow down purchases.
func ownerOf(r storage.Reader, id int64) (user string, err error) {
	suffix := string(storage.AppendKey(nil, id))
	for key, err := range records.Subscriptions.PrimaryKeys(r, records.Subscriptions.Under()) {
		if user, found := strings.CutSuffix(key, suffix); found || err != nil {
			return user, err
		}
	}
	return "", nil
}

// SubscriptionOwner returns the id of the user of a subscription.
func (b *Service) SubscriptionOwner(ctx context.Context, id int64) (user string, err error) {
	err = b.view(ctx, func(r storage.Reader) (err error) {
		if user, err = ownerOf(r, id); err == nil && user == "" {
			err = fault.At(fault.SubscriptionNotFound, "subscription_id", "there is no subscription %d", id)
		}
		return err
	})
	return user, err
}

// readSubscription returns a subscription of a user. For a subscription of another user it returns
// the same error as for a missing one.
func readSubscription(r storage.Reader, user string, id int64) (*records.SubscriptionRecord, error) {
	s, err := records.Subscriptions.Get(r, user, id)
	if err == nil && s == nil {
		err = fault.At(fault.SubscriptionNotFound, "subscription_id", "there is no subscription %d", id)
	}
	return s, err
}

// Subscriptions returns at most limit subscriptions of a user after the first skip, the latest first,
// and their number.
func (b *Service) Subscriptions(ctx context.Context, user string, skip, limit int64) (shown []Subscription, total int64, err error) {
	shown = []Subscription{}
	err = b.view(ctx, func(r storage.Reader) (err error) {
		in := records.Subscriptions.Under(user)
		if _, total, err = records.Subscriptions.Page(r, in, 0, 0, math.MaxInt64); err != nil {
			return err
		}
		rest := max(0, total-skip) // their keys ascend
		page, _, err := records.Subscriptions.Page(r, in, max(0, rest-limit), min(rest, limit), total)
		for _, s := range slices.Backward(page) {
			state, err := show(r, b.store.Now(), s)
			if err != nil {
				return err
			}
			shown = append(shown, state)
		}
		return err
	})
	return shown, total, err
}

// Running returns the subscriptions of a user that have not ended, in the order in which they end.
func (b *Service) Running(ctx context.Context, user string) (shown []Subscription, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		now := b.store.Now()
		summary, err := records.ReadSummary(r, user, now)
		if err != nil {
			return err
		}
		for _, running := range summary.Running {
			s, err := readSubscription(r, user, running.ID)
			if err != nil {
				return err
			}
			state, err := show(r, now, s)
			if err != nil {
				return err
			}
			if state.Status == records.Active { // the summary may be older than an end
				shown = append(shown, state)
			}
		}
		return nil
	})
	return shown, err
}

// Subscription returns a subscription of a user.
func (b *Service) Subscription(ctx context.Context, user string, id int64) (shown Subscription, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		s, err := readSubscription(r, user, id)
		if err == nil {
			shown, err = show(r, b.store.Now(), s)
		}
		return err
	})
	return shown, err
}

// AllSubscriptions returns the subscriptions of the user with this id or name, or of all users if
// it is empty. It is for operators.
func (b *Service) AllSubscriptions(ctx context.Context, idOrName string) ([]Subscription, error) {
	if idOrName == "" {
		return b.list(ctx, records.Subscriptions.Under())
	}
	user, err := b.directory.User(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	return b.list(ctx, records.Subscriptions.Under(user.ID))
}

func (b *Service) list(ctx context.Context, in table.Range) ([]Subscription, error) {
	shown := []Subscription{}
	err := b.view(ctx, func(r storage.Reader) error {
		for s, err := range records.Subscriptions.Scan(r, in) {
			if err != nil {
				return err
			}
			state, err := show(r, b.store.Now(), s)
			if err != nil {
				return err
			}
			shown = append(shown, state)
		}
		return nil
	})
	slices.SortFunc(shown, func(a, b Subscription) int { return int(b.ID - a.ID) })
	return shown, err
}

// Cancel ends a subscription at once, for an operator. The rest of its quota is lost, and nothing
// is refunded.
func (b *Service) Cancel(ctx context.Context, actor string, id int64, reason string) (Subscription, error) {
	if err := audit.CheckReason(reason, false); err != nil {
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
	c, err := idempotencyKey(records.OperatorScope(user), keyOrRandom(""), "cancel", strconv.FormatInt(id, 10))
	if err != nil {
		return Subscription{}, err
	}
	shown, _, err := once(ctx, b, user, c, nil, func(t *ledger.Txn, now time.Time) (Subscription, audit.Event, error) {
		e := audit.Event{Actor: actor, Action: "subscription.cancel", User: user, Detail: detail(records.Reference(id))}
		s, err := readSubscription(t, user, id)
		if err != nil {
			return Subscription{}, e, err
		}
		if s.Cancelled != 0 {
			return Subscription{}, e, alreadyCancelled(id)
		}
		r, err := records.ReadSummary(t, user, now)
		if err != nil {
			return Subscription{}, e, err
		}
		r.Remove(id)
		before := *s
		s.Cancelled = now.Unix()
		if err := records.Subscriptions.Put(t, &before, s); err != nil {
			return Subscription{}, e, err
		}
		if _, err := spend(t, now, r); err != nil {
			return Subscription{}, e, err
		}
		shown, err := show(t, now, s)
		return shown, e, err
	})
	return shown, err
}

func alreadyCancelled(id int64) error {
	return fault.At(fault.SubscriptionCancelled, "subscription_id", "the subscription %d was cancelled already", id)
}

// detail joins the words that are not empty, for an audit event.
func detail(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), ", ")
}

// amountOf returns an amount with its currency.
func amountOf(amount money.Amount, currency string) string {
	return amount.String() + " " + currency
}

// ScanSales calls fn for each sale of a plan at or after from, with its subscription. It reads only the
// subscriptions that were sold or renewed since then.
func (b *Service) ScanSales(ctx context.Context, from time.Time, fn func(*records.SubscriptionRecord, records.Sale)) error {
	in := records.LatestSales.Under()
	if !from.IsZero() {
		in = in.Before(storage.Inverted(from.Unix() - 1))
	}
	return b.view(ctx, func(r storage.Reader) error {
		for s, err := range records.Subscriptions.Scan(r, in) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			for sale, err := range s.Sales(r) {
				if err != nil {
					return err
				}
				if !time.Unix(sale.Time, 0).Before(from) {
					fn(s, *sale)
				}
			}
		}
		return nil
	})
}
