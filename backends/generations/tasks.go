package generations

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// path is the endpoint. The paths of tasks are below it.
const path = "/v1/video/generations"

// words maps the status words of both forms, and those that such gateways
// forward from their own services.
var words = backends.Words{
	"not_start":   backends.Queued,
	"submitted":   backends.Queued,
	"queued":      backends.Queued,
	"pending":     backends.Queued,
	"in_progress": backends.Running,
	"processing":  backends.Running,
	"success":     backends.Succeeded,
	"succeeded":   backends.Succeeded,
	"completed":   backends.Succeeded,
	"failure":     backends.Failed,
	"failed":      backends.Failed,
}

// codes maps the codes of refusals and failures to reasons.
var codes = wire.Codes{
	"invalid_request":                backends.InvalidInput,
	"invalid_request_error":          backends.InvalidInput,
	"invalid_parameter":              backends.InvalidInput,
	"invalid_input":                  backends.InvalidInput,
	"content_rejected":               backends.ContentRejected,
	"content_policy_violation":       backends.ContentRejected,
	"sensitive_words_detected":       backends.ContentRejected,
	"moderation_blocked":             backends.ContentRejected,
	"upstream_busy":                  backends.UpstreamBusy,
	"rate_limit_exceeded":            backends.UpstreamBusy,
	"insufficient_user_quota":        backends.UpstreamError,
	"insufficient_quota":             backends.UpstreamError,
	"model_not_found":                backends.UpstreamError,
	"task_timeout":                   backends.TaskTimeout,
	"task_cancelled":                 backends.TaskCancelled,
	"model_failed":                   backends.ModelFailed,
	"upstream_error":                 backends.UpstreamError,
	"get_channel_failed":             backends.UpstreamError,
	"pre_consume_token_quota_failed": backends.UpstreamError,
}

// absent are the codes of an answer about an unknown task.
var absent = map[string]bool{"task_not_exist": true, "task_not_found": true}

// params maps the service's fields to the gateway's.
var params = map[string]string{
	"model": "model", "prompt": "prompt", "image": "inputs", "images": "inputs", "duration": "output.duration",
	"seconds": "output.duration", "size": "output.resolution", "width": "output.width", "height": "output.height",
	"fps": "output.fps", "seed": "seed", "n": "output.count", "metadata": "metadata",
	"response_format": "response_format", "user": "user",
}

// fields is the request body of a platform task.
type fields struct {
	Model    string         `json:"model"`
	Prompt   string         `json:"prompt,omitempty"`
	Image    string         `json:"image,omitempty"`
	Images   []string       `json:"images,omitempty"`
	Duration json.Number    `json:"duration,omitempty"`
	Width    int            `json:"width,omitempty"`
	Height   int            `json:"height,omitempty"`
	Seed     *int64         `json:"seed,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// body returns the request body for a job.
func (g *Generations) body(job backends.Job) ([]byte, error) {
	model := cmp.Or(g.Models[job.Model], job.Model)
	switch job.Kind {
	case backends.Generations:
		return wire.GenerationBody(job, model)
	case backends.Image:
		return nil, backends.Invalid("model", "this service generates only videos, not images")
	}
	f := fields{
		Model: model, Prompt: job.Prompt, Duration: json.Number(job.Output.Seconds()), Seed: job.Seed,
		Metadata: metadata(job),
	}
	if job.Output.Resolution != "" {
		f.Width, f.Height = job.Output.Size()
	}
	for i, input := range job.Inputs {
		if i == 0 && input.Category != "video" {
			f.Image = input.URL
		}
		f.Images = append(f.Images, input.URL)
	}
	if len(f.Images) == 1 && f.Image != "" {
		f.Images = nil
	}
	body, err := wire.Encode(f)
	if err != nil {
		return nil, backends.Invalid("ext_info", "it cannot be written as JSON")
	}
	return body, nil
}

// metadata returns the fields of a job that the endpoint does not have, by
// their platform names.
func metadata(job backends.Job) map[string]any {
	out := job.Output
	all := map[string]any{
		"negative_prompt": job.NegativePrompt, "enhance_prompt": job.EnhancePrompt, "generation_mode": job.GenerationMode,
		"scene_type": job.SceneType, "input_region": job.InputRegion, "resolution": out.Resolution,
		"aspect_ratio": out.AspectRatio, "audio_generation": out.AudioGeneration, "enhance_switch": out.EnhanceSwitch,
		"frame_interpolate": out.FrameInterpolate, "media_name": out.MediaName,
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == "" })
	if out.ClassID != 0 {
		all["class_id"] = out.ClassID
	}
	if len(job.Inputs) > 0 {
		all["inputs"] = job.Inputs
	}
	if len(job.SubjectInputs) > 0 {
		all["subject_inputs"] = job.SubjectInputs
	}
	if len(job.ExtInfo) > 0 {
		all["ext_info"] = job.ExtInfo
	}
	return all
}

// task is a task in either form. In the wrapped form it is in Data.
type task struct {
	Code     wire.Text       `json:"code"`
	Message  wire.Text       `json:"message"`
	ID       wire.Text       `json:"id"`
	TaskID   wire.Text       `json:"task_id"`
	Status   wire.Text       `json:"status"`
	Progress wire.Number     `json:"progress"`
	URL      wire.Text       `json:"url"`
	Format   wire.Text       `json:"format"`
	Result   wire.Text       `json:"result_url"`
	Reason   wire.Text       `json:"fail_reason"`
	Error    wire.ErrorBody  `json:"error"`
	Data     json.RawMessage `json:"data"`
	Metadata wire.Object     `json:"metadata"`
}

// read reads a task from an answer of either form.
func (g *Generations) read(op wire.Operation, answer wire.Response) (task, error) {
	var t task
	if err := g.client.Decode(op, answer, &t); err != nil {
		return t, err
	}
	// In the flat form only errors have a code.
	if t.Code == "" || t.Status != "" {
		return t, nil
	}
	if !strings.EqualFold(string(t.Code), "success") {
		return t, g.client.StatusError(op, answer, explain(op, t))
	}
	inner := bytes.TrimSpace(t.Data)
	var data task
	switch {
	case len(inner) > 0 && inner[0] == '"' && op == wire.Submitting:
		_ = json.Unmarshal(inner, &data.TaskID) // some services wrap only the id; a Text accepts any value
	case len(inner) == 0 || inner[0] != '{' || json.Unmarshal(inner, &data) != nil:
		return t, g.client.Unreadable(op, "data is not a task")
	}
	return data, nil
}

// explain explains an error with status 200. A submission with an unknown code
// may have been accepted.
func explain(op wire.Operation, t task) wire.Explanation {
	e := wire.Explanation{Code: string(t.Code), Message: string(t.Message), Reason: codes.Reason(string(t.Code), "")}
	switch {
	case op != wire.Submitting && absent[strings.ToLower(string(t.Code))]:
		e.Kind = backends.Gone
	case op != wire.Submitting:
		e.Kind = backends.Busy
	case e.Reason == backends.UpstreamBusy:
		e.Kind = backends.Busy
	case e.Reason != "":
		e.Kind = backends.Refused
	default:
		e.Kind = backends.Unconfirmed
	}
	return e
}

// Submit implements backends.Backend.
func (g *Generations) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	body, err := g.body(job)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	answer, err := g.client.Do(ctx, wire.Call{Operation: wire.Submitting, URL: g.client.Base + path, Body: body})
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	t, err := g.read(wire.Submitting, answer)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	return g.client.Ref(string(job.Kind), string(cmp.Or(t.TaskID, t.ID)))
}

// Poll implements backends.Backend.
func (g *Generations) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	base, err := g.client.At(ref)
	if err != nil {
		return backends.Status{}, err
	}
	answer, err := g.client.Do(ctx, wire.Call{Operation: wire.Polling, URL: base + path + "/" + url.PathEscape(ref.ID)})
	if err != nil {
		return backends.Status{}, err
	}
	t, err := g.read(wire.Polling, answer)
	if err != nil {
		return backends.Status{}, err
	}
	status := g.status(t, base)
	status.RetryAfter = wire.RetryAfter(answer.Header)
	return status, nil
}

// Check implements backends.Checker. It polls a task that does not exist. The
// answer must mention a task, because the answer of a server without this
// endpoint does not.
func (g *Generations) Check(ctx context.Context) error {
	answer, err := g.client.Do(ctx, wire.Call{Operation: wire.Checking, URL: g.client.Base + path + "/nobodys"})
	explanation := g.client.Explain(answer.Status, answer.Body)
	switch {
	case absent[strings.ToLower(explanation.Code)]:
		return nil
	case answer.Status == http.StatusNotFound && strings.Contains(strings.ToLower(explanation.Message), "task"):
		return nil
	case err == nil:
		return g.client.Unreadable(wire.Checking, "it is not an error about an unknown task")
	}
	return err
}

func (g *Generations) status(t task, base string) backends.Status {
	word := string(t.Status)
	switch state := words.State(word); state {
	case backends.Succeeded:
		link := t.link()
		if needsKey(base, link) {
			status := g.client.Unfinished(state, word, 100)
			status.Results = []backends.Result{{Type: backends.VideoFile, Format: "mp4"}}
			return status
		}
		return g.client.Success(word, backends.VideoFile, link)
	case backends.Failed:
		code := string(cmp.Or(t.Error.Code, t.Error.Type))
		message := string(cmp.Or(t.Error.Message, t.Reason, t.Message))
		return g.client.Failed(word, g.client.Failure(codes.Reason(code, backends.ModelFailed), code, message))
	default:
		return g.client.Unfinished(state, word, t.Progress)
	}
}

// link returns the first URL of the result in the members that may contain it.
// Old gateways put it into fail_reason.
func (t task) link() string {
	for _, text := range []wire.Text{t.URL, t.Result, wire.Text(t.Metadata.Text("url")), t.Reason} {
		if link := wire.Link(string(text)); link != "" {
			return link
		}
	}
	return ""
}

// needsKey reports whether a URL is one of the service itself that requires its
// key.
func needsKey(base, link string) bool {
	within := wire.Within(base, link)
	u, err := url.Parse(within)
	return within != "" && err == nil && strings.HasPrefix(u.Path, "/v1/videos/") && strings.HasSuffix(u.Path, "/content")
}

// OnlyBytes implements backends.Fetcher: most results have a URL.
func (*Generations) OnlyBytes() bool { return false }

// Fetch implements backends.Fetcher for results that need the key.
func (g *Generations) Fetch(ctx context.Context, ref backends.Ref, index int) (io.ReadCloser, backends.Content, error) {
	base, err := g.client.At(ref)
	if err != nil {
		return nil, backends.Content{}, err
	}
	return g.client.OpenOnly(ctx, base+"/v1/videos/"+url.PathEscape(ref.ID)+"/content", index)
}
