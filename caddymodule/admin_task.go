package caddymodule

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// taskRoutes are the routes that concern tasks, their callbacks, and the
// backends that run them.
var taskRoutes = []adminRoute{
	{"GET /modelgate/tasks", adminTasks},
	{"GET /modelgate/tasks/unfinished", adminUnfinishedTasks},
	{"POST /modelgate/tasks/watch", adminWatchTasks},
	{"GET /modelgate/tasks/{task}", func(rt *Runtime, r *http.Request) (any, error) {
		return rt.shownTask(r)(rt.Tasks.Get(r.Context(), task.Anyone, r.PathValue("task")))
	}},
	{"POST /modelgate/tasks/{task}/retry", func(rt *Runtime, r *http.Request) (any, error) {
		return rt.shownTask(r)(rt.Tasks.Retry(r.Context(), operator, r.PathValue("task")))
	}},
	{"POST /modelgate/tasks/{task}/cancel", func(rt *Runtime, r *http.Request) (any, error) {
		return rt.shownTask(r)(rt.Tasks.CancelAs(r.Context(), operator, task.Anyone, r.PathValue("task")))
	}},
	{"GET /modelgate/callbacks", adminDeliveries},
	{"POST /modelgate/callbacks/{task}/redeliver", func(rt *Runtime, r *http.Request) (any, error) {
		return rt.Tasks.Redeliver(r.Context(), operator, task.Anyone, r.PathValue("task"))
	}},
	{"GET /modelgate/backends", func(rt *Runtime, r *http.Request) (any, error) {
		return listed(rt.shownBackends(r))
	}},
	{"POST /modelgate/backends/{backend}/check", adminCheckBackend},
	{"POST /modelgate/backends/{backend}/drain", adminSetBackend((*task.Engine).Drain)},
	{"POST /modelgate/backends/{backend}/enable", adminSetBackend((*task.Engine).Enable)},
}

// shownTask is a task as operators see it. Its times are Unix seconds, all of
// them.
type shownTask struct {
	task.Task
	task.Detail

	User     string `json:"user,omitempty"` // the name
	Polled   int64  `json:"polled,omitempty"`
	Due      int64  `json:"due,omitempty"`
	Deadline int64  `json:"deadline,omitempty"`
	Made     int64  `json:"made,omitempty"`
}

func newShownTask(t *task.Task, names map[string]string) shownTask {
	d := t.Detail
	return shownTask{
		Task: *t, Detail: d, User: names[d.User],
		Polled: d.Polled / 1000, Due: d.Due / 1000, Deadline: d.Deadline / 1000, Made: d.Made / 1000,
	}
}

// state is where a task stands, in a word that changes with it.
func (t *shownTask) state() string { return stateOf(&t.Task) }

func stateOf(t *task.Task) string { return string(t.Status) + " " + t.Progress }

// shownTask returns what shows a task that somebody was asked for.
func (rt *Runtime) shownTask(r *http.Request) func(*task.Task, error) (any, error) {
	return func(t *task.Task, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		names, err := userNames(rt, r)
		return newShownTask(t, names), err
	}
}

func (rt *Runtime) shownTasks(r *http.Request, tasks []*task.Task) ([]shownTask, error) {
	names, err := userNames(rt, r)
	shown := make([]shownTask, len(tasks))
	for i, t := range tasks {
		shown[i] = newShownTask(t, names)
	}
	return shown, err
}

// ownerOf returns whose tasks are asked for: those of the user whom the query
// names, or all.
func ownerOf(rt *Runtime, r *http.Request) (task.Owner, error) {
	user, err := userOf(rt, r, r.URL.Query().Get("user"))
	if err != nil || user.ID == "" {
		return task.Anyone, err
	}
	return task.OfUser(user.ID), nil
}

// page is one answer of a list that goes on after next, if that is not empty.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// mostListed bounds one page.
const mostListed = 100

func adminTasks(rt *Runtime, r *http.Request) (any, error) {
	owner, err := ownerOf(rt, r)
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", 20, 1, mostListed)
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
	shown, err := rt.shownTasks(r, tasks)
	return page[shownTask]{shown, next}, err
}

// mostUnfinished bounds how many tasks are followed by one command.
const mostUnfinished = 10_000

func adminUnfinishedTasks(rt *Runtime, r *http.Request) (any, error) {
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
	return listed(rt.shownTasks(r, tasks))
}

// watched is what a watcher knows of tasks.
type watched struct {
	Known map[string]string `json:"known"` // the state of each, by task; empty: nothing
	Wait  int64             `json:"wait"`  // seconds
}

// seen is what a watcher is told.
type seen struct {
	Items []shownTask `json:"items"`          // whose state is another
	Gone  []string    `json:"gone,omitempty"` // that are not there, or not any more
}

// mostWatched bounds the tasks that one request watches.
const mostWatched = 500

// adminWatchTasks answers as soon as one of the tasks is not as the watcher knows
// it, and at the end of his wait anyway. A change in the very moment in which the
// wait begins is told by the next request.
func adminWatchTasks(rt *Runtime, r *http.Request) (any, error) {
	var in watched
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if len(in.Known) == 0 || len(in.Known) > mostWatched {
		return nil, fault.At(fault.InvalidParameter, "known", "known has 1 to %d tasks, this has %d", mostWatched, len(in.Known))
	}
	if most := int64(task.MostWait / time.Second); in.Wait < 0 || in.Wait > most {
		return nil, fault.At(fault.InvalidParameter, "wait", "wait is 0 to %d seconds, this is %d", most, in.Wait)
	}
	news, err := rt.news(r, in.Known)
	if err != nil || len(news.Items)+len(news.Gone) > 0 || in.Wait == 0 {
		return news, err
	}
	rt.anyChange(r.Context(), in.Known, time.Duration(in.Wait)*time.Second)
	return rt.news(r, in.Known)
}

// news are the tasks whose state is not the known one.
func (rt *Runtime) news(r *http.Request, known map[string]string) (seen, error) {
	news, changed := seen{}, []*task.Task(nil)
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
	news.Items, err = rt.shownTasks(r, changed)
	return news, err
}

// anyChange returns when one of the tasks has changed, or the time is over.
func (rt *Runtime) anyChange(ctx context.Context, tasks map[string]string, most time.Duration) {
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

func adminDeliveries(rt *Runtime, r *http.Request) (any, error) {
	query := r.URL.Query()
	if query.Get("user") == "" {
		return nil, fault.At(fault.MissingParameter, "user", "whose callbacks? name a user by id or name")
	}
	user, err := userOf(rt, r, query.Get("user"))
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", 20, 1, mostListed)
	if err != nil {
		return nil, err
	}
	list, next, err := rt.Tasks.Deliveries(r.Context(), user.ID, query.Get("after"), int(limit))
	return page[task.Delivery]{list, next}, err
}

// shownBackend is a backend with what the configuration says of it. Since when
// the oldest task waits is shown in Unix seconds, as all times are.
type shownBackend struct {
	task.BackendStatus
	Oldest  int64             `json:"oldest,omitempty"` // Unix seconds
	Adapter string            `json:"adapter,omitempty"`
	Models  []catalog.Pattern `json:"models,omitempty"`
}

func (rt *Runtime) shownBackends(r *http.Request) ([]shownBackend, error) {
	app, err := activeApp()
	if err != nil {
		return nil, err
	}
	all, err := rt.Tasks.Backends(r.Context())
	if err != nil {
		return nil, err
	}
	shown := make([]shownBackend, len(all))
	for i, status := range all {
		shown[i].BackendStatus = status
		if !status.Oldest.IsZero() {
			shown[i].Oldest = status.Oldest.Unix()
		}
		at := slices.IndexFunc(app.BackendRows, func(b *Backend) bool { return b.Name == status.Name })
		if at >= 0 {
			shown[i].Adapter, shown[i].Models = app.BackendRows[at].adapterName(), app.BackendRows[at].Models
		}
	}
	return shown, nil
}

// adapterName is the word by which a configuration names the adapter.
func (b *Backend) adapterName() string {
	module, _ := b.adapter.(caddy.Module)
	return module.CaddyModule().ID.Name()
}

// adminSetBackend makes the route that changes whether a backend gets tasks.
func adminSetBackend(set func(e *task.Engine, ctx context.Context, actor, backend string) error) func(*Runtime, *http.Request) (any, error) {
	return func(rt *Runtime, r *http.Request) (any, error) {
		name := r.PathValue("backend")
		if err := set(rt.Tasks, r.Context(), operator, name); err != nil {
			return nil, err
		}
		all, err := rt.shownBackends(r)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			if b.Name == name {
				return b, nil
			}
		}
		return shownBackend{BackendStatus: task.BackendStatus{Name: name}}, nil // of a configuration before, without tasks
	}
}

// The states of a check.
const (
	checkPassed  = "ok"
	checkFailed  = "failed"
	checkSkipped = "unchecked"
)

// backendCheck is what came of asking a backend whether it would take a job.
type backendCheck struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // "ok", "failed" or "unchecked"
	Detail string `json:"detail,omitempty"` // why it is not ok
	TookMS int64  `json:"took_ms"`
}

func adminCheckBackend(rt *Runtime, r *http.Request) (any, error) {
	check := backendCheck{Name: r.PathValue("backend"), State: checkPassed}
	begun := time.Now()
	asked, err := rt.Tasks.Check(r.Context(), check.Name)
	check.TookMS = time.Since(begun).Milliseconds()
	refused, _ := errors.AsType[*fault.Fault](err)
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		check.State, check.Detail = checkFailed, inWords(err)
	case !asked:
		check.State, check.Detail = checkSkipped, "its adapter has no question to the service that costs nothing: the next task tells"
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
