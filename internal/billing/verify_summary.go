package billing

import (
	"cmp"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// summaryOf returns the summary of a user as it is stored; an empty one if there is
// none. It remembers the last.
func (v *verification) summaryOf(user string) (*summary, error) {
	if v.last.user == user && user != "" {
		return v.last.summary, nil
	}
	stored, err := v.Get(storage.Key(summaryPrefix, user))
	if err != nil {
		return nil, err
	}
	v.last.user, v.last.summary = user, new(summary)
	if stored != nil {
		if v.last.summary, err = decodeSummary(stored); err != nil {
			v.problem("user %s: his summary cannot be read: %v", user, err)
			v.last.summary, err = new(summary), nil
		}
	}
	return v.last.summary, err
}

// listed checks that a subscription is on its user's summary when it should be,
// and as it is.
func (v *verification) listed(s *subscriptionRecord) error {
	r, err := v.summaryOf(s.User)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(r.running, func(x running) bool { return x.id == s.ID })
	switch {
	case i < 0 && s.Cancelled == 0 && s.End > r.struck, i >= 0 && s.Cancelled != 0:
		v.problem("subscription %d: it is %s, and in the summary: %t", s.ID, s.status(v.now), i >= 0)
	case i >= 0:
		return v.runs(s, r.running[i])
	}
	return nil
}

// runs checks what the summary says of a subscription.
func (v *verification) runs(s *subscriptionRecord, x running) error {
	if x.end != s.End {
		v.problem("subscription %d: in the summary it ends at %d, and it ends at %d", s.ID, x.end, s.End)
	}
	said := x.presence
	if said == (presence{}) {
		return nil // nobody has looked
	}
	p, _, err := s.periodAt(v, time.Unix(said.from, 0))
	if err == nil && (!p.opened || p.presence() != said) {
		v.problem("subscription %d: in the summary it is said to be in the period from %d, which is not so from %d until %d",
			s.ID, said.start, said.from, said.until)
	}
	return err
}

// summaries checks that what is in a summary is there, and that its user is looked
// at in time.
func (v *verification) summaries() error {
	var failed error
	lo, hi := storage.Below(summaryPrefix)
	err := v.Scan(lo, hi, func(key, _ []byte) bool {
		user := string(key[len(lo):])
		var r *summary
		if r, failed = v.summaryOf(user); failed == nil {
			failed = v.pass(v.summary(key, user, r))
		}
		return failed == nil
	})
	return cmp.Or(err, failed)
}

func (v *verification) summary(key []byte, user string, r *summary) error {
	if !slices.IsSortedFunc(r.running, func(a, b running) int { return a.compare(b) }) {
		v.problem("user %s: the summary is not in order", user)
	}
	for _, x := range r.running {
		if err := v.exists(key, storage.Key(subscriptionPrefix, user, x.id)); err != nil {
			return err
		}
		if x.end > v.now.Unix() && (r.due == 0 || r.due > x.end) {
			v.problem("subscription %d: nobody will look at it when it ends", x.id)
		}
	}
	for _, c := range r.bought {
		if err := v.count(user, c); err != nil {
			return err
		}
	}
	if r.due == 0 {
		return nil
	}
	return v.exists(key, storage.Key(duePrefix, r.due, user))
}

// claimedPlans checks that what is marked as claimed is there.
func (v *verification) claimedPlans() error {
	return each(v, claimedPrefix, func(key []byte, id int64) error {
		return v.fields(key, claimedPrefix, 1, func(user string, _ ...int64) error {
			return v.exists(key, storage.Key(subscriptionPrefix, user, id))
		})
	})
}

// count checks how often a plan is said to have been bought.
func (v *verification) count(user string, said count) error {
	lo, hi := storage.Below(subscriptionPrefix, user)
	var have int64
	var failed error
	err := scan(v, lo, hi, func(_ []byte, s subscriptionRecord) bool {
		if s.PlanID != said.plan {
			return true
		}
		var began sale
		if began, _, failed = s.saleAt(v, s.Start); failed == nil && began.Kind == bought {
			have++
		}
		return failed == nil
	})
	if err = cmp.Or(err, failed); err == nil && have != said.times {
		v.problem("user %s: plan %d was bought %d times, counted are %d", user, said.plan, have, said.times)
	}
	return err
}

// dues checks that users and the sweeper's index agree.
func (v *verification) dues() error {
	err := each(v, accountPrefix, func(key []byte, a accountRecord) error {
		user := string(key[len(accountPrefix)+1:])
		v.borne.Add([]byte(user), int64(a.WrittenOff))
		return nil
	})
	return cmp.Or(err, v.named(duePrefix, func(key []byte, due int64, user string) error {
		r, err := v.summaryOf(user)
		if err == nil && r.due != due {
			v.problem("key %q: the user's next change is at %d", key, r.due)
		}
		return err
	}))
}
