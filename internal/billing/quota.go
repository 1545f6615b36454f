package billing

import (
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// openPeriod grants the quota of a period that has not been opened. If it fails, it has written
// nothing: only the account of grants can overflow, and it is written first.
func openPeriod(t storage.Txn, now time.Time, s *records.SubscriptionRecord, p *records.Period) error {
	if p.Opened {
		return nil
	}
	account := s.QuotaAccount(p.Start)
	switch before, err := journal.ReadState(t, account); {
	case err != nil:
		return err
	case before.Entries > 0:
		return fmt.Errorf("billing: the account %s has entries, but its period was never opened", account)
	}
	_, err := journal.Book(t, now, journal.Transfer{
		ID: records.GrantID(s.ID, p.Start), Kind: journal.Grant, User: s.User, Reference: records.Reference(s.ID),
		Legs: journal.LegsBetween(journal.Granted, account, p.Quota),
	})
	if err != nil {
		return err
	}
	p.Opened = true
	return records.Periods.Put(t, nil, &records.PeriodRecord{User: s.User, Subscription: s.ID, Start: p.Start, Granted: p.Quota})
}

// Sources returns the function for [ledger.Options]. It lists the funding sources of a user in the
// order of the user's preference; the subscription that ends first comes first. It grants the quota
// of a new period, and omits subscriptions that have ended at the time that now returns.
func Sources(now func() time.Time) func(t storage.Txn, user string) (ledger.Sources, error) {
	return func(t storage.Txn, user string) (ledger.Sources, error) {
		now := now()
		r, err := records.ReadSummary(t, user, now)
		if err != nil {
			return ledger.Sources{}, err
		}
		s, _, err := sources(t, now, r)
		return s, err
	}
}

// spend updates the sources of a user after a change in this transaction, and stores the summary.
func spend(t *ledger.Txn, now time.Time, r *records.Summary) (quotas, error) {
	s, q, err := sources(t, now, r)
	if err == nil {
		t.Spend(s)
	}
	return q, err
}

func sources(t storage.Txn, now time.Time, r *records.Summary) (s ledger.Sources, quotas quotas, err error) {
	account, err := records.ReadAccount(t, r.User)
	if err != nil {
		return s, quotas, err
	}
	quotas = openQuotas(t, now, r)
	wallet := journal.Wallet(r.User)
	switch account.Preferred() {
	case records.SubscriptionFirst:
		s.Order = append(quotas.accounts, wallet)
	case records.WalletFirst:
		s.Order = append([]journal.Account{wallet}, quotas.accounts...)
	case records.SubscriptionOnly:
		s.Order, s.Only = quotas.accounts, string(records.SubscriptionOnly)
	case records.WalletOnly:
		s.Order, s.Only = []journal.Account{wallet}, string(records.WalletOnly)
	}
	if quotas.until != 0 {
		s.Until = time.Unix(quotas.until, 0)
	}
	r.Due = quotas.until
	return s, quotas, r.Write(t)
}

// quotas are the quotas that a user may spend now.
type quotas struct {
	accounts []journal.Account // of the present periods, in the order in which they end
	until    int64             // when quotas must be computed again, in Unix seconds; zero: never
	unopened map[int64]error   // subscriptions whose period could not be opened, and why
}

// recomputeAt sets until to a time if that is earlier.
func (q *quotas) recomputeAt(at int64) {
	if q.until == 0 || at < q.until {
		q.until = at
	}
}

// openQuotas opens the periods that are due, and returns all present ones. It removes
// ended subscriptions from the summary.
//
// If a period cannot be opened, openQuotas omits it, and it is tried again within a minute. So the
// user can still spend the wallet and the other subscriptions.
func openQuotas(t storage.Txn, now time.Time, r *records.Summary) (q quotas) {
	r.RemoveEnded(now)
	q.accounts = make([]journal.Account, 0, len(r.Running)+1) // one more for the wallet
	for i := range r.Running {
		found, err := openPresent(t, now, r, i)
		x := r.Running[i]
		switch {
		case err != nil:
			if q.unopened == nil {
				q.unopened = make(map[int64]error)
			}
			q.unopened[x.ID] = err
			q.recomputeAt(min(x.End, now.Truncate(time.Minute).Add(time.Minute).Unix()))
		case !found: // the clock was set back to before the purchase
			q.recomputeAt(now.Unix() + 1)
		default:
			q.accounts = append(q.accounts, records.QuotaAccount(r.User, x.ID, x.Start))
			q.recomputeAt(x.Until)
		}
	}
	return q
}

// openPresent returns the present period of a subscription, and opens it if it is due.
// It returns false if no sale covers the present.
func openPresent(t storage.Txn, now time.Time, r *records.Summary, i int) (found bool, err error) {
	x := r.Running[i]
	if x.From <= now.Unix() && now.Unix() < x.Until {
		return true, nil
	}
	s, err := readSubscription(t, r.User, x.ID)
	if err != nil {
		return false, err
	}
	p, found, err := s.PeriodAt(t, now)
	if err == nil && found {
		err = openPeriod(t, now, s, &p)
	}
	if err == nil && found {
		r.SetPresence(i, p.Presence())
	}
	return found, err
}
