package tasks

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// The forms of the platform.
var (
	video = &form{name: "video", limit: 1 << 20, decode: generation.DecodeVideo, answer: accepted}
	image = &form{name: "image", limit: 1 << 20, decode: generation.DecodeImage, answer: accepted}
)

// acceptance is what a submission to the platform is answered.
type acceptance struct {
	TaskID  string     `json:"task_id"`
	Status  task.State `json:"status"`
	Ignored []string   `json:"ignored,omitempty"` // members of the body that have no effect
}

func accepted(s *submission) any { return acceptance{s.task.ID, s.task.Status, s.ignored} }

// showTask serves GET /v1/platform/tasks/{id}?wait=.
func showTask(v *visit) error {
	t, err := v.look()
	if err != nil {
		return err
	}
	return v.answer(t)
}

// maxWaits is how many requests of a user may wait for a change of a task at once,
// over all of the user's keys.
const maxWaits = 128

// look returns the task of the path, after a change where the caller waits for
// one.
func (v *visit) look() (t *task.Task, err error) {
	q := v.query()
	wait := q.wait()
	if q.fault != nil {
		return nil, q.fault
	}
	owner, id := task.OfKey(v.principal.KeyID), v.segments[0]
	v.name("http.modelgate.task_id", id)
	if wait == 0 {
		return v.runtime.Tasks.Get(v.r.Context(), owner, id)
	}
	grant, refused := v.runtime.Rates.Admit(time.Now(), limit.Request{
		User: limit.Subject{ID: "waits/" + v.principal.UserID, Rates: limit.Rates{Concurrent: maxWaits}}, Concurrent: true,
	})
	if refused != nil {
		return nil, fault.At(fault.RateLimited, "wait", "your account has %d requests with `wait` open; allowed: %d", maxWaits, maxWaits).After(refused.RetryAfter)
	}
	defer func() { grant.End(time.Now(), 0) }()
	err = v.last(func(ctx context.Context) error {
		// The servers wait for open requests when the process exits; who waits for
		// nothing but a change would hold all of it up.
		waiting, over := context.WithCancel(ctx)
		defer over()
		defer caddymodule.OnExit(over)()
		if t, err = v.runtime.Tasks.Wait(waiting, owner, id, wait); waiting.Err() != nil && ctx.Err() == nil {
			t, err = v.runtime.Tasks.Get(ctx, owner, id)
		}
		return err
	})
	return t, err
}

// cancelTask serves POST /v1/platform/tasks/{id}/cancel. It answers the task,
// which has failed of it.
func cancelTask(v *visit) error {
	grant, refused := v.admit()
	if refused != nil {
		return refused
	}
	defer func() { grant.End(time.Now(), 0) }()
	id := v.segments[0]
	v.name("http.modelgate.task_id", id)
	var t *task.Task
	err := v.last(func(ctx context.Context) (err error) {
		t, err = v.runtime.Tasks.Cancel(ctx, task.OfKey(v.principal.KeyID), id)
		return err
	})
	if err != nil {
		return err
	}
	return v.answer(t)
}

// listing is a page of the tasks of an API key, latest first, in the form of
// the other lists under /v1.
type listing struct {
	Object  string       `json:"object"` // "list"
	Data    []*task.Task `json:"data"`
	HasMore bool         `json:"has_more"`

	// Next is what to give as `after` for the page behind this one. It is not
	// always the last task here: a list by status may have passed others, and may
	// be short of its limit, or empty, though there are more.
	Next string `json:"next,omitempty"`
}

// mostListed bounds a page, as the engine does.
const mostListed = 100

// listsPerMinute is how many lists a user may ask for in a minute, over all of his
// keys: one by status looks at thousands of tasks.
const listsPerMinute = 300

// listTasks serves GET /v1/platform/tasks?after=&limit=&status=.
func listTasks(v *visit) error {
	q := v.query()
	page := task.Page{After: q.text("after"), Limit: q.number("limit", 1, mostListed), Status: task.State(q.text("status"))}
	if q.fault != nil {
		return q.fault
	}
	if refused := v.spend("lists", 1, listsPerMinute); refused != nil {
		return fault.New(fault.RateLimited, "your account asks for more than %d lists of tasks per minute", listsPerMinute).After(refused.RetryAfter)
	}
	tasks, next, err := v.runtime.Tasks.List(v.r.Context(), task.OfKey(v.principal.KeyID), page)
	if err != nil {
		return err
	}
	return v.answer(listing{"list", tasks, next != "", next})
}
