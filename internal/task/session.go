package task

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// SessionWindow is how long a session id is in use: 3 days from the acceptance
// of its task, half open (docs/reference/tasks.md#session-ids).
const SessionWindow = 259_200 * time.Second

// sessionRecord is a session id in use, at tasksession/<key>/<hash>.
type sessionRecord struct {
	Task  string `json:"task"`
	Until int64  `json:"until"` // Unix milliseconds, half open
}

// claimRecord is an idempotency key that was used, at taskclaim/<key>/<hash>. It
// is kept as long as its task.
type claimRecord struct {
	Task        string    `json:"task"`
	Fingerprint ledger.ID `json:"fingerprint"`
	Time        int64     `json:"time"` // Unix milliseconds
}

// DuplicateSession is why a submission is refused whose session id is in use. It
// is a [fault.Fault] of the code DUPLICATE_SESSION_ID too.
type DuplicateSession struct {
	Task string // the one that uses it
	*fault.Fault
}

// Unwrap returns the fault.
func (d *DuplicateSession) Unwrap() error { return d.Fault }

func (s *Submission) sessionKey() string {
	if s.SessionID == "" {
		return ""
	}
	return string(storage.Key(sessionPrefix, s.Key, hashOf(s.SessionID)))
}

func (s *Submission) claim() ledger.IdempotencyKey {
	return ledger.IdempotencyKey{Scope: s.Key, Key: s.IdempotencyKey, Fingerprint: s.Fingerprint}
}

func (s *Submission) claimHash() string {
	if s.IdempotencyKey == "" {
		return ""
	}
	return hashOf(s.IdempotencyKey)
}

func (s *Submission) claimKey() string {
	if s.IdempotencyKey == "" {
		return ""
	}
	return string(storage.Key(claimPrefix, s.Key, s.claimHash()))
}

// KeyUsed reports whether a task was submitted by an API key under this idempotency key.
func (e *Engine) KeyUsed(ctx context.Context, key, idempotencyKey string) (used bool, err error) {
	s := Submission{Key: key, IdempotencyKey: idempotencyKey}
	err = e.view(ctx, func(r storage.Reader) (err error) {
		var have claimRecord
		used, err = storage.GetRecord(r, []byte(s.claimKey()), &have)
		return err
	})
	return used, err
}

// claimed returns the task that was made under the idempotency key; nil when
// there is none.
func (s *Submission) claimed(r storage.Reader) (*record, error) {
	if s.IdempotencyKey == "" {
		return nil, nil
	}
	var have claimRecord
	found, err := storage.GetRecord(r, []byte(s.claimKey()), &have)
	if err != nil || !found {
		return nil, err
	}
	if have.Fingerprint != s.Fingerprint {
		return nil, fault.At(fault.IdempotencyKeyReused, "Idempotency-Key",
			"this idempotency key was used at %s for another task; take a new one", time.UnixMilli(have.Time).UTC().Format(time.RFC3339))
	}
	rec, err := readTask(r, have.Task)
	if err == nil && rec == nil {
		err = fmt.Errorf("task: %s was made under an idempotency key, and is missing", have.Task)
	}
	return rec, err
}

// sessionFree refuses a session id that is in use.
func (s *Submission) sessionFree(r storage.Reader, now int64) error {
	if s.SessionID == "" {
		return nil
	}
	var have sessionRecord
	found, err := storage.GetRecord(r, []byte(s.sessionKey()), &have)
	if err != nil || !found || now >= have.Until {
		return err
	}
	return &DuplicateSession{have.Task, fault.At(fault.DuplicateSessionID, "session_id",
		"this session_id was used for task %s; it can be used again from %s on", have.Task, time.UnixMilli(have.Until).UTC().Format(time.RFC3339))}
}

// reserveNames takes the session id and the idempotency key for a task.
func (s *Submission) reserveNames(t storage.Txn, now time.Time, id string) error {
	if s.SessionID != "" {
		until := now.Add(SessionWindow)
		// The engine may drop it later than it ends: what ends it is its field.
		err := t.Set([]byte(s.sessionKey()), storage.EncodeRecord(sessionRecord{id, milliseconds(until)}), until.Add(24*time.Hour))
		if err != nil {
			return err
		}
	}
	if s.IdempotencyKey == "" {
		return nil
	}
	return storage.SetRecord(t, []byte(s.claimKey()), claimRecord{id, s.Fingerprint, milliseconds(now)})
}

// freeNames gives the session id of a task free, if it still has it, and the
// idempotency key.
func freeNames(t storage.Txn, rec *record) error {
	if rec.SessionID != "" {
		key := storage.Key(sessionPrefix, rec.Key, hashOf(rec.SessionID))
		var have sessionRecord
		found, err := storage.GetRecord(t, key, &have)
		if err != nil {
			return err
		}
		if found && have.Task == rec.ID {
			if err := t.Delete(key); err != nil {
				return err
			}
		}
	}
	return freeClaim(t, rec)
}

func freeClaim(t storage.Txn, rec *record) error {
	if rec.Claim == "" {
		return nil
	}
	return t.Delete(storage.Key(claimPrefix, rec.Key, rec.Claim))
}
