package tasks

import (
	"context"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// The forms of the platform.
var (
	video = &form{name: "video", decode: ignoring(generation.DecodeVideo), answer: accepted}
	image = &form{name: "image", decode: ignoring(generation.DecodeImage), answer: accepted}
)

// acceptance is the answer to a submission to the platform.
type acceptance struct {
	TaskID  string     `json:"task_id"`
	Status  task.State `json:"status"`
	Ignored []string   `json:"ignored,omitempty"` // members of the body that have no effect
}

func accepted(s *submission) (any, error) {
	return acceptance{s.task.ID, s.task.Status, s.ignored}, nil
}

// showTask serves GET /v1/platform/tasks/{task_id}?wait=.
func showTask(req *request) error {
	t, err := req.readTask()
	if err != nil {
		return err
	}
	return req.answer(t)
}

// readTask returns the task of the path, after a change if the caller waits for one.
func (req *request) readTask() (t *task.Task, err error) {
	owner, id := task.OfKey(req.principal.KeyID), req.r.PathValue("task_id")
	if req.wait == 0 {
		return req.runtime.Tasks.Get(req.r.Context(), owner, id)
	}
	err = req.untilEnd(func(ctx context.Context) error {
		// The servers wait for open requests when the process exits. A request that only
		// waits for a change must not delay the exit.
		waiting, over := context.WithCancel(ctx)
		defer over()
		defer caddymodule.OnExit(over)()
		if t, err = req.runtime.Tasks.Wait(waiting, owner, id, req.wait); waiting.Err() != nil && ctx.Err() == nil {
			t, err = req.runtime.Tasks.Get(ctx, owner, id)
		}
		return err
	})
	return t, err
}

// cancelTask serves POST /v1/platform/tasks/{task_id}/cancel. It returns the failed task.
func cancelTask(req *request) error {
	var t *task.Task
	err := req.untilEnd(func(ctx context.Context) (err error) {
		t, err = req.runtime.Tasks.Cancel(ctx, task.OfKey(req.principal.KeyID), req.r.PathValue("task_id"))
		return err
	})
	if err != nil {
		return err
	}
	return req.answer(t)
}

// listing is a page of the tasks of an API key, latest first, in the form of
// the other lists under /v1.
type listing struct {
	Object  string       `json:"object"` // "list"
	Data    []*task.Task `json:"data"`
	HasMore bool         `json:"has_more"`

	// Next is the cursor: the value of `after` for the next page. It is not always the last
	// task of this page. A list by status may skip other tasks, and may be shorter than its
	// limit, or empty, though there are more.
	Next string `json:"next,omitempty"`
}

// listTasks serves GET /v1/platform/tasks?after=&limit=&status=.
func listTasks(req *request) error {
	q := query.Of(req.r)
	p := q.PageAfter()
	page := task.Page{After: p.After, Limit: int(p.Limit), Status: task.State(q.Text("status"))}
	if q.Fault != nil {
		return q.Fault
	}
	tasks, next, err := req.runtime.Tasks.List(req.r.Context(), task.OfKey(req.principal.KeyID), page)
	if err != nil {
		return err
	}
	return req.answer(listing{"list", tasks, next != "", next})
}
