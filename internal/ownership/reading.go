package ownership

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Progress is how far a user has read the text of a background response.
type Progress struct {
	Bytes int64 `json:"bytes"`           // from the start of the text
	Event int64 `json:"event,omitempty"` // number of the event with the last of them; zero: unknown
}

// Reading is a call that reads the text of a background response whose job is not settled. A job that
// ends without a usage report is charged what was read. If another node polls the job, the reading
// records it in the store. Its methods must not be called concurrently.
type Reading struct {
	objects  *Objects
	job      *Running // nil: another node polls it
	id       string
	read     Progress
	recorded int64 // bytes of it, in the store
	at       time.Time
}

// recordInterval is the time between two records of a reading.
const recordInterval = 500 * time.Millisecond

// Reading returns a reading of a response, or nil if it has no unsettled job. o is its record.
func (s *Objects) Reading(o *Object) *Reading {
	job := s.Job(o.ID)
	switch {
	case job != nil:
		return &Reading{objects: s, job: job, id: o.ID, read: job.Delivered()}
	case o.Job != nil:
		return &Reading{objects: s, id: o.ID, read: o.Job.Read, recorded: o.Job.Read.Bytes}
	}
	return nil
}

// Before returns how far earlier calls have read.
func (r *Reading) Before() Progress { return r.read }

// Deliver says how far the caller has read.
func (r *Reading) Deliver(ctx context.Context, p Progress) {
	if r.job != nil {
		r.job.Deliver(p)
		return
	}
	if p.Bytes > r.read.Bytes {
		r.read = p
	}
	if now := r.objects.store.Now(); now.Sub(r.at) >= recordInterval {
		r.at = now
		r.record(ctx)
	}
}

// End records the rest. It may be called for a nil Reading.
func (r *Reading) End(ctx context.Context) {
	if r != nil && r.job == nil {
		r.record(ctx)
	}
}

// record queues the record of what was read. It does not wait for the store.
func (r *Reading) record(ctx context.Context) {
	if r.read.Bytes == r.recorded {
		return
	}
	read := r.read
	r.recorded = read.Bytes
	err := r.objects.store.Post(ctx, func(t storage.Txn) error {
		before, err := objects.Get(t, hashOf(r.id))
		if err != nil || before == nil || before.Job == nil || before.Job.Read.Bytes >= read.Bytes {
			return err
		}
		after, job := *before, *before.Job
		job.Read = read
		after.Job = &job
		return objects.Put(t, before, &after)
	}, func(err error) {
		if err != nil {
			r.objects.log.Warn("cannot record what was read of a background response", zap.String("response", r.id), zap.Error(err))
		}
	})
	if err != nil {
		r.objects.log.Warn("cannot record what was read of a background response", zap.String("response", r.id), zap.Error(err))
	}
}

// learnReadings learns what the user has read of a response at other nodes.
func (s *Objects) learnReadings(ctx context.Context, r *Running) {
	if !s.store.Shared() {
		return
	}
	err := s.store.View(ctx, func(reader storage.Reader) error {
		o, err := objects.Get(reader, hashOf(r.Object.ID))
		if err == nil && o != nil && o.Job != nil {
			r.Deliver(o.Job.Read)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot read what was read of a background response", zap.String("response", r.Object.ID), zap.Error(err))
	}
}
