package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

const (
	// maxWatch bounds --timeout: every task ends within this time.
	maxWatch = 72 * time.Hour

	// watchWait is how long one request waits for a change. It is shorter than the time
	// that Caddy gives requests of its admin endpoint to end on a reload.
	watchWait = 5 * time.Second

	// maxRetries and retryPause bound the wait for an admin endpoint that has answered before.
	maxRetries = 10
	retryPause = 200 * time.Millisecond
)

func watchTasks(c *call) error {
	word := c.flag("timeout")
	timeout, err := caddy.ParseDuration(word)
	if err != nil || timeout <= 0 || timeout > maxWatch {
		return errUsage("--timeout %q is not supported; allowed: a duration such as 30m, at most 72h", word)
	}
	one, only := c.args["task"]
	if only && c.Flags().Changed("user") {
		return errUsage("--user and [task] exclude each other")
	}
	client, err := newClient(c.Command)
	if err != nil {
		return err
	}
	w := watcher{client: client, out: c.OutOrStdout(), asJSON: c.isSet("json"), known: make(map[string]string), end: time.Now().Add(timeout)}
	if only {
		w.next = []string{one}
	} else {
		var list struct{ Items []adminapi.Task }
		if err := client.call(c.Context(), http.MethodGet, "/modelgate/tasks/unfinished?user="+url.QueryEscape(c.flag("user")), nil, &list); err != nil {
			return err
		}
		for _, t := range list.Items {
			w.next = append(w.next, t.ID)
		}
	}
	w.tasks = len(w.next)
	if err := w.follow(c.Context()); err != nil {
		return err
	}
	left := len(w.known) + len(w.next)
	switch {
	case only && w.gone > 0:
		return errExit{exitNotFound, errors.New("there is no such task")}
	case w.failed > 0:
		return fmt.Errorf("%d of %s failed", w.failed, counted(w.tasks, "task", "tasks"))
	case left > 0:
		return errExit{exitRefused, fmt.Errorf("%d of %s not over after %s", left, counted(w.tasks, "task is", "tasks are"), word)}
	}
	return nil
}

// watcher follows tasks, at most as many at a time as one request can name.
type watcher struct {
	client *client
	out    io.Writer
	asJSON bool
	end    time.Time

	next  []string          // tasks to follow later
	known map[string]string // tasks that are followed, with the last printed state

	tasks, failed, gone int

	retries int // left until an answer; zero before the first one
}

// follow prints every change of the tasks until all have ended or the timeout is over.
func (w *watcher) follow(ctx context.Context) error {
	for {
		for len(w.known) < adminapi.MaxWatched && len(w.next) > 0 {
			w.known[w.next[0]] = ""
			w.next = w.next[1:]
		}
		left := time.Until(w.end)
		if len(w.known) == 0 || left <= 0 {
			return nil
		}
		// Round up to a second, so that the last request waits as well.
		wait := min(left+time.Second-1, watchWait) / time.Second
		var changes adminapi.WatchResponse
		err := w.client.call(ctx, http.MethodPost, "/modelgate/tasks/watch", adminapi.WatchRequest{Known: w.known, Wait: int64(wait)}, &changes)
		if exit, ok := errors.AsType[errExit](err); ok && exit.code == exitUnreachable && w.retries > 0 && ctx.Err() == nil {
			w.retries-- // a reload replaces the admin endpoint
			time.Sleep(retryPause)
			continue
		}
		if err != nil {
			return err
		}
		w.retries = maxRetries
		for _, id := range changes.Gone {
			delete(w.known, id)
			w.gone++
		}
		for i := range changes.Items {
			if err := w.update(&changes.Items[i]); err != nil {
				return err
			}
		}
	}
}

// update records the state of a task and prints it.
func (w *watcher) update(t *adminapi.Task) error {
	w.known[t.ID] = t.State()
	if t.CompletedAt != 0 {
		delete(w.known, t.ID)
	}
	if t.Status == task.Failed {
		w.failed++
	}
	if w.asJSON {
		raw, err := dialect.JSON(t)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w.out, "%s\n", raw)
		return err
	}
	what := ""
	switch {
	case t.Error != nil:
		what = "  " + string(t.Error.Reason) + ": " + dash(t.Error.Message)
	case t.Result != nil:
		what = "  " + dash(t.Result.URL)
	}
	_, err := fmt.Fprintf(w.out, "%s  %s  %-11s  %4s  %s%s\n", moment(time.Now().Unix()), t.ID, t.Status, t.Progress, t.Backend, what)
	return err
}
