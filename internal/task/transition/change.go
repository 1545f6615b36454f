package transition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// stage is the state of a task and, while the task is queued, the delivery of its job.
type stage uint16

const (
	absent       stage = 1 << iota // there is no record
	isWaiting                      // queued, delivery none
	isSending                      // queued, delivery sending
	isUnknown                      // queued, delivery unknown
	isAccepted                     // queued, delivery accepted
	isRunning                      // in_progress
	isSuccess                      // success
	isFailed                       // failed, with any delivery
	anyStage     = isUnfinished | isOver
	isUnfinished = isWaiting | isSending | isUnknown | atBackend
	isSubmitted  = isSending | isUnknown // the backend may have the job
	atBackend    = isAccepted | isRunning
	isOver       = isSuccess | isFailed
)

// Row is a row of the transition table.
type Row struct {
	Name  string
	from  stage                             // allowed stages before
	to    stage                             // allowed stages after; zero: the stage does not change
	by    cause                             // who may cause it
	when  func(c *Change) bool              // a further condition; nil: none
	write func(c *Change, r *record.Record) // sets the fields of the record
	also  []func(c *Change) error           // write the other records of the task
	audit string                            // the action in the audit log, if a person causes it
}

// cause is the actor that may cause a transition. may reports whether this change comes from it.
type cause struct {
	actor string
	may   func(c *Change) bool
}

// stageOf returns the stage of a task. An inconsistent record has a stage too: the driver must be
// able to claim it, and Verify reports it.
func stageOf(r *record.Record) stage {
	switch {
	case r == nil:
		return absent
	case r.State == record.Success:
		return isSuccess
	case r.State == record.Failed:
		return isFailed
	case r.State != record.Queued:
		return isRunning
	case r.Delivery == record.None:
		return isWaiting
	case r.Delivery == record.Sending:
		return isSending
	case r.Delivery == record.Unknown:
		return isUnknown
	}
	return isAccepted
}

// Change has the arguments and results of one transition. The caller sets Known, Before and the
// fields that the row uses; [Writer.Apply] sets After and Event.
type Change struct {
	Known  *record.Record // the task as the caller knows it
	Before *record.Record // the task as this transaction has read it; nil: there is none
	Owner  record.Owner   // set if a caller, user or operator causes the transition
	Actor  string         // the same actor for the audit log; empty: nothing is logged

	Counts      *record.Load // of the backend, if it has been read
	Unfinished  int64        // of the API key, if Counts is set for a submission
	Slot        bool         // the submission gets a slot at once
	Body        []byte
	Fingerprint journal.ID
	Reservation *ledger.Reservation

	Pause           time.Duration // before the task is sent again, or its job is searched for
	BusyTimeout     time.Duration
	PostponeFailure bool // the refusal concerns the backend, not the task
	Reason          backends.Reason
	Ref             *backends.Ref
	NoWebhook       bool
	Searchable      bool // the adapter can search for a job

	Due            int64
	Status         backends.Status
	NoAnswer, Gone bool // of a poll
	Results        []record.Media
	Cost           backends.Cost
	Failure        *record.Error
	Watch          int64  // until when the job is watched, Unix milliseconds
	Watched        bool   // the job has ended
	Ended          string // the owner of claims whose epoch has ended

	After *record.Record // the task after the transition; equals Before if it was not carried out
	Event *audit.Event   // the audit event that was written; nil: none

	t      storage.Txn
	writer *Writer
	now    time.Time
}

// Writer carries out transitions of tasks.
type Writer struct {
	Engine string // id of the engine
	Clock  func() time.Time

	// HasCallback reports whether callbacks of an API key are sent.
	HasCallback func(r storage.Reader, key string) (bool, error)
}

// errNoTransition reports a mistake in the table.
var errNoTransition = errors.New("task: a transition ends in a stage that its row does not allow")

// Apply carries out a transition within a transaction. It writes the record with its indexes, the
// counts, and the other records of the row. If the row does not allow the transition, done is false
// and nothing is written. The reason is the stage of the task, the actor, or the condition of the
// row.
func (w *Writer) Apply(ctx context.Context, t storage.Txn, tr *Row, c *Change) (done bool, err error) {
	c.t, c.writer, c.now, c.After = t, w, w.Clock(), c.Before
	from := stageOf(c.Before)
	if tr.from&from == 0 || !tr.by.may(c) || tr.when != nil && !tr.when(c) {
		return false, nil
	}
	next := *cmp.Or(c.Before, c.Known)
	if tr.write != nil {
		tr.write(c, &next)
	}
	c.After = &next
	for _, write := range tr.also {
		if err := write(c); err != nil {
			return false, err
		}
	}
	if tr.to == absent {
		c.After = nil
	}
	if stageOf(c.After)&cmp.Or(tr.to, from) == 0 {
		return false, fmt.Errorf("%w: %s of %s from %s to %s", errNoTransition, tr.Name, next.ID, c.Known.State, next.State)
	}
	if err := c.count(); err != nil {
		return false, err
	}
	if tr.audit != "" && c.Actor != "" {
		c.Event = &audit.Event{Actor: c.Actor, Action: tr.audit, User: next.User, Key: next.Key, Detail: next.ID}
		if err := audit.Record(ctx, t, c.now, c.Event); err != nil {
			return false, err
		}
	}
	return true, record.Tasks.Put(t, c.Before, c.After)
}

// MovesMoney reports whether the transition ends a hold and needs a transaction of the ledger.
func (tr *Row) MovesMoney() bool {
	return tr.to&isOver != 0 || tr.to == absent && tr.from&isOver == 0
}

// count updates the counts of the backend and of the API key.
func (c *Change) count() error {
	var d record.Load
	var open int64
	for _, side := range [...]struct {
		rec *record.Record
		by  int64
	}{{c.Before, -1}, {c.After, +1}} {
		if side.rec != nil && !side.rec.Over() {
			open += side.by
			d.Count(side.rec, side.by)
		}
	}
	one := cmp.Or(c.After, c.Before)
	if d != (record.Load{}) {
		if err := c.readCounts(); err != nil {
			return err
		}
		l := *c.Counts
		l.Running, l.Waiting, l.Deferred, l.Last = l.Running+d.Running, l.Waiting+d.Waiting, l.Deferred+d.Deferred, max(l.Last, one.Place)
		if err := l.Write(c.t, one.Backend); err != nil {
			return err
		}
	}
	if open == 0 {
		return nil
	}
	n := c.Unfinished
	if c.Before != nil {
		var err error
		if n, err = record.Unfinished(c.t, one.Key); err != nil {
			return err
		}
	}
	return record.SetUnfinished(c.t, one.Key, n+open)
}

// readCounts reads the counts of the backend unless c.Counts is set.
func (c *Change) readCounts() error {
	if c.Counts != nil {
		return nil
	}
	l, err := record.ReadLoad(c.t, cmp.Or(c.Before, c.Known).Backend)
	c.Counts = &l
	return err
}

func (c *Change) ms() int64        { return c.now.UnixMilli() }
func (c *Change) leased() bool     { return c.ms() < c.Before.Lease }
func (c *Change) inTime() bool     { return c.ms() < c.Before.Deadline }
func (c *Change) notCopying() bool { return c.Before.Copying == nil }

// soonest returns the earliest time of the next poll.
func (c *Change) soonest() int64 { return max(c.ms(), c.Before.Polled+WakePause.Milliseconds()) }

// begin sets the fields of a new task.
func (c *Change) begin(r *record.Record) {
	r.Created = c.ms()
	r.Deadline = c.now.Add(SubmissionLife).UnixMilli()
	r.Due = r.Deadline
	if c.Slot {
		c.send(r)
	}
}

// send gives a task a slot: after this transaction the backend may have the job. The task is due at
// the time of the first poll of a job that is accepted at once. So most tasks keep their index key on
// acceptance. A task with a longer delivery is postponed.
func (c *Change) send(r *record.Record) {
	c.claim(r)
	r.Delivery, r.Attempt = record.Sending, r.Fence
	r.Due = c.ms() + Interval(0, 0).Milliseconds()
}

// claim sets a new lease and fence. The result of an earlier claim no longer counts.
func (c *Change) claim(r *record.Record) {
	r.Fence++
	r.Owner, r.Woken = c.writer.Engine, false
	renew(r, c.ms())
}

func renew(r *record.Record, now int64) {
	r.Lease = now + LeaseFor.Milliseconds()
	r.Due = r.Lease
}

// release ends a claim. The task is due at the given time, or at once if a poll was requested during
// the claim.
func release(r *record.Record, due int64) {
	if r.Woken {
		due = min(due, r.Polled+WakePause.Milliseconds())
	}
	r.Lease, r.Woken, r.Due = 0, false, max(due, 1)
}

// nextCheck returns when the driver processes a waiting task, in Unix milliseconds.
func nextCheck(r *record.Record, busyTimeout time.Duration) int64 {
	due := r.Deadline
	if r.Resume != 0 {
		due = min(due, r.Resume)
		if r.RefusedSince != 0 {
			due = min(due, r.RefusedSince+busyTimeout.Milliseconds())
		}
	}
	return due
}

func (c *Change) accept(r *record.Record) {
	now := c.ms()
	// The first poll is at the due time that send has set, if that has not changed and is not too
	// soon.
	poll := now + Interval(0, 0).Milliseconds()
	if r.Due < r.Lease && r.Due >= now+WakePause.Milliseconds() && r.Due < poll+WakePause.Milliseconds() {
		poll = r.Due
	}
	r.Delivery, r.Ref, r.NoWebhook, r.AcceptedAt, r.UnknownSince = record.Accepted, c.Ref, c.NoWebhook, now, 0
	r.Refusals, r.RefusedSince, r.Refusal, r.Searches = 0, 0, "", 0
	r.Deadline = min(r.Created+SubmissionLife.Milliseconds(), now+record.JobLife.Milliseconds())
	r.Fence++ // the result of a running search no longer counts
	release(r, poll)
}

func (c *Change) search(r *record.Record) {
	end := r.UnknownSince + Grace.Milliseconds()
	if !c.Searchable {
		release(r, end)
		return
	}
	if r.Searches++; r.Searches == MaxSearches-1 {
		release(r, end)
		return
	}
	pause := record.Jitter(firstSearch)
	for range r.Searches {
		pause *= searchGrowth
	}
	release(r, min(end, c.ms()+pause.Milliseconds()))
}

// polled sets the fields from the result of a poll.
func (c *Change) polled(r *record.Record) {
	now := c.ms()
	r.Polled = now
	switch {
	case !c.Gone:
		r.Gone = 0
	case r.Gone == 0:
		r.Gone = now
	}
	r.Failing++
	if !c.NoAnswer {
		r.Failing = 0
	}
	switch c.Status.State {
	case backends.Running:
		r.State = record.InProgress
		r.Progress = max(r.Progress, min(c.Status.Progress, 99))
		r.UnknownStatus = ""
	case backends.Unknown:
		r.UnknownStatus = c.Status.Word
		r.UnknownStatusCount++
	}
	wait := Interval(time.Duration(now-r.AcceptedAt)*time.Millisecond, r.Failing)
	due := now + max(wait, min(c.Status.RetryAfter, MaxPause)).Milliseconds()
	if r.Deadline > now { // the task is due at its deadline
		due = min(due, r.Deadline)
	}
	release(r, due)
}

// end sets the fields of a task that ends.
func (c *Change) end(r *record.Record, state record.State) {
	r.State, r.Completed = state, c.ms()
	r.Fence++ // the result of a running poll or search no longer counts
	r.Results, r.Failure, r.VendorCost = c.Results, c.Failure, c.Cost
	r.Copying, r.CopyingSince, r.CopyingCost = nil, 0, backends.Cost{}
	r.Due, r.Lease, r.Woken, r.Resume, r.WatchUntil = 0, 0, false, 0, c.Watch
	if c.Watch != 0 {
		r.Due = c.now.Add(WatchEvery).UnixMilli()
	}
	if r.Quote != nil {
		r.Rule = r.Quote.Rule
	}
	r.Quote = nil
}
