package tasks

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// form is the format of the body of a submission, and of its answer.
type form struct {
	name   string // in log lines
	decode func(body []byte) (r generation.Request, ignored []string, refused *fault.Fault)
	answer func(s *submission) any
}

// submission is a request for a generation.
type submission struct {
	*request
	form    *form
	started time.Time

	dryRun         bool
	idempotencyKey string             // empty: none
	bytes          int                // of the body
	spec           generation.Request // decoded body
	ignored        []string           // the paths of members that have no effect
	generation     caddymodule.Generation
	task           *task.Task
	replayed       bool
}

// readHead reads the query and the idempotency key. params are the allowed parameters.
func (s *submission) readHead(params []string) (f *fault.Fault) {
	q := query.Of(s.r)
	q.CheckNames(params)
	if s.dryRun = q.Flag("dry_run"); q.Fault != nil {
		return q.Fault
	}
	s.idempotencyKey, f = reply.IdempotencyKey(s.r.Header)
	return f
}

// serve reads and prices the submission, and passes it to the engine.
func (s *submission) serve() error {
	if err := s.checkFunds(); err != nil {
		return err
	}
	if refused := s.price(); refused != nil {
		return refused
	}
	if s.dryRun {
		estimate := s.tasks.app.Estimate(&s.generation)
		estimate.Ignored = s.ignored
		return s.answer(estimate)
	}
	// Only submissions that are stored count.
	if refused := s.spend("bytes", int64(s.bytes), bytesPerMinute); refused != nil {
		return fault.New(fault.RateLimited, "the bodies of your account are more than %d MiB per minute", bytesPerMinute>>20).After(refused.RetryAfter)
	}
	if err := s.untilEnd(s.submit); err != nil {
		return err
	}
	s.setPlaceholder("http.modelgate.task_id", s.task.ID)
	if s.replayed {
		s.w.Header().Set("Idempotent-Replayed", "true")
	}
	return s.answer(s.form.answer(s))
}

// checkFunds refuses a caller without money before the body is read, if every generation costs
// money. It accepts a submission that repeats an idempotency key.
func (s *submission) checkFunds() error {
	if s.dryRun || !s.tasks.app.GenerationsCost() {
		return nil
	}
	f := auth.CheckFunds(s.r.Context(), s.runtime, s.principal)
	switch {
	case f == nil:
		return nil
	case s.idempotencyKey == "":
		return f
	}
	used, err := s.runtime.Tasks.KeyUsed(s.r.Context(), s.principal.KeyID, s.idempotencyKey)
	if err != nil || used {
		return err
	}
	return f
}

// price reads the body and finds the backend and the price of the task.
func (s *submission) price() *fault.Fault {
	body, refused := s.readBody()
	if refused != nil {
		return refused
	}
	s.bytes = len(body)
	if s.spec, s.ignored, refused = s.form.decode(body); refused != nil {
		return refused
	}
	model := s.spec.Model
	if s.spec.Passing() {
		model = cmp.Or(model, s.tasks.app.DefaultModel)
	}
	if model != "" && !s.principal.MayUse(model) {
		return fault.At(fault.Forbidden, "model", "this API key may not use the model %.256q", model)
	}
	s.generation, refused = s.tasks.app.Generation(s.spec)
	if refused == nil {
		s.setPlaceholder("http.modelgate.model", s.generation.Model)
	}
	return refused
}

// submit creates the task, or finds the task of the idempotency key.
func (s *submission) submit(ctx context.Context) (err error) {
	job := s.generation.Submission(auth.Payer(s.principal), s.principal.KeyID)
	if s.idempotencyKey != "" {
		job.IdempotencyKey = s.idempotencyKey
		if job.Fingerprint, err = s.spec.Fingerprint(); err != nil {
			return err
		}
	}
	s.task, s.replayed, err = s.runtime.Tasks.Submit(ctx, job)
	if duplicate, ok := errors.AsType[*task.DuplicateSession](err); ok {
		f := *duplicate.Fault
		f.Task = duplicate.Task
		return &f
	}
	return err
}
