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
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// form is one of the bodies in which a generation is asked for.
type form struct {
	name   string // in log lines
	limit  int64  // of a body, in bytes
	decode func(body []byte) (r generation.Request, ignored []string, refused *fault.Fault)
	answer func(s *submission) any
}

// submission is one generation that is asked for, on its way.
type submission struct {
	*visit
	form    *form
	started time.Time

	bytes      int // of the body
	dryRun     bool
	request    generation.Request // as it was sent
	ignored    []string           // the paths of what has no effect
	generation caddymodule.Generation
	task       *task.Task
	replayed   bool
}

// submit serves POST of a form.
func (f *form) submit(v *visit) error {
	s := &submission{visit: v, form: f, started: time.Now()}
	err := s.serve()
	s.report(err)
	return err
}

// serve is the whole way: rates, read, decode, check, price, and to the engine.
func (s *submission) serve() error {
	q := s.query()
	q.only("dry_run")
	if s.dryRun = q.flag("dry_run"); q.fault != nil {
		return q.fault
	}
	key, refused := reply.IdempotencyKey(s.r.Header)
	if refused != nil {
		return refused
	}
	grant, refused := s.admit()
	if refused != nil {
		return refused
	}
	defer func() { grant.End(time.Now(), 0) }()
	if err := s.checkFunds(key); err != nil {
		return err
	}
	if refused = s.consider(); refused != nil {
		return refused
	}
	if s.dryRun {
		return s.answer(s.estimate())
	}
	if refused = s.weigh(); refused != nil {
		return refused
	}
	if err := s.last(func(ctx context.Context) error { return s.make(ctx, key) }); err != nil {
		return err
	}
	s.name("http.modelgate.task_id", s.task.ID)
	if s.replayed {
		s.w.Header().Set("Idempotent-Replayed", "true")
	}
	return s.answer(s.form.answer(s))
}

// checkFunds refuses a caller without any money before the body is read, if every
// generation costs money. A submission that repeats an idempotency key is answered even
// without money.
func (s *submission) checkFunds(idempotencyKey string) error {
	if s.dryRun || !s.tasks.app.GenerationsCost() {
		return nil
	}
	f := auth.CheckFunds(s.r.Context(), s.runtime, s.principal)
	if f == nil || idempotencyKey == "" {
		return plain(f)
	}
	used, err := s.runtime.Tasks.KeyUsed(s.r.Context(), s.principal.KeyID, idempotencyKey)
	if err != nil || used {
		return err
	}
	return f
}

// plain returns f as an error, nil if there is none.
func plain(f *fault.Fault) error {
	if f == nil {
		return nil
	}
	return f
}

// consider reads the body and decides whether what it asks for can be done, and
// for how much.
func (s *submission) consider() *fault.Fault {
	body, refused := s.readBody(s.form.limit)
	if refused != nil {
		return refused
	}
	s.bytes = len(body)
	if s.request, s.ignored, refused = s.form.decode(body); refused != nil {
		return refused
	}
	model := s.request.Model
	if s.request.Passing() {
		model = cmp.Or(model, s.tasks.app.DefaultModel)
	}
	if model != "" && !s.principal.MayUse(model) {
		return fault.At(fault.Forbidden, "model", "this API key may not use the model %.256q", model)
	}
	s.generation, refused = s.tasks.app.Generation(s.request)
	if refused == nil {
		s.name("http.modelgate.model", s.generation.Model)
	}
	return refused
}

// make has the engine make the task.
func (s *submission) make(ctx context.Context, idempotencyKey string) (err error) {
	job := s.generation.Submission(auth.Payer(s.principal), s.principal.KeyID)
	if idempotencyKey != "" {
		job.IdempotencyKey = idempotencyKey
		if job.Fingerprint, err = s.request.Fingerprint(); err != nil {
			return err
		}
	}
	s.task, s.replayed, err = s.runtime.Tasks.Submit(ctx, job)
	if twin, ok := errors.AsType[*task.DuplicateSession](err); ok {
		f := *twin.Fault
		f.Task = twin.Task
		return &f
	}
	return err
}

// admit holds the caller to the rates of calls: a generation is one, though it
// has no tokens.
func (v *visit) admit() (limit.Grant, *fault.Fault) {
	key, user := auth.Subjects(v.principal, &v.tasks.app.Limits)
	grant, refused := v.runtime.Rates.Admit(time.Now(), limit.Call{Key: key, User: user})
	if refused != nil {
		return limit.Grant{}, refused.Fault()
	}
	return grant, nil
}

// bytesPerMinute is how many bytes of bodies a user may have kept in a minute,
// over all of the user's keys; as many may come at once. What is submitted and cancelled
// costs nothing and lies on the disk until that is tidied.
const bytesPerMinute = 256 << 20

// weigh counts the bytes of what is to be kept.
func (s *submission) weigh() *fault.Fault {
	if refused := s.spend("bytes", int64(s.bytes), bytesPerMinute); refused != nil {
		return fault.New(fault.RateLimited, "the bodies of your account are more than %d MiB per minute", bytesPerMinute>>20).After(refused.RetryAfter)
	}
	return nil
}

// spend counts something of which the caller's user may have so much in a minute,
// over all of the user's keys.
func (v *visit) spend(what string, n, perMinute int64) *limit.Refusal {
	return v.runtime.Rates.Spend(time.Now(), what+"/"+v.principal.UserID, n, perMinute)
}

// estimate is what a dry run answers. Nothing has been kept, held or handed over.
type estimate struct {
	DryRun   bool         `json:"dry_run"` // true
	Model    string       `json:"model"`
	Family   string       `json:"family,omitempty"`
	Price    money.Amount `json:"price"` // of what is asked for
	Hold     money.Amount `json:"hold"`  // what would be held until it is delivered
	Currency string       `json:"currency"`
	Rule     string       `json:"rule"` // how the price comes about, for a person
	Ignored  []string     `json:"ignored,omitempty"`
}

func (s *submission) estimate() estimate {
	g := &s.generation
	return estimate{
		DryRun: true, Model: g.Model, Family: g.Family,
		Price: g.Quote.Cost(), Hold: g.Quote.Hold, Currency: s.tasks.app.Currency, Rule: g.Quote.Rule,
		Ignored: s.ignored,
	}
}
