package billing

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// A subscription is a chain of sales: the purchase and its renewals, each for a
// time of its own, one after the other. What the sale in force says is what
// holds, so that a renewal at other terms takes nothing from what was sold
// before. Most are never renewed: as long as there is one sale, it is in the
// subscription's own record.
//
// The quota of a period is in an account of its own, named by the period's
// start: the later of the moment at which the calendar's period began and of the
// moment since which the quota has been reset like this without a gap (Since).
// Starts are unique within a subscription: two runs of sales do not overlap.
//
// A quota that never resets has one period for the whole run, and every sale adds
// to it at once. A quota that resets is granted when its period is first looked
// at, at the terms in force when the period began; the period in which a run
// begins is granted with its sale. Periods in which nothing reads the account are
// never opened.

// saleKind is how a sale came about.
type saleKind string

const (
	bought  saleKind = "purchase"
	claimed saleKind = "claim"
	granted saleKind = "grant" // by an operator
	renewed saleKind = "renewal"
)

// sale is one sale of a subscription. It never changes.
type sale struct {
	User         string     `json:"user"`
	Subscription int64      `json:"subscription"`
	Kind         saleKind   `json:"kind"`
	Transfer     journal.ID `json:"transfer"`
	Time         int64      `json:"time"`  // when it was sold
	From         int64      `json:"from"`  // what it is for, half open
	Until        int64      `json:"until"` //
	Since        int64      `json:"since"` // when the run of sales began that reset alike, without a gap
	Terms
}

// grants returns the start of the period whose quota comes with the sale, and
// false when there is none: the periods are opened later.
func (s *sale) grants() (start int64, ok bool) {
	return s.Since, s.QuotaReset == calendar.Never || s.From == s.Time
}

// saleAt returns the last sale that is for a time from moment, in Unix seconds,
// or before.
func (s *subscriptionRecord) saleAt(r storage.Reader, moment int64) (last sale, found bool, err error) {
	if s.First != nil {
		return s.first(), s.Start <= moment, nil
	}
	for have, err := range sales.Scan(r, sales.Under(s.User, s.ID).From(s.User, s.ID, storage.Inverted(moment))) {
		if err != nil {
			return last, false, err
		}
		return *have, true, nil
	}
	return last, false, nil
}

// sales yields all sales of a subscription, the latest first. The sequence ends after an error.
func (s *subscriptionRecord) sales(r storage.Reader) iter.Seq2[*sale, error] {
	return func(yield func(*sale, error) bool) {
		for have, err := range sales.Scan(r, sales.Under(s.User, s.ID)) {
			if !yield(have, err) || err != nil {
				return
			}
		}
		if s.First != nil {
			first := s.first()
			yield(&first, nil)
		}
	}
}

// periodRecord is a period of quota that was opened. The one that came with the
// only sale of a subscription has none.
type periodRecord struct {
	User         string       `json:"user"`
	Subscription int64        `json:"subscription"`
	Start        int64        `json:"start"`
	Granted      money.Amount `json:"granted"`
}

// period is the period of quota of a subscription at a moment.
type period struct {
	start  int64
	from   int64        // since when start, until and resets have been the same
	quota  money.Amount // granted, or to be granted when it is opened
	opened bool
	until  int64 // when to look again at the latest
	resets int64 // when the next period begins; math.MaxInt64 when none does
}

// at returns the period at a moment that the sale is for, as far as that follows
// from the sale alone.
func (s *sale) at(moment time.Time) period {
	began := s.QuotaReset.Start(moment).Unix()
	p := period{start: max(began, s.Since), from: max(began, s.From), until: s.Until, resets: math.MaxInt64}
	if next := s.QuotaReset.Next(moment); !next.IsZero() {
		p.resets = next.Unix()
	}
	p.until = min(p.until, p.resets)
	return p
}

// periodAt returns the period at a moment, and false when none was sold.
func (s *subscriptionRecord) periodAt(r storage.Reader, moment time.Time) (p period, found bool, err error) {
	x, found, err := s.saleAt(r, moment.Unix())
	if err != nil || !found || moment.Unix() >= x.Until {
		return p, false, err
	}
	p = x.at(moment)
	if s.First != nil && p.start == s.Start {
		p.opened, p.quota = true, x.Quota
		return p, true, nil
	}
	if p.resets > x.Until {
		next, _, err := s.saleAt(r, x.Until)
		if err != nil {
			return p, false, err
		}
		if next.Since == x.Until { // another kind of reset begins
			p.resets = x.Until
		}
	}

	have, err := periods.Get(r, s.User, s.ID, p.start)
	if err != nil {
		return p, false, err
	}
	if p.opened = have != nil; p.opened {
		p.quota = have.Granted
		return p, true, nil
	}
	began, _, err := s.saleAt(r, p.start)
	p.quota = began.Quota
	return p, err == nil, err
}

// used is what has been spent of the quota of a period, as far as it is durable,
// and held what tasks have set aside of the rest.
func (s *subscriptionRecord) used(r storage.Reader, p period) (used, held money.Amount, err error) {
	if !p.opened {
		return 0, 0, nil
	}
	state, err := journal.ReadState(r, s.quotaAccount(p.start))
	return p.quota - state.Balance, state.Held, err
}

// open grants the quota of a period that has not been opened. When it fails,
// nothing has been written: the account of the period is new, so that only its
// other side, which comes first, can have no room for it.
func (s *subscriptionRecord) open(t storage.Txn, now time.Time, p *period) error {
	if p.opened {
		return nil
	}
	account := s.quotaAccount(p.start)
	switch before, err := journal.ReadState(t, account); {
	case err != nil:
		return err
	case before.Entries > 0:
		return fmt.Errorf("billing: the account %s is in use, and its period was never opened", account)
	}
	_, err := journal.Book(t, now, journal.Transfer{
		ID: grantID(s.ID, p.start), Kind: journal.Grant, User: s.User, Reference: reference(s.ID),
		Legs: journal.LegsBetween(journal.Granted, account, p.quota),
	})
	if err != nil {
		return err
	}
	p.opened = true
	return periods.Put(t, nil, &periodRecord{s.User, s.ID, p.start, p.quota})
}

// grantID is the transfer that opens a period.
func grantID(id, start int64) journal.ID {
	return journal.IDOf("grant", strconv.FormatInt(id, 10), strconv.FormatInt(start, 10))
}

// Sources returns the function that [ledger.Options] need. It lists what a user may spend in the
// order of the user's preference, subscriptions soonest to end first. It grants the quota of a
// period that has begun, and leaves out subscriptions that have ended by the time now returns.
func Sources(now func() time.Time) func(t storage.Txn, user string) (ledger.Sources, error) {
	return func(t storage.Txn, user string) (ledger.Sources, error) {
		now := now()
		r, err := readSummary(t, user, now)
		if err != nil {
			return ledger.Sources{}, err
		}
		s, _, err := r.sources(t, now)
		return s, err
	}
}

// spend lists what a user may spend from now on, in a transaction that has changed it, and
// stores the summary.
func spend(t *ledger.Txn, now time.Time, r *summary) (quotas, error) {
	s, q, err := r.sources(t, now)
	if err == nil {
		t.Spend(s)
	}
	return q, err
}

func (r *summary) sources(t storage.Txn, now time.Time) (s ledger.Sources, quotas quotas, err error) {
	account, err := readAccount(t, r.User)
	if err != nil {
		return s, quotas, err
	}
	quotas = r.openQuotas(t, now)
	wallet := []journal.Account{journal.Wallet(r.User)}
	switch account.preference() {
	case SubscriptionFirst:
		s.Order = append(quotas.accounts, wallet...)
	case WalletFirst:
		s.Order = append(wallet, quotas.accounts...)
	case SubscriptionOnly:
		s.Order, s.Only = quotas.accounts, string(SubscriptionOnly)
	case WalletOnly:
		s.Order, s.Only = wallet, string(WalletOnly)
	}
	if quotas.until != 0 {
		s.Until = time.Unix(quotas.until, 0)
	}
	r.Due = quotas.until
	return s, quotas, r.write(t)
}

// quotas are what the subscriptions of a user have to spend at a moment.
type quotas struct {
	accounts []journal.Account // of the present periods, soonest to end first
	until    int64             // when this must be looked at again, in Unix seconds; zero: never
	unopened map[int64]error   // subscriptions whose period could not be opened, and why
}

// again sets until to a time, if that is earlier.
func (q *quotas) again(at int64) {
	if q.until == 0 || at < q.until {
		q.until = at
	}
}

// openQuotas opens the periods that are due, and returns all present ones. What
// has ended is removed from the summary.
//
// A period that cannot be opened is left out and tried again within a minute, so that the user
// can spend the wallet and the other subscriptions. If the engine itself fails to read, the
// transaction fails.
func (r *summary) openQuotas(t storage.Txn, now time.Time) (q quotas) {
	r.removeEnded(now)
	for i := range r.Running {
		x := &r.Running[i]
		found, err := x.open(t, now, r.User)
		switch {
		case err != nil:
			if q.unopened == nil {
				q.unopened = make(map[int64]error)
			}
			q.unopened[x.ID] = err
			q.again(min(x.End, now.Truncate(time.Minute).Add(time.Minute).Unix()))
		case !found: // the clock was set back behind the purchase
			q.again(now.Unix() + 1)
		default:
			q.accounts = append(q.accounts, quotaAccount(r.User, x.ID, x.Start))
			q.again(x.Until)
		}
	}
	return q
}

// open finds the period that a subscription is in now, and opens it if it is due.
// It returns false when none was sold.
func (x *running) open(t storage.Txn, now time.Time, user string) (found bool, err error) {
	if x.From <= now.Unix() && now.Unix() < x.Until {
		return true, nil
	}
	s, err := readSubscription(t, user, x.ID)
	if err != nil {
		return false, err
	}
	p, found, err := s.periodAt(t, now)
	if err == nil && found {
		err = s.open(t, now, &p)
	}
	if err == nil && found {
		x.presence = p.presence()
	}
	return found, err
}
