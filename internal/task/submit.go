package task

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Submission is a generation that somebody asks for. It has been checked against
// its family, and its defaults are filled in.
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
	Fingerprint    ledger.ID

	body []byte // Job as it is written
}

// The limits of a submission, in characters (docs/reference/tasks.md#platform-body).
const (
	MaxSessionID      = 50
	MaxSessionContext = 1000
)

const (
	// handoverWait is how long a submission waits for the hand-over.
	handoverWait = 10 * time.Second

	// submitTimeout is how long a backend may take to accept a job.
	submitTimeout = 30 * time.Second

	// leaseFor is how long a claim is held. It is longer than anything that is
	// done under one without renewing it.
	leaseFor = time.Minute

	// submissionLife is how long a task lives at most (docs/reference/tasks.md#states).
	submissionLife = 72 * time.Hour

	// handoverLife is how long a job lives at a backend at most.
	handoverLife = 24 * time.Hour
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
		if refused := s.claim().Validate("Idempotency-Key"); refused != nil {
			return refused
		}
	}
	if _, found := e.backend(s.Backend); !found {
		return fault.New(fault.UpstreamUnavailable, "the backend of this model is not configured").After(30 * time.Second)
	}
	return nil
}

// Submit makes a task, durable with its money, and begins to hand it over where
// a slot is free; then it waits for a while until a backend has it or refuses it.
// That a backend has it may be noted only after Submit has returned. A replay returns the task that was made the first time, as
// it stands now. What surely came to no job leaves nothing behind but the error.
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
	// From here on it is done whether the caller stays or not: half of it, with an
	// outcome that nobody has looked for, would be a job in doubt.
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
	mine := made.Handover == Sending // this submission sends it, and nobody who has claimed it since
	if before != nil {               // an earlier run was committed without anybody knowing
		mine = mine && before.Handover == Sending && before.Attempt == made.Attempt && made.fenced(before)
		made = before
	}
	e.figures.submitted.add(made.Kind)
	if !mine {
		e.nudge(s.Backend)
		return made.task(), false, nil
	}
	return e.await(ctx, made, s.Job)
}

// first is [Submission.before] outside the transaction that makes the task: most
// of what has been made or may not be is found here, and costs nothing more.
func (s *Submission) first(ctx context.Context, e *Engine) (before *record, err error) {
	if s.IdempotencyKey == "" && s.SessionID == "" {
		return nil, ctx.Err() // who has left before anything was done has asked for nothing
	}
	err = e.view(ctx, func(r storage.Reader) (err error) {
		before, err = s.before(r, e.now())
		return err
	})
	return before, err
}

// turn waits for others with the same idempotency key or session id: what they
// do decides what this one is.
func (s *Submission) turn(ctx context.Context, e *Engine) (done func(), err error) {
	done = func() {}
	for _, name := range [...]struct{ kind, text string }{{claimPrefix, s.IdempotencyKey}, {sessionPrefix, s.SessionID}} { // always in this order: nobody waits in a circle
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

// mostEnclosed is how long a body may be, in bytes, that its task encloses: whoever
// reads or changes a task that waits has its body on his hands.
const mostEnclosed = 2 << 10

// record is the task as it begins.
func (s *Submission) record(id string) *record {
	s.Job.Token = backends.Token(id)
	s.body = storage.EncodeRecord(s.Job)
	r := &record{
		ID: id, Key: s.Key, User: s.Payer.User, Backend: s.Backend,
		Kind: s.Job.Kind, Model: s.Job.Model, State: Queued, Handover: None,
		SessionID: s.SessionID, SessionContext: s.SessionContext, MediaName: s.Job.Output.MediaName,
		Hold: s.Quote.Hold, Quote: &s.Quote,
	}
	if s.IdempotencyKey != "" {
		r.Claim = hashOf(s.IdempotencyKey)
	}
	if r.Enclosed = len(s.body) <= mostEnclosed; r.Enclosed {
		r.Body = s.body[1:] // without the version
	}
	return r
}

// accept writes the task, of which rec is the beginning, with everything that
// belongs to it. Where a slot is free it is being sent. It leaves rec as it is,
// since it may be run again.
func (s *Submission) accept(t *ledger.Txn, e *Engine, rec *record, reservation *ledger.Reservation) (*record, error) {
	now := e.store.Now()
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
	made := *rec
	made.Created = milliseconds(now)
	made.Deadline = milliseconds(now.Add(submissionLife))
	made.Due = made.Deadline
	made.Place = l.Last + 1
	backend, _ := e.backend(s.Backend)
	if l.Waiting == l.Deferred && l.room(backend.MaxRunning) && e.open(s.Backend, rec.User) {
		made.send(e.id, milliseconds(now))
	}
	if rec.Hold > 0 {
		if err := reservation.Hold(t, now, rec.User, holdID(rec.ID), rec.ID); err != nil {
			return nil, err
		}
	}
	if !rec.Enclosed {
		if err := t.Set(storage.Key(bodyPrefix, rec.ID), s.body, time.Time{}); err != nil {
			return nil, err
		}
	}
	if err := s.reserveNames(t, now, rec.ID); err != nil {
		return nil, err
	}
	d := between(nil, &made)
	if err := l.add(d, &made).write(t, made.Backend); err != nil {
		return nil, err
	}
	if err := setUnfinished(t, made.Key, n+d.open); err != nil {
		return nil, err
	}
	return &made, write(t, nil, &made)
}

// send gives a task a slot: from here on its job may be at the backend. The task
// is due when a job is asked for that was accepted at once: of most, nothing that
// leads to them moves then. Of one that takes longer, see [Engine.claimDue].
func (r *record) send(owner string, now int64) {
	r.claim(owner, now)
	r.Handover, r.Attempt = Sending, r.Fence
	r.Due = now + interval(0, 0).Milliseconds()
}

// claim takes a task for a while: what came of an earlier claim does not count
// any more.
func (r *record) claim(owner string, now int64) {
	r.Fence++
	r.Owner = owner
	r.Lease = now + leaseFor.Milliseconds()
	r.Due, r.Woken = r.Lease, false
}

// unaffordable turns what the ledger says into what a caller may hear of it.
func unaffordable(err error) error {
	short, ok := errors.AsType[*ledger.Short](err)
	switch {
	case !ok:
		return fault.OfStore(err)
	case short.Owed > 0:
		return fault.New(fault.InsufficientQuota, "spending is paused, because %v is owed after a refund or a dispute; ask the operator", short.Owed)
	case short.Budget != "" && short.Budget != ledger.UserScope:
		return fault.New(fault.InsufficientKeyQuota, "this task may cost up to %v, and the budget of this API key has %v left", short.Needed, short.Available)
	case short.Budget != "":
		return fault.New(fault.InsufficientQuota, "this task may cost up to %v, and the budget of your account has %v left", short.Needed, short.Available)
	}
	return fault.New(fault.InsufficientQuota, "this task may cost up to %v, and %s", short.Needed, short.There())
}
