package task

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Submission asks for a generation. It has been checked against its family, and its defaults are
// filled in.
type Submission struct {
	Payer ledger.Payer
	Key   string // the id of the API key

	Backend string
	Job     backends.Job // the token is set here

	// SessionID keeps the same from being asked for twice within [SessionWindow];
	// empty: it does not. SessionContext comes back in callbacks.
	SessionID      string
	SessionContext string

	// Quote is the price as it is now. What it holds is held, and what is
	// delivered is charged by it. The zero Quote is for what is free.
	Quote catalog.Quote

	// IdempotencyKey is the header of this name; empty: none. Fingerprint is of
	// everything that was asked for.
	IdempotencyKey string
	Fingerprint    journal.ID

	body []byte // Job as it is written
}

// The limits of a submission, in characters (docs/reference/tasks.md#platform-body).
const (
	MaxSessionID      = 50
	MaxSessionContext = 1000
)

// check refuses what cannot be a submission.
func (s *Submission) check(e *Engine) error {
	if n := utf8.RuneCountInString(s.SessionID); n > MaxSessionID {
		return fault.At(fault.InvalidParameter, "session_id", "session_id has at most %d characters, this has %d", MaxSessionID, n)
	}
	if n := utf8.RuneCountInString(s.SessionContext); n > MaxSessionContext {
		return fault.At(fault.InvalidParameter, "session_context", "session_context has at most %d characters, this has %d", MaxSessionContext, n)
	}
	if s.IdempotencyKey != "" {
		if refused := s.idempotencyKey().Validate("Idempotency-Key"); refused != nil {
			return refused
		}
	}
	if _, found := e.backend(s.Backend); !found {
		return fault.New(fault.UpstreamUnavailable, "the backend of this model is not configured").After(30 * time.Second)
	}
	return nil
}

// Submit makes a task, durable with its money. If a slot is free it delivers the job, and waits for
// a while until the backend accepts or refuses it; the acceptance may be noted after Submit has
// returned. A replay returns the task that was made the first time, as it is now. A definite
// rejection rolls the submission back.
func (e *Engine) Submit(ctx context.Context, s Submission) (t *Task, replayed bool, err error) {
	if err := s.check(e); err != nil {
		return nil, false, err
	}
	if !e.begin() {
		return nil, false, fault.New(fault.Overloaded, "the gateway is shutting down").After(5 * time.Second)
	}
	defer e.steps.Done()
	done, err := s.turn(ctx, e)
	if err != nil {
		return nil, false, err
	}
	defer done()

	before, err := s.first(ctx, e)
	if err != nil {
		return nil, false, err
	}
	if before != nil {
		return before.task(), true, nil
	}
	rec := s.record(newID())
	reservation, err := e.ledger.Reserve(ctx, s.Payer, s.Quote.Hold)
	if err != nil {
		return nil, false, unaffordable(err)
	}
	var made *record
	var tried bool
	// From here on the submission goes on even if the caller disconnects: else its outcome would
	// be unknown.
	err = e.ledger.Update(context.WithoutCancel(ctx), s.Payer.User, reservation, func(t *ledger.Txn) error {
		if tried { // an earlier run may have been committed
			if before, err = readTask(t, rec.ID); err != nil || before != nil {
				return err
			}
		}
		tried = true
		if before, err = s.before(t, e.now()); err != nil || before != nil {
			return err
		}
		made, err = s.accept(t, e, rec, reservation)
		return err
	})
	switch {
	case err != nil:
		return nil, false, unaffordable(err)
	case before != nil && before.ID != rec.ID:
		return before.task(), true, nil
	}
	mine := made.Delivery == Sending // this submission sends the job, unless a driver has claimed the task since
	if before != nil {               // an earlier run was committed with an unknown outcome
		mine = mine && before.Delivery == Sending && before.Attempt == made.Attempt && made.fenced(before)
		made = before
	}
	e.figures.submitted.add(made.Kind)
	if !mine {
		e.nudge(s.Backend)
		return made.task(), false, nil
	}
	return e.await(ctx, made, s.Job)
}

// first is before, outside the transaction that makes the task: most replays and duplicates end
// here without a write.
func (s *Submission) first(ctx context.Context, e *Engine) (before *record, err error) {
	if s.IdempotencyKey == "" && s.SessionID == "" {
		return nil, ctx.Err() // a caller who has left by now gets no task
	}
	err = e.view(ctx, func(r storage.Reader) (err error) {
		before, err = s.before(r, e.now())
		return err
	})
	return before, err
}

// turn waits for other submissions with the same idempotency key or session id: their outcome
// decides about this one.
func (s *Submission) turn(ctx context.Context, e *Engine) (done func(), err error) {
	done = func() {}
	for _, name := range [...]struct{ kind, text string }{{idempotencyPrefix, s.IdempotencyKey}, {sessionPrefix, s.SessionID}} { // always in this order, against deadlocks
		if name.text == "" {
			continue
		}
		mine, err := e.locks.Lock(ctx, string(storage.Key(name.kind, s.Key, hashOf(name.text))))
		if err != nil {
			done()
			return nil, err
		}
		others := done
		done = func() { mine(); others() }
	}
	return done, nil
}

// before returns the task that was made under the idempotency key, or refuses
// what another task keeps from being made.
func (s *Submission) before(r storage.Reader, now int64) (*record, error) {
	rec, err := s.replayed(r)
	if err != nil || rec != nil {
		return rec, err
	}
	return nil, s.sessionFree(r, now)
}

// maxEnclosed is the greatest length in bytes of a body in the record of its task: each read and
// change of a waiting task carries it.
const maxEnclosed = 2 << 10

// record returns the task before it is submitted.
func (s *Submission) record(id string) *record {
	s.Job.Token = backends.Token(id)
	s.body = storage.EncodeRecord(s.Job)
	r := &record{
		ID: id, Key: s.Key, User: s.Payer.User, Backend: s.Backend,
		Kind: s.Job.Kind, Model: s.Job.Model, State: Queued, Delivery: None,
		SessionID: s.SessionID, SessionContext: s.SessionContext, MediaName: s.Job.Output.MediaName,
		Hold: s.Quote.Hold, Quote: &s.Quote,
	}
	if s.IdempotencyKey != "" {
		r.IdempotencyHash = hashOf(s.IdempotencyKey)
	}
	if r.Enclosed = len(s.body) <= maxEnclosed; r.Enclosed {
		r.Body = s.body[1:] // without the version
	}
	return r
}

// accept writes the task, of which rec is the beginning, with everything that belongs to it. It
// leaves rec as it is, since it may be run again.
func (s *Submission) accept(t *ledger.Txn, e *Engine, rec *record, reservation *ledger.Reservation) (*record, error) {
	most := int64(e.config.Load().Unfinished)
	n, err := unfinished(t, s.Key)
	if err != nil {
		return nil, err
	}
	if n >= most {
		return nil, fault.New(fault.TooManyTasks, "this API key has %d unfinished tasks, at most %d are allowed", n, most).After(5 * time.Second)
	}
	l, err := readLoad(t, s.Backend)
	if err != nil {
		return nil, err
	}
	backend, _ := e.backend(s.Backend)
	c := change{
		known: rec, counts: &l, unfinished: n, body: s.body, fingerprint: s.Fingerprint, reservation: reservation,
		slot: l.Waiting == l.Deferred && l.room(backend.MaxRunning) && e.open(s.Backend, rec.User),
	}
	_, err = e.transitions.apply(context.Background(), t, transitionSubmit, &c)
	return c.after, err
}

// unaffordable turns an error of the ledger into the fault of a submission.
func unaffordable(err error) error {
	if short, ok := errors.AsType[*ledger.Short](err); ok {
		return short.Fault("this task", "")
	}
	return fault.OfStore(err)
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
