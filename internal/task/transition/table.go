package transition

import (
	"cmp"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

var (
	theCaller   = cause{"the caller who submits", func(*Change) bool { return true }}
	theBackend  = cause{"the backend, by an answer or a webhook", func(*Change) bool { return true }}
	theDriver   = cause{"a driver, while the task is not claimed", func(c *Change) bool { return !c.leased() }}
	theQueue    = cause{"the driver that assigns slots, also during a claim, which ends with it", func(*Change) bool { return true }}
	theClaimant = cause{"the driver that claimed the task last", func(c *Change) bool { return c.Known.Fenced(c.Before) }}
	theDelivery = cause{"the delivery that was begun last", func(c *Change) bool { return c.Known.Attempt == c.Before.Attempt }}
	theOwner    = cause{"its owner or an operator", func(c *Change) bool { return c.Owner.Owns(c.Before.Key, c.Before.User) }}
	anOperator  = cause{"an operator", func(c *Change) bool { return c.Owner == record.Anyone }}
	anotherNode = cause{"another node, when the epoch of the claimant has ended", func(c *Change) bool { return c.Before.Owner == c.Ended }}
	theSweeper  = cause{"the sweeper, if no driver has claimed the task since", theClaimant.may}
)

// The transitions of a task. [Writer.Apply] carries them out; nothing else writes a task.
var (
	Submit = &Row{
		Name: "submit", from: absent, to: isWaiting | isSending, by: theCaller,
		write: (*Change).begin, also: effects{queueLast, hold, storeBody, reserveNames},
	}

	// Delivery of the job to the backend.

	Send = &Row{
		Name: "send", from: isWaiting, to: isSending, by: theQueue, when: (*Change).inTime,
		write: (*Change).send,
	}
	SetAside = &Row{ // the backend has refused other tasks of the user with 403
		Name: "set aside", from: isWaiting, by: theQueue, when: (*Change).inTime,
		write: func(c *Change, r *record.Record) {
			r.Resume = c.ms() + c.Pause.Milliseconds()
			release(r, nextCheck(r, c.BusyTimeout))
		},
	}
	Requeue = &Row{ // the driver has checked a waiting task
		Name: "requeue", from: isWaiting, by: theClaimant,
		write: func(c *Change, r *record.Record) {
			if r.RefusedSince != 0 && c.PostponeFailure {
				r.RefusedSince = c.ms()
			}
			if c.ms() >= r.Resume {
				r.Resume = 0
			}
			release(r, nextCheck(r, c.BusyTimeout))
		},
		also: effects{queueLast},
	}
	Defer = &Row{ // the backend has refused the task for now
		Name: "defer", from: isSending, to: isWaiting, by: theDelivery,
		write: func(c *Change, r *record.Record) {
			// The pause grows with each refusal. If the refusal does not concern this task, the
			// time after which the task fails starts again.
			pause := max(Interval(0, r.Refusals), min(c.Pause, MaxPause))
			if r.RefusedSince == 0 || c.PostponeFailure {
				r.RefusedSince = c.ms()
			}
			r.Delivery, r.Refusal, r.Resume, r.Woken = record.None, c.Reason, c.ms()+pause.Milliseconds(), false
			r.Refusals++
			release(r, nextCheck(r, c.BusyTimeout))
		},
	}
	PutBack = &Row{ // nothing was sent
		Name: "put back", from: isSending, to: isWaiting, by: theDelivery,
		write: func(_ *Change, r *record.Record) {
			r.Delivery, r.Woken = record.None, false
			release(r, r.Deadline)
		},
	}
	Accept = &Row{ // also while the delivery is unknown: the job was sent once
		Name: "accept", from: isSubmitted, to: isAccepted, by: theDelivery,
		write: (*Change).accept,
	}
	MarkUnknown = &Row{ // the backend has not confirmed the delivery
		Name: "mark unknown", from: isSending, to: isUnknown, by: theDelivery,
		write: func(c *Change, r *record.Record) {
			r.Delivery, r.UnknownSince = record.Unknown, c.ms()
			if c.Searchable {
				release(r, c.ms()+c.Pause.Milliseconds())
			} else {
				release(r, c.ms()+Grace.Milliseconds())
			}
		},
	}
	Search = &Row{ // a search has not found the job
		Name: "search", from: isUnknown, by: theClaimant,
		write: (*Change).search,
	}
	Reject = &Row{
		Name: "reject", from: isSubmitted, to: isFailed, by: theDelivery,
		write: func(c *Change, r *record.Record) { c.end(r, record.Failed); r.Delivery = record.Rejected },
		also:  effects{dropBody, void, announce},
	}
	RollBack = &Row{ // the refusal is the answer to the submission
		Name: "roll back", from: isSubmitted, to: absent, by: theDelivery,
		also: effects{dropBody, void, freeSessionID, freeIdempotencyKey},
	}

	// Processing of a task.

	Claim = &Row{
		Name: "claim", from: anyStage, by: theDriver,
		write: (*Change).claim,
	}
	Postpone = &Row{ // a task that is being sent is due before its lease ends
		Name: "postpone", from: anyStage, by: theQueue, when: (*Change).leased,
		write: func(_ *Change, r *record.Record) { r.Due = r.Lease },
	}
	Release = &Row{ // without a result
		Name: "release", from: anyStage, by: theClaimant,
		write: func(c *Change, r *record.Record) { release(r, c.Due) },
	}
	Free = &Row{ // the epoch of the node that has claimed the task has ended
		Name: "free", from: anyStage, by: anotherNode, when: (*Change).leased,
		write: func(c *Change, r *record.Record) { r.Lease, r.Woken, r.Due = 0, false, c.ms() },
	}
	Poll = &Row{
		Name: "poll", from: atBackend, to: atBackend, by: theClaimant,
		write: (*Change).polled,
	}
	Wake = &Row{ // a running poll may have read an older status
		Name: "wake", from: atBackend, by: theBackend,
		when: func(c *Change) bool {
			return c.leased() && !c.Before.Woken || !c.leased() && c.soonest() < c.Before.Due
		},
		write: func(c *Change, r *record.Record) {
			if r.Woken = c.leased(); !r.Woken {
				r.Due = c.soonest()
			}
		},
	}
	Retry = &Row{
		Name: "retry", from: isUnfinished, by: anOperator, audit: "task.retry",
		when: func(c *Change) bool { return c.Before.Retryable() && (!c.leased() || !c.Before.Woken) },
		write: func(c *Change, r *record.Record) {
			if c.leased() {
				r.Woken = true
				return
			}
			r.Failing, r.Due = 0, c.ms()
			if r.Deferred() {
				r.Resume = c.ms()
			}
		},
	}

	// The end.

	Copy = &Row{ // the backend has succeeded: copying the results begins
		Name: "copy", from: atBackend, to: isRunning, by: theClaimant,
		write: func(c *Change, r *record.Record) {
			r.State, r.Progress, r.Polled = record.InProgress, 99, c.ms()
			r.Copying, r.CopyingCost, r.CopyingSince = c.Results, c.Cost, cmp.Or(r.CopyingSince, c.ms())
			renew(r, c.ms())
		},
	}
	Renew = &Row{ // copying takes longer than a lease
		Name: "renew", from: isRunning, by: theClaimant,
		write: func(c *Change, r *record.Record) { renew(r, c.ms()) },
	}
	Succeed = &Row{
		Name: "succeed", from: atBackend, to: isSuccess, by: theClaimant,
		write: func(c *Change, r *record.Record) { c.end(r, record.Success) },
		also:  effects{dropBody, capture, announce},
	}
	Fail = &Row{
		Name: "fail", from: isUnfinished &^ isSending, to: isFailed, by: theClaimant,
		write: fail, also: failing,
	}
	Expire = &Row{ // the backend is no longer configured
		Name: "expire", from: isUnfinished, to: isFailed, by: theSweeper, when: func(c *Change) bool { return !c.inTime() },
		write: fail, also: failing,
	}
	Withdraw = &Row{ // nothing was sent
		Name: "withdraw", from: isWaiting, to: isFailed, by: theOwner, audit: "task.cancel",
		write: fail, also: failing,
	}
	Cancel = &Row{ // the backend has confirmed that it ends the job
		Name: "cancel", from: atBackend, to: isFailed, by: theOwner, audit: "task.cancel", when: (*Change).notCopying,
		write: fail, also: failing,
	}
	Abandon = &Row{ // the backend is no longer configured
		Name: "abandon", from: isUnfinished, to: isFailed, by: anOperator, audit: "task.cancel", when: (*Change).notCopying,
		write: fail, also: failing,
	}

	// After the end.

	Lose = &Row{ // the backend has succeeded after the task had failed
		Name: "lose", from: isFailed, by: theBackend, when: func(c *Change) bool { return c.Before.Loss == "" },
		write: func(c *Change, r *record.Record) {
			r.Loss, r.VendorCost = "the backend succeeded after the task had failed", c.Cost
		},
	}
	Watch = &Row{ // the job of a task that has timed out is polled
		Name: "watch", from: isOver, by: theClaimant,
		write: func(c *Change, r *record.Record) {
			r.Lease, r.Woken, r.Due = 0, false, c.ms()+WatchEvery.Milliseconds()
			if c.Watched || c.ms() >= r.WatchUntil {
				r.Due, r.WatchUntil = 0, 0
			}
		},
	}
	Delete = &Row{ // the caller has deleted it
		Name: "delete", from: isOver, by: theOwner, when: func(c *Change) bool { return c.Before.Deleted == 0 },
		write: func(c *Change, r *record.Record) { r.Deleted = c.ms() },
	}
	Forget = &Row{ // the retention of the task has ended
		Name: "forget", from: isOver, to: absent, by: theSweeper,
		also: effects{freeIdempotencyKey, dropCallback},
	}
)

type effects = []func(c *Change) error

// failing are the effects of every failure; fail writes the record.
var failing = effects{dropBody, void, announce}

func fail(c *Change, r *record.Record) { c.end(r, record.Failed) }
