package task

import (
	"cmp"
	"context"
	"time"

	"sync/atomic"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Stats has counts since the process started.
type Stats struct {
	Polls           int64 // of jobs at backends
	PollErrors      int64 // polls without an answer
	UnknownStatuses int64 // polls that returned a status that the adapter does not know
	Losses          int64 // results without a charge

	Submitted  map[backends.MediaType]int64 // tasks that were created
	Succeeded  map[backends.MediaType]int64
	Failed     map[backends.MediaType]int64
	RolledBack map[backends.MediaType]int64 // tasks removed because the answer to the submission was a refusal

	Delivered   int64 // acknowledged callbacks
	Undelivered int64 // failed attempts that are repeated
	Dead        int64 // callbacks that are not sent again
}

// Stats returns the counts since Open.
func (e *Engine) Stats() Stats {
	f := &e.counters
	delivered, undelivered, dead := e.sender.Counts()
	return Stats{
		Polls: f.polls.Load(), PollErrors: f.pollErrors.Load(), UnknownStatuses: f.unknownStatuses.Load(), Losses: f.losses.Load(),
		Submitted: f.submitted.load(), Succeeded: f.succeeded.load(), Failed: f.failed.load(), RolledBack: f.rolledBack.load(),
		Delivered: delivered, Undelivered: undelivered, Dead: dead,
	}
}

// Backlog has the numbers of unfinished tasks and of waiting callbacks.
type Backlog struct {
	Unfinished map[Group]int64
	Oldest     time.Time // when the oldest of these tasks was submitted; zero: there is none
	Callbacks  int64     // callbacks that wait for delivery
}

// Group identifies the tasks of one backend, type and status.
type Group struct {
	Backend string
	Type    backends.MediaType
	Status  record.State
}

// Backlog counts the unfinished tasks. It reads each of them: do not call it for each request.
func (e *Engine) Backlog(ctx context.Context) (c Backlog, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		c = Backlog{Unfinished: make(map[Group]int64)}
		oldest := int64(0)
		for rec, err := range record.Tasks.Scan(r, record.Due.Under()) {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			if rec.Over() {
				continue
			}
			c.Unfinished[Group{rec.Backend, rec.Kind.Makes(), rec.Status()}]++
			if oldest == 0 || rec.Created < oldest {
				oldest = rec.Created
			}
		}
		if oldest != 0 {
			c.Oldest = time.UnixMilli(oldest)
		}
		lo, hi := record.EventsDue.Under().Bounds()
		return r.Scan(lo, hi, func(_, _ []byte) bool {
			c.Callbacks++
			return true
		})
	})
	return c, err
}

// counters count events since the process started.
type counters struct {
	polls           atomic.Int64
	pollErrors      atomic.Int64 // polls without an answer
	unknownStatuses atomic.Int64 // polls that returned an unknown status
	losses          atomic.Int64 // results without a charge

	submitted  perType // tasks that were created
	succeeded  perType
	failed     perType
	rolledBack perType // tasks removed because the answer to the submission was a refusal
}

// perType is a count for each type of task.
type perType struct{ image, video atomic.Int64 }

func (p *perType) add(kind backends.JobKind) {
	if kind.Makes() == backends.ImageFile {
		p.image.Add(1)
	} else {
		p.video.Add(1)
	}
}

func (p *perType) load() map[backends.MediaType]int64 {
	return map[backends.MediaType]int64{backends.ImageFile: p.image.Load(), backends.VideoFile: p.video.Load()}
}

// count counts the end of a task.
func (f *counters) count(rec *record.Record) {
	if rec.State == record.Success {
		f.succeeded.add(rec.Kind)
	} else {
		f.failed.add(rec.Kind)
	}
}
