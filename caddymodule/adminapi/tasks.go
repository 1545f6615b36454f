package adminapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// taskRoutes are the routes that concern tasks, their callbacks, and the
// backends that run them.
var taskRoutes = []endpoint{
	{"GET /modelgate/tasks", listTasks},
	{"GET /modelgate/tasks/unfinished", listUnfinishedTasks},
	{"POST /modelgate/tasks/watch", watchTasks},
	{"GET /modelgate/tasks/{task}", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showTask(rt, r)(rt.Tasks.Get(r.Context(), task.Anyone, r.PathValue("task")))
	}},
	{"POST /modelgate/tasks/{task}/retry", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showTask(rt, r)(rt.Tasks.Retry(r.Context(), Operator, r.PathValue("task")))
	}},
	{"POST /modelgate/tasks/{task}/cancel", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showTask(rt, r)(rt.Tasks.CancelAs(r.Context(), Operator, task.Anyone, r.PathValue("task")))
	}},
	{"GET /modelgate/callbacks", listDeliveries},
	{"POST /modelgate/callbacks/{task}/redeliver", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return rt.Tasks.Redeliver(r.Context(), Operator, task.Anyone, r.PathValue("task"))
	}},
	{"GET /modelgate/backends", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return listed(showBackends(rt, r))
	}},
	{"POST /modelgate/backends/{backend}/check", checkBackend},
	{"POST /modelgate/backends/{backend}/drain", setBackend((*task.Engine).Drain)},
	{"POST /modelgate/backends/{backend}/enable", setBackend((*task.Engine).Enable)},
}

// Task is a task as operators see it. Its times are Unix seconds, all of
// them.
type Task struct {
	task.Task
	task.Detail

	User     string `json:"user,omitempty"` // the name
	Polled   int64  `json:"polled,omitempty"`
	Due      int64  `json:"due,omitempty"`
	Deadline int64  `json:"deadline,omitempty"`
	Made     int64  `json:"made,omitempty"`
}

func newTask(t *task.Task, names map[string]string) Task {
	d := t.Detail
	return Task{
		Task: *t, Detail: d, User: names[d.User],
		Polled: d.Polled / 1000, Due: d.Due / 1000, Deadline: d.Deadline / 1000, Made: d.CopyingSince / 1000,
	}
}

// State is where a task stands, in a word that changes with it.
func (t *Task) State() string { return stateOf(&t.Task) }

func stateOf(t *task.Task) string { return string(t.Status) + " " + t.Progress }

// showTask returns what shows a task that somebody was asked for.
func showTask(rt *caddymodule.Runtime, r *http.Request) func(*task.Task, error) (any, error) {
	return func(t *task.Task, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		names, err := userNames(rt, r)
		return newTask(t, names), err
	}
}

func showTasks(rt *caddymodule.Runtime, r *http.Request, tasks []*task.Task) ([]Task, error) {
	names, err := userNames(rt, r)
	shown := make([]Task, len(tasks))
	for i, t := range tasks {
		shown[i] = newTask(t, names)
	}
	return shown, err
}

// ownerOf returns whose tasks are asked for: those of the user whom the query
// names, or all.
func ownerOf(rt *caddymodule.Runtime, r *http.Request) (task.Owner, error) {
	user, err := userOf(rt, r, r.URL.Query().Get("user"))
	if err != nil || user.ID == "" {
		return task.Anyone, err
	}
	return task.OfUser(user.ID), nil
}

// Page is one answer of a list. If Next is not empty, the list goes on behind it.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// MaxPage bounds the items of one [Page].
const MaxPage = 100

func listTasks(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	owner, err := ownerOf(rt, r)
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", 20, 1, MaxPage)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	tasks, next, err := rt.Tasks.List(r.Context(), owner, task.Page{
		After: query.Get("after"), Limit: int(limit), Status: task.State(query.Get("status")),
	})
	if err != nil {
		return nil, err
	}
	shown, err := showTasks(rt, r, tasks)
	return Page[Task]{shown, next}, err
}

// mostUnfinished bounds how many tasks are followed by one command.
const mostUnfinished = 10_000

func listUnfinishedTasks(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	owner, err := ownerOf(rt, r)
	if err != nil {
		return nil, err
	}
	tasks, more, err := rt.Tasks.Unfinished(r.Context(), owner, mostUnfinished)
	if err != nil {
		return nil, err
	}
	if more {
		return nil, fault.New(fault.Conflict, "there are more than %d unfinished tasks; ask for those of one user", mostUnfinished)
	}
	return listed(showTasks(rt, r, tasks))
}

// WatchRequest is what a watcher knows of tasks.
type WatchRequest struct {
	Known map[string]string `json:"known"` // the state of each, by task; empty: nothing
	Wait  int64             `json:"wait"`  // seconds
}

// WatchResponse is what a watcher is told.
type WatchResponse struct {
	Items []Task   `json:"items"`          // whose state is another
	Gone  []string `json:"gone,omitempty"` // that are not there, or not any more
}

// MaxWatched bounds the tasks that one request watches.
const MaxWatched = 500

// watchTasks answers as soon as one of the tasks is not as the watcher knows
// it, and at the end of his wait anyway. A change in the very moment in which the
// wait begins is told by the next request.
func watchTasks(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in WatchRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if len(in.Known) == 0 || len(in.Known) > MaxWatched {
		return nil, fault.At(fault.InvalidParameter, "known", "known has 1 to %d tasks, this has %d", MaxWatched, len(in.Known))
	}
	if most := int64(task.MostWait / time.Second); in.Wait < 0 || in.Wait > most {
		return nil, fault.At(fault.InvalidParameter, "wait", "wait is 0 to %d seconds, this is %d", most, in.Wait)
	}
	news, err := changes(rt, r, in.Known)
	if err != nil || len(news.Items)+len(news.Gone) > 0 || in.Wait == 0 {
		return news, err
	}
	awaitChange(rt, r.Context(), in.Known, time.Duration(in.Wait)*time.Second)
	return changes(rt, r, in.Known)
}

// changes are the tasks whose state is not the known one.
func changes(rt *caddymodule.Runtime, r *http.Request, known map[string]string) (WatchResponse, error) {
	news, changed := WatchResponse{}, []*task.Task(nil)
	for _, id := range slices.Sorted(maps.Keys(known)) {
		t, err := rt.Tasks.Get(r.Context(), task.Anyone, id)
		refused, _ := errors.AsType[*fault.Fault](err)
		switch {
		case refused != nil && refused.Code == fault.TaskNotFound:
			news.Gone = append(news.Gone, id)
		case err != nil:
			return news, err
		case stateOf(t) != known[id]:
			changed = append(changed, t)
		}
	}
	var err error
	news.Items, err = showTasks(rt, r, changed)
	return news, err
}

// awaitChange returns when one of the tasks has changed, or the time is over.
func awaitChange(rt *caddymodule.Runtime, ctx context.Context, tasks map[string]string, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var waits sync.WaitGroup
	for id := range tasks {
		waits.Go(func() {
			defer cancel() // one that ends is enough
			_, _ = rt.Tasks.Wait(ctx, task.Anyone, id, most)
		})
	}
	waits.Wait()
}

func listDeliveries(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	query := r.URL.Query()
	if query.Get("user") == "" {
		return nil, fault.At(fault.MissingParameter, "user", "whose callbacks? name a user by id or name")
	}
	user, err := userOf(rt, r, query.Get("user"))
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", 20, 1, MaxPage)
	if err != nil {
		return nil, err
	}
	list, next, err := rt.Tasks.Callbacks(r.Context(), user.ID, query.Get("after"), int(limit))
	return Page[task.Callback]{list, next}, err
}

// Backend is a backend with what the configuration says of it. Since when
// the oldest task waits is shown in Unix seconds, as all times are.
type Backend struct {
	task.BackendStatus
	Oldest  int64             `json:"oldest,omitempty"` // Unix seconds
	Adapter string            `json:"adapter,omitempty"`
	Models  []catalog.Pattern `json:"models,omitempty"`
}

func showBackends(rt *caddymodule.Runtime, r *http.Request) ([]Backend, error) {
	app, err := caddymodule.Active()
	if err != nil {
		return nil, err
	}
	all, err := rt.Tasks.Backends(r.Context())
	if err != nil {
		return nil, err
	}
	shown := make([]Backend, len(all))
	for i, status := range all {
		shown[i].BackendStatus = status
		if !status.Oldest.IsZero() {
			shown[i].Oldest = status.Oldest.Unix()
		}
		at := slices.IndexFunc(app.BackendRows, func(b *caddymodule.Backend) bool { return b.Name == status.Name })
		if at >= 0 {
			shown[i].Adapter, shown[i].Models = app.BackendRows[at].AdapterName(), app.BackendRows[at].Models
		}
	}
	return shown, nil
}

// setBackend makes the route that changes whether a backend gets tasks.
func setBackend(set func(e *task.Engine, ctx context.Context, actor, backend string) error) func(*caddymodule.Runtime, *http.Request) (any, error) {
	return func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		name := r.PathValue("backend")
		if err := set(rt.Tasks, r.Context(), Operator, name); err != nil {
			return nil, err
		}
		all, err := showBackends(rt, r)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			if b.Name == name {
				return b, nil
			}
		}
		return Backend{BackendStatus: task.BackendStatus{Name: name}}, nil // of a configuration before, without tasks
	}
}

// The states of a [BackendCheck].
const (
	CheckPassed  = "ok"
	CheckFailed  = "failed"
	CheckSkipped = "unchecked"
)

// BackendCheck is what came of asking a backend whether it would take a job.
type BackendCheck struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // "ok", "failed" or "unchecked"
	Detail string `json:"detail,omitempty"` // why it is not ok
	TookMS int64  `json:"took_ms"`
}

func checkBackend(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	check := BackendCheck{Name: r.PathValue("backend"), State: CheckPassed}
	begun := time.Now()
	asked, err := rt.Tasks.Check(r.Context(), check.Name)
	check.TookMS = time.Since(begun).Milliseconds()
	refused, _ := errors.AsType[*fault.Fault](err)
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		check.State, check.Detail = CheckFailed, inWords(err)
	case !asked:
		check.State, check.Detail = CheckSkipped, "its adapter has no question to the service that costs nothing: the next task tells"
	}
	return check, nil
}

// inWords says an error of a backend to an operator.
func inWords(err error) string {
	e, ok := errors.AsType[*backends.Error](err)
	switch {
	case !ok:
		return err.Error()
	case e.Detail == "":
		return e.Message
	}
	return e.Message + ": " + e.Detail
}
