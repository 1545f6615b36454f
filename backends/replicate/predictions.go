package replicate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// words maps the status words of a prediction. "aborted" means that the
// deadline passed before the prediction began.
var words = backends.Words{
	"starting":   backends.Queued,
	"processing": backends.Running,
	"succeeded":  backends.Succeeded,
	"failed":     backends.Failed,
	"canceled":   backends.Failed,
	"aborted":    backends.Failed,
}

// wordReasons maps status words to the reason of the failure.
var wordReasons = map[string]backends.Reason{
	"canceled": backends.TaskCancelled,
	"aborted":  backends.UpstreamBusy,
}

// phrases maps parts of a failure's text to reasons, because models write these
// texts freely.
var phrases = []struct {
	phrase string
	reason backends.Reason
}{
	{"nsfw", backends.ContentRejected},
	{"(e005)", backends.ContentRejected}, // flagged as sensitive
	{"flagged as sensitive", backends.ContentRejected},
	{"content moderation", backends.ContentRejected},
	{"(e003)", backends.UpstreamBusy}, // high demand
	{"(e006)", backends.InvalidInput},
	{"timed out", backends.TaskTimeout},
}

// defaultNames are the names of most models' inputs.
var defaultNames = wire.Names{
	"prompt":          "prompt",
	"negative_prompt": "negative_prompt",
	"seed":            "seed",
	"duration":        "duration",
	"resolution":      "resolution",
	"aspect_ratio":    "aspect_ratio",
	"first_frame":     "image",
	"count":           "num_outputs",
	"format":          "output_format",
}

// submission is the request body of a new prediction.
type submission struct {
	Version string         `json:"version,omitempty"`
	Input   map[string]any `json:"input"`
	Webhook string         `json:"webhook,omitempty"`
	Events  []string       `json:"webhook_events_filter,omitempty"`
}

// prediction is the API's answer about a prediction.
type prediction struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"`
	Output      json.RawMessage `json:"output"`
	Error       wire.Text       `json:"error"`
	DataRemoved json.RawMessage `json:"data_removed"`
	Metrics     wire.Object     `json:"metrics"`
}

// explain decodes an error in the form of RFC 9457.
func explain(_ int, body []byte) wire.Explanation {
	var problem struct {
		Title  wire.Text `json:"title"`
		Detail wire.Text `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil {
		return wire.Explanation{}
	}
	return wire.Explanation{Code: string(problem.Title), Message: string(problem.Detail)}
}

// Submit implements backends.Backend.
func (r *Replicate) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	model, configured := r.Models[job.Model]
	if !configured {
		return backends.Ref{}, backends.Invalid("model", fmt.Sprintf("no model of this service is configured for %q", backends.Text(job.Model)))
	}
	input, err := wire.Input(job, defaultNames, r.Inputs)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	request := submission{Input: input}
	if job.NotifyURL != "" && r.WebhookSecret != "" {
		request.Webhook, request.Events = job.NotifyURL, []string{"completed"}
	}
	path := "/v1/models/" + model + "/predictions"
	if strings.HasPrefix(model, "deployments/") {
		path = "/v1/" + model + "/predictions"
	} else if _, version, pinned := strings.Cut(model, ":"); pinned {
		path, request.Version = "/v1/predictions", version
	}
	body, err := wire.Encode(request)
	if err != nil {
		return backends.Ref{}, backends.Invalid("ext_info", "it cannot be written as JSON")
	}
	var p prediction
	_, err = r.client.Read(ctx, wire.Call{Operation: wire.Submitting, URL: r.client.Base + path, Body: body}, &p)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	return r.client.Ref(string(job.Kind), p.ID)
}

// request sends a request about a prediction and decodes the prediction in the
// answer.
func (r *Replicate) request(ctx context.Context, op wire.Operation, ref backends.Ref, verb string) (wire.Response, prediction, error) {
	var p prediction
	base, err := r.client.At(ref)
	if err != nil {
		return wire.Response{}, p, err
	}
	call := wire.Call{Operation: op, URL: base + "/v1/predictions/" + url.PathEscape(ref.ID) + verb}
	if verb != "" {
		call.Method = http.MethodPost
	}
	answer, err := r.client.Read(ctx, call, &p)
	return answer, p, err
}

// Poll implements backends.Backend.
func (r *Replicate) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	answer, p, err := r.request(ctx, wire.Polling, ref, "")
	if err != nil {
		return backends.Status{}, err
	}
	status := r.status(p, backends.JobKind(ref.Kind).Makes())
	status.Cost = wire.Cost(p.Metrics["predict_time"], "predict seconds")
	status.RetryAfter = wire.RetryAfter(answer.Header)
	return status, nil
}

func (r *Replicate) status(p prediction, makes backends.MediaType) backends.Status {
	state := words.State(p.Status)
	switch state {
	case backends.Succeeded:
		if string(p.DataRemoved) == "true" {
			return r.client.Failed(p.Status, r.client.Failure(backends.UpstreamError, "data_removed", "the result was deleted before it was read"))
		}
		return r.client.Success(p.Status, makes, wire.Links(p.Output, "")...)
	case backends.Failed:
		return r.client.Failed(p.Status, r.client.Failure(reason(p), p.Status, string(p.Error)))
	default:
		return r.client.Unfinished(state, p.Status, 0)
	}
}

// reason returns why a prediction failed.
func reason(p prediction) backends.Reason {
	if reason, ok := wordReasons[strings.ToLower(p.Status)]; ok {
		return reason
	}
	text := strings.ToLower(string(p.Error))
	for _, row := range phrases {
		if strings.Contains(text, row.phrase) {
			return row.reason
		}
	}
	return backends.ModelFailed
}

// Cancel implements backends.Canceler. It succeeds only if the answer says that
// the prediction has ended. A pending cancellation is not enough.
func (r *Replicate) Cancel(ctx context.Context, ref backends.Ref) error {
	answer, p, err := r.request(ctx, wire.Cancelling, ref, "/cancel")
	if err != nil {
		return err
	}
	kind := backends.Unconfirmed
	switch words.State(p.Status) {
	case backends.Failed:
		return nil
	case backends.Succeeded:
		kind = backends.Refused
	}
	return r.client.StatusError(wire.Cancelling, answer, wire.Explanation{Kind: kind, Message: "the prediction was not cancelled: its status is " + p.Status})
}

// Check implements backends.Checker: it requests the account of the token.
func (r *Replicate) Check(ctx context.Context) error {
	var account struct {
		Username wire.Text `json:"username"`
	}
	_, err := r.client.Read(ctx, wire.Call{Operation: wire.Checking, URL: r.client.Base + "/v1/account"}, &account)
	if err == nil && account.Username == "" {
		err = r.client.Unreadable(wire.Checking, "the answer has no username")
	}
	return err
}

// CheckHead implements backends.Notified.
func (r *Replicate) CheckHead(n backends.Notification) error {
	return wire.CheckWebhookHead(n, r.WebhookSecret)
}

// Notice implements backends.Notified: the body is the prediction.
func (r *Replicate) Notice(n backends.Notification) (string, error) {
	if err := wire.CheckWebhook(n, r.WebhookSecret); err != nil {
		return "", err
	}
	var p prediction
	if err := json.Unmarshal(n.Body, &p); err != nil || !backends.IsID(p.ID) {
		return "", errors.New("the webhook has no valid id of a prediction")
	}
	return p.ID, nil
}
