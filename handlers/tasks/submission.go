package tasks

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
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
	decode func(s *submission, body []byte) (r generation.Request, ignored []string, err error)
	answer func(s *submission) (any, error)
	names  *strings.Replacer                      // of members in errors, each in backquotes; nil: they are those of the generation
	keep   func(s *submission) *task.VideoRequest // what the task keeps for later answers; nil: nothing
}

// plain returns the decoder of a form that ignores no member.
func plain(decode func(body []byte) (generation.Request, *fault.Fault)) func(*submission, []byte) (generation.Request, []string, error) {
	return ignoring(func(body []byte) (generation.Request, []string, *fault.Fault) {
		r, refused := decode(body)
		return r, nil, refused
	})
}

// ignoring returns the decoder of a form that needs only the body.
func ignoring(decode func(body []byte) (generation.Request, []string, *fault.Fault)) func(*submission, []byte) (generation.Request, []string, error) {
	return func(_ *submission, body []byte) (generation.Request, []string, error) {
		r, ignored, refused := decode(body)
		if refused != nil {
			return r, nil, refused
		}
		return r, ignored, nil
	}
}

// named returns an error with the names that the members have in this form.
func (f *form) named(err error) error {
	refused, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.names == nil || refused.Status() >= http.StatusInternalServerError {
		return err
	}
	given := *refused
	given.Message = f.names.Replace(given.Message)
	given.Param = strings.Trim(f.names.Replace("`"+given.Param+"`"), "`")
	return &given
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
	source         *task.Task         // the video that a remix changes
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
	if err := s.price(); err != nil {
		return s.form.named(err)
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
		return s.form.named(err)
	}
	s.setPlaceholder("http.modelgate.task_id", s.task.ID)
	if s.replayed {
		s.w.Header().Set("Idempotent-Replayed", "true")
	}
	answer, err := s.form.answer(s)
	if err != nil {
		return err
	}
	return s.answer(answer)
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
func (s *submission) price() (err error) {
	body, refused := s.readBody()
	if refused != nil {
		return refused
	}
	s.bytes = len(body)
	if s.spec, s.ignored, err = s.form.decode(s, body); err != nil {
		return err
	}
	model := s.spec.Model
	if s.spec.Passing() {
		model = cmp.Or(model, s.tasks.app.DefaultModel)
	}
	if model != "" && !s.principal.MayUse(model) {
		return fault.At(fault.Forbidden, "model", "this API key may not use the model %.256q", model)
	}
	if s.generation, refused = s.tasks.app.Generation(s.spec); refused != nil {
		return refused
	}
	s.setPlaceholder("http.modelgate.model", s.generation.Model)
	return s.checkSource()
}

// submit creates the task, or finds the task of the idempotency key.
func (s *submission) submit(ctx context.Context) (err error) {
	job := s.generation.Submission(auth.Payer(s.principal), s.principal.KeyID)
	if s.form.keep != nil {
		job.Video = s.form.keep(s)
	}
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
