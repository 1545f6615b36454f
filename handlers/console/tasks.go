package console

import (
	"slices"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// shownTask is a task as its owner sees it: what its API key is told, and what it
// costs him. Who makes it, and at what cost, is the operator's.
type shownTask struct {
	*task.Task
	KeyID          string       `json:"key_id"`
	SessionID      string       `json:"session_id,omitempty"`
	SessionContext string       `json:"session_context,omitempty"`
	Held           money.Amount `json:"held"` // zero when it is over
	Charged        money.Amount `json:"charged"`
}

func shown(t *task.Task) shownTask {
	d := t.Detail
	return shownTask{t, d.Key, d.SessionID, d.SessionContext, d.Held, d.Charged}
}

// listTasks answers the tasks of all of the user's keys, newest first, those of
// revoked keys and those composed here among them.
func listTasks(v *visit) error {
	q := v.query()
	p := q.paging()
	filter := task.Filter{Key: q.text("key_id"), Status: task.State(q.text("status"))}
	if q.fault != nil {
		return q.fault
	}
	tasks, total, err := v.runtime.Tasks.TaskPage(v.r.Context(), v.account.UserID, filter, int(p.skip()), int(p.size))
	if err != nil {
		return err
	}
	items := make([]shownTask, len(tasks))
	for i, t := range tasks {
		items[i] = shown(t)
	}
	return v.answer(listed(items, int64(total), p))
}

func showTask(v *visit) error {
	t, err := v.runtime.Tasks.Get(v.r.Context(), task.OfUser(v.account.UserID), v.r.PathValue("task_id"))
	if err != nil {
		return err
	}
	return v.answer(shown(t))
}

func cancelTask(v *visit) error {
	if _, f := decodeMaybe[struct{}](v); f != nil {
		return f
	}
	user := v.account.UserID
	t, err := v.runtime.Tasks.CancelAs(v.r.Context(), user, task.OfUser(user), v.r.PathValue("task_id"))
	if err != nil {
		return err
	}
	return v.answer(shown(t))
}

// composeTask makes a task of the user's hidden key. An Idempotency-Key makes one
// task of however many requests.
func composeTask(v *visit) error {
	request, f := composition(v.body)
	if f != nil {
		return f
	}
	once, f := reply.IdempotencyKey(v.r.Header)
	if f != nil {
		return f
	}
	made, f := v.console.app.Generation(request)
	if f != nil {
		return f
	}
	composer, err := v.runtime.Directory.Composer(v.r.Context(), v.account)
	if err != nil {
		return err
	}
	key, user := auth.Subjects(composer, &v.console.app.Limits)
	grant, refused := v.runtime.Rates.Admit(v.runtime.Store.Now(), limit.Call{Key: key, User: user})
	if refused != nil {
		return refused.Fault()
	}
	defer func() { grant.End(v.runtime.Store.Now(), 0) }()

	submission := made.Submission(auth.Payer(composer), composer.KeyID)
	submission.IdempotencyKey = once
	if submission.Fingerprint, err = request.Fingerprint(); err != nil {
		return err
	}
	t, replayed, err := v.runtime.Tasks.Submit(v.r.Context(), submission)
	if err != nil {
		return err
	}
	v.console.logger.Info("task", zap.String("request_id", v.id), zap.String("route", "console"),
		zap.String("user_id", composer.UserID), zap.String("key_id", composer.KeyID),
		zap.String("model", made.Model), zap.String("family", made.Family), zap.String("backend", made.Backend), zap.String("hold", made.Quote.Hold.String()),
		zap.String("task_id", t.ID), zap.String("task_status", string(t.Status)), zap.Bool("replayed", replayed))
	return v.answerOnce(envelope{Data: struct {
		shownTask
		Replayed bool `json:"replayed"`
	}{shown(t), replayed}}, replayed)
}

// composing are the types of task that can be composed, with what reads them.
var composing = map[string]func([]byte) (generation.Request, []string, *fault.Fault){
	"video": generation.DecodeVideo,
	"image": generation.DecodeImage,
}

// composition reads the body of a task: that of /v1/platform/video or
// /v1/platform/image, with the word for which of them it is. What the API names
// as ignored is refused, as everywhere here.
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
		return r, missing("type")
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
