package tasks

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// generations is the form of docs/reference/tasks.md#video-generations. It ignores no member:
// unknown members pass to the backend.
var generations = &form{
	name: "generations", answer: created, decode: plain(generation.DecodeGenerations),
}

// flatStatus has the states that have another name in this form.
var flatStatus = map[task.State]string{task.Pending: "queued", task.Success: "succeeded"}

func statusOf(t *task.Task) string {
	if word, differs := flatStatus[t.Status]; differs {
		return word
	}
	return string(t.Status)
}

// progressOf returns the progress in percent.
func progressOf(t *task.Task) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(t.Progress, "%")) // the engine always writes "<n>%"
	return n
}

// generationHead begins both answers about a generation. ID and TaskID are the same, because
// clients read one or the other.
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
// that docs/reference/tasks.md lists. It omits long fields.
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

func created(s *submission) (any, error) {
	given := shortFields(s.spec.Fields)
	c := creation{
		generationHead: headOf(s.task),
		Prompt:         given["prompt"], Duration: given["duration"], Width: given["width"], Height: given["height"],
		FPS: given["fps"], Seed: given["seed"], N: given["n"], ResponseFormat: given["response_format"], User: given["user"],
		Metadata: shortMetadata(s.spec.Fields["metadata"]),
	}
	if inputs := s.spec.Inputs; len(inputs) > 0 && strings.Contains(inputs[0].URL, "://") {
		c.Image = inputs[0].URL
	}
	return c, nil
}

// The maximum sizes of a field and of metadata that the answer repeats, in bytes.
const (
	maxEchoed   = 8192
	maxMetadata = 8 * maxEchoed
)

// shortFields returns the fields without those that are long or may be a medium in Base64. So a
// client that limits the length of answers can read the id of its task.
func shortFields(given map[string]json.RawMessage) map[string]json.RawMessage {
	members := maps.Clone(given)
	maps.DeleteFunc(members, func(_ string, member json.RawMessage) bool {
		return len(member) > maxEchoed || strings.Contains(string(member), ";base64,")
	})
	return members
}

// shortMetadata is shortFields for the members of metadata.
func shortMetadata(raw json.RawMessage) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &members) != nil {
		return nil
	}
	members = shortFields(members)
	size := 0
	for name, member := range members {
		if size += len(name) + len(member); size > maxMetadata {
			return nil
		}
	}
	return members
}

// flatTask is the answer of GET /v1/video/generations/{task_id}.
type flatTask struct {
	generationHead
	CompletedAt int64       `json:"completed_at,omitempty"`
	URL         string      `json:"url,omitempty"` // the first of URLs
	URLs        []string    `json:"urls,omitempty"`
	Format      string      `json:"format,omitempty"`   // such as mp4
	Metadata    *medium     `json:"metadata,omitempty"` // of the first result
	Error       *task.Error `json:"error,omitempty"`
}

// medium has the properties of a result that the service has reported.
type medium struct {
	Duration float64 `json:"duration,omitempty"` // seconds
	Width    int     `json:"width,omitempty"`    // pixels
	Height   int     `json:"height,omitempty"`   // pixels
}

// showGeneration serves GET /v1/video/generations/{task_id}?wait=. It shows
// videos from all routes, but no images.
func showGeneration(req *request) error {
	t, err := req.readTask()
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
