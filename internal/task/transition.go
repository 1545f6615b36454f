package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// stage is where a task stands: its state and, while it is queued, the delivery of its job.
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

// transition is a row of the table: a change that a task may make.
type transition struct {
	name  string
	from  stage                      // one of these
	to    stage                      // one of these; zero: the stage stays
	by    cause                      // who may cause it
	when  func(c *change) bool       // a further condition; nil: none
	write func(c *change, r *record) // sets the fields of the record
	also  []func(c *change) error    // writes what belongs to the task beside its record
	audit string                     // the action in the audit log, if a person causes it
}

// cause is who may cause a transition, and may reports whether the one who asks still is.
type cause struct {
	who string
	may func(c *change) bool
}

var (
	theCaller   = cause{"the caller who submits", func(*change) bool { return true }}
	theBackend  = cause{"the backend, by an answer or a webhook", func(*change) bool { return true }}
	theDriver   = cause{"a driver, while no look at the task is under way", func(c *change) bool { return !c.leased() }}
	theQueue    = cause{"the driver that hands out slots, also during a look: the claim ends with it", func(*change) bool { return true }}
	theClaimant = cause{"the driver that claimed the task last", func(c *change) bool { return c.known.fenced(c.before) }}
	theDelivery = cause{"the delivery that was begun last", func(c *change) bool { return c.known.Attempt == c.before.Attempt }}
	theOwner    = cause{"its owner or an operator", func(c *change) bool { return c.owner.owns(c.before.Key, c.before.User) }}
	anOperator  = cause{"an operator", func(c *change) bool { return c.owner == Anyone }}
	theSweeper  = cause{"the sweeper, while nobody has claimed the task since", theClaimant.may}
)

// The transitions of a task. [transitions.apply] carries them out; nothing else writes a task.
var (
	transitionSubmit = &transition{
		name: "submit", from: absent, to: isWaiting | isSending, by: theCaller,
		write: (*change).begin, also: effects{queueLast, hold, storeBody, reserveNames},
	}

	// Delivery of the job to the backend.

	transitionSend = &transition{
		name: "send", from: isWaiting, to: isSending, by: theQueue, when: (*change).inTime,
		write: (*change).send,
	}
	transitionPutAside = &transition{ // the backend has refused other tasks of the user with 403
		name: "put aside", from: isWaiting, by: theQueue, when: (*change).inTime,
		write: func(c *change, r *record) {
			r.Resume = c.ms() + c.pause.Milliseconds()
			r.release(r.lookWaiting(c.busyTimeout))
		},
	}
	transitionRequeue = &transition{ // after a look at a task that waits
		name: "requeue", from: isWaiting, by: theClaimant,
		write: func(c *change, r *record) {
			if r.RefusedSince != 0 && c.patient {
				r.RefusedSince = c.ms()
			}
			if c.ms() >= r.Resume {
				r.Resume = 0
			}
			r.release(r.lookWaiting(c.busyTimeout))
		},
		also: effects{queueLast},
	}
	transitionDefer = &transition{ // the backend has refused the task for now
		name: "defer", from: isSending, to: isWaiting, by: theDelivery,
		write: func(c *change, r *record) {
			// Each refusal makes the pause longer. Unless the refusal is the task's own, the
			// time after which the task fails begins again.
			pause := max(interval(0, r.Refusals), min(c.pause, maxPause))
			if r.RefusedSince == 0 || c.patient {
				r.RefusedSince = c.ms()
			}
			r.Delivery, r.Refusal, r.Resume, r.Woken = None, c.reason, c.ms()+pause.Milliseconds(), false
			r.Refusals++
			r.release(r.lookWaiting(c.busyTimeout))
		},
	}
	transitionPutBack = &transition{ // nothing was sent
		name: "put back", from: isSending, to: isWaiting, by: theDelivery,
		write: func(_ *change, r *record) {
			r.Delivery, r.Woken = None, false
			r.release(r.Deadline)
		},
	}
	transitionAccept = &transition{ // also while the delivery is unknown: there was one submission
		name: "accept", from: isSubmitted, to: isAccepted, by: theDelivery,
		write: (*change).accept,
	}
	transitionMarkUnknown = &transition{ // the answer of the backend is lost
		name: "mark unknown", from: isSending, to: isUnknown, by: theDelivery,
		write: func(c *change, r *record) {
			r.Delivery, r.UnknownSince = Unknown, c.ms()
			if c.searchable {
				r.release(c.ms() + interval(0, 0).Milliseconds())
			} else {
				r.release(c.ms() + grace.Milliseconds())
			}
		},
	}
	transitionSearch = &transition{ // the job was looked for, and it is still not known where it is
		name: "search", from: isUnknown, by: theClaimant,
		write: (*change).search,
	}
	transitionReject = &transition{
		name: "reject", from: isSubmitted, to: isFailed, by: theDelivery,
		write: func(c *change, r *record) { c.end(r, Failed); r.Delivery = Rejected },
		also:  effects{dropBody, void, announce},
	}
	transitionTakeBack = &transition{ // the refusal is the answer to the submission
		name: "take back", from: isSubmitted, to: absent, by: theDelivery,
		also: effects{dropBody, void, freeSessionID, freeIdempotencyKey},
	}

	// Looks at a task.

	transitionClaim = &transition{
		name: "claim", from: anyStage, by: theDriver,
		write: (*change).claim,
	}
	transitionPostpone = &transition{ // a task that is being sent is due before its lease ends
		name: "postpone", from: anyStage, by: theQueue, when: (*change).leased,
		write: func(_ *change, r *record) { r.Due = r.Lease },
	}
	transitionRelease = &transition{ // nothing was found out
		name: "release", from: anyStage, by: theClaimant,
		write: func(c *change, r *record) { r.release(c.due) },
	}
	transitionPoll = &transition{
		name: "poll", from: atBackend, to: atBackend, by: theClaimant,
		write: (*change).polled,
	}
	transitionWake = &transition{ // a poll that is under way may have come too early
		name: "wake", from: atBackend, by: theBackend,
		when: func(c *change) bool {
			return c.leased() && !c.before.Woken || !c.leased() && c.soonest() < c.before.Due
		},
		write: func(c *change, r *record) {
			if r.Woken = c.leased(); !r.Woken {
				r.Due = c.soonest()
			}
		},
	}
	transitionRetry = &transition{
		name: "retry", from: isUnfinished, by: anOperator, audit: "task.retry",
		when: func(c *change) bool { return c.before.retryable() && (!c.leased() || !c.before.Woken) },
		write: func(c *change, r *record) {
			if c.leased() {
				r.Woken = true
				return
			}
			r.Failing, r.Due = 0, c.ms()
			if r.deferred() {
				r.Resume = c.ms()
			}
		},
	}

	// The end.

	transitionCopy = &transition{ // the backend has succeeded, and the results are being copied
		name: "copy", from: atBackend, to: isRunning, by: theClaimant,
		write: func(c *change, r *record) {
			r.State, r.Progress, r.Polled = InProgress, 99, c.ms()
			r.Copying, r.CopyingCost, r.CopyingSince = c.results, c.cost, cmp.Or(r.CopyingSince, c.ms())
			r.renew(c.ms())
		},
	}
	transitionRenew = &transition{ // copying takes longer than a lease
		name: "renew", from: isRunning, by: theClaimant,
		write: func(c *change, r *record) { r.renew(c.ms()) },
	}
	transitionSucceed = &transition{
		name: "succeed", from: atBackend, to: isSuccess, by: theClaimant,
		write: func(c *change, r *record) { c.end(r, Success) },
		also:  effects{dropBody, capture, announce},
	}
	transitionFail = &transition{
		name: "fail", from: isUnfinished &^ isSending, to: isFailed, by: theClaimant,
		write: fail, also: failing,
	}
	transitionExpire = &transition{ // the backend is not configured any more
		name: "expire", from: isUnfinished, to: isFailed, by: theSweeper, when: func(c *change) bool { return !c.inTime() },
		write: fail, also: failing,
	}
	transitionWithdraw = &transition{ // nothing was sent
		name: "withdraw", from: isWaiting, to: isFailed, by: theOwner, audit: "task.cancel",
		write: fail, also: failing,
	}
	transitionCancel = &transition{ // the backend has confirmed that it ends the job
		name: "cancel", from: atBackend, to: isFailed, by: theOwner, audit: "task.cancel", when: (*change).notMade,
		write: fail, also: failing,
	}
	transitionAbandon = &transition{ // the backend is not configured any more
		name: "abandon", from: isUnfinished, to: isFailed, by: anOperator, audit: "task.cancel", when: (*change).notMade,
		write: fail, also: failing,
	}

	// After the end.

	transitionLose = &transition{ // the backend has succeeded too late
		name: "lose", from: isFailed, by: theBackend, when: func(c *change) bool { return c.before.Loss == "" },
		write: func(c *change, r *record) {
			r.Loss, r.VendorCost = "the backend succeeded after the task had failed", c.cost
		},
	}
	transitionWatch = &transition{ // the job of a task that has timed out is polled
		name: "watch", from: isOver, by: theClaimant,
		write: func(c *change, r *record) {
			r.Lease, r.Woken, r.Due = 0, false, c.ms()+watchEvery.Milliseconds()
			if c.watched || c.ms() >= r.WatchUntil {
				r.Due, r.WatchUntil = 0, 0
			}
		},
	}
	transitionForget = &transition{ // its retention is over
		name: "forget", from: isOver, to: absent, by: theSweeper,
		also: effects{freeIdempotencyKey, dropCallback},
	}
)

type effects = []func(c *change) error

// fail and failing are what every failure writes.
var failing = effects{dropBody, void, announce}

func fail(c *change, r *record) { c.end(r, Failed) }

// stage returns where a task stands. A record that contradicts itself has a stage too: Verify
// reports it, and the driver must be able to claim it.
func (r *record) stage() stage {
	switch {
	case r == nil:
		return absent
	case r.State == Success:
		return isSuccess
	case r.State == Failed:
		return isFailed
	case r.State != Queued:
		return isRunning
	case r.Delivery == None:
		return isWaiting
	case r.Delivery == Sending:
		return isSending
	case r.Delivery == Unknown:
		return isUnknown
	}
	return isAccepted
}

// change is one run of a transition. Those who cause it set known, before and what the row of the
// transition uses; [transitions.apply] sets the rest.
type change struct {
	known  *record // the task as those who cause the transition know it
	before *record // the task as this transaction reads it; nil: there is none
	owner  Owner   // who asks, if a person does
	actor  string  // the same person for the audit log; empty: nothing is logged

	counts      *load // of the backend, if it has been read
	unfinished  int64 // of the API key, if counts is set for a submission
	slot        bool  // the submission gets a slot at once
	body        []byte
	fingerprint journal.ID
	reservation *ledger.Reservation

	pause       time.Duration // before the task is tried again
	busyTimeout time.Duration
	patient     bool // the refusal speaks of the backend, not of the task
	reason      backends.Reason
	ref         *backends.Ref
	noWebhook   bool
	searchable  bool // the backend can look for a job

	due            int64
	status         backends.Status
	noAnswer, gone bool // of a poll
	results        []result
	cost           backends.Cost
	failure        *Error
	watch          int64 // until when the job is watched, Unix milliseconds
	watched        bool  // nothing more is expected of the job

	t     storage.Txn
	env   *transitions
	ctx   context.Context
	now   time.Time
	after *record // the task as it is then; before, if the transition is not carried out
	event *audit.Event
}

// transitions carries out the transitions of the tasks of an engine.
type transitions struct {
	id        string // of the engine
	clock     func() time.Time
	addresses func() CallbackAddresses // nil: there are no callbacks
}

// errNoTransition reports a mistake in the table.
var errNoTransition = errors.New("task: a transition leads to a stage that it does not name")

// apply carries out a transition within a transaction: it writes the record with its indexes, what
// counts the task, and what the row names beside it. It reports whether it has: it writes nothing
// if the task is at another stage, if the one who causes it may not any more, or if the condition
// of the row does not hold.
func (e *transitions) apply(ctx context.Context, t storage.Txn, tr *transition, c *change) (done bool, err error) {
	c.ctx, c.t, c.env, c.now, c.after = ctx, t, e, e.clock(), c.before
	from := c.before.stage()
	if tr.from&from == 0 || !tr.by.may(c) || tr.when != nil && !tr.when(c) {
		return false, nil
	}
	next := *cmp.Or(c.before, c.known)
	if tr.write != nil {
		tr.write(c, &next)
	}
	c.after = &next
	for _, write := range tr.also {
		if err := write(c); err != nil {
			return false, err
		}
	}
	if tr.to == absent {
		c.after = nil
	}
	if c.after.stage()&cmp.Or(tr.to, from) == 0 {
		return false, fmt.Errorf("%w: %s of %s from %s to %s", errNoTransition, tr.name, next.ID, c.known.State, next.State)
	}
	if err := c.count(); err != nil {
		return false, err
	}
	if tr.audit != "" && c.actor != "" {
		c.event = &audit.Event{Actor: c.actor, Action: tr.audit, User: next.User, Key: next.Key, Detail: next.ID}
		if err := audit.Record(ctx, t, c.now, c.event); err != nil {
			return false, err
		}
	}
	return true, tasks.Put(t, c.before, c.after)
}

// money reports whether the transition ends a hold, and so needs a transaction of the ledger.
func (tr *transition) money() bool {
	return tr.to&isOver != 0 || tr.to == absent && tr.from&isOver == 0
}

func (c *change) ms() int64     { return c.now.UnixMilli() }
func (c *change) leased() bool  { return c.ms() < c.before.Lease }
func (c *change) inTime() bool  { return c.ms() < c.before.Deadline }
func (c *change) notMade() bool { return c.before.Copying == nil }

// soonest is when the backend may be asked next.
func (c *change) soonest() int64 { return max(c.ms(), c.before.Polled+wakePause.Milliseconds()) }

// begin writes the task as it is submitted.
func (c *change) begin(r *record) {
	r.Created = c.ms()
	r.Deadline = milliseconds(c.now.Add(submissionLife))
	r.Due = r.Deadline
	if c.slot {
		c.send(r)
	}
}

// send gives a task a slot: from here on its job may be at the backend. The task is due when a job
// that was accepted at once is polled first: then, for most tasks, no index key moves. A task whose
// delivery takes longer is postponed.
func (c *change) send(r *record) {
	c.claim(r)
	r.Delivery, r.Attempt = Sending, r.Fence
	r.Due = c.ms() + interval(0, 0).Milliseconds()
}

// claim takes a task for a while. The result of an earlier claim does not count any more.
func (c *change) claim(r *record) {
	r.Fence++
	r.Owner, r.Woken = c.env.id, false
	r.renew(c.ms())
}

func (r *record) renew(now int64) {
	r.Lease = now + leaseFor.Milliseconds()
	r.Due = r.Lease
}

// release gives a claim back. The task is due at the given time, or at once if it was woken during
// the claim.
func (r *record) release(due int64) {
	if r.Woken {
		due = min(due, r.Polled+wakePause.Milliseconds())
	}
	r.Lease, r.Woken, r.Due = 0, false, max(due, 1)
}

// fenced reports whether nobody has claimed the task since.
func (r *record) fenced(now *record) bool { return now.Fence == r.Fence && now.Owner == r.Owner }

// retryable reports whether an operator can have the task looked at: it does not wait for a slot.
func (r *record) retryable() bool { return r.running() || r.deferred() }

// lookWaiting is when a task that waits is looked at, Unix milliseconds.
func (r *record) lookWaiting(busyTimeout time.Duration) int64 {
	due := r.Deadline
	if r.Resume != 0 {
		due = min(due, r.Resume)
		if r.RefusedSince != 0 {
			due = min(due, r.RefusedSince+busyTimeout.Milliseconds())
		}
	}
	return due
}

func (c *change) accept(r *record) {
	now := c.ms()
	// The first poll is when the task was due in any case, if it stands as send has left it and
	// that is not too soon.
	poll := now + interval(0, 0).Milliseconds()
	if r.Due < r.Lease && r.Due >= now+wakePause.Milliseconds() && r.Due < poll+wakePause.Milliseconds() {
		poll = r.Due
	}
	r.Delivery, r.Ref, r.NoWebhook, r.AcceptedAt, r.UnknownSince, r.Body = Accepted, c.ref, c.noWebhook, now, 0, nil
	r.Refusals, r.RefusedSince, r.Refusal, r.Searches = 0, 0, "", 0
	r.Deadline = min(r.Created+submissionLife.Milliseconds(), now+jobLife.Milliseconds())
	r.Fence++ // a search that is under way does not count any more
	r.release(poll)
}

func (c *change) search(r *record) {
	end := r.UnknownSince + grace.Milliseconds()
	if !c.searchable {
		r.release(end)
		return
	}
	if r.Searches++; r.Searches == maxSearches-1 {
		r.release(end)
		return
	}
	pause := jitter(firstSearch)
	for range r.Searches {
		pause *= searchGrowth
	}
	r.release(min(end, c.ms()+pause.Milliseconds()))
}

// polled writes what a poll has returned.
func (c *change) polled(r *record) {
	now := c.ms()
	r.Polled = now
	switch {
	case !c.gone:
		r.Gone = 0
	case r.Gone == 0:
		r.Gone = now
	}
	r.Failing++
	if !c.noAnswer {
		r.Failing = 0
	}
	switch c.status.State {
	case backends.Running:
		r.State = InProgress
		r.Progress = max(r.Progress, min(c.status.Progress, 99))
		r.UnknownStatus = ""
	case backends.Unknown:
		r.UnknownStatus = c.status.Word
		r.UnknownStatusCount++
	}
	wait := interval(time.Duration(now-r.AcceptedAt)*time.Millisecond, r.Failing)
	due := now + max(wait, min(c.status.RetryAfter, maxPause)).Milliseconds()
	if r.Deadline > now { // the task is looked at when its time is over
		due = min(due, r.Deadline)
	}
	r.release(due)
}

// end writes the end of a task.
func (c *change) end(r *record, state State) {
	r.State, r.Completed = state, c.ms()
	r.Fence++ // the result of a look that is under way does not count any more
	r.Results, r.Failure, r.VendorCost = c.results, c.failure, c.cost
	r.Copying, r.CopyingSince, r.CopyingCost = nil, 0, backends.Cost{}
	r.Due, r.Lease, r.Woken, r.Resume, r.WatchUntil = 0, 0, false, 0, c.watch
	if c.watch != 0 {
		r.Due = milliseconds(c.now.Add(watchEvery))
	}
	r.Quote, r.Body = nil, nil
}

// queueLast gives a new task, or one that is not deferred any more, the last place in the queue:
// behind others that may be taken.
func queueLast(c *change) error {
	if c.before != nil && c.before.Resume == c.after.Resume {
		return nil
	}
	err := c.readCounts()
	if err == nil {
		c.after.Place = c.counts.Last + 1
	}
	return err
}

// hold holds the greatest price of the task.
func hold(c *change) error {
	if c.after.Hold == 0 {
		return nil
	}
	return c.reservation.Hold(c.t.(*ledger.Txn), c.now, c.after.User, holdID(c.after.ID), c.after.ID)
}

// capture charges what was delivered and releases the rest of the hold.
func capture(c *change) error { return c.endHold(c.before.price(c.after.Results)) }

// void releases the hold.
func void(c *change) error { return c.endHold(0) }

func (c *change) endHold(cost money.Amount) (err error) {
	if r := c.after; r.Hold > 0 {
		usage := journal.Usage{User: r.User, Key: r.Key, Model: r.Model}
		r.Charged, err = journal.EndHold(c.t, c.now, usage, holdID(r.ID), cost)
	}
	return err
}

// storeBody writes a body that is too long for the record.
func storeBody(c *change) error {
	if c.after.Enclosed {
		return nil
	}
	return c.t.Set(storage.Key(bodyPrefix, c.after.ID), c.body, time.Time{})
}

func dropBody(c *change) error {
	if c.before.Enclosed {
		return nil
	}
	return c.t.Delete(storage.Key(bodyPrefix, c.before.ID))
}

// reserveNames takes the session id and the idempotency key.
func reserveNames(c *change) (err error) {
	r := c.after
	if r.SessionID != "" {
		until := milliseconds(c.now.Add(SessionWindow))
		err = sessions.Put(c.t, nil, &sessionRecord{r.Key, hashOf(r.SessionID), r.ID, until})
	}
	if err == nil && r.IdempotencyHash != "" {
		err = idempotencyKeys.Put(c.t, nil, &idempotencyRecord{r.Key, r.IdempotencyHash, r.ID, c.fingerprint, c.ms()})
	}
	return err
}

// freeSessionID frees the session id if the task still has it.
func freeSessionID(c *change) error {
	r := c.before
	if r.SessionID == "" {
		return nil
	}
	have, err := sessions.Get(c.t, r.Key, hashOf(r.SessionID))
	if err != nil || have == nil || have.Task != r.ID {
		return err
	}
	return sessions.Put(c.t, have, nil)
}

func freeIdempotencyKey(c *change) error {
	r := c.before
	if r.IdempotencyHash == "" {
		return nil
	}
	return idempotencyKeys.Put(c.t, &idempotencyRecord{Key: r.Key, Hash: r.IdempotencyHash}, nil)
}

// announce puts the callback of a task that ends into the outbox, if its API key has an address.
func announce(c *change) error {
	addresses, r := c.env.addresses(), c.after
	if addresses == nil {
		return nil
	}
	_, has, err := addresses.Address(c.t, r.Key)
	if err != nil {
		return fmt.Errorf("the callback address of key %s: %w", r.Key, err)
	}
	if !has {
		return nil
	}
	r.Event = true
	return events.Put(c.t, nil, &eventRecord{
		Task: r.ID, Key: r.Key, User: r.User, Created: r.Completed, State: Undelivered, Due: r.Completed,
	})
}

func dropCallback(c *change) error {
	if !c.before.Event {
		return nil
	}
	return events.Delete(c.t, c.before.ID)
}

// CallbackAddresses says where the callbacks of API keys go.
type CallbackAddresses interface {
	// Address returns that of a key; false when it has none, or none that is not
	// disabled. It is called inside transactions, that of the end of a task
	// among them.
	Address(r storage.Reader, key string) (Address, bool, error)

	// Disable ends the use of an address, whose receiver has said that it is
	// gone. It does nothing when the key has another by now. The event is what was
	// recorded of it; nil: nothing.
	Disable(t storage.Txn, now time.Time, key, url string) (*audit.Event, error)
}

// Address is where callbacks go.
type Address struct {
	URL string

	// Secrets sign callbacks: the one in force and, while it is rotated, the one
	// before. There is at least one, and none is empty.
	Secrets [][]byte
}

// count brings the counts of the backend and of the API key from what the task was to what it is.
func (c *change) count() error {
	d, one := between(c.before, c.after), cmp.Or(c.after, c.before)
	if d.running != 0 || d.waiting != 0 || d.deferred != 0 {
		if err := c.readCounts(); err != nil {
			return err
		}
		if err := c.counts.add(d, one).write(c.t, one.Backend); err != nil {
			return err
		}
	}
	if d.open == 0 {
		return nil
	}
	n := c.unfinished
	if c.before != nil {
		var err error
		if n, err = unfinished(c.t, one.Key); err != nil {
			return err
		}
	}
	return setUnfinished(c.t, one.Key, n+d.open)
}

// readCounts reads the counts of the backend, unless the caller of the transition has.
func (c *change) readCounts() error {
	if c.counts != nil {
		return nil
	}
	l, err := readLoad(c.t, cmp.Or(c.before, c.known).Backend)
	c.counts = &l
	return err
}
