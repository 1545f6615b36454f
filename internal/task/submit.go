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

// Submission is a request for a generation. The caller of Submit has checked it against its model
// family and has set the defaults.
type Submission struct {
	Payer ledger.Payer
	Key   string // the id of the API key

	Backend string
	Job     backends.Job // Submit sets the token

	Video *record.VideoRequest // of a submission to /v1/videos

	// SessionID prevents a second task with the same id within [SessionWindow]. It
	// may be empty. Callbacks repeat SessionContext.
	SessionID      string
	SessionContext string

	// Quote is the current price. The gateway holds its Hold, and charges delivered
	// results by it. The zero Quote is for free models.
	Quote catalog.Quote

	// IdempotencyKey is the header of this name; empty: none. Fingerprint is the
	// hash of the whole request.
	IdempotencyKey string
	Fingerprint    journal.ID

	body []byte // encoded Job
}

// The limits of a submission, in characters (docs/reference/tasks.md#platform-body).
const (
	maxSessionID      = 50
	maxSessionContext = 1000
)

// check returns an error if a field is not valid.
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
	b, found := e.backend(s.Backend)
	if !found {
		return fault.New(fault.UpstreamUnavailable, "the backend of this model is not configured").After(30 * time.Second)
	}
	if _, remixes := b.Backend.(backends.Remixer); !remixes && s.Job.Source != nil {
		return errCannotRemix
	}
	return nil
}

// errCannotRemix is the error of a job that changes an earlier result, at a backend that cannot.
var errCannotRemix = fault.New(fault.UpstreamRejected, "the service that made this video cannot change it: submit a new video with a complete prompt. Nothing was charged")

// Submit creates a task and holds its price, durably. If a slot is free, it delivers the job and
// waits up to deliveryWait until the backend accepts or refuses it. The acceptance may become durable
// after Submit has returned. For a replay, Submit returns the current state of the first task. A
// definite rejection rolls the submission back.
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

	before, err := s.findEarlier(ctx, e)
	if err != nil {
		return nil, false, err
	}
	if before != nil {
		return before.Task(), true, nil
	}
	rec := s.record(e.store.NewID())
	reservation, err := e.ledger.ReserveHold(ctx, s.Payer, s.Quote.Hold)
	if err != nil {
		return nil, false, reserveFault(err)
	}
	var created *record.Record
	var ran bool
	// If the caller disconnects from here on, the submission continues, so that its outcome is known.
	err = e.ledger.Update(context.WithoutCancel(ctx), s.Payer.User, reservation, func(t *ledger.Txn) error {
		if e.store.Again(&ran) {
			if before, err = record.Tasks.Get(t, rec.ID); err != nil || before != nil {
				return err
			}
		}
		if before, err = s.earlier(t, e.now()); err != nil || before != nil {
			return err
		}
		created, err = s.accept(t, e, rec, reservation)
		return err
	})
	switch {
	case err != nil:
		return nil, false, reserveFault(err)
	case before != nil && before.ID != rec.ID:
		return before.Task(), true, nil
	}
	sends := created.Delivery == record.Sending // this submission sends the job, unless a driver has claimed the task since
	if before != nil {                          // an earlier run was committed with an unknown outcome
		sends = sends && before.Delivery == record.Sending && before.Attempt == created.Attempt && created.Fenced(before)
		created = before
	}
	e.counters.submitted.add(created.Kind)
	if !sends {
		e.nudgeDriver(s.Backend)
		return created.Task(), false, nil
	}
	return e.await(ctx, created, s.Job)
}

// findEarlier calls earlier outside the transaction that creates the task: most replays and
// duplicates end here without a write.
func (s *Submission) findEarlier(ctx context.Context, e *Engine) (before *record.Record, err error) {
	if s.IdempotencyKey == "" && s.SessionID == "" {
		return nil, ctx.Err() // if the caller has disconnected, no task is created
	}
	err = e.store.View(ctx, func(r storage.Reader) (err error) {
		before, err = s.earlier(r, e.now())
		return err
	})
	return before, err
}

// lock waits for other submissions with the same idempotency key or session id, because their
// outcome decides whether this one creates a task.
func (s *Submission) lock(ctx context.Context, e *Engine) (unlock func(), err error) {
	unlock = func() {}
	for _, name := range [...]struct{ kind, text string }{{record.IdempotencyPrefix, s.IdempotencyKey}, {record.SessionPrefix, s.SessionID}} { // fixed order prevents deadlocks
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

// earlier returns the task of the same idempotency key, or nil. It returns an error if the
// session id is in use.
func (s *Submission) earlier(r storage.Reader, now int64) (*record.Record, error) {
	rec, err := s.replayed(r)
	if err != nil || rec != nil {
		return rec, err
	}
	return nil, s.checkSession(r, now)
}

// maxEnclosed is the maximum length in bytes of a body inside the record of its task: each read and
// write of the task includes it.
const maxEnclosed = 2 << 10

// record returns the task before it is submitted.
func (s *Submission) record(id string) *record.Record {
	s.Job.Token = backends.Token(id)
	s.body = storage.EncodeRecord(s.Job)
	r := &record.Record{
		ID: id, Key: s.Key, User: s.Payer.User, Backend: s.Backend,
		Kind: s.Job.Kind, Model: s.Job.Model, State: record.Queued, Delivery: record.None,
		SessionID: s.SessionID, SessionContext: s.SessionContext, MediaName: s.Job.Output.MediaName,
		Video: s.Video,
		Hold:  s.Quote.Hold, Quote: &s.Quote,
	}
	if s.IdempotencyKey != "" {
		r.IdempotencyHash = record.HashOf(s.IdempotencyKey)
	}
	if r.Enclosed = len(s.body) <= maxEnclosed; r.Enclosed {
		r.Body = s.body[1:] // without the version
	}
	return r
}

// accept writes the task that starts as rec, with its hold, keys and counts. It does not change rec,
// since it may run again.
func (s *Submission) accept(t *ledger.Txn, e *Engine, rec *record.Record, reservation *ledger.Reservation) (*record.Record, error) {
	maximum := int64(e.config.Load().Unfinished)
	n, err := record.Unfinished(t, s.Key)
	if err != nil {
		return nil, err
	}
	if n >= maximum {
		return nil, fault.New(fault.TooManyTasks, "this API key has %d unfinished tasks, at most %d are allowed", n, maximum).After(5 * time.Second)
	}
	l, err := record.ReadLoad(t, s.Backend)
	if err != nil {
		return nil, err
	}
	backend, _ := e.backend(s.Backend)
	d := e.driverOf(s.Backend)
	c := transition.Change{
		Known: rec, Counts: &l, Unfinished: n, Body: s.body, Fingerprint: s.Fingerprint, Reservation: reservation,
		Slot: l.Waiting == l.Deferred && l.HasSlot(backend.MaxRunning) && (d == nil || d.sendsAtOnce(rec.User)),
	}
	_, err = e.writer.Apply(context.Background(), t, transition.Submit, &c)
	return c.After, err
}

// reserveFault converts an error of the ledger to the fault of a submission.
func reserveFault(err error) error {
	if short, ok := errors.AsType[*ledger.Shortfall](err); ok {
		return short.Fault("this task", "")
	}
	return fault.OfStore(err)
}

// DuplicateSession is the error of a submission whose session id is in use. It wraps a
// [fault.Fault] with the code DUPLICATE_SESSION_ID.
type DuplicateSession struct {
	Task string // the task that uses the session id
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

// replayed returns the task of the idempotency key, or nil.
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
			"this idempotency key was used at %s for another task; use a new one", time.UnixMilli(have.Time).UTC().Format(time.RFC3339))
	}
	rec, err := record.Tasks.Get(r, have.Task)
	if err == nil && rec == nil {
		err = fmt.Errorf("task: the idempotency record refers to %s, which is missing", have.Task)
	}
	return rec, err
}

// checkSession returns a [DuplicateSession] if the session id is in use.
func (s *Submission) checkSession(r storage.Reader, now int64) error {
	if s.SessionID == "" {
		return nil
	}
	have, err := record.Sessions.Get(r, s.Key, record.HashOf(s.SessionID))
	if err != nil || have == nil || now >= have.Until {
		return err
	}
	return &DuplicateSession{have.Task, fault.At(fault.DuplicateSessionID, "session_id",
		"this session_id was used for task %s; it can be used again from %s", have.Task, time.UnixMilli(have.Until).UTC().Format(time.RFC3339))}
}

// deliveryWait is the maximum time that a submission waits for the delivery.
const deliveryWait = 10 * time.Second

// await delivers a new task and waits for the result, at most deliveryWait.
func (e *Engine) await(ctx context.Context, rec *record.Record, job backends.Job) (*record.Task, bool, error) {
	w := &waiter{accepted: make(chan struct{}), done: make(chan struct{})}
	e.store.Steps.Go(func() {
		defer close(w.done)
		if d := e.driverOf(rec.Backend); d != nil {
			d.deliver(rec, job, w)
		} else { // a reload has removed the backend before the job was sent
			e.applyDurably(transition.PutBack, transition.Change{Known: rec})
		}
	})
	timer := time.NewTimer(deliveryWait)
	defer timer.Stop()
	select {
	case <-w.accepted: // the answer does not wait until this is durable
		return rec.Task(), false, nil
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	if !w.stopWaiting() {
		<-w.done // the task is being rolled back
	}
	switch {
	case w.err != nil:
		return nil, false, w.err
	case w.refused != nil:
		return nil, false, fault.At(fault.UpstreamRejected, w.refused.Param, "%s", w.refused.Message)
	}
	// An error of this read does not matter: the task is durable.
	now := rec
	err := e.store.View(context.WithoutCancel(ctx), func(r storage.Reader) error {
		have, err := record.Tasks.Get(r, rec.ID)
		if err == nil && have != nil {
			now = have
		}
		return err
	})
	if err != nil {
		e.store.Log.Warn("cannot read a task after its submission", zap.String("task_id", rec.ID), zap.Error(err))
	}
	return now.Task(), false, nil
}
