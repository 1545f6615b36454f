package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
)

// The sides of measures of tasks. There are as many succeeded tasks as
// connections that query them.
var (
	respondTask = side{name: "respond-task", caddyfile: respondTaskCaddyfile, finished: 64}
	finished    = side{name: "finished", caddyfile: tasksCaddyfile, users: 1, keys: 1, finished: 64}
)

const (
	submitPath = "/v1/platform/video"
	tasksPath  = "/v1/platform/tasks/"
)

// taskJSON has the shape and size of a task as the gateway shows it.
const taskJSON = `{"task_id":"task_OOCUWHTHHFV4AB26LMUFVYCKIP","object":"video_task","model":"` + videoModel + `","status":"success","progress":"100%",` +
	`"created_at":1797898858,"completed_at":1797898863,"result":{"url":"` + videoURL + `","urls":["` + videoURL + `"],"type":"video"}}`

// respondTaskCaddyfile is Caddy's respond with a text as long as a task. The
// text has no braces, because respond would look for placeholders in them.
var respondTaskCaddyfile = template.Must(template.New("respond-task").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
}

http://{{.Address}} {
	respond ` + tasksPath + `* "` + strings.Repeat("x", len(taskJSON)) + `"
}
`))

// tasksCaddyfile is a gateway whose videos come from the mock service, and
// which passes their links on.
var tasksCaddyfile = template.Must(template.New("tasks").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
	modelgate {
		base_url http://{{.Address}}
		storage badger "{{.Dir}}/store"
		media off
		family E video-bench-*
		price video-bench-* {
			second 0.02
		}
		backend ` + serviceName + ` {
			models video-bench-*
{{- if .Running}}
			max_running {{.Running}}
{{- end}}
			adapter platform {
				url http://{{.Backend}}
				key ` + serviceKey + `
			}
		}
	}
}

http://{{.Address}} {
	modelgate_tasks
}
`))

// submissionJSON is the body of a video submission.
var submissionJSON = marshal(map[string]any{
	"model": videoModel, "prompt": videoPrompt,
	"output": map[string]any{"duration": 8, "resolution": "720P", "aspect_ratio": "16:9"},
})

// client sends the benchmark's own requests to a gateway, which are not
// measured.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// sendJSON sends a request with an API key and decodes the answer.
func (g *gateway) sendJSON(ctx context.Context, key, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	text, err := fetchWith(client, req)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// made is a task that has succeeded.
type made struct {
	ID      string
	Success time.Time // when the caller received the answer
}

// makeOne submits a task and waits until it has succeeded, as a client does.
func (g *gateway) makeOne(ctx context.Context, key string) (m made, err error) {
	var task struct {
		ID     string `json:"task_id"`
		Status string `json:"status"`
	}
	if err := g.sendJSON(ctx, key, http.MethodPost, submitPath, submissionJSON, &task); err != nil {
		return m, err
	}
	for task.Status != "success" {
		if err := g.sendJSON(ctx, key, http.MethodGet, tasksPath+task.ID+"?wait=60", nil, &task); err != nil {
			return m, err
		}
		if task.Status == "failed" {
			return m, fmt.Errorf("the task %s has failed", task.ID)
		}
	}
	return made{task.ID, time.Now()}, nil
}

// makeAll runs this many tasks at once.
func (g *gateway) makeAll(ctx context.Context, key string, tasks int) ([]made, error) {
	all, errs := make([]made, tasks), make([]error, tasks)
	var wait sync.WaitGroup
	for n := range all {
		wait.Go(func() { all[n], errs[n] = g.makeOne(ctx, key) })
	}
	wait.Wait()
	return all, cmp.Or(errs...)
}

// finishTasks gives a site succeeded tasks and the paths at which they are
// queried.
func (b *bench) finishTasks(ctx context.Context, s *site) error {
	g, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer g.stop()
	if err := g.awaitAdmin(ctx); err != nil {
		return err
	}
	all, err := g.makeAll(ctx, s.keys[0], s.finished)
	for _, m := range all {
		s.taskPaths = append(s.taskPaths, tasksPath+m.ID)
	}
	return err
}

// prompting is the trial of how soon the gateway reports a success. Its
// reference is the longest poll interval.
type prompting struct{ Tasks int }

// longestInterval is the longest pause between two polls of a job that the
// backend has had for less than half a minute: two seconds plus a fifth.
const longestInterval = 2400 * time.Millisecond

// pair implements trial. A job is complete after its first poll, so a whole
// interval passes until the next poll. The slowest task counts.
func (t prompting) pair(ctx context.Context, b *bench, _ string) (p pair, err error) {
	s, err := b.prepare(ctx, finished)
	if err != nil {
		return p, err
	}
	g, err := b.start(ctx, s)
	if err != nil {
		return p, err
	}
	defer g.stop()
	if err := g.awaitAdmin(ctx); err != nil {
		return p, err
	}
	all, err := g.makeAll(ctx, s.keys[0], t.Tasks)
	if err != nil {
		return p, err
	}
	p[0].Took = longestInterval
	for _, m := range all {
		job, err := b.workOf(ctx, m.ID)
		if err != nil {
			return p, err
		}
		p[1].Took = max(p[1].Took, m.Success.Sub(time.Unix(0, job.Completed)))
		p[1].SuccessDelay = max(p[1].SuccessDelay, m.Success.Sub(time.Unix(0, job.Reported)))
		p[1].Units++
	}
	return p, nil
}

// workOf returns the job of a task from the mock service.
func (b *bench) workOf(ctx context.Context, task string) (job work, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.backend+workPath+backends.Token(task), nil)
	if err != nil {
		return job, err
	}
	text, err := fetchWith(client, req)
	if err != nil {
		return job, err
	}
	if err = json.Unmarshal(text, &job); err == nil && job.Reported == 0 {
		err = errors.New("the mock service does not know the task " + strings.TrimPrefix(task, "task_"))
	}
	return job, err
}
