package ledger

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Tolerance is the part of a user's charges that may stay uncollected, in millionths. The zero
// Tolerance restricts no user.
type Tolerance int64

// MaxTolerance tolerates an uncollected amount as large as the charges.
const MaxTolerance Tolerance = 1_000_000

// alwaysTolerated is an uncollected amount that never restricts a user. Without it, a new user
// would be restricted for a fraction of a cent.
const alwaysTolerated = money.Unit / 100

// Errors of [Ledger.Reserve] for a user whose uncollected amounts exceed the tolerance.
var (
	// ErrOneAtATime says that another call of the user is running.
	ErrOneAtATime = errors.New("this user may make one call at a time")

	// ErrFullContext says that the call does not reserve the price of the whole context; see
	// [Payer.FullContext].
	ErrFullContext = errors.New("calls of this user must reserve the whole context")
)

// The charged and the uncollected amounts of calls are summed up over the last 24 hours, in steps
// of lossStep. The oldest step counts until all of it lies further back.
const (
	lossStep  = 3 * time.Hour
	lossSteps = int64(24*time.Hour/lossStep) + 1
)

// losses are the charged and the uncollected amounts of one user's calls, by steps of time.
type losses struct {
	newest int64 // step since 1970
	steps  [lossSteps]struct{ charged, uncollected money.Amount }
	lossy  bool // a step may have an uncollected amount
	known  bool // the losses in the store are included
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

// advance clears the steps up to step, so that they can be used for new times.
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

// since returns the sums of step and all later steps.
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
	limitHigh, limitLow := bits.Mul64(uint64(charged), uint64(t))
	return uncollectedHigh > limitHigh || uncollectedHigh == limitHigh && uncollectedLow > limitLow
}

// restrict returns the error for another call of a user whose uncollected amounts exceed the
// tolerance. The mutex is held.
func (p *balances) restrict(payer Payer, now time.Time) error {
	switch exceed := p.losses.exceed(now, payer.Tolerance); {
	case exceed && p.calls > 0:
		return ErrOneAtATime
	case exceed && !payer.FullContext:
		return ErrFullContext
	}
	return nil
}

// Restriction says why the calls of a user are restricted, by the sums of the last 24 hours. The
// zero Restriction means that they are not.
type Restriction struct {
	Uncollected, Charged money.Amount
	Until                time.Time // when it ends if the user makes no further call
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

// maxLossCalls bounds the number of calls that readLosses reads.
const maxLossCalls = 50_000

// readLosses reads the losses of a user from the store. If the usage of the last 24 hours has an
// uncollected amount, it reads the calls one by one; else it reads the sum of today. With an error
// it returns the losses that it could read.
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

// knownLosses is readLosses, except that a record which cannot be read does not block the user's
// calls.
func (l *Ledger) knownLosses(ctx context.Context, user string) (losses, error) {
	w, err := l.readLosses(ctx, user)
	if ended := ctx.Err(); ended != nil { // the caller disconnected; calls that were not read would count as no loss
		return w, ended
	}
	if err != nil {
		l.log.Error("the uncollected amounts of a user cannot be read completely", zap.String("user_id", user), zap.Error(err))
	}
	return w, nil
}

// lossyPrefix is the prefix of the keys lossy/<user>, which have no value. The key exists while the
// user has an uncollected amount from the last 24 hours.
const lossyPrefix = "lossy"

func markLossy(t storage.Txn, user string, now time.Time) error {
	return t.Set(storage.Key(lossyPrefix, user), nil, now.Add(time.Duration(lossSteps)*lossStep))
}

// Restricted returns the ids of the users whose uncollected amounts exceed the tolerance, sorted.
// It may read the calls of the last 24 hours of each user with a loss.
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

// Restriction returns the restriction of a user under a tolerance. It may read the user's calls of
// the last 24 hours.
func (l *Ledger) Restriction(ctx context.Context, user string, tolerance Tolerance) (Restriction, error) {
	if l.store.Shared() {
		known, err := l.recentLosses(ctx, user)
		if err != nil {
			return Restriction{}, err
		}
		return known.restriction(l.store.Now(), tolerance), nil
	}
	p, now, err := l.lockBalances(ctx, Payer{User: user}, nil)
	if err != nil {
		return Restriction{}, err
	}
	defer p.mu.Unlock()
	return p.losses.restriction(now, tolerance), nil
}

// checkTolerance returns the error for a call of a user whose uncollected amounts exceed the
// tolerance. It counts the calls of all nodes. If it needs known and known is nil, it returns errLossy.
func (l *Ledger) checkTolerance(t storage.Reader, payer Payer, known *losses) error {
	lossy, err := t.Get(storage.Key(lossyPrefix, payer.User))
	switch {
	case err != nil || lossy == nil:
		return err
	case known == nil:
		return errLossy
	}
	p := balances{losses: *known}
	now := l.store.Now()
	if p.losses.exceed(now, payer.Tolerance) {
		err = journal.ScanCallHolds(t, payer.User, func(h journal.CallHold) bool {
			if h.Counted {
				p.calls++
			}
			return true
		})
	}
	return cmp.Or(err, p.restrict(payer, now))
}

// lossesRead is how long the losses of a user are kept that were read from a shared store.
const lossesRead = time.Second

// recentLosses returns the losses of a user as the store had them at most lossesRead ago.
func (l *Ledger) recentLosses(ctx context.Context, user string) (*losses, error) {
	done, err := l.lossReads.Lock(ctx, user) // one read at a time: it may be long
	if err != nil {
		return nil, err
	}
	defer done()
	p, now := l.balanceCache.of(user), l.store.Now()
	p.mu.Lock()
	recent := p.losses
	fresh := recent.known && !now.Before(p.read) && now.Sub(p.read) < lossesRead
	p.mu.Unlock()
	if fresh {
		return &recent, nil
	}
	read, err := l.knownLosses(ctx, user)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses, p.read = read, l.store.Now()
	p.used = p.read
	return &read, nil
}
