package attempts

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

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
