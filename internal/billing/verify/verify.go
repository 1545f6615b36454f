// Package verify checks the records of billing against each other and against the ledger, in one
// snapshot of a store. [Check] reports the contradictions. The package imports packages records and
// journal, and changes nothing.
package verify

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/multiset"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Check calls problem for each contradiction in the records of billing:
//
//   - Each sale and each credit of an order has its transfer, and each such transfer has its sale
//     or order.
//   - Each granted quota equals the quota that was sold.
//   - The amount taken back from an order is the amount refunded and disputed.
//   - Each stored result of an idempotency key matches its transfer.
//   - Each index key has its record, and each record its index keys.
//
// r must be one snapshot. Check returns an error only if a read fails. It keeps one subscription or
// one order in memory at a time.
func Check(r storage.Reader, now time.Time, problem func(format string, args ...any)) error {
	v := &verification{Reader: r, now: now, problem: problem, accounted: multiset.New(), answered: multiset.New(), borne: multiset.New()}
	for _, step := range []func() error{
		v.tables, v.subscriptions, v.summaries, v.orders, v.transfers, v.results,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type verification struct {
	storage.Reader
	now       time.Time
	problem   func(format string, args ...any)
	accounted *multiset.Hash // transfers that records name, minus existing transfers
	answered  *multiset.Hash // sales minus results of idempotency keys
	borne     *multiset.Hash // recorded amounts that operators bear, minus those of transfers, by user

	last *records.Summary // the summary that was read last
}

// tables checks each table with its indexes.
func (v *verification) tables() error {
	return cmp.Or(
		records.Subscriptions.Verify(v, nameOf, v.problem),
		records.Sales.Verify(v, func(s *records.Sale) string {
			return fmt.Sprintf("sale of subscription %d from %d", s.Subscription, s.From)
		}, v.problem),
		records.Periods.Verify(v, func(p *records.PeriodRecord) string {
			return fmt.Sprintf("period of subscription %d from %d", p.Subscription, p.Start)
		}, v.problem),
		records.Summaries.Verify(v, func(s *records.Summary) string { return "summary of " + s.User }, v.problem),
		records.Accounts.Verify(v, func(a *records.AccountRecord) string { return "user " + a.User }, v.problem),
		records.Orders.Verify(v, func(o *records.OrderRecord) string { return "order " + o.TradeNo }, v.problem),
		records.Notices.Verify(v, nameOfNotice, v.problem),
		records.Mismatches.Verify(v, func(m *records.MismatchRecord) string { return "mismatch " + m.Digest() }, v.problem),
	)
}

// each calls fn for the records in a range. It skips records that cannot be decoded, because tables
// has reported them. It reports other records that fn cannot read.
func each[R any](v *verification, t *table.Table[R], in table.Range, fn func(*R) error) error {
	for rec, err := range t.Scan(v, in) {
		switch {
		case rec != nil:
			err = v.pass(fn(rec))
		case errors.Is(err, storage.ErrUnreadable):
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pass reports an unreadable record and returns nil, so that the verification continues. It returns
// any other error.
func (v *verification) pass(err error) error {
	if errors.Is(err, storage.ErrUnreadable) {
		v.problem("%v", err)
		return nil
	}
	return err
}

// subscriptions checks each subscription with its sales and periods.
func (v *verification) subscriptions() error {
	var last int64
	if _, err := storage.GetRecord(v, records.CounterKey, &last); v.pass(err) != nil {
		return err
	}
	err := each(v, &records.Subscriptions, records.Subscriptions.Under(), func(s *records.SubscriptionRecord) error {
		if s.ID > last {
			v.problem("subscription %d: the counter is %d", s.ID, last)
		}
		return cmp.Or(v.checkSummary(s), v.sales(s))
	})
	return cmp.Or(err,
		each(v, &records.Sales, records.Sales.Under(), func(s *records.Sale) error { return v.subscription(s.User, s.Subscription, "a sale") }),
		each(v, &records.Periods, records.Periods.Under(), func(p *records.PeriodRecord) error { return v.subscription(p.User, p.Subscription, "a period") }))
}

// subscription checks that the subscription of a record exists.
func (v *verification) subscription(user string, id int64, what string) error {
	found, err := records.Subscriptions.Has(v, user, id)
	if err == nil && !found {
		v.problem("subscription %d of %s: it does not exist, but has %s", id, user, what)
	}
	return err
}

// summaryOf returns the summary of a user, or an empty summary if there is none.
func (v *verification) summaryOf(user string) (*records.Summary, error) {
	if v.last == nil || v.last.User != user {
		s, err := records.Summaries.GetOrZero(v, user)
		if errors.Is(err, storage.ErrUnreadable) {
			s, err = new(records.Summary), nil // tables has reported it
		}
		if err != nil {
			return nil, err
		}
		s.User = user
		v.last = s
	}
	return v.last, nil
}

// checkSummary checks a subscription in the summary of its user.
func (v *verification) checkSummary(s *records.SubscriptionRecord) error {
	have, err := v.summaryOf(s.User)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(have.Running, func(x records.Running) bool { return x.ID == s.ID })
	if i < 0 && s.Cancelled == 0 && s.End > have.Ended || i >= 0 && s.Cancelled != 0 {
		v.problem("subscription %d: it is %s; in the summary: %t", s.ID, s.Status(v.now), i >= 0)
		return nil
	}
	if i < 0 {
		return nil
	}
	x := have.Running[i]
	if x.End != s.End {
		v.problem("subscription %d: its end in the summary is %d, but it ends at %d", s.ID, x.End, s.End)
	}
	if x.Presence == (records.Presence{}) {
		return nil
	}
	p, _, err := s.PeriodAt(v, time.Unix(x.From, 0))
	if err == nil && (!p.Opened || p.Presence() != x.Presence) {
		v.problem("subscription %d: the summary has the period from %d, which is wrong from %d until %d",
			s.ID, x.Start, x.From, x.Until)
	}
	return err
}

// summaries checks that the subscriptions in each summary exist, and that the user is swept in time.
func (v *verification) summaries() error {
	return each(v, &records.Summaries, records.Summaries.Under(), func(s *records.Summary) error {
		if !slices.IsSortedFunc(s.Running, records.Running.Compare) {
			v.problem("user %s: the summary is not in order", s.User)
		}
		for _, x := range s.Running {
			if err := v.subscription(s.User, x.ID, "an entry in the summary"); err != nil {
				return err
			}
			if x.End > v.now.Unix() && (s.Due == 0 || s.Due > x.End) {
				v.problem("subscription %d: no sweep is due when it ends", x.ID)
			}
		}
		if len(s.Purchases) == 0 {
			return nil
		}
		left := maps.Clone(s.Purchases)
		err := each(v, &records.Subscriptions, records.Subscriptions.Under(s.User), func(of *records.SubscriptionRecord) error {
			began, _, err := of.SaleAt(v, of.Start)
			if err == nil && began.Kind == records.Bought {
				left[of.PlanID]--
			}
			return err
		})
		for plan, n := range left {
			if n != 0 {
				v.problem("user %s: plan %d was bought %d times, but %d are counted", s.User, plan, s.Purchases[plan]-n, s.Purchases[plan])
			}
		}
		return err
	})
}

// sales checks the chain of sales of a subscription, from the latest to the
// first, and the quotas of their periods.
func (v *verification) sales(s *records.SubscriptionRecord) error {
	var later *records.Sale
	granted := make(map[int64]money.Amount) // granted with sales, by the start of the period
	for have, err := range s.Sales(v) {
		if err != nil {
			return err
		}
		switch {
		case later != nil && s.First != nil:
			v.problem("subscription %d: it has more than one sale, but its record says one", s.ID)
		case later != nil:
			v.link(s, have, later)
		case have.Until != s.End || have.Terms != s.Terms:
			v.problem("subscription %d: its last sale has another end or other terms", s.ID)
		}
		if until := have.Duration.After(time.Unix(have.From, 0)).Unix(); until != have.Until {
			v.problem("subscription %d: the %s from %d is for %v and ends at %d, not at %d", s.ID, have.Kind, have.From, have.Duration, have.Until, until)
		}
		if start, ok := have.Grants(); ok {
			granted[start] += have.Quota
		}
		if err := v.sold(s, have); err != nil {
			return err
		}
		later = have
	}
	if later == nil {
		v.problem("subscription %d: it has no sale", s.ID)
		return nil
	}
	if later.Kind == records.Renewed || later.From != s.Start || later.Since != s.Start {
		v.problem("subscription %d: its first sale is a %s from %d, it began at %d", s.ID, later.Kind, later.From, s.Start)
	}
	if (later.Kind == records.Claimed) != s.Claimed {
		v.problem("subscription %d: its first sale is a %s, and it was claimed: %t", s.ID, later.Kind, s.Claimed)
	}
	if later.Kind == records.Bought {
		have, err := v.summaryOf(s.User)
		if err != nil {
			return err
		}
		if have.Purchases[s.PlanID] == 0 {
			v.problem("subscription %d: the purchase of plan %d is not counted", s.ID, s.PlanID)
		}
	}
	return v.periods(s, granted)
}

// link checks that a sale follows the one before.
func (v *verification) link(s *records.SubscriptionRecord, before, after *records.Sale) {
	since := after.From
	if after.From > after.Time && before.QuotaReset == after.QuotaReset {
		since = before.Since
	}
	if after.Kind != records.Renewed || before.Until > after.From || after.Since != since || after.From > after.Time && before.Until != after.From {
		v.problem("subscription %d: the %s from %d does not follow the sale until %d", s.ID, after.Kind, after.From, before.Until)
	}
}

// sold checks the transfer of a sale.
func (v *verification) sold(s *records.SubscriptionRecord, have *records.Sale) error {
	v.accounted.Add(have.Transfer[:], +1)
	v.answered.Add(have.Transfer[:], +1)
	want := map[journal.Account]money.Amount{journal.Wallet(s.User): -have.Price, journal.Sold: have.Price}
	if start, ok := have.Grants(); ok {
		want[s.QuotaAccount(start)] = have.Quota
		want[journal.Granted] = -have.Quota
	}
	return v.transfer(nameOf(s), have.Transfer, expectedTransfer{records.TransferKinds[have.Kind], s.User, records.Reference(s.ID), want})
}

func nameOf(s *records.SubscriptionRecord) string {
	return "subscription " + strconv.FormatInt(s.ID, 10)
}

// periods checks that each period was granted the quota that was sold, in its record and in
// the ledger. The grant is part of a sale, or was made when the period was opened.
func (v *verification) periods(s *records.SubscriptionRecord, granted map[int64]money.Amount) error {
	if s.First != nil { // the first period has no record
		entered, err := v.entered(s.QuotaAccount(s.Start))
		if err != nil {
			return err
		}
		if entered != s.Quota {
			v.problem("subscription %d: for its only sale the ledger has %v, but %v was sold", s.ID, entered, s.Quota)
		}
		delete(granted, s.Start)
	}
	for have, err := range records.Periods.Scan(v, records.Periods.Under(s.User, s.ID)) {
		if err != nil {
			return err // the period may be one of granted
		}
		want, withSale := granted[have.Start]
		delete(granted, have.Start)
		if !withSale {
			if want, err = v.opened(s, have.Start); err != nil {
				return err
			}
		}
		entered, err := v.entered(s.QuotaAccount(have.Start))
		if err != nil {
			return err
		}
		if have.Granted != want || entered != want {
			v.problem("subscription %d: the period from %d was granted %v, the ledger has %v, but %v was sold", s.ID, have.Start, have.Granted, entered, want)
		}
	}
	for start, quota := range granted {
		v.problem("subscription %d: the quota of %v from %d was not granted", s.ID, quota, start)
	}
	return nil
}

// opened checks the transfer that opened a period, and returns the quota that was sold for
// it. It returns zero if no period begins at start.
func (v *verification) opened(s *records.SubscriptionRecord, start int64) (quota money.Amount, err error) {
	sold, _, err := s.SaleAt(v, start)
	if err != nil {
		return 0, err
	}
	if begins := max(sold.QuotaReset.Start(time.Unix(start, 0)).Unix(), sold.Since); begins == start && start < sold.Until {
		quota = sold.Quota
	}
	id := records.GrantID(s.ID, start)
	v.accounted.Add(id[:], +1)
	return quota, v.transfer(nameOf(s), id, expectedTransfer{journal.Grant, s.User, records.Reference(s.ID), map[journal.Account]money.Amount{
		journal.Granted: -quota, s.QuotaAccount(start): quota,
	}})
}

// entered returns the sum that was granted to an account.
func (v *verification) entered(a journal.Account) (sum money.Amount, err error) {
	err = journal.ScanEntries(v, a, 0, func(e journal.Entry) bool {
		switch e.Kind {
		case journal.Purchase, journal.Renewal, journal.Grant:
			sum += e.Amount
		}
		return true
	})
	return sum, err
}
