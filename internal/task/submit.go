package task

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
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
	maxSessionID      = 50
	maxSessionContext = 1000
)

// check refuses what cannot be a submission.
func (s *Submission) check(e *Engine) error {
	if n := utf8.RuneCountInString(s.SessionID); n > maxSessionID {
		return fault.At(fault.InvalidParameter, "session_id", "session_id has at most %d characters, this has %d", maxSessionID, n)
	}
	if n := utf8.RuneCountInString(s.SessionContext); n > maxSessionContext {
		return fault.At(fault.InvalidParameter, "session_context", "session_context has at most %d characters, this has %d", maxSessionContext, n)
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
func (e *Engine) Submit(ctx context.Context, s Submission) (t *record.Task, replayed bool, err error) {
	if err := s.check(e); err != nil {
		return nil, false, err
	}
	done, err := e.begin()
	if err != nil {
		return nil, false, err
	}
	defer done()
	unlock, err := s.lock(ctx, e)
	if err != nil {
		return nil, false, err
	}
	defer unlock()

	before, err := s.first(ctx, e)
	if err != nil {
		return nil, false, err
	}
	if before != nil {
		return before.Task(), true, nil
	}
	rec := s.record(record.NewID())
	reservation, err := e.ledger.Reserve(ctx, s.Payer, s.Quote.Hold)
	if err != nil {
		return nil, false, unaffordable(err)
	}
	var made *record.Record
	var tried bool
	// From here on the submission goes on even if the caller disconnects: else its outcome would
	// be unknown.
	err = e.ledger.Update(context.WithoutCancel(ctx), s.Payer.User, reservation, func(t *ledger.Txn) error {
		if tried { // an earlier run may have been committed
			if before, err = record.Tasks.Get(t, rec.ID); err != nil || before != nil {
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
		return before.Task(), true, nil
	}
	mine := made.Delivery == record.Sending // this submission sends the job, unless a driver has claimed the task since
	if before != nil {                      // an earlier run was committed with an unknown outcome
		mine = mine && before.Delivery == record.Sending && before.Attempt == made.Attempt && made.Fenced(before)
		made = before
	}
	e.counters.submitted.add(made.Kind)
	if !mine {
		e.nudgeDriver(s.Backend)
		return made.Task(), false, nil
	}
	return e.await(ctx, made, s.Job)
}

// first is before, outside the transaction that makes the task: most replays and duplicates end
// here without a write.
func (s *Submission) first(ctx context.Context, e *Engine) (before *record.Record, err error) {
	if s.IdempotencyKey == "" && s.SessionID == "" {
		return nil, ctx.Err() // a caller who has left by now gets no task
	}
	err = e.store.View(ctx, func(r storage.Reader) (err error) {
		before, err = s.before(r, e.now())
		return err
	})
	return before, err
}

// lock waits for other submissions with the same idempotency key or session id: their outcome
// decides about this one.
func (s *Submission) lock(ctx context.Context, e *Engine) (unlock func(), err error) {
	unlock = func() {}
	for _, name := range [...]struct{ kind, text string }{{record.IdempotencyPrefix, s.IdempotencyKey}, {record.SessionPrefix, s.SessionID}} { // always in this order, against deadlocks
		if name.text == "" {
			continue
		}
		mine, err := e.locks.Lock(ctx, string(storage.Key(name.kind, s.Key, record.HashOf(name.text))))
		if err != nil {
			unlock()
			return nil, err
		}
		others := unlock
		unlock = func() { mine(); others() }
	}
	return unlock, nil
}

// before returns the task that was made under the idempotency key, or refuses
// what another task keeps from being made.
func (s *Submission) before(r storage.Reader, now int64) (*record.Record, error) {
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
func (s *Submission) record(id string) *record.Record {
	s.Job.Token = backends.Token(id)
	s.body = storage.EncodeRecord(s.Job)
	r := &record.Record{
		ID: id, Key: s.Key, User: s.Payer.User, Backend: s.Backend,
		Kind: s.Job.Kind, Model: s.Job.Model, State: record.Queued, Delivery: record.None,
		SessionID: s.SessionID, SessionContext: s.SessionContext, MediaName: s.Job.Output.MediaName,
		Hold: s.Quote.Hold, Quote: &s.Quote,
	}
	if s.IdempotencyKey != "" {
		r.IdempotencyHash = record.HashOf(s.IdempotencyKey)
	}
	if r.Enclosed = len(s.body) <= maxEnclosed; r.Enclosed {
		r.Body = s.body[1:] // without the version
	}
	return r
}

// accept writes the task, of which rec is the beginning, with everything that belongs to it. It
// leaves rec as it is, since it may be run again.
func (s *Submission) accept(t *ledger.Txn, e *Engine, rec *record.Record, reservation *ledger.Reservation) (*record.Record, error) {
	most := int64(e.config.Load().Unfinished)
	n, err := record.Unfinished(t, s.Key)
	if err != nil {
		return nil, err
	}
	if n >= most {
		return nil, fault.New(fault.TooManyTasks, "this API key has %d unfinished tasks, at most %d are allowed", n, most).After(5 * time.Second)
	}
	l, err := record.ReadLoad(t, s.Backend)
	if err != nil {
		return nil, err
	}
	backend, _ := e.backend(s.Backend)
	d := e.driverOf(s.Backend)
	c := transition.Change{
		Known: rec, Counts: &l, Unfinished: n, Body: s.body, Fingerprint: s.Fingerprint, Reservation: reservation,
		Slot: l.Waiting == l.Deferred && l.HasSlot(backend.MaxRunning) && (d == nil || d.open(rec.User)),
	}
	_, err = e.writer.Apply(context.Background(), t, transition.Submit, &c)
	return c.After, err
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

// KeyUsed reports whether a task was submitted by an API key under this idempotency key.
func (e *Engine) KeyUsed(ctx context.Context, key, idempotencyKey string) (used bool, err error) {
	err = e.store.View(ctx, func(r storage.Reader) (err error) {
		used, err = record.IdempotencyKeys.Has(r, key, record.HashOf(idempotencyKey))
		return err
	})
	return used, err
}

// replayed returns the task that was made under the idempotency key; nil when
// there is none.
func (s *Submission) replayed(r storage.Reader) (*record.Record, error) {
	if s.IdempotencyKey == "" {
		return nil, nil
	}
	have, err := record.IdempotencyKeys.Get(r, s.Key, record.HashOf(s.IdempotencyKey))
	if err != nil || have == nil {
		return nil, err
	}
	if have.Fingerprint != s.Fingerprint {
		return nil, fault.At(fault.IdempotencyKeyReused, "Idempotency-Key",
			"this idempotency key was used at %s for another task; take a new one", time.UnixMilli(have.Time).UTC().Format(time.RFC3339))
	}
	rec, err := record.Tasks.Get(r, have.Task)
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
	have, err := record.Sessions.Get(r, s.Key, record.HashOf(s.SessionID))
	if err != nil || have == nil || now >= have.Until {
		return err
	}
	return &DuplicateSession{have.Task, fault.At(fault.DuplicateSessionID, "session_id",
		"this session_id was used for task %s; it can be used again from %s on", have.Task, time.UnixMilli(have.Until).UTC().Format(time.RFC3339))}
}

// deliveryWait is how long a submission waits for the delivery.
const deliveryWait = 10 * time.Second

// await delivers a task that was just submitted, and waits for deliveryWait at most.
func (e *Engine) await(ctx context.Context, rec *record.Record, job backends.Job) (*record.Task, bool, error) {
	w := &waiter{taken: make(chan struct{}), done: make(chan struct{})}
	e.store.Steps.Go(func() {
		defer close(w.done)
		if d := e.driverOf(rec.Backend); d != nil {
			d.deliver(rec, job, w)
		} else { // a reload has removed the backend: nothing was sent
			e.note(transition.PutBack, transition.Change{Known: rec})
		}
	})
	timer := time.NewTimer(deliveryWait)
	defer timer.Stop()
	select {
	case <-w.taken: // the submission does not wait until this is noted
		return rec.Task(), false, nil
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	if !w.leave() {
		<-w.done // it is being taken back
	}
	switch {
	case w.err != nil:
		return nil, false, w.err
	case w.refused != nil:
		return nil, false, fault.At(fault.UpstreamRejected, w.refused.Param, "%s", w.refused.Message)
	}
	// The task is durable whatever the store says now.
	now := rec
	err := e.store.View(context.WithoutCancel(ctx), func(r storage.Reader) error {
		have, err := record.Tasks.Get(r, rec.ID)
		if err == nil && have != nil {
			now = have
		}
		return err
	})
	if err != nil {
		e.store.Log.Warn("a task that was submitted cannot be read", zap.String("task_id", rec.ID), zap.Error(err))
	}
	return now.Task(), false, nil
}
