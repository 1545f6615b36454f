package tasks

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// generations is the form of docs/reference/tasks.md#video-generations. Unknown members pass
// to the backend, so that none is ignored.
var generations = &form{
	name: "generations", answer: created,
	decode: func(body []byte) (generation.Request, []string, *fault.Fault) {
		r, refused := generation.DecodeGenerations(body)
		return r, nil, refused
	},
}

// flatStatus has the names of states in this form, where they differ from ours.
var flatStatus = map[task.State]string{task.Pending: "queued", task.Success: "succeeded"}

func statusOf(t *task.Task) string {
	if word, differs := flatStatus[t.Status]; differs {
		return word
	}
	return string(t.Status)
}

// progressOf is the progress as a number.
func progressOf(t *task.Task) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(t.Progress, "%")) // the engine writes no other
	return n
}

// generationHead begins both answers about a generation. ID and TaskID are the same: some
// clients read the one, some the other.
type generationHead struct {
	ID        string `json:"id"`
	TaskID    string `json:"task_id"`
	Object    string `json:"object"` // "video"
	Model     string `json:"model"`
	Status    string `json:"status"`   // queued, in_progress, succeeded or failed
	Progress  int    `json:"progress"` // percent
	CreatedAt int64  `json:"created_at"`
}

func headOf(t *task.Task) generationHead {
	return generationHead{t.ID, t.ID, "video", t.Model, statusOf(t), progressOf(t), t.CreatedAt}
}

// creation is the answer to a submission: the task, and the unchanged fields of the request
// that docs/reference/tasks.md lists. Long ones are left out.
type creation struct {
	generationHead
	Prompt         json.RawMessage            `json:"prompt,omitempty"`
	Image          string                     `json:"image,omitempty"` // if it was a link
	Duration       json.RawMessage            `json:"duration,omitempty"`
	Width          json.RawMessage            `json:"width,omitempty"`
	Height         json.RawMessage            `json:"height,omitempty"`
	FPS            json.RawMessage            `json:"fps,omitempty"`
	Seed           json.RawMessage            `json:"seed,omitempty"`
	N              json.RawMessage            `json:"n,omitempty"`
	ResponseFormat json.RawMessage            `json:"response_format,omitempty"`
	User           json.RawMessage            `json:"user,omitempty"`
	Metadata       map[string]json.RawMessage `json:"metadata,omitempty"`
}

func created(s *submission) any {
	given := light(s.spec.Fields)
	c := creation{
		generationHead: headOf(s.task),
		Prompt:         given["prompt"], Duration: given["duration"], Width: given["width"], Height: given["height"],
		FPS: given["fps"], Seed: given["seed"], N: given["n"], ResponseFormat: given["response_format"], User: given["user"],
		Metadata: lightMetadata(s.spec.Fields["metadata"]),
	}
	if inputs := s.spec.Inputs; len(inputs) > 0 && strings.Contains(inputs[0].URL, "://") {
		c.Image = inputs[0].URL
	}
	return c
}

// The maximum size in bytes of a field, and of metadata, that the answer repeats.
const (
	maxEchoed   = 8192
	maxMetadata = 8 * maxEchoed
)

// light returns the fields without those that are long or may be a medium in Base64. A
// client that bounds what it reads must find the id of the task that it pays for.
func light(given map[string]json.RawMessage) map[string]json.RawMessage {
	members := maps.Clone(given)
	maps.DeleteFunc(members, func(_ string, member json.RawMessage) bool {
		return len(member) > maxEchoed || strings.Contains(string(member), ";base64,")
	})
	return members
}

// lightMetadata is light for the members of metadata.
func lightMetadata(raw json.RawMessage) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &members) != nil {
		return nil
	}
	members = light(members)
	size := 0
	for name, member := range members {
		if size += len(name) + len(member); size > maxMetadata {
			return nil
		}
	}
	return members
}

// flatTask is a generation as GET /v1/video/generations/{task_id} shows it.
type flatTask struct {
	generationHead
	CompletedAt int64       `json:"completed_at,omitempty"`
	URL         string      `json:"url,omitempty"` // the first of URLs
	URLs        []string    `json:"urls,omitempty"`
	Format      string      `json:"format,omitempty"`   // as mp4
	Metadata    *medium     `json:"metadata,omitempty"` // of the first result
	Error       *task.Error `json:"error,omitempty"`
}

// medium is what the service has said about a result.
type medium struct {
	Duration float64 `json:"duration,omitempty"` // seconds
	Width    int     `json:"width,omitempty"`    // pixels
	Height   int     `json:"height,omitempty"`   // pixels
}

// showGeneration serves GET /v1/video/generations/{task_id}?wait=. It shows
// videos from all routes, but no images.
func showGeneration(req *request) error {
	t, err := req.look()
	if err != nil {
		return err
	}
	if t.Detail.Kind.Makes() != backends.VideoFile {
		return task.ErrNotFound
	}
	flat := flatTask{generationHead: headOf(t), CompletedAt: t.CompletedAt, Error: t.Error}
	if t.Result != nil {
		flat.URL, flat.URLs = t.Result.URL, t.Result.URLs
		first := t.Detail.Results[0]
		flat.Format = first.Format
		if m := (medium{first.Duration, first.Width, first.Height}); m != (medium{}) {
			flat.Metadata = &m
		}
	}
	return req.answer(flat)
}
