package task

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/storage"
)

// figures count what an operator must know. They begin anew with the process.
type figures struct {
	polls           atomic.Int64 // questions to backends
	pollErrors      atomic.Int64 // polls without an answer
	unknownStatuses atomic.Int64 // polls that were answered by a word we do not know
	losses          atomic.Int64 // jobs that were made without a charge

	submitted perType // tasks that were made
	succeeded perType // and how they ended
	failed    perType
	takenBack perType // refused in the answer to their submission
	delivered atomic.Int64
	retried   atomic.Int64 // attempts at callbacks that failed
	dead      atomic.Int64 // callbacks given up
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

// Figures are what the engine has seen since the process began.
type Figures struct {
	Polls           int64 // questions to backends what has become of a task
	PollErrors      int64 // of these, without an answer
	UnknownStatuses int64 // of these, answered by a word that no adapter knows
	Losses          int64 // jobs that were made without a charge

	Submitted map[backends.MediaType]int64 // tasks that were made
	Succeeded map[backends.MediaType]int64
	Failed    map[backends.MediaType]int64
	TakenBack map[backends.MediaType]int64 // refused in the answer to their submission

	Delivered   int64 // callbacks that were acknowledged
	Undelivered int64 // attempts that were not, but may be tried again
	Dead        int64 // callbacks that were given up
}

// Figures returns the counts since Open.
func (e *Engine) Figures() Figures {
	f := &e.figures
	return Figures{
		Polls: f.polls.Load(), PollErrors: f.pollErrors.Load(), UnknownStatuses: f.unknownStatuses.Load(), Losses: f.losses.Load(),
		Submitted: f.submitted.load(), Succeeded: f.succeeded.load(), Failed: f.failed.load(), TakenBack: f.takenBack.load(),
		Delivered: f.delivered.Load(), Undelivered: f.retried.Load(), Dead: f.dead.Load(),
	}
}

// count counts the end of a task.
func (f *figures) count(rec *record) {
	if rec.State == Success {
		f.succeeded.add(rec.Kind)
	} else {
		f.failed.add(rec.Kind)
	}
}

// noted counts what came of an attempt at a callback.
func (f *figures) noted(state CallbackState) {
	switch state {
	case Delivered:
		f.delivered.Add(1)
	case Dead:
		f.dead.Add(1)
	default:
		f.retried.Add(1)
	}
}

// Census is how many tasks are not over, and how many callbacks wait.
type Census struct {
	Unfinished map[Group]int64
	Oldest     time.Time // when the oldest of these was submitted; zero: there is none
	Callbacks  int64     // that wait to be delivered
}

// Group are tasks of one backend, type and status.
type Group struct {
	Backend string
	Type    backends.MediaType
	Status  State
}

// Census counts the tasks that are not over. It reads each of them: it is for
// once a minute, not for each request.
func (e *Engine) Census(ctx context.Context) (c Census, err error) {
	err = e.view(ctx, func(r storage.Reader) error {
		c = Census{Unfinished: make(map[Group]int64)}
		oldest := int64(0)
		for rec, err := range tasks.Scan(r, due.Under()) {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			if rec.over() {
				continue
			}
			c.Unfinished[Group{rec.Backend, rec.Kind.Makes(), rec.status()}]++
			if oldest == 0 || rec.Created < oldest {
				oldest = rec.Created
			}
		}
		if oldest != 0 {
			c.Oldest = time.UnixMilli(oldest)
		}
		lo, hi := eventDue.Under().Bounds()
		return r.Scan(lo, hi, func(_, _ []byte) bool {
			c.Callbacks++
			return true
		})
	})
	return c, err
}
