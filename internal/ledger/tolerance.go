package ledger

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Tolerance is the part of a user's spend that may stay uncollected, in
// millionths. The zero Tolerance restricts no user.
type Tolerance int64

// MaxTolerance is the whole spend.
const MaxTolerance Tolerance = 1_000_000

// alwaysTolerated is the uncollected amount that restricts no user, however little the user was
// charged: a user who has just begun would else be restricted for a fraction of a cent.
const alwaysTolerated = money.Unit / 100

// Errors of [Ledger.Reserve] for a user whose uncollected amounts are above the
// tolerance.
var (
	// ErrOneAtATime: another call of the user is under way.
	ErrOneAtATime = errors.New("calls of this user are made one at a time")

	// ErrFullContext: the call does not reserve the price of the whole context, see
	// [Payer.FullContext].
	ErrFullContext = errors.New("calls of this user reserve the whole context")
)

// The charged and the uncollected amounts of calls are summed up over the last 24
// hours, in steps. The oldest step counts until all of it is over.
const (
	lossStep  = 3 * time.Hour
	lossSteps = int64(24*time.Hour/lossStep) + 1
)

// losses are the charged and the uncollected amounts of the calls of one user, by
// steps of time.
type losses struct {
	newest int64 // step since 1970
	steps  [lossSteps]struct{ charged, uncollected money.Amount }
	lossy  bool // one of the steps may have a loss
	known  bool // what the store has is in it
}

// add counts a call that ended at the time at.
func (w *losses) add(at time.Time, charged, uncollected money.Amount) {
	step := at.UnixNano() / int64(lossStep)
	w.advance(step)
	if step <= w.newest-lossSteps {
		return
	}
	s := &w.steps[step%lossSteps]
	s.charged, _ = s.charged.Add(charged)
	s.uncollected, _ = s.uncollected.Add(uncollected)
	w.lossy = w.lossy || uncollected > 0
}

// advance clears the steps up to step, which are used again for a new time.
func (w *losses) advance(step int64) {
	for n := max(w.newest, step-lossSteps) + 1; n <= step; n++ {
		w.steps[n%lossSteps] = struct{ charged, uncollected money.Amount }{}
	}
	w.newest = max(w.newest, step)
}

// exceed reports whether the uncollected amount exceeds t.
func (w *losses) exceed(now time.Time, t Tolerance) bool {
	if !w.lossy || t == 0 {
		return false
	}
	w.advance(now.UnixNano() / int64(lossStep))
	charged, uncollected := w.since(w.newest - lossSteps + 1)
	w.lossy = uncollected > 0
	return t.exceeded(charged, uncollected)
}

// since returns the sums of the steps from step on.
func (w *losses) since(step int64) (charged, uncollected money.Amount) {
	for ; step <= w.newest; step++ {
		s := w.steps[step%lossSteps]
		charged, _ = charged.Add(s.charged)
		uncollected, _ = uncollected.Add(s.uncollected)
	}
	return charged, uncollected
}

func (t Tolerance) exceeded(charged, uncollected money.Amount) bool {
	if uncollected <= alwaysTolerated {
		return false
	}
	uncollectedHigh, uncollectedLow := bits.Mul64(uint64(uncollected), uint64(MaxTolerance))
	mostHigh, mostLow := bits.Mul64(uint64(charged), uint64(t))
	return uncollectedHigh > mostHigh || uncollectedHigh == mostHigh && uncollectedLow > mostLow
}

// Restriction says why the calls of a user are restricted, by the sums of the last 24 hours. The
// zero Restriction is none.
type Restriction struct {
	Uncollected, Charged money.Amount
	Until                time.Time // when it ends if the user makes no call until then
}

// restriction returns the restriction of a user under t.
func (w *losses) restriction(now time.Time, t Tolerance) (r Restriction) {
	if !w.exceed(now, t) {
		return r
	}
	first := w.newest - lossSteps + 1
	r.Charged, r.Uncollected = w.since(first)
	for charged, uncollected := r.Charged, r.Uncollected; t.exceeded(charged, uncollected); {
		first++
		charged, uncollected = w.since(first)
	}
	r.Until = time.Unix(0, (first+lossSteps-1)*int64(lossStep))
	return r
}

// maxLossCalls bounds the calls that are read of a user when the balances are filled.
const maxLossCalls = 50_000

// readLosses reads the losses of a user from the store: the calls of 24
// hours one by one if days among them have a loss, else the sum of this day. With an
// error it returns what could be read.
func (l *Ledger) readLosses(ctx context.Context, user string) (w losses, err error) {
	now := l.store.Now()
	from, lossy := now.Add(-24*time.Hour), false
	var today money.Amount
	err = l.ScanUsage(ctx, user, journal.DayOf(from), journal.DayOf(now), func(u journal.Usage) bool {
		lossy = lossy || u.Uncollected > 0
		if u.Day == journal.DayOf(now) {
			today += u.Cost
		}
		return true
	})
	w.known = true
	if err != nil || !lossy {
		w.add(now, today, 0)
		return w, err
	}
	w.advance(now.UnixNano() / int64(lossStep))
	n := 0
	err = l.ScanCalls(ctx, user, CallFilter{From: from}, func(c journal.CallRecord) bool {
		w.add(c.End(), c.Cost, c.Uncollected)
		n++
		return n < maxLossCalls
	})
	return w, err
}

// lossyPrefix begins lossy/<user>, a key without a value: something of the user's calls of the
// last 24 hours stayed uncollected.
const lossyPrefix = "lossy"

func markLossy(t storage.Txn, user string, now time.Time) error {
	return t.Set(storage.Key(lossyPrefix, user), nil, now.Add(time.Duration(lossSteps)*lossStep))
}

// Restricted returns the users of whose calls more stayed uncollected than the tolerance, sorted
// by id. It may read the calls of the last 24 hours of each user with a loss.
func (l *Ledger) Restricted(ctx context.Context, tolerance Tolerance) (users []string, err error) {
	var lossy []string
	lo, hi := storage.Below(lossyPrefix)
	err = l.store.View(ctx, func(r storage.Reader) error {
		lossy = nil
		return r.Scan(lo, hi, func(key, _ []byte) bool {
			lossy = append(lossy, string(key[len(lo):]))
			return true
		})
	})
	for _, user := range lossy {
		r, errUser := l.Restriction(ctx, user, tolerance)
		if errUser != nil {
			return users, errors.Join(err, errUser)
		}
		if r.Uncollected > 0 {
			users = append(users, user)
		}
	}
	return users, fault.OfStore(err)
}

// Restriction returns how the calls of a user are restricted under a tolerance. It may read the
// user's calls of the last 24 hours.
func (l *Ledger) Restriction(ctx context.Context, user string, tolerance Tolerance) (Restriction, error) {
	p, now, err := l.unlock(ctx, Payer{User: user}, nil)
	if err != nil {
		return Restriction{}, err
	}
	defer p.mu.Unlock()
	return p.losses.restriction(now, tolerance), nil
}
