package billing

import (
	"cmp"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/multiset"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Verify looks whether what is sold and paid in is in the ledger as it should
// be: that every sale and every credit has its transfer, that quotas were granted
// as sold, that what was taken of an order is what was refunded and disputed;
// that every transfer of these kinds belongs to what it was booked for, and every
// answer that is kept to what was done; and that every index has its record and
// the reverse. problem is called for each thing that does not add up. r is one
// snapshot; the error is that of reading. It takes the memory of one
// subscription, of one order.
func Verify(r storage.Reader, now time.Time, problem func(format string, args ...any)) error {
	v := &verification{Reader: r, now: now, problem: problem, accounted: multiset.New(), answered: multiset.New(), borne: multiset.New()}
	for _, step := range []func() error{
		v.subscriptions, v.subscriptionIndexes, v.rosters, v.claims, v.dues,
		v.orders, v.orderIndexes, v.mismatches,
		v.transfers, v.answers,
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
	accounted *multiset.Hash // transfers, by what they were booked for
	answered  *multiset.Hash // sales, by the answers to claims
	borne     *multiset.Hash // users, by what operators have borne for them

	last struct { // that was asked for
		user   string
		roster *roster
	}
}

// subscriptions checks each subscription with its sales and periods.
func (v *verification) subscriptions() error {
	var last int64
	if _, err := storage.GetRecord(v, counterKey, &last); v.pass(err) != nil {
		return err
	}
	return each(v, subscriptionPrefix, func(key []byte, s subscriptionRecord) error {
		if string(key) != string(s.key()) {
			v.problem("subscription %d: it lies at the key of another, %q", s.ID, key)
		}
		if s.ID > last {
			v.problem("subscription %d: the counter stands at %d", s.ID, last)
		}
		return cmp.Or(v.listed(&s), v.sales(&s))
	})
}

// sales checks the chain of sales of a subscription, from the latest to the
// first, and what their periods were granted.
func (v *verification) sales(s *subscriptionRecord) error {
	var later *sale
	granted := make(map[int64]money.Amount) // with sales, by the start of the period
	var failed error
	err := s.sales(v, func(have sale) bool {
		switch {
		case later != nil && s.First != nil:
			v.problem("subscription %d: it has more sales than its only one", s.ID)
		case later != nil:
			v.link(s, &have, later)
		case have.Until != s.End || have.Terms != s.Terms:
			v.problem("subscription %d: its last sale is another than it says", s.ID)
		}
		if until := have.Duration.After(time.Unix(have.From, 0)).Unix(); until != have.Until {
			v.problem("subscription %d: the %s from %d is for %v and ends at %d, not at %d", s.ID, have.Kind, have.From, have.Duration, have.Until, until)
		}
		if start, ok := have.grants(); ok {
			granted[start] += have.Quota
		}
		failed = v.sold(s, &have)
		later = &have
		return failed == nil
	})
	if err != nil || failed != nil {
		return cmp.Or(err, failed)
	}
	if later == nil {
		v.problem("subscription %d: it was never sold", s.ID)
		return nil
	}
	if later.Kind == renewed || later.From != s.Start || later.Since != s.Start {
		v.problem("subscription %d: its first sale is a %s from %d, it began at %d", s.ID, later.Kind, later.From, s.Start)
	}
	if err := v.first(s, later); err != nil {
		return err
	}
	return v.periods(s, granted)
}

// link checks that a sale follows the one before.
func (v *verification) link(s *subscriptionRecord, before, after *sale) {
	since := after.From
	if after.From > after.Time && before.QuotaReset == after.QuotaReset {
		since = before.Since
	}
	if after.Kind != renewed || before.Until > after.From || after.Since != since || after.From > after.Time && before.Until != after.From {
		v.problem("subscription %d: the %s from %d does not follow the sale until %d", s.ID, after.Kind, after.From, before.Until)
	}
}

// sold checks the transfer of a sale.
func (v *verification) sold(s *subscriptionRecord, have *sale) error {
	v.accounted.Add(have.Transfer[:], +1)
	v.answered.Add(have.Transfer[:], +1)
	want := map[ledger.Account]money.Amount{ledger.Wallet(s.User): -have.Price, ledger.Sold: have.Price}
	if start, ok := have.grants(); ok {
		want[s.quotaAccount(start)] = have.Quota
		want[ledger.Granted] = -have.Quota
	}
	return v.transfer(s.what(), have.Transfer, booked{transferKinds[have.Kind], s.User, reference(s.ID), want})
}

func (s *subscriptionRecord) what() string { return "subscription " + strconv.FormatInt(s.ID, 10) }

// first checks what is counted of first sales.
func (v *verification) first(s *subscriptionRecord, have *sale) error {
	switch have.Kind {
	case bought:
		r, err := v.rosterOf(s.User)
		if err == nil && r.purchases(s.PlanID) == 0 {
			v.problem("subscription %d: the purchase of plan %d is not counted", s.ID, s.PlanID)
		}
		return err
	case claimed:
		var id int64
		_, err := storage.GetRecord(v, storage.Key(claimedPrefix, s.User, s.PlanID), &id)
		if err == nil && id != s.ID {
			v.problem("subscription %d: it was claimed, but the mark of plan %d names %d", s.ID, s.PlanID, id)
		}
		return err
	}
	return nil
}

// periods checks that each period was granted what was sold, in its record and
// in the ledger: with sales, or when it was opened.
func (v *verification) periods(s *subscriptionRecord, granted map[int64]money.Amount) error {
	if s.First != nil { // then it is not written down
		entered, err := v.entered(s.quotaAccount(s.Start))
		if err != nil {
			return err
		}
		if entered != s.Quota {
			v.problem("subscription %d: for its only sale the ledger has %v, sold was %v", s.ID, entered, s.Quota)
		}
		delete(granted, s.Start)
	}
	lo, hi := storage.Below(periodPrefix, s.User, s.ID)
	var failed error
	err := scan(v, lo, hi, func(key []byte, have periodRecord) bool {
		start := integer(key, len(lo))
		want, withSale := granted[start]
		delete(granted, start)
		if !withSale {
			if want, failed = v.opened(s, start); failed != nil {
				return false
			}
		}
		var entered money.Amount
		if entered, failed = v.entered(s.quotaAccount(start)); failed != nil {
			return false
		}
		if have.Granted != want || entered != want {
			v.problem("subscription %d: the period from %d was granted %v, the ledger has %v, sold was %v", s.ID, start, have.Granted, entered, want)
		}
		return true
	})
	if err = cmp.Or(err, failed); err != nil {
		return err // what was not read may have been granted
	}
	for start, quota := range granted {
		v.problem("subscription %d: the quota of %v from %d was not granted", s.ID, quota, start)
	}
	return nil
}

// opened checks the transfer that has opened a period, and returns what was sold
// for it; zero when no period begins then.
func (v *verification) opened(s *subscriptionRecord, start int64) (quota money.Amount, err error) {
	sold, _, err := s.saleAt(v, start)
	if err != nil {
		return 0, err
	}
	if begins := max(sold.QuotaReset.Start(time.Unix(start, 0)).Unix(), sold.Since); begins == start && start < sold.Until {
		quota = sold.Quota
	}
	id := grantID(s.ID, start)
	v.accounted.Add(id[:], +1)
	return quota, v.transfer(s.what(), id, booked{ledger.Grant, s.User, reference(s.ID), map[ledger.Account]money.Amount{
		ledger.Granted: -quota, s.quotaAccount(start): quota,
	}})
}

// entered is what an account was granted.
func (v *verification) entered(a ledger.Account) (sum money.Amount, err error) {
	err = ledger.ScanEntries(v, a, 0, func(e ledger.Entry) bool {
		switch e.Kind {
		case ledger.Purchase, ledger.Renewal, ledger.Grant:
			sum += e.Amount
		}
		return true
	})
	return sum, err
}

// subscriptionIndexes checks that what points to a subscription points to one.
func (v *verification) subscriptionIndexes() (err error) {
	for _, prefix := range []string{salePrefix, periodPrefix} {
		err = cmp.Or(err, v.keys(prefix, 2, func(key []byte, user string, n ...int64) error {
			return v.exists(key, storage.Key(subscriptionPrefix, user, n[0]))
		}))
	}
	return err
}
