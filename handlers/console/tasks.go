package console

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// shownTask is a task as its user sees it: the fields that the API shows, the request, and the
// charge. It hides the backend and the operator's cost.
type shownTask struct {
	*task.Task
	KeyID          string       `json:"key_id"`
	SessionID      string       `json:"session_id,omitempty"`
	SessionContext string       `json:"session_context,omitempty"`
	Held           money.Amount `json:"held"` // 0 after the end of the task
	Charged        money.Amount `json:"charged"`
	PriceRule      string       `json:"price_rule,omitempty"`
	Form           string       `json:"form"`                 // video, image or generations
	Request        any          `json:"request,omitempty"`    // nil if it is not kept any more
	ExpiresAt      int64        `json:"expires_at,omitempty"` // of the results that the gateway keeps, Unix seconds
	ExpiresIn      int64        `json:"expires_in,omitempty"` // seconds until then; zero: they are gone
}

// shown returns a task with what the store has about its request and its results.
func (req *request) shown(t *task.Task) (shownTask, error) {
	d, ctx := t.Detail, req.r.Context()
	s := shownTask{
		Task: t, KeyID: d.Key, SessionID: d.SessionID, SessionContext: d.SessionContext,
		Held: d.Held, Charged: d.Charged, PriceRule: d.Rule, Form: string(d.Kind),
	}
	job, err := req.runtime.Tasks.Job(ctx, task.OfUser(d.User), t.ID)
	switch {
	case errors.Is(err, task.ErrNotFound): // it has been removed meanwhile
	case err != nil:
		return s, err
	case job == nil:
	case job.Fields != nil:
		s.Request = job.Fields
	default:
		s.Request = asked{Job: *job}
	}
	if t.Result != nil {
		gone, err := req.runtime.Media.GoneAt(ctx, t.Result.URL)
		if err != nil {
			return s, err
		}
		if !gone.IsZero() {
			s.ExpiresAt = gone.Unix()
			s.ExpiresIn = max(s.ExpiresAt-req.runtime.Store.Now().Unix(), 0)
		}
	}
	return s, nil
}

// asked is a job as the body of a submission to the platform, without what the gateway has added.
type asked struct {
	task.Job
	Token     hidden `json:"token,omitempty"`
	NotifyURL hidden `json:"notify_url,omitempty"`
	Kind      hidden `json:"kind,omitempty"`
	Adopted   hidden `json:"adopted,omitempty"`
}

// hidden is the type of a member that is left out.
type hidden *struct{}

// listTasks answers the tasks of all of the user's keys, newest first, with those of
// revoked keys and those composed here.
func listTasks(req *request, q *query.Query, p query.Page) ([]shownTask, int64, error) {
	filter := task.Filter{Key: q.Text("key_id"), Status: task.State(q.Text("status"))}
	if q.Fault != nil {
		return nil, 0, q.Fault
	}
	tasks, total, err := req.runtime.Tasks.TaskPage(req.r.Context(), req.account.UserID, filter, int(p.Skip), int(p.Limit))
	if err != nil {
		return nil, 0, err
	}
	items := make([]shownTask, len(tasks))
	for i, t := range tasks {
		if items[i], err = req.shown(t); err != nil {
			return nil, 0, err
		}
	}
	return items, int64(total), nil
}

func showTask(req *request) (any, error) {
	t, err := req.runtime.Tasks.Get(req.r.Context(), task.OfUser(req.account.UserID), req.r.PathValue("task_id"))
	if err != nil {
		return nil, err
	}
	return req.shown(t)
}

func cancelTask(req *request, _ struct{}) (any, error) {
	user := req.account.UserID
	t, err := req.runtime.Tasks.CancelAs(req.r.Context(), user, task.OfUser(user), req.r.PathValue("task_id"))
	if err != nil {
		return nil, err
	}
	return req.shown(t)
}

// callModel is a model for calls.
type callModel struct {
	Model string `json:"model"`
}

// listModels answers the models for calls that the configuration names and that may be called.
func listModels(req *request, _ *query.Query, p query.Page) ([]callModel, int64, error) {
	app := req.console.app
	offered, _ := app.Offered()
	var models []callModel
	for _, name := range offered {
		_, callable := app.PriceOf(name, catalog.AnyUnit)
		if _, generates := app.GenerationModel(name); callable && !generates {
			models = append(models, callModel{name})
		}
	}
	return cut(models, nil, p)
}

// listTaskModels answers the models that the site serves for tasks, or one of them by its name.
func listTaskModels(req *request, q *query.Query, p query.Page) ([]caddymodule.GenerationModel, int64, error) {
	name := q.Text("model")
	if q.Fault != nil {
		return nil, 0, q.Fault
	}
	if name == "" {
		return cut(req.console.app.GenerationModels(), nil, p)
	}
	var models []caddymodule.GenerationModel
	if m, served := req.console.app.GenerationModel(name); served {
		models = append(models, m)
	}
	return cut(models, nil, p)
}

// composeTask submits a task under the hidden key of the user. Requests with the same
// Idempotency-Key make one task. A dry run only checks and prices it.
func composeTask(req *request) (any, error) {
	spec, f := composition(req.body)
	if f != nil {
		return nil, f
	}
	once, f := reply.IdempotencyKey(req.r.Header)
	if f != nil {
		return nil, f
	}
	made, f := req.console.app.Generation(spec)
	if f != nil {
		return nil, f
	}
	q := query.Of(req.r)
	if dry := q.Flag("dry_run"); q.Fault != nil {
		return nil, q.Fault
	} else if dry {
		return req.console.app.Estimate(&made), nil
	}
	consolePrincipal, err := req.runtime.Directory.ConsolePrincipal(req.r.Context(), req.account)
	if err != nil {
		return nil, err
	}
	key, user := auth.Subjects(consolePrincipal, &req.console.app.Limits)
	grant, refused := req.runtime.Rates.Admit(req.runtime.Store.Now(), limit.Request{Key: key, User: user})
	if refused != nil {
		return nil, auth.RateLimited(refused)
	}
	defer func() { grant.End(req.runtime.Store.Now(), 0) }()

	submission := made.Submission(auth.Payer(consolePrincipal), consolePrincipal.KeyID)
	submission.IdempotencyKey = once
	if submission.Fingerprint, err = spec.Fingerprint(); err != nil {
		return nil, err
	}
	t, replayed, err := req.runtime.Tasks.Submit(req.r.Context(), submission)
	if err != nil {
		return nil, err
	}
	req.console.logger.Info("task", zap.String("request_id", req.id), zap.String("route", "console"),
		zap.String("user_id", consolePrincipal.UserID), zap.String("key_id", consolePrincipal.KeyID),
		zap.String("model", made.Model), zap.String("family", made.Family), zap.String("backend", made.Backend), zap.String("hold", made.Quote.Hold.String()),
		zap.String("task_id", t.ID), zap.String("task_status", string(t.Status)), zap.Bool("replayed", replayed))
	composed, _ := req.shown(t) // the task is there, even if its request cannot be read back
	return req.once(envelope{Data: struct {
		shownTask
		Replayed bool `json:"replayed"`
	}{composed, replayed}}, replayed)
}

// composing has the types of task that can be composed, and their decoders.
var composing = map[string]func([]byte) (generation.Request, []string, *fault.Fault){
	"video": generation.DecodeVideo,
	"image": generation.DecodeImage,
}

// composition decodes a body of /v1/platform/video or /v1/platform/image that also has the
// type of the task. Members that the API lists as ignored are refused here.
func composition(body []byte) (r generation.Request, f *fault.Fault) {
	var in struct {
		Type string `json:"type"`
	}
	var unread []string
	if f = strictjson.Decode(body, &in, strictjson.Ignored(&unread)); f != nil {
		return r, f
	}
	decode, known := composing[in.Type]
	switch {
	case in.Type == "":
		return r, required("type", false)
	case !known:
		return r, fault.At(fault.InvalidParameter, "type", "`type` is video or image, this is %.64q", in.Type)
	}
	r, unread, f = decode(body)
	if f != nil {
		return r, f
	}
	unread = slices.DeleteFunc(unread, func(path string) bool { return path == "type" })
	if len(unread) > 0 {
		return r, fault.At(fault.InvalidParameter, unread[0], "`%s` is not a parameter of type %s", unread[0], in.Type)
	}
	return r, nil
}
