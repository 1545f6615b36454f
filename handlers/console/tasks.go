package console

import (
	"slices"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// shownTask is a task as its user sees it: the fields that the API shows, and the charge.
// It hides the backend and the operator's cost.
type shownTask struct {
	*task.Task
	KeyID          string       `json:"key_id"`
	SessionID      string       `json:"session_id,omitempty"`
	SessionContext string       `json:"session_context,omitempty"`
	Held           money.Amount `json:"held"` // 0 after the end of the task
	Charged        money.Amount `json:"charged"`
}

func shown(t *task.Task) shownTask {
	d := t.Detail
	return shownTask{t, d.Key, d.SessionID, d.SessionContext, d.Held, d.Charged}
}

// listTasks answers the tasks of all of the user's keys, newest first, with those of
// revoked keys and those composed here.
func listTasks(req *request, q *query.Query, p query.Page) ([]shownTask, int64, error) {
	filter := task.Filter{Key: q.Text("key_id"), Status: task.State(q.Text("status"))}
	if q.Fault != nil {
		return nil, 0, q.Fault
	}
	tasks, total, err := req.runtime.Tasks.TaskPage(req.r.Context(), req.account.UserID, filter, int(p.Skip), int(p.Limit))
	items := make([]shownTask, len(tasks))
	for i, t := range tasks {
		items[i] = shown(t)
	}
	return items, int64(total), err
}

func showTask(req *request) (any, error) {
	t, err := req.runtime.Tasks.Get(req.r.Context(), task.OfUser(req.account.UserID), req.r.PathValue("task_id"))
	if err != nil {
		return nil, err
	}
	return shown(t), nil
}

func cancelTask(req *request, _ struct{}) (any, error) {
	user := req.account.UserID
	t, err := req.runtime.Tasks.CancelAs(req.r.Context(), user, task.OfUser(user), req.r.PathValue("task_id"))
	if err != nil {
		return nil, err
	}
	return shown(t), nil
}

// composeTask submits a task under the hidden key of the user. Requests with the same
// Idempotency-Key make one task.
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
	composer, err := req.runtime.Directory.Composer(req.r.Context(), req.account)
	if err != nil {
		return nil, err
	}
	key, user := auth.Subjects(composer, &req.console.app.Limits)
	grant, refused := req.runtime.Rates.Admit(req.runtime.Store.Now(), limit.Request{Key: key, User: user})
	if refused != nil {
		return nil, auth.RateLimited(refused)
	}
	defer func() { grant.End(req.runtime.Store.Now(), 0) }()

	submission := made.Submission(auth.Payer(composer), composer.KeyID)
	submission.IdempotencyKey = once
	if submission.Fingerprint, err = spec.Fingerprint(); err != nil {
		return nil, err
	}
	t, replayed, err := req.runtime.Tasks.Submit(req.r.Context(), submission)
	if err != nil {
		return nil, err
	}
	req.console.logger.Info("task", zap.String("request_id", req.id), zap.String("route", "console"),
		zap.String("user_id", composer.UserID), zap.String("key_id", composer.KeyID),
		zap.String("model", made.Model), zap.String("family", made.Family), zap.String("backend", made.Backend), zap.String("hold", made.Quote.Hold.String()),
		zap.String("task_id", t.ID), zap.String("task_status", string(t.Status)), zap.Bool("replayed", replayed))
	return req.once(envelope{Data: struct {
		shownTask
		Replayed bool `json:"replayed"`
	}{shown(t), replayed}}, replayed)
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
		return r, required("type")
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
