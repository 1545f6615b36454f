// Package attempts counts in the store how often a secret is tried. It counts before the secret is
// checked, so that the bounds hold over parallel requests and restarts. A [Limit] bounds attempts
// in a period, right or wrong. A [Guard] bounds failures in a row. The caller chooses the subject
// of a count: a user, a name or an address.
package attempts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// The tables of this package.
var (
	attemptTable = table.Table[attemptRecord]{
		Name:    "attempts",
		Key:     func(a *attemptRecord) table.Key { return table.Key{a.What, a.Subject} },
		Expires: func(a *attemptRecord) time.Time { return time.UnixMilli(a.Expires) },
	}

	failureTable = table.Table[failureRecord]{Name: "failures", Key: func(f *failureRecord) table.Key { return table.Key{f.What, f.UserID} }}
)

// Unknown is the actor in the event of an attempt that is not authenticated.
const Unknown = "unknown"

// Limit allows at most Most attempts in any period of length Per.
type Limit struct {
	What string // names the counter in the store
	Most int
	Per  time.Duration
}

// Attempt is an attempt that a limit counts for a subject.
type Attempt struct {
	Limit
	Subject string
}

// Of returns an attempt of a subject.
func (l Limit) Of(subject string) Attempt { return Attempt{l, subject} }

// attemptRecord has the attempts of one subject that one limit counts.
type attemptRecord struct {
	What    string  `json:"what"`
	Subject string  `json:"subject"` // a hash, because an anonymous caller may choose the text
	Times   []int64 `json:"times"`   // of the attempts that still count, in Unix milliseconds, oldest first
	Expires int64   `json:"expires"` // when the last of them no longer counts, in Unix milliseconds
}

func (a Attempt) hash() string {
	sum := sha256.Sum256([]byte(a.Subject))
	return hex.EncodeToString(sum[:16])
}

// counting returns the attempts that still count, and when the next one is allowed; zero: now.
func (a Attempt) counting(r storage.Reader, now time.Time) (*attemptRecord, time.Time, error) {
	have, err := attemptTable.GetOrZero(r, a.What, a.hash())
	if err != nil {
		return nil, time.Time{}, err
	}
	expired := now.Add(-a.Per).UnixMilli()
	have.Times = slices.DeleteFunc(have.Times, func(at int64) bool { return at <= expired })
	if len(have.Times) < a.Most {
		return have, time.Time{}, nil
	}
	// The next one is allowed when the oldest of the last Most attempts no longer counts.
	return have, time.UnixMilli(have.Times[len(have.Times)-a.Most]).Add(a.Per), nil
}

// admit returns the attempts that still count. If one more is too many, it returns
// TOO_MANY_ATTEMPTS with the wait until the next one. It writes nothing, so that a refusal does
// not prolong the wait.
func (a Attempt) admit(r storage.Reader, now time.Time) (*attemptRecord, error) {
	have, next, err := a.counting(r, now)
	if err == nil && !next.IsZero() {
		err = fault.New(fault.TooManyAttempts, "too many attempts: at most %d are allowed in %s", a.Most, Words(a.Per)).After(wholeSeconds(next.Sub(now)))
	}
	return have, err
}

// Next returns when the next attempt is allowed; zero: now.
func (a Attempt) Next(r storage.Reader, now time.Time) (time.Time, error) {
	_, next, err := a.counting(r, now)
	return next, err
}

// Reset removes the attempts that were counted.
func (a Attempt) Reset(t storage.Txn) error { return attemptTable.Delete(t, a.What, a.hash()) }

// Return removes the attempt that was counted at the time at, and no other.
func (a Attempt) Return(t storage.Txn, at time.Time) error {
	have, err := attemptTable.GetOrZero(t, a.What, a.hash())
	if err != nil {
		return err
	}
	i := slices.Index(have.Times, at.UnixMilli())
	if i < 0 {
		return nil // it no longer counts
	}
	have.Times = slices.Delete(have.Times, i, i+1)
	return attemptTable.Put(t, nil, have)
}

// Count counts an attempt by all of its limits, or by none if one of them refuses it with
// TOO_MANY_ATTEMPTS. Thus a refusal does not prolong another wait.
func Count(t storage.Txn, now time.Time, attempts ...Attempt) error {
	records := make([]*attemptRecord, len(attempts))
	for i, a := range attempts {
		var err error
		if records[i], err = a.admit(t, now); err != nil {
			return err
		}
	}
	for i, a := range attempts {
		have := records[i]
		have.What, have.Subject = a.What, a.hash()
		have.Times = append(have.Times, now.UnixMilli())
		have.Expires = now.Add(a.Per + time.Second).UnixMilli()
		if err := attemptTable.Put(t, nil, have); err != nil {
			return err
		}
	}
	return nil
}

// Refused reports whether err is TOO_MANY_ATTEMPTS.
func Refused(err error) bool {
	f, ok := errors.AsType[*fault.Fault](err)
	return ok && f.Code == fault.TooManyAttempts
}

// wholeSeconds rounds a wait up.
func wholeSeconds(wait time.Duration) time.Duration {
	return (wait + time.Second - 1).Truncate(time.Second)
}

// Words is a duration whose text is readable: "15 minutes", "a minute".
type Words time.Duration

// String implements fmt.Stringer.
func (w Words) String() string {
	d := time.Duration(w)
	switch {
	case d == time.Hour:
		return "an hour"
	case d == time.Minute:
		return "a minute"
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + " hours"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + " minutes"
	}
	return d.String()
}

// Chinese returns the duration in Chinese, for package fault.
func (w Words) Chinese() string {
	d := time.Duration(w)
	switch {
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + " 小时"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + " 分钟"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " 秒"
}

// Guard bounds failures in a row. After every Pause failures, the user must wait. After Block
// failures, every attempt is refused until an operator resets them.
type Guard struct {
	What  string // names the counter in the store
	Pause int    // failures before each wait
	Wait  time.Duration
	Block int // failures after which every attempt is refused
}

// failureRecord has the failures of a user that one guard has counted.
type failureRecord struct {
	What     string `json:"what"`
	UserID   string `json:"user_id"`
	Failures int    `json:"failures"`        // in a row
	Until    int64  `json:"until,omitempty"` // end of the wait, Unix milliseconds
}

// Take counts an attempt of a user as a failure, or refuses it with TOO_MANY_ATTEMPTS. The caller
// commits the transaction before it checks the secret.
func (g Guard) Take(t storage.Txn, now time.Time, userID string) error {
	have, err := failureTable.GetOrZero(t, g.What, userID)
	if err != nil {
		return err
	}
	have.What, have.UserID = g.What, userID
	if have.Failures >= g.Block {
		return fault.New(fault.TooManyAttempts, "%d attempts in a row have failed; ask an operator to reset the count", have.Failures)
	}
	if wait := time.UnixMilli(have.Until).Sub(now); wait > 0 {
		return fault.New(fault.TooManyAttempts, "too many failed attempts: after %d, wait %s", g.Pause, Words(g.Wait)).After(wholeSeconds(wait))
	}
	have.Failures++
	if have.Until = 0; have.Failures%g.Pause == 0 {
		have.Until = now.Add(g.Wait).UnixMilli()
	}
	return failureTable.Put(t, nil, have)
}

// Reset deletes the failures of a user, after a success or by an operator.
func (g Guard) Reset(t storage.Txn, userID string) error {
	return failureTable.Delete(t, g.What, userID)
}
