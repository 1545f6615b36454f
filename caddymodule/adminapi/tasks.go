package adminapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/money"
)

// Task is a task as operators see it. All its times are Unix seconds.
type Task struct {
	task.Task
	task.Detail

	User         string `json:"user,omitempty"` // the name
	KeyName      string `json:"key_name,omitempty"`
	ConsoleKey   bool   `json:"console_key,omitempty"` // it was made in the console
	Polled       int64  `json:"polled,omitempty"`
	Due          int64  `json:"due,omitempty"`
	Deadline     int64  `json:"deadline,omitempty"`
	CopyingSince int64  `json:"made,omitempty"`
}

func newTask(t *task.Task, names map[string]string) Task {
	d := t.Detail
	return Task{
		Task: *t, Detail: d, User: names[d.User],
		Polled: d.Polled / 1000, Due: d.Due / 1000, Deadline: d.Deadline / 1000, CopyingSince: d.CopyingSince / 1000,
	}
}

// State returns the status and the progress of a task, which watchers compare.
func (t *Task) State() string { return stateOf(&t.Task) }

func stateOf(t *task.Task) string { return string(t.Status) + " " + t.Progress }

func (c *call) shownTask(t *task.Task, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, []*task.Task{t}, userOfTask)
	return newTask(t, names), err
}

// TaskDetail is a task with its payments.
type TaskDetail struct {
	Task
	Callback bool          `json:"callback,omitempty"` // it has a callback that can be sent again
	Paid     []TaskPayment `json:"paid"`               // the hold of each account; after the end, the charge of each account
}

// TaskPayment is the amount that a task holds from an account or was charged to it.
type TaskPayment struct {
	Transfer journal.ID   `json:"transfer_id"`
	Time     int64        `json:"time"`    // Unix seconds
	Account  string       `json:"account"` // wallet or quota/<subscription>/<start>
	Amount   money.Amount `json:"amount"`
}

func showTask(c *call) (any, error) {
	t, err := c.Tasks.Get(c.ctx(), task.Anyone, c.path("task"))
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, []*task.Task{t}, userOfTask)
	if err != nil {
		return nil, err
	}
	hold := record.HoldID(t.ID)
	x, err := c.Ledger.Transfer(c.ctx(), journal.EndOf(hold))
	if t.CompletedAt == 0 && err == nil {
		x, err = c.Ledger.Transfer(c.ctx(), hold)
	}
	if err != nil {
		return nil, err
	}
	labels, err := c.Directory.KeyLabels(c.ctx(), map[string]string{t.Detail.Key: t.Detail.User})
	if err != nil {
		return nil, err
	}
	shown := TaskDetail{Task: newTask(t, names), Paid: []TaskPayment{}}
	shown.Callback, err = c.Tasks.Redeliverable(c.ctx(), t.ID)
	shown.KeyName, shown.ConsoleKey = labels[t.Detail.Key].Name, labels[t.Detail.Key].Console
	for _, leg := range x.Legs {
		amount := leg.Held
		if t.CompletedAt != 0 {
			amount = -leg.Amount
		}
		if leg.Account.Owner() == t.Detail.User && !leg.Account.Memo() && amount > 0 {
			shown.Paid = append(shown.Paid, TaskPayment{x.ID, x.Time / 1000, leg.Account.Own(), amount})
		}
	}
	return shown, err
}

func userOfTask(t *task.Task) string { return t.Detail.User }

func (c *call) shownTasks(tasks []*task.Task) ([]Task, error) {
	names, err := namesOf(c, tasks, userOfTask)
	shown := make([]Task, len(tasks))
	for i, t := range tasks {
		shown[i] = newTask(t, names)
	}
	return shown, err
}

// owner returns the user of the query as the owner of tasks, or all users.
func (c *call) owner() (task.Owner, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil || user.ID == "" {
		return task.Anyone, err
	}
	return task.OfUser(user.ID), nil
}

// Page is one page of a list. If Next is not empty, it is the cursor of the next page.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

func listTasks(c *call) (any, error) {
	owner, err := c.owner()
	if err != nil {
		return nil, err
	}
	p := c.q.PageAfter()
	tasks, next, err := c.Tasks.List(c.ctx(), owner, task.Page{After: p.After, Limit: int(p.Limit), Status: task.State(c.q.Text("status"))})
	if err != nil {
		return nil, err
	}
	shown, err := c.shownTasks(tasks)
	return Page[Task]{shown, next}, err
}

// maxFollowed bounds the tasks that one command follows.
const maxFollowed = 10_000

func listUnfinishedTasks(c *call) (any, error) {
	owner, err := c.owner()
	if err != nil {
		return nil, err
	}
	tasks, more, err := c.Tasks.Unfinished(c.ctx(), owner, maxFollowed)
	if err != nil {
		return nil, err
	}
	if more {
		return nil, fault.New(fault.Conflict, "there are more than %d unfinished tasks; name one user", maxFollowed)
	}
	return listed(c.shownTasks(tasks))
}

// WatchRequest requests the tasks whose state is not the known one.
type WatchRequest struct {
	Known map[string]string `json:"known"` // the known state by task id; empty: none
	Wait  int64             `json:"wait"`  // seconds
}

// WatchResponse has the tasks whose state has changed.
type WatchResponse struct {
	Items []Task   `json:"items"`
	Gone  []string `json:"gone,omitempty"` // ids of tasks that do not exist
}

// MaxWatched bounds the tasks that one request watches.
const MaxWatched = 500

// watchTasks answers as soon as the state of a task is not the known one, at the latest
// when the wait is over. It may miss a change while it begins to wait; the next request
// returns that change.
func watchTasks(c *call, in WatchRequest) (any, error) {
	if len(in.Known) == 0 || len(in.Known) > MaxWatched {
		return nil, fault.At(fault.InvalidParameter, "known", "known: %d tasks are not supported; allowed: 1 to %d", len(in.Known), MaxWatched)
	}
	if maxWait := int64(task.MaxWait / time.Second); in.Wait < 0 || in.Wait > maxWait {
		return nil, fault.At(fault.InvalidParameter, "wait", "wait: %d is not supported; allowed: 0 to %d seconds", in.Wait, maxWait)
	}
	changes, err := c.changes(in.Known)
	if err != nil || len(changes.Items)+len(changes.Gone) > 0 || in.Wait == 0 {
		return changes, err
	}
	c.awaitChange(in.Known, time.Duration(in.Wait)*time.Second)
	return c.changes(in.Known)
}

// changes returns the tasks whose state is not the known one.
func (c *call) changes(known map[string]string) (WatchResponse, error) {
	response, changed := WatchResponse{}, []*task.Task(nil)
	for _, id := range slices.Sorted(maps.Keys(known)) {
		t, err := c.Tasks.Get(c.ctx(), task.Anyone, id)
		refused, _ := errors.AsType[*fault.Fault](err)
		switch {
		case refused != nil && refused.Code == fault.TaskNotFound:
			response.Gone = append(response.Gone, id)
		case err != nil:
			return response, err
		case stateOf(t) != known[id]:
			changed = append(changed, t)
		}
	}
	var err error
	response.Items, err = c.shownTasks(changed)
	return response, err
}

// awaitChange blocks until a task has changed, at most for timeout.
func (c *call) awaitChange(tasks map[string]string, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx(), timeout)
	defer cancel()
	var waits sync.WaitGroup
	for id := range tasks {
		waits.Go(func() {
			defer cancel() // one change is enough
			_, _ = c.Tasks.Wait(ctx, task.Anyone, id, timeout)
		})
	}
	waits.Wait()
}

func listDeliveries(c *call) (any, error) {
	name := c.q.Text("user")
	if name == "" {
		return nil, fault.At(fault.MissingParameter, "user", "`user` is required: the id or the name of a user")
	}
	user, err := c.userOf(name)
	if err != nil {
		return nil, err
	}
	p := c.q.PageAfter()
	list, next, err := c.Tasks.Callbacks(c.ctx(), user.ID, p.After, int(p.Limit))
	return Page[task.Callback]{list, next}, err
}

// Backend is the state of a backend with its adapter and models of the configuration.
// Oldest is the submission time of the oldest waiting task.
type Backend struct {
	task.BackendStatus
	Oldest  int64             `json:"oldest,omitempty"` // Unix seconds
	Adapter string            `json:"adapter,omitempty"`
	Models  []catalog.Pattern `json:"models,omitempty"`
}

func (c *call) shownBackends() ([]Backend, error) {
	all, err := c.Tasks.Backends(c.ctx())
	shown := make([]Backend, len(all))
	for i, status := range all {
		shown[i].BackendStatus = status
		if !status.Oldest.IsZero() {
			shown[i].Oldest = status.Oldest.Unix()
		}
		for _, configured := range c.app.BackendRows {
			if configured.Name == status.Name {
				shown[i].Adapter, shown[i].Models = configured.AdapterName(), configured.Models
			}
		}
	}
	return shown, err
}

// setBackend returns a handler that drains or enables a backend.
func setBackend(set func(e *task.Engine, ctx context.Context, actor, backend string) error) handler {
	return func(c *call) (any, error) {
		name := c.path("backend")
		if err := set(c.Tasks, c.ctx(), c.actor, name); err != nil {
			return nil, err
		}
		all, err := c.shownBackends()
		for _, b := range all {
			if b.Name == name {
				return b, err
			}
		}
		return Backend{BackendStatus: task.BackendStatus{Name: name}}, err // of an earlier configuration, without tasks
	}
}

// The states of a [BackendCheck].
const (
	CheckPassed  = "ok"
	CheckFailed  = "failed"
	CheckSkipped = "unchecked"
)

// BackendCheck is the result of the check whether a backend would accept a job.
type BackendCheck struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // "ok", "failed" or "unchecked"
	Detail string `json:"detail,omitempty"` // why it is not ok
	TookMS int64  `json:"took_ms"`
}

func checkBackend(c *call) (any, error) {
	check := BackendCheck{Name: c.path("backend"), State: CheckPassed}
	if err := c.note("backend.check", check.Name); err != nil {
		return nil, err
	}
	begun := time.Now()
	checked, err := c.Tasks.Check(c.ctx(), check.Name)
	check.TookMS = time.Since(begun).Milliseconds()
	refused, _ := errors.AsType[*fault.Fault](err)
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		check.State, check.Detail = CheckFailed, operatorText(err)
	case !checked:
		check.State, check.Detail = CheckSkipped, "the service has no request without cost that the adapter could send; submit a task to test it"
	}
	return check, nil
}

// operatorText returns the text of a backend's error for an operator.
func operatorText(err error) string {
	e, ok := errors.AsType[*backends.Error](err)
	switch {
	case !ok:
		return err.Error()
	case e.Detail == "":
		return e.Message
	}
	return e.Message + ": " + e.Detail
}
