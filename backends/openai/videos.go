package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// words maps the API's status words.
var words = backends.Words{
	"queued":      backends.Queued,
	"in_progress": backends.Running,
	"completed":   backends.Succeeded,
	"failed":      backends.Failed,
}

// codes maps the codes of errors and failures to reasons.
var codes = wire.Codes{
	"moderation_blocked":         backends.ContentRejected,
	"content_policy_violation":   backends.ContentRejected,
	"input_moderation":           backends.ContentRejected,
	"output_moderation":          backends.ContentRejected,
	"invalid_request_error":      backends.InvalidInput,
	"invalid_prompt":             backends.InvalidInput,
	"rate_limit_exceeded":        backends.UpstreamBusy,
	"server_overloaded":          backends.UpstreamBusy,
	"insufficient_quota":         backends.UpstreamError,
	"billing_hard_limit_reached": backends.UpstreamError,
	"invalid_api_key":            backends.UpstreamError,
	"model_not_found":            backends.UpstreamError,
}

// params maps the API's fields to the gateway's.
var params = map[string]string{
	"prompt":                    "prompt",
	"model":                     "model",
	"seconds":                   "output.duration",
	"size":                      "output.resolution",
	"input_reference":           "inputs",
	"input_reference.image_url": "inputs",
}

// sizes maps resolution and ratio to the API's sizes.
var sizes = map[string]string{
	"720P 16:9":  "1280x720",
	"720P 9:16":  "720x1280",
	"1080P 16:9": "1792x1024",
	"1080P 9:16": "1024x1792",
}

// Defaults for an output that sets only the resolution or only the ratio.
const (
	defaultResolution = "720P"
	defaultRatio      = "16:9"
)

// fields are the fields of a job that the service supports.
var fields = []string{
	"prompt", "duration", "resolution", "aspect_ratio", "width", "height", "first_frame", "reference_images",
}

// submission is the body of POST /v1/videos. The API takes seconds as a string.
type submission struct {
	Model          string     `json:"model"`
	Prompt         string     `json:"prompt"`
	Seconds        string     `json:"seconds,omitempty"`
	Size           string     `json:"size,omitempty"`
	InputReference *reference `json:"input_reference,omitempty"`
}

// remix is the body of POST /v1/videos/{id}/remix.
type remix struct {
	Prompt string `json:"prompt"`
}

type reference struct {
	ImageURL string `json:"image_url"`
}

// video is the API's answer about a video.
type video struct {
	ID       string         `json:"id"`
	Status   string         `json:"status"`
	Progress wire.Number    `json:"progress"`
	Seconds  wire.Number    `json:"seconds"`
	Size     wire.Text      `json:"size"`
	Error    wire.ErrorBody `json:"error"`
}

// Submit implements backends.Backend.
func (o *OpenAI) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	request, err := o.translate(job)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	body, err := wire.Encode(request)
	if err != nil {
		return backends.Ref{}, backends.Invalid("prompt", "the job cannot be written as JSON")
	}
	return o.send(ctx, o.client.Base+"/v1/videos", body, job)
}

// Remix implements backends.Remixer. The API takes only the prompt: the new video has the length and
// the size of the earlier one.
func (o *OpenAI) Remix(ctx context.Context, source backends.Ref, job backends.Job) (backends.Ref, error) {
	address, err := o.address(source)
	if err != nil {
		return backends.Ref{}, backends.Invalid("", "the service that has this video is no longer the same")
	}
	body, err := wire.Encode(remix{job.Prompt})
	if err != nil {
		return backends.Ref{}, backends.Invalid("prompt", "the job cannot be written as JSON")
	}
	return o.send(ctx, address+"/remix", body, job)
}

// send sends a submission once.
func (o *OpenAI) send(ctx context.Context, address string, body []byte, job backends.Job) (backends.Ref, error) {
	var v video
	_, err := o.client.Read(ctx, wire.Call{Operation: wire.Submitting, URL: address, Body: body}, &v)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	return o.client.Ref("", v.ID)
}

// translate returns the request for a job. It refuses a job with a feature that
// the caller pays for and the API does not have.
func (o *OpenAI) translate(job backends.Job) (submission, error) {
	request := submission{Model: wire.Models(o.Models).Name(job.Model), Prompt: job.Prompt, Seconds: job.Output.Seconds()}
	size, err := size(job.Output)
	switch {
	case err != nil:
		return request, err
	case job.Kind == backends.Image:
		return request, backends.Invalid("model", "this service generates only videos, not images")
	case job.Choices() > 1:
		return request, backends.Invalid("output.count", fmt.Sprintf("this service generates 1 video for a job, not %d", job.Choices()))
	case len(job.SubjectInputs) > 0:
		return request, backends.Invalid("subject_inputs", "this service does not support subjects")
	case len(job.Inputs) > 1:
		return request, backends.Invalid("inputs", fmt.Sprintf("this service accepts 1 input, not %d", len(job.Inputs)))
	}
	request.Size = size
	for _, input := range job.Inputs {
		if input.Category == "video" || input.Usage == backends.LastFrame {
			return request, backends.Invalid("inputs[0]", "this service only accepts a reference image or a first frame")
		}
		request.InputReference = &reference{ImageURL: input.URL}
	}
	return request, wire.CheckFields(job, fields, false)
}

// size returns the API's size for an output, or "" if the output sets none.
func size(out backends.Output) (string, error) {
	allowed := slices.Sorted(maps.Values(sizes))
	if out.Width > 0 || out.Height > 0 {
		text := fmt.Sprintf("%dx%d", out.Width, out.Height)
		if !slices.Contains(allowed, text) {
			return "", backends.Invalid("output.width", fmt.Sprintf("%s is not a size of this service; allowed: %s", text, strings.Join(allowed, ", ")))
		}
		return text, nil
	}
	if out.Resolution == "" && out.AspectRatio == "" {
		return "", nil
	}
	resolution, ratio := cmp.Or(out.Resolution, defaultResolution), cmp.Or(out.AspectRatio, defaultRatio)
	text, known := sizes[strings.ToUpper(resolution)+" "+ratio]
	if !known {
		return "", backends.Invalid("output.resolution", fmt.Sprintf("%s in %s is not a size of this service; allowed: %s",
			resolution, ratio, strings.Join(slices.Sorted(maps.Keys(sizes)), ", ")))
	}
	return text, nil
}

// address returns the URL at which a job is polled.
func (o *OpenAI) address(ref backends.Ref) (string, error) {
	base, err := o.client.At(ref)
	return base + "/v1/videos/" + url.PathEscape(ref.ID), err
}

// Poll implements backends.Backend.
func (o *OpenAI) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	address, err := o.address(ref)
	if err != nil {
		return backends.Status{}, err
	}
	var v video
	answer, err := o.client.Read(ctx, wire.Call{Operation: wire.Polling, URL: address}, &v)
	if err != nil {
		return backends.Status{}, err
	}
	status := o.client.Unfinished(words.State(v.Status), v.Status, v.Progress)
	switch status.State {
	case backends.Succeeded:
		status.Progress = 100
		status.Results = []backends.Result{v.result()}
	case backends.Failed:
		code := string(v.Error.Code)
		status = o.client.Failed(v.Status, o.client.Failure(codes.Reason(code, backends.ModelFailed), code, string(v.Error.Message)))
	}
	status.RetryAfter = wire.RetryAfter(answer.Header)
	return status, nil
}

// Check implements backends.Checker: it requests a list of one video.
func (o *OpenAI) Check(ctx context.Context) error {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	_, err := o.client.Read(ctx, wire.Call{Operation: wire.Checking, URL: o.client.Base + "/v1/videos?limit=1"}, &list)
	if err == nil && list.Data == nil {
		err = o.client.Unreadable(wire.Checking, "it is not a list of videos")
	}
	return err
}

// result returns the properties of the video. Fetch returns its bytes.
func (v video) result() backends.Result {
	r := backends.Result{Type: backends.VideoFile, Duration: v.Seconds.Seconds(), Format: "mp4"}
	width, height, _ := strings.Cut(string(v.Size), "x")
	if w, err := strconv.ParseUint(width, 10, 16); err == nil {
		r.Width = int(w)
	}
	if h, err := strconv.ParseUint(height, 10, 16); err == nil {
		r.Height = int(h)
	}
	return r
}

// OnlyBytes implements backends.Fetcher.
func (*OpenAI) OnlyBytes() bool { return true }

// Fetch implements backends.Fetcher.
func (o *OpenAI) Fetch(ctx context.Context, ref backends.Ref, index int) (io.ReadCloser, backends.Content, error) {
	address, err := o.address(ref)
	if err != nil {
		return nil, backends.Content{}, err
	}
	return o.client.OpenOnly(ctx, address+"/content", index)
}
