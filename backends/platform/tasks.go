package platform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// words maps the status words of a task (docs/reference/tasks.md#states).
var words = backends.Words{
	"pending":     backends.Queued,
	"queued":      backends.Queued,
	"in_progress": backends.Running,
	"success":     backends.Succeeded,
	"failed":      backends.Failed,
}

// codes maps the reasons of failed tasks and those codes of refusals that are not
// about the input.
var codes = wire.Codes{
	"content_rejected":     backends.ContentRejected,
	"invalid_input":        backends.InvalidInput,
	"upstream_busy":        backends.UpstreamBusy,
	"model_failed":         backends.ModelFailed,
	"task_timeout":         backends.TaskTimeout,
	"task_cancelled":       backends.TaskCancelled,
	"upstream_error":       backends.UpstreamError,
	"insufficient_quota":   backends.UpstreamError,
	"model_not_found":      backends.UpstreamError,
	"invalid_model":        backends.UpstreamError,
	"too_many_tasks":       backends.UpstreamBusy,
	"rate_limited":         backends.UpstreamBusy,
	"store_unavailable":    backends.UpstreamBusy,
	"upstream_rejected":    backends.InvalidInput,
	"upstream_unavailable": backends.UpstreamBusy,
}

// params maps the service's fields to the gateway's, which are the same.
var params = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		"model", "prompt", "negative_prompt", "enhance_prompt", "generation_mode", "inputs", "subject_inputs",
		"scene_type", "input_region", "ext_info", "seed", "output.duration", "output.resolution", "output.aspect_ratio",
		"output.audio_generation", "output.enhance_switch", "output.frame_interpolate", "output.media_name",
		"output.class_id", "output.count", "output.format",
		"duration", "width", "height", "fps", "n", "image", "response_format", "user", "metadata",
	} {
		names[name] = name
	}
	for i := range maxIndexed {
		for _, list := range []string{"inputs", "subject_inputs"} {
			element := fmt.Sprintf("%s[%d]", list, i)
			names[element] = element
			for _, member := range []string{
				"url", "category", "reference_type", "object_id", "voice_id", "keep_original_sound", "usage", "text", "id", "name",
			} {
				names[element+"."+member] = element + "." + member
			}
		}
	}
	return names
}()

// maxIndexed is the maximum number of list elements that an error can name.
const maxIndexed = 16

// paths are the endpoints for submissions.
var paths = map[backends.JobKind]string{
	backends.Video:       "/v1/platform/video",
	backends.Image:       "/v1/platform/image",
	backends.Generations: "/v1/video/generations",
}

// submission is the body of a platform submission.
type submission struct {
	Model          string                  `json:"model"`
	Prompt         string                  `json:"prompt"`
	NegativePrompt string                  `json:"negative_prompt,omitempty"`
	EnhancePrompt  string                  `json:"enhance_prompt,omitempty"`
	GenerationMode string                  `json:"generation_mode,omitempty"`
	Inputs         []backends.Input        `json:"inputs,omitempty"`
	SubjectInputs  []backends.SubjectInput `json:"subject_inputs,omitempty"`
	Output         output                  `json:"output,omitzero"`
	SceneType      string                  `json:"scene_type,omitempty"`
	InputRegion    string                  `json:"input_region,omitempty"`
	SessionID      string                  `json:"session_id"`
	ExtInfo        json.RawMessage         `json:"ext_info,omitempty"`
	Seed           *int64                  `json:"seed,omitempty"`
}

type output struct {
	Duration         int64  `json:"duration,omitempty"`
	Resolution       string `json:"resolution,omitempty"`
	AspectRatio      string `json:"aspect_ratio,omitempty"`
	AudioGeneration  string `json:"audio_generation,omitempty"`
	EnhanceSwitch    string `json:"enhance_switch,omitempty"`
	FrameInterpolate string `json:"frame_interpolate,omitempty"`
	MediaName        string `json:"media_name,omitempty"`
	ClassID          int64  `json:"class_id,omitempty"`
	Count            int    `json:"count,omitempty"`
	Format           string `json:"format,omitempty"`
}

// task is the service's answer about a task.
type task struct {
	TaskID   string         `json:"task_id"`
	Status   string         `json:"status"`
	Progress wire.Number    `json:"progress"`
	Error    wire.ErrorBody `json:"error"`
	Result   struct {
		URL  wire.Text   `json:"url"`
		URLs []wire.Text `json:"urls"`
		Type wire.Text   `json:"type"`
	} `json:"result"`
}

// Submit implements backends.Backend.
func (p *Platform) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	body, err := p.body(job)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	answer, err := p.client.Do(ctx, wire.Call{
		Operation: wire.Submitting, URL: p.client.Base + paths[job.Kind], Body: body,
		Header: http.Header{"Idempotency-Key": {job.Token}},
	})
	if answer.Status == http.StatusConflict {
		// The session id is this task's token, so its first use was this task.
		if id := firstTask(answer.Body); id != "" {
			return p.client.Ref(string(job.Kind), id)
		}
	}
	if err != nil {
		return backends.Ref{}, err
	}
	var t task
	if err := p.client.Decode(wire.Submitting, answer, &t); err != nil {
		return backends.Ref{}, err
	}
	return p.client.Ref(string(job.Kind), t.TaskID)
}

// firstTask returns the task that a DUPLICATE_SESSION_ID error names, or "".
func firstTask(body []byte) string {
	var parsed struct {
		Code   string `json:"code"`
		TaskID string `json:"task_id"`
		Error  struct {
			TaskID string `json:"task_id"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &parsed) != nil || parsed.Code != "DUPLICATE_SESSION_ID" {
		return ""
	}
	return cmp.Or(parsed.TaskID, parsed.Error.TaskID)
}

// Reconcile implements backends.Reconciler. The service accepts a session id
// once in three days, so Reconcile sends the job again: there is one job in
// either case. The endpoint of generations has no session id, so the outcome of
// its submissions stays unknown.
func (p *Platform) Reconcile(ctx context.Context, job backends.Job) (backends.Ref, error) {
	if job.Kind == backends.Generations {
		return backends.Ref{}, p.client.Unreadable(wire.Submitting, "a job of /v1/video/generations cannot be found by its token")
	}
	ref, err := p.Submit(ctx, job)
	if e, ok := errors.AsType[*backends.Error](err); ok && e.Kind == backends.Refused {
		gone := *e
		gone.Kind = backends.Gone
		return ref, &gone
	}
	return ref, err
}

// body returns the request body for a job.
func (p *Platform) body(job backends.Job) ([]byte, error) {
	model := cmp.Or(p.Models[job.Model], job.Model)
	if job.Kind == backends.Generations {
		return wire.GenerationBody(job, model)
	}
	if job.Output.Duration != math.Trunc(job.Output.Duration) {
		return nil, backends.Invalid("output.duration", fmt.Sprintf("must be whole seconds for this service, not %s", job.Output.Seconds()))
	}
	out := job.Output
	body, err := wire.Encode(submission{
		Model: model, Prompt: job.Prompt, NegativePrompt: job.NegativePrompt, EnhancePrompt: job.EnhancePrompt,
		GenerationMode: job.GenerationMode, Inputs: job.Inputs, SubjectInputs: job.SubjectInputs,
		Output: output{
			Duration: int64(out.Duration), Resolution: out.Resolution, AspectRatio: out.AspectRatio,
			AudioGeneration: out.AudioGeneration, EnhanceSwitch: out.EnhanceSwitch, FrameInterpolate: out.FrameInterpolate,
			MediaName: out.MediaName, ClassID: out.ClassID, Count: out.Count, Format: out.Format,
		},
		SceneType: job.SceneType, InputRegion: job.InputRegion, SessionID: job.Token, ExtInfo: job.ExtInfo, Seed: job.Seed,
	})
	if err != nil {
		return nil, backends.Invalid("ext_info", "it cannot be written as JSON")
	}
	return body, nil
}

// Poll implements backends.Backend.
func (p *Platform) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	answer, t, err := p.request(ctx, wire.Polling, ref, "")
	if err != nil {
		return backends.Status{}, err
	}
	status := p.status(t, backends.JobKind(ref.Kind).Makes())
	status.RetryAfter = wire.RetryAfter(answer.Header)
	return status, nil
}

// request sends a request about a task and decodes the task in the answer.
func (p *Platform) request(ctx context.Context, op wire.Operation, ref backends.Ref, verb string) (wire.Response, task, error) {
	var t task
	base, err := p.client.At(ref)
	if err != nil {
		return wire.Response{}, t, err
	}
	call := wire.Call{Operation: op, URL: base + "/v1/platform/tasks/" + url.PathEscape(ref.ID) + verb}
	if verb != "" {
		call.Method = http.MethodPost
	}
	answer, err := p.client.Read(ctx, call, &t)
	return answer, t, err
}

func (p *Platform) status(t task, makes backends.MediaType) backends.Status {
	switch state := words.State(t.Status); state {
	case backends.Succeeded:
		links := slices.Clone(t.Result.URLs)
		if len(links) == 0 {
			links = append(links, t.Result.URL)
		}
		if reported := backends.MediaType(t.Result.Type); reported == backends.ImageFile || reported == backends.VideoFile {
			makes = reported
		}
		return p.client.Success(t.Status, makes, wire.Strings(links)...)
	case backends.Failed:
		reason := codes.Reason(string(t.Error.Reason), codes.Reason(string(t.Error.Code), backends.ModelFailed))
		return p.client.Failed(t.Status, p.client.Failure(reason, string(t.Error.Code), string(t.Error.Message)))
	default:
		return p.client.Unfinished(state, t.Status, t.Progress)
	}
}

// Cancel implements backends.Canceler. It succeeds only if the answer says that
// the task has failed. A pending cancellation is not enough.
func (p *Platform) Cancel(ctx context.Context, ref backends.Ref) error {
	answer, t, err := p.request(ctx, wire.Cancelling, ref, "/cancel")
	if err != nil {
		return err
	}
	switch words.State(t.Status) {
	case backends.Failed:
		return nil
	case backends.Succeeded:
		return p.client.StatusError(wire.Cancelling, answer, wire.Explanation{Kind: backends.Refused, Message: "the task was not cancelled: its status is " + t.Status})
	default:
		return p.client.StatusError(wire.Cancelling, answer, wire.Explanation{Kind: backends.Unconfirmed, Message: "the task was not cancelled: its status is " + t.Status})
	}
}

// noTask is the error code for a task that the key does not have. Servers without
// this interface use other codes.
const noTask = "TASK_NOT_FOUND"

// Check implements backends.Checker: it polls a task that does not exist.
func (p *Platform) Check(ctx context.Context) error {
	answer, err := p.client.Do(ctx, wire.Call{Operation: wire.Checking, URL: p.client.Base + "/v1/platform/tasks/task_00000000000000000000000000"})
	switch {
	case answer.Status == http.StatusNotFound && p.client.Explain(answer.Status, answer.Body).Code == noTask:
		return nil
	case err == nil:
		return p.client.Unreadable(wire.Checking, "it reports a task that does not exist")
	}
	return err
}

// CheckHead implements backends.Notified.
func (p *Platform) CheckHead(n backends.Notification) error {
	return wire.CheckWebhookHead(n, p.CallbackSecret)
}

// Notice implements backends.Notified: it decodes a callback.
func (p *Platform) Notice(n backends.Notification) (string, error) {
	if err := wire.CheckWebhook(n, p.CallbackSecret); err != nil {
		return "", err
	}
	var event struct {
		Type string `json:"type"`
		Data struct {
			TaskID string `json:"task_id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(n.Body, &event); err != nil || !events[event.Type] || !backends.IsID(event.Data.TaskID) {
		return "", fmt.Errorf("the callback is not supported; allowed: %s, with a task_id", strings.Join(slices.Sorted(maps.Keys(events)), ", "))
	}
	return event.Data.TaskID, nil
}

// events are the callback types that trigger a poll.
var events = map[string]bool{"task.succeeded": true, "task.failed": true}
