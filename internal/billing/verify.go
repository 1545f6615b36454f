package billing

import (
	"cmp"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/pairs"
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
	v := &verification{Reader: r, now: now, problem: problem, accounted: pairs.New(), answered: pairs.New(), borne: pairs.New()}
	for _, step := range []func() error{
		v.subscriptions, v.subscriptionIndexes, v.counts, v.dues,
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
	accounted *pairs.Sums // transfers, by what they were booked for
	answered  *pairs.Sums // sales, by the answers to claims
	borne     *pairs.Sums // users, by what operators have borne for them
}

// subscriptions checks each subscription with its sales and periods.
func (v *verification) subscriptions() error {
	var last int64
	if _, err := storage.GetRecord(v, counterKey, &last); err != nil {
		return err
	}
	return each(v, subscriptionPrefix, func(key []byte, s subscriptionRecord) error {
		if string(key) != string(s.key()) {
			v.problem("subscription %d: it lies at the key of another, %q", s.ID, key)
		}
		if s.ID > last {
			v.problem("subscription %d: the counter stands at %d", s.ID, last)
		}
		if owner, err := ownerOf(v, s.ID); err != nil {
			return err
		} else if owner != s.User {
			v.problem("subscription %d: it is of %s, its index says %q", s.ID, s.User, owner)
		}
		live, err := v.Get(s.liveKey())
		if err != nil {
			return err
		}
		if status := s.status(v.now); (status == Cancelled) != (live == nil) {
			v.problem("subscription %d: it is %s, and among those that are spent: %t", s.ID, status, live != nil)
		}
		if err := v.presence(&s, live); err != nil {
			return err
		}
		return v.sales(&s)
	})
}

// presence checks what the index says of the period that a subscription is in.
func (v *verification) presence(s *subscriptionRecord, live []byte) error {
	if len(live) == 0 {
		return nil // nobody has looked
	}
	said := decodePresence(live)
	p, _, err := periodAt(v, s.User, s.ID, time.Unix(said.from, 0))
	if err == nil && (!p.opened || p.presence() != said) {
		v.problem("subscription %d: among those that are spent it is said to be in the period from %d, which is not so from %d until %d",
			s.ID, said.start, said.from, said.until)
	}
	return err
}

// sales checks the chain of sales of a subscription, from the latest to the
// first, and what their periods were granted.
func (v *verification) sales(s *subscriptionRecord) error {
	var later *sale
	granted := make(map[int64]money.Amount) // with sales, by the start of the period
	lo, hi := storage.Below(salePrefix, s.User, s.ID)
	var failed error
	err := scan(v, lo, hi, func(_ []byte, have sale) bool {
		if later == nil {
			if have.Until != s.End || have.Terms != s.Terms {
				v.problem("subscription %d: its last sale is another than it says", s.ID)
			}
		} else {
			v.link(s, &have, later)
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
	v.accounted.Count(have.Transfer[:], +1)
	v.answered.Count(have.Transfer[:], +1)
	want := map[ledger.Account]money.Amount{ledger.Wallet(s.User): -have.Price, ledger.Sold: have.Price}
	if start, ok := have.grants(); ok {
		want[quotaAccount(s.User, s.ID, start)] = have.Quota
		want[ledger.Granted] = -have.Quota
	}
	return v.transfer(s.what(), have.Transfer, booked{transferKinds[have.Kind], s.User, reference(s.ID), want})
}

func (s *subscriptionRecord) what() string { return "subscription " + strconv.FormatInt(s.ID, 10) }

// first checks what is counted of first sales.
func (v *verification) first(s *subscriptionRecord, have *sale) error {
	switch have.Kind {
	case bought:
		n, err := purchases(v, s.User, Plan{ID: s.PlanID})
		if err == nil && n == 0 {
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
		if entered, failed = v.entered(quotaAccount(s.User, s.ID, start)); failed != nil {
			return false
		}
		if have.Granted != want || entered != want {
			v.problem("subscription %d: the period from %d was granted %v, the ledger has %v, sold was %v", s.ID, start, have.Granted, entered, want)
		}
		return true
	})
	for start, quota := range granted {
		v.problem("subscription %d: the quota of %v from %d was not granted", s.ID, quota, start)
	}
	return cmp.Or(err, failed)
}

// opened checks the transfer that has opened a period, and returns what was sold
// for it; zero when no period begins then.
func (v *verification) opened(s *subscriptionRecord, start int64) (quota money.Amount, err error) {
	sold, _, err := saleAt(v, s.User, s.ID, start)
	if err != nil {
		return 0, err
	}
	if begins := max(sold.QuotaReset.Start(time.Unix(start, 0)).Unix(), sold.Since); begins == start && start < sold.Until {
		quota = sold.Quota
	}
	id := grantID(s.ID, start)
	v.accounted.Count(id[:], +1)
	return quota, v.transfer(s.what(), id, booked{ledger.Grant, s.User, reference(s.ID), map[ledger.Account]money.Amount{
		ledger.Granted: -quota, quotaAccount(s.User, s.ID, start): quota,
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
func (v *verification) subscriptionIndexes() error {
	err := each(v, ownerPrefix, func(key []byte, user string) error {
		return v.fields(key, ownerPrefix, 1, func(_ string, n ...int64) error {
			return v.exists(key, storage.Key(subscriptionPrefix, user, n[0]))
		})
	})
	for _, prefix := range []string{salePrefix, periodPrefix} {
		err = cmp.Or(err, v.keys(prefix, 2, func(key []byte, user string, n ...int64) error {
			return v.exists(key, storage.Key(subscriptionPrefix, user, n[0]))
		}))
	}
	return cmp.Or(err, v.keys(livePrefix, 2, func(key []byte, user string, n ...int64) error {
		var s subscriptionRecord
		end, id := n[0], n[1]
		found, err := storage.GetRecord(v, storage.Key(subscriptionPrefix, user, id), &s)
		if err != nil {
			return err
		}
		if !found || s.End != end {
			v.problem("key %q: there is no subscription that ends then", key)
		}
		account, err := readAccount(v, user)
		if err == nil && end > v.now.Unix() && (account.Due == 0 || account.Due > end) {
			v.problem("subscription %d: nobody will look at it when it ends", id)
		}
		return err
	}))
}

// counts checks how often plans are said to have been bought and claimed.
func (v *verification) counts() error {
	err := each(v, purchasesPrefix, func(key []byte, n int64) error {
		return v.fields(key, purchasesPrefix, 1, func(user string, plan ...int64) error {
			have, err := v.bought(user, plan[0])
			if err == nil && have != n {
				v.problem("user %s: plan %d was bought %d times, counted are %d", user, plan[0], have, n)
			}
			return err
		})
	})
	return cmp.Or(err, each(v, claimedPrefix, func(key []byte, id int64) error {
		return v.fields(key, claimedPrefix, 1, func(user string, _ ...int64) error {
			return v.exists(key, storage.Key(subscriptionPrefix, user, id))
		})
	}))
}

// bought counts the subscriptions of a user that began with a purchase of a plan.
func (v *verification) bought(user string, plan int64) (n int64, err error) {
	lo, hi := storage.Below(subscriptionPrefix, user)
	var failed error
	err = scan(v, lo, hi, func(_ []byte, s subscriptionRecord) bool {
		if s.PlanID != plan {
			return true
		}
		var first sale
		if first, _, failed = saleAt(v, user, s.ID, s.Start); failed == nil && first.Kind == bought {
			n++
		}
		return failed == nil
	})
	return n, cmp.Or(err, failed)
}

// dues checks that users and the sweeper's index agree.
func (v *verification) dues() error {
	err := each(v, accountPrefix, func(key []byte, a accountRecord) error {
		v.borne.Count(key[len(accountPrefix)+1:], int64(a.WrittenOff))
		if a.Due == 0 {
			return nil
		}
		return v.exists(key, storage.Key(duePrefix, a.Due, string(key[len(accountPrefix)+1:])))
	})
	return cmp.Or(err, v.named(duePrefix, func(key []byte, due int64, user string) error {
		account, err := readAccount(v, user)
		if err == nil && account.Due != due {
			v.problem("key %q: the user's next change is at %d", key, account.Due)
		}
		return err
	}))
}
