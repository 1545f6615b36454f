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
	Key   string `json:"key"`
	Hash  string `json:"hash"`
	Task  string `json:"task"`
	Until int64  `json:"until"` // Unix milliseconds, half open
}

// idempotencyRecord is an idempotency key that was used, at taskclaim/<key>/<hash>. It
// is kept as long as its task.
type idempotencyRecord struct {
	Key         string    `json:"key"`
	Hash        string    `json:"hash"`
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

func (s *Submission) idempotencyKey() ledger.IdempotencyKey {
	return ledger.IdempotencyKey{Scope: s.Key, Key: s.IdempotencyKey, Fingerprint: s.Fingerprint}
}

// session and claimed return the record of the session id and of the idempotency key; nil if there
// is none.
func (s *Submission) session(r storage.Reader) (*sessionRecord, error) {
	if s.SessionID == "" {
		return nil, nil
	}
	return sessions.Get(r, s.Key, hashOf(s.SessionID))
}

func (s *Submission) idempotencyRecord(r storage.Reader) (*idempotencyRecord, error) {
	if s.IdempotencyKey == "" {
		return nil, nil
	}
	return idempotencyKeys.Get(r, s.Key, hashOf(s.IdempotencyKey))
}

// KeyUsed reports whether a task was submitted by an API key under this idempotency key.
func (e *Engine) KeyUsed(ctx context.Context, key, idempotencyKey string) (used bool, err error) {
	s := Submission{Key: key, IdempotencyKey: idempotencyKey}
	err = e.view(ctx, func(r storage.Reader) error {
		have, err := s.idempotencyRecord(r)
		used = have != nil
		return err
	})
	return used, err
}

// replayed returns the task that was made under the idempotency key; nil when
// there is none.
func (s *Submission) replayed(r storage.Reader) (*record, error) {
	have, err := s.idempotencyRecord(r)
	if err != nil || have == nil {
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
	have, err := s.session(r)
	if err != nil || have == nil || now >= have.Until {
		return err
	}
	return &DuplicateSession{have.Task, fault.At(fault.DuplicateSessionID, "session_id",
		"this session_id was used for task %s; it can be used again from %s on", have.Task, time.UnixMilli(have.Until).UTC().Format(time.RFC3339))}
}
