package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// rate is how often something may be tried, by one name, from one address: at
// most so many times in any stretch of time. The attempts are counted in the
// store, before anything is looked at, so the rate holds over parallel requests
// and restarts; and they are forgotten by themselves.
type rate struct {
	what string // names the counter in the store
	most int
	per  time.Duration
}

// attemptRecord is the attempts by one rate of one whom it concerns.
type attemptRecord struct {
	What      string  `json:"what"`
	Whom      string  `json:"whom"`      // a hash: whom it concerns may be a text that anybody chose
	Times     []int64 `json:"times"`     // of the attempts that still count, in Unix milliseconds, oldest first
	Forgotten int64   `json:"forgotten"` // when none of them counts any more, in Unix milliseconds
}

// whom returns the hash of whom an attempt concerns.
func (l rate) whom(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// admit returns the attempts that count, or refuses one more and says when it
// may be made. It writes nothing: what is refused does not prolong the wait.
func (l rate) admit(r storage.Reader, now time.Time, whom string) (*attemptRecord, error) {
	have, err := attemptTable.GetOrZero(r, l.what, l.whom(whom))
	if err != nil {
		return nil, err
	}
	forgotten := now.Add(-l.per).UnixMilli()
	have.Times = slices.DeleteFunc(have.Times, func(at int64) bool { return at <= forgotten })
	if len(have.Times) < l.most {
		return have, nil
	}
	// When the oldest of the last most is forgotten, there is room for one.
	next := time.UnixMilli(have.Times[len(have.Times)-l.most]).Add(l.per)
	return nil, tooMany(next.Sub(now), "too many attempts: at most %d are allowed in %s", l.most, inWords(l.per))
}

// count counts an attempt that was admitted in the same transaction. The engine
// may drop the record when nothing in it counts any more.
func (l rate) count(t storage.Txn, now time.Time, whom string, have *attemptRecord) error {
	have.What, have.Whom = l.what, l.whom(whom)
	have.Times = append(have.Times, now.UnixMilli())
	have.Forgotten = now.Add(l.per + time.Second).UnixMilli()
	return attemptTable.Put(t, nil, have)
}

// forgive forgets the attempts that were counted.
func (l rate) forgive(t storage.Txn, whom string) error {
	return attemptTable.Delete(t, l.what, l.whom(whom))
}

// guard bounds failures in a row. After every few of them there is a wait; after
// very many, nothing is tried until an operator forgives.
type guard struct {
	what  string // names the counter in the store
	pause int    // failures before each wait
	wait  time.Duration
	block int // failures before all is shut
}

// failureRecord is the failures of a user that one guard has counted.
type failureRecord struct {
	What     string `json:"what"`
	UserID   string `json:"user_id"`
	Failures int    `json:"failures"`        // in a row
	Until    int64  `json:"until,omitempty"` // end of the wait, Unix milliseconds
}

// take counts an attempt of a user as a failure, before anybody knows whether it
// is one, or refuses it: TOO_MANY_ATTEMPTS. The transaction must be committed
// before the secret is looked at.
func (g guard) take(t storage.Txn, now time.Time, userID string) error {
	have, err := failureTable.GetOrZero(t, g.what, userID)
	if err != nil {
		return err
	}
	have.What, have.UserID = g.what, userID
	if have.Failures >= g.block {
		return fault.New(fault.TooManyAttempts, "%d attempts in a row have failed; ask an operator to reset it", have.Failures)
	}
	if wait := time.UnixMilli(have.Until).Sub(now); wait > 0 {
		return tooMany(wait, "too many attempts have failed: after %d there is a pause of %s", g.pause, inWords(g.wait))
	}
	have.Failures++
	if have.Until = 0; have.Failures%g.pause == 0 {
		have.Until = now.Add(g.wait).UnixMilli()
	}
	return failureTable.Put(t, nil, have)
}

// forgive forgets the failures of a user: an attempt has succeeded, or an
// operator says so.
func (g guard) forgive(t storage.Txn, userID string) error {
	return failureTable.Delete(t, g.what, userID)
}

// tooMany is a refusal that says when to come again, in whole seconds and never
// too early.
func tooMany(wait time.Duration, format string, args ...any) *fault.Fault {
	wait = (wait + time.Second - 1).Truncate(time.Second)
	return fault.New(fault.TooManyAttempts, format, args...).After(wait)
}

// inWords writes a duration for a person: "15 minutes", "a minute".
func inWords(d time.Duration) string {
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
