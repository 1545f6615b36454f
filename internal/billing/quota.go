package billing

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
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
// begins is granted with its sale. Periods that nobody has looked at are never
// opened.

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
	Kind     saleKind  `json:"kind"`
	Transfer ledger.ID `json:"transfer"`
	Time     int64     `json:"time"`  // when it was sold
	From     int64     `json:"from"`  // what it is for, half open
	Until    int64     `json:"until"` //
	Since    int64     `json:"since"` // when the run of sales began that reset alike, without a gap
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
	lo := storage.Key(salePrefix, s.User, s.ID, storage.Inverted(moment))
	_, hi := storage.Below(salePrefix, s.User, s.ID)
	err = scan(r, lo, hi, func(_ []byte, have sale) bool {
		last, found = have, true
		return false
	})
	return last, found, err
}

// sales calls fn for all sales of a subscription, the latest first, until it
// returns false.
func (s *subscriptionRecord) sales(r storage.Reader, fn func(sale) bool) error {
	more := true
	lo, hi := storage.Below(salePrefix, s.User, s.ID)
	err := scan(r, lo, hi, func(_ []byte, have sale) bool {
		more = fn(have)
		return more
	})
	if err == nil && more && s.First != nil {
		fn(s.first())
	}
	return err
}

// periodRecord is a period of quota that was opened. The one that came with the
// only sale of a subscription has none.
type periodRecord struct {
	Granted money.Amount `json:"granted"`
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

// at returns the period at a moment that the sale is for, as far as the sale
// alone tells.
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

	var have periodRecord
	if p.opened, err = storage.GetRecord(r, s.periodKey(p.start), &have); err != nil {
		return p, false, err
	}
	p.quota = have.Granted
	if !p.opened {
		began, _, err := s.saleAt(r, p.start)
		if err != nil {
			return p, false, err
		}
		p.quota = began.Quota
	}
	return p, true, nil
}

// used is what has been spent of the quota of a period, as far as it is durable,
// and held what tasks have set aside of the rest.
func (s *subscriptionRecord) used(r storage.Reader, p period) (used, held money.Amount, err error) {
	if !p.opened {
		return 0, 0, nil
	}
	state, err := ledger.ReadState(r, s.quotaAccount(p.start))
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
	switch before, err := ledger.ReadState(t, account); {
	case err != nil:
		return err
	case before.Entries > 0:
		return fmt.Errorf("billing: the account %s is in use, and its period was never opened", account)
	}
	_, err := ledger.Book(t, now, ledger.Transfer{
		ID: grantID(s.ID, p.start), Kind: ledger.Grant, User: s.User, Reference: reference(s.ID),
		Legs: ledger.Move(ledger.Granted, account, p.quota),
	})
	if err != nil {
		return err
	}
	p.opened = true
	return storage.SetRecord(t, s.periodKey(p.start), periodRecord{p.quota})
}

// grantID is the transfer that opens a period.
func grantID(id, start int64) ledger.ID {
	return ledger.IDOf("grant", strconv.FormatInt(id, 10), strconv.FormatInt(start, 10))
}

// Sources is what a ledger's Options need: it lists what a user may spend, in
// his order, subscriptions soonest to end first. On the way it brings them up to
// the time that now tells: the quota of a new period is granted, and those that
// have ended are no source any more.
func Sources(now func() time.Time) func(t storage.Txn, user string) (ledger.Sources, error) {
	return func(t storage.Txn, user string) (ledger.Sources, error) {
		now := now()
		r, err := readRoster(t, user, now)
		if err != nil {
			return ledger.Sources{}, err
		}
		s, _, err := r.sources(t, now, user)
		return s, err
	}
}

// spend tells what a user may spend from now on, in a transaction that has changed
// that, and stores his roster.
func spend(t *ledger.Txn, now time.Time, user string, r *roster) (quotas, error) {
	s, q, err := r.sources(t, now, user)
	if err == nil {
		t.Spend(s)
	}
	return q, err
}

func (r *roster) sources(t storage.Txn, now time.Time, user string) (s ledger.Sources, quotas quotas, err error) {
	account, err := readAccount(t, user)
	if err != nil {
		return s, quotas, err
	}
	quotas = r.openQuotas(t, now, user)
	wallet := []ledger.Account{ledger.Wallet(user)}
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
	return s, quotas, cmp.Or(r.setDue(t, user, quotas.until), r.write(t, user))
}

// quotas are what the subscriptions of a user have to spend at a moment.
type quotas struct {
	accounts []ledger.Account // of the present periods, soonest to end first
	until    int64            // when this must be looked at again, in Unix seconds; zero: never
	unopened map[int64]error  // subscriptions whose period could not be opened, and why
}

// again asks for another look at a time.
func (q *quotas) again(at int64) {
	if q.until == 0 || at < q.until {
		q.until = at
	}
}

// openQuotas opens the periods that are due, and returns all present ones. What
// has ended is struck off.
//
// A period that cannot be opened is left out, so that it keeps nobody from his
// wallet and from his other subscriptions, and is tried again within a minute.
// What the engine itself could not read ends the transaction all the same: the
// store sees to that.
func (r *roster) openQuotas(t storage.Txn, now time.Time, user string) (q quotas) {
	r.strike(now)
	for i := range r.running {
		x := &r.running[i]
		found, err := x.open(t, now, user)
		switch {
		case err != nil:
			if q.unopened == nil {
				q.unopened = make(map[int64]error)
			}
			q.unopened[x.id] = err
			q.again(min(x.end, now.Truncate(time.Minute).Add(time.Minute).Unix()))
		case !found: // the clock was set back behind the purchase
			q.again(now.Unix() + 1)
		default:
			q.accounts = append(q.accounts, quotaAccount(user, x.id, x.presence.start))
			q.again(x.presence.until)
		}
	}
	return q
}

// open finds the period that a subscription is in now, and opens it if it is due.
// It returns false when none was sold.
func (x *running) open(t storage.Txn, now time.Time, user string) (found bool, err error) {
	if x.presence.from <= now.Unix() && now.Unix() < x.presence.until {
		return true, nil
	}
	s, err := readSubscription(t, user, x.id)
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
