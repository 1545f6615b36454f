package fal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// words maps the queue's status words. COMPLETED does not mean success: only the
// result shows whether the job succeeded.
var words = backends.Words{
	"in_queue":    backends.Queued,
	"in_progress": backends.Running,
	"completed":   backends.Succeeded,
}

// codes maps the types of a model's errors to reasons.
var codes = wire.Codes{
	"content_policy_violation":       backends.ContentRejected,
	"no_media_generated":             backends.ModelFailed,
	"generation_timeout":             backends.TaskTimeout,
	"downstream_service_error":       backends.UpstreamBusy,
	"downstream_service_unavailable": backends.UpstreamBusy,
	"internal_server_error":          backends.UpstreamError,
}

// transient are 4xx statuses of a result that do not mean that the model failed.
// Their cause is the account, the request for the result, or a temporary error.
var transient = map[int]bool{
	http.StatusUnauthorized: true, http.StatusPaymentRequired: true, http.StatusForbidden: true, http.StatusNotFound: true,
	http.StatusMethodNotAllowed: true, http.StatusRequestTimeout: true, http.StatusTooEarly: true, http.StatusTooManyRequests: true,
}

// defaultNames are the names of most models' inputs.
var defaultNames = wire.Names{
	"prompt":          "prompt",
	"negative_prompt": "negative_prompt",
	"seed":            "seed",
	"duration":        "duration",
	"resolution":      "resolution",
	"aspect_ratio":    "aspect_ratio",
	"first_frame":     "image_url",
	"count":           "num_images",
	"format":          "output_format",
}

// params maps the default names to the gateway's fields.
var params = map[string]string{
	"prompt": "prompt", "negative_prompt": "negative_prompt", "seed": "seed", "duration": "output.duration",
	"resolution": "output.resolution", "aspect_ratio": "output.aspect_ratio", "image_url": "inputs",
	"num_images": "output.count", "output_format": "output.format",
}

// request is the queue's answer about a request.
type request struct {
	RequestID   string    `json:"request_id"`
	Status      string    `json:"status"`
	StatusURL   wire.Text `json:"status_url"`
	ResponseURL wire.Text `json:"response_url"`
}

// modelError is one error of a model.
type modelError struct {
	Message  wire.Text         `json:"msg"`
	Type     wire.Text         `json:"type"`
	Location []json.RawMessage `json:"loc"`
}

// explain decodes an error, whose detail is a string or a list of model errors.
// Only the first of the list is used.
func explain(_ int, body []byte) wire.Explanation {
	var parsed struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &parsed) != nil {
		return wire.Explanation{}
	}
	var list []modelError
	if json.Unmarshal(parsed.Detail, &list) != nil || len(list) == 0 {
		var text wire.Text
		_ = json.Unmarshal(parsed.Detail, &text) // a Text accepts any value
		return wire.Explanation{Message: string(text)}
	}
	first := list[0]
	e := wire.Explanation{Code: string(first.Type), Message: string(first.Message), Reason: codes.Reason(string(first.Type), "")}
	if n := len(first.Location); n > 0 {
		var field wire.Text
		_ = json.Unmarshal(first.Location[n-1], &field)
		e.Param = string(field)
	}
	return e
}

// Submit implements backends.Backend.
func (f *Fal) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	model, configured := f.Models[job.Model]
	if !configured {
		return backends.Ref{}, backends.Invalid("model", fmt.Sprintf("no model of this service is configured for %q", backends.Text(job.Model)))
	}
	input, err := wire.Input(job, defaultNames, f.Inputs)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	body, err := wire.Encode(input)
	if err != nil {
		return backends.Ref{}, backends.Invalid("ext_info", "it cannot be written as JSON")
	}
	var r request
	_, err = f.client.Read(ctx, wire.Call{Operation: wire.Submitting, URL: f.client.Base + "/" + model, Body: body}, &r)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	ref, err := f.client.Ref(string(job.Kind), r.RequestID)
	if err != nil {
		return backends.Ref{}, err
	}
	// The queue returns the URLs of the request, which are not always below the
	// model's path. The key must not be sent to another host.
	address := f.client.Base + "/" + app(model) + "/requests/" + url.PathEscape(r.RequestID)
	ref.Links = map[string]string{"status": address + "/status", "response": address}
	for name, link := range map[string]wire.Text{"status": r.StatusURL, "response": r.ResponseURL} {
		if within := wire.Within(f.client.Base, string(link)); within != "" {
			ref.Links[name] = within
		}
	}
	return ref, nil
}

// app returns the part of a model's path that the paths of its requests begin
// with: the owner and the app.
func app(model string) string {
	owner, rest, _ := strings.Cut(model, "/")
	name, _, _ := strings.Cut(rest, "/")
	return owner + "/" + name
}

// link returns a URL of a job's reference if the credential may be sent to it.
func (f *Fal) link(ref backends.Ref, name string) (string, error) {
	base, err := f.client.At(ref)
	if err != nil {
		return "", err
	}
	link := wire.Within(base, ref.Links[name])
	if link == "" {
		return "", &backends.Error{
			Kind: backends.Gone, Reason: backends.UpstreamError, Message: "the reference of the job has no URL of fal",
		}
	}
	return link, nil
}

// Poll implements backends.Backend. For a completed request it also reads the
// result, because only the result shows whether the job succeeded.
func (f *Fal) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	address, err := f.link(ref, "status")
	if err != nil {
		return backends.Status{}, err
	}
	var r request
	answer, err := f.client.Read(ctx, wire.Call{Operation: wire.Polling, URL: address}, &r)
	if err != nil {
		return backends.Status{}, err
	}
	state := words.State(r.Status)
	if state != backends.Succeeded {
		status := f.client.Unfinished(state, r.Status, 0)
		status.RetryAfter = wire.RetryAfter(answer.Header)
		return status, nil
	}
	return f.result(ctx, ref, r.Status)
}

// result reads the result of a completed request.
func (f *Fal) result(ctx context.Context, ref backends.Ref, word string) (backends.Status, error) {
	address, err := f.link(ref, "response")
	if err != nil {
		return backends.Status{}, err
	}
	answer, err := f.client.Do(ctx, wire.Call{Operation: wire.Polling, URL: address})
	var status backends.Status
	switch {
	case answer.Status/100 == 4 && !transient[answer.Status]:
		failure := explain(answer.Status, answer.Body)
		reason := cmp.Or(failure.Reason, backends.InvalidInput)
		status = f.client.Failed(word, f.client.Failure(reason, failure.Code, failure.Message))
	case err != nil:
		return backends.Status{}, err
	default:
		status = f.client.Success(word, backends.JobKind(ref.Kind).Makes(), wire.Links(answer.Body, "url")...)
	}
	status.RetryAfter = wire.RetryAfter(answer.Header)
	return status, nil
}
