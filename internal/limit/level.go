package limit

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// level is the record of a subject in a shared store: what is left of its limits for all nodes.
type level struct {
	Subject  string          `json:"subject"`
	Requests bucket          `json:"requests,omitzero"`
	Units    bucket          `json:"units,omitzero"`
	Open     map[int64]int64 `json:"open,omitempty"` // concurrent requests, by the epoch of their node
	Full     int64           `json:"full"`           // when both buckets are full, in Unix seconds
}

var (
	levels = table.Table[level]{
		Name:    "ratelevel",
		Key:     func(l *level) table.Key { return table.Key{l.Subject} },
		Indexes: []*table.Index[level]{&levelsOpen},
		Expires: func(l *level) time.Time {
			if len(l.Open) > 0 {
				return time.Time{}
			}
			return time.Unix(l.Full, 0)
		},
	}

	// levelsOpen has the subjects with open concurrent requests.
	levelsOpen = table.Index[level]{Name: "rateopen", Fields: func(l *level) table.Key {
		if len(l.Open) == 0 {
			return nil
		}
		return table.Key{}
	}}
)

// readLevel returns the record of a subject (nil if there is none), its usage now, and its concurrent
// requests by epoch.
func readLevel(r storage.Reader, id string, rates Rates, now int64) (*level, *usage, map[int64]int64, error) {
	before, err := levels.Get(r, id)
	if err != nil {
		return nil, nil, nil, err
	}
	u, open := &usage{rates: rates}, make(map[int64]int64)
	if before != nil {
		u.requests, u.units = before.Requests, before.Units
		maps.Copy(open, before.Open)
		if at := max(u.requests.At, u.units.At); now < at && at-now < maxClockGap {
			now = at // else two nodes whose clocks differ would fill the level again and again
		}
	}
	for _, n := range open {
		u.concurrent += n
	}
	u.fill(now)
	return before, u, open, nil
}

// maxClockGap is how much the clocks of two nodes may differ. If the time is earlier by more, the
// clock of the store was set back.
const maxClockGap = int64(time.Hour)

// maxDebtTime is the time after which a debt is dropped.
const maxDebtTime = 30 * 24 * time.Hour

// writeLevel replaces the record of a subject.
func writeLevel(t storage.Txn, before *level, id string, u *usage, open map[int64]int64, now int64) error {
	status := u.status()
	full := time.Unix(0, now).Add(min(max(status.Requests.Reset, status.Units.Reset), maxDebtTime)).Unix() + 1
	return levels.Put(t, before, &level{Subject: id, Requests: u.requests, Units: u.units, Open: open, Full: full})
}

var errRefused = errors.New("the limit is reached")

// update takes the drawn amounts of the wants from the store, for all of them or for none. It sets their
// surplus. If it returns a refusal, of is the want with the longest wait.
func (l *sharedLimiter) update(ctx context.Context, wants []*want) (refused *Refusal, of *want, err error) {
	epoch, live := l.store.Epoch(), int64(l.store.LiveNodes())
	err = l.store.Update(ctx, func(t storage.Txn) error {
		refused, of = nil, nil
		now := l.store.Now().UnixNano()
		var status RateLimitStatus
		for _, w := range wants {
			before, u, open, err := readLevel(t, w.share.id, w.rates, now)
			if err != nil {
				return err
			}
			status = status.tighter(u.status())
			wait, what := w.wait(u)
			if wait > 0 {
				if refused == nil || wait > refused.RetryAfter {
					limit := [...]int64{Requests: w.rates.Requests.Limit, Units: w.rates.Units.Limit, Concurrent: w.rates.Concurrent}[what]
					refused, of = &Refusal{What: what, Limit: limit, RetryAfter: wait}, w
				}
				continue
			}
			w.surplus = amount{
				requests: surplus(&u.requests, w.rates.Requests, w.drawn.requests, w.waiting.requests, live),
				units:    surplus(&u.units, w.rates.Units, w.drawn.units, w.waiting.units, live),
			}
			u.requests.take(w.drawn.requests + w.surplus.requests)
			u.units.take(w.drawn.units + w.surplus.units)
			w.others = w.refusalOfOthers(u)
			if w.drawn.concurrent > 0 {
				open[epoch] += w.drawn.concurrent
			}
			if err := writeLevel(t, before, w.share.id, u, open, now); err != nil {
				return err
			}
		}
		if refused != nil {
			refused.Status = status
			return errRefused
		}
		return nil
	})
	switch {
	case errors.Is(err, errRefused):
		return refused, of, nil
	case err != nil:
		return nil, nil, err
	}
	return nil, nil, nil
}

// wait returns how long a want must wait, and for which limit. It returns zero if it need not.
func (w *want) wait(u *usage) (wait time.Duration, what Kind) {
	if w.drawn.requests > 0 {
		wait, what = u.requests.until(w.drawn.requests, w.rates.Requests), Requests
	}
	if w.drawn.units > 0 && w.required > 0 {
		if d := u.units.until(w.required, w.rates.Units); d > wait {
			wait, what = d, Units
		}
	}
	if w.drawn.concurrent > 0 && u.concurrent >= w.rates.Concurrent && wait < concurrentRetry {
		wait, what = concurrentRetry, Concurrent
	}
	return wait, what
}

// refusalOfOthers returns the refusal of the waiting requests if the surplus is not enough for them,
// otherwise nil. Without it they would ask the store one after another while the limit is reached.
func (w *want) refusalOfOthers(u *usage) *Refusal {
	switch {
	case w.waiting.requests > w.surplus.requests && w.drawn.requests > 0:
		return &Refusal{What: Requests, Limit: w.rates.Requests.Limit, RetryAfter: u.requests.until(1, w.rates.Requests), Status: u.status()}
	case w.waiting.units > w.surplus.units && w.drawn.units > 0:
		return &Refusal{What: Units, Limit: w.rates.Units.Limit, RetryAfter: u.units.until(1, w.rates.Units), Status: u.status()}
	}
	return nil
}

// surplus returns how much a node that takes n takes in addition: what its waiting requests need, or an
// allotment for later ones. The allotment is only a part of what is left. So near the limit, each
// request is counted alone, and no request is refused for an allotment that another node does not use.
func surplus(b *bucket, w Window, n, waiting, live int64) int64 {
	left := b.Level - n
	if n <= 0 || w.Limit <= 0 || left <= 0 {
		return 0
	}
	allotment := w.Limit / max(1, int64(w.Period/allotmentTime))
	return max(0, min(allotment-n, left/(2*live)), min(waiting, left))
}

// change returns a closure for the store that changes the usage of a subject.
func (l *sharedLimiter) change(id string, rates Rates, by amount) func(storage.Txn) error {
	epoch := l.store.Epoch()
	return func(t storage.Txn) error {
		now := l.store.Now().UnixNano()
		before, u, open, err := readLevel(t, id, rates, now)
		if err != nil {
			return err
		}
		u.requests.take(by.requests)
		u.units.take(by.units)
		if open[epoch] += by.concurrent; open[epoch] <= 0 {
			delete(open, epoch)
		}
		return writeLevel(t, before, id, u, open, now)
	}
}

// endAtOnce is how many records of an ended epoch are changed in one transaction.
const endAtOnce = 500

// EndEpoch frees the concurrent requests of an ended node of a shared store; see [storage.Follower]. It
// may be called again.
func (l *RateLimiter) EndEpoch(ctx context.Context, epoch int64) error {
	if l.shared == nil {
		return nil
	}
	store := l.shared.store
	var of []string
	err := store.View(ctx, func(r storage.Reader) error {
		of = nil
		for rec, err := range levels.Scan(r, levelsOpen.Under()) {
			if err != nil {
				return err
			}
			if rec.Open[epoch] > 0 {
				of = append(of, rec.Subject)
			}
		}
		return nil
	})
	for err == nil && len(of) > 0 {
		some := of[:min(len(of), endAtOnce)]
		of = of[len(some):]
		err = store.Update(ctx, func(t storage.Txn) error {
			for _, id := range some {
				if _, err := levels.Change(t, table.Key{id}, func(rec *level) bool {
					had := rec.Open[epoch] > 0
					rec.Open = maps.Clone(rec.Open)
					delete(rec.Open, epoch)
					return had
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return err
}
