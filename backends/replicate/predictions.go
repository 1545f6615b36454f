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

// words are the states of a prediction. An aborted one passed its deadline
// before it had begun.
var words = backends.Words{
	"starting":   backends.Queued,
	"processing": backends.Running,
	"succeeded":  backends.Succeeded,
	"failed":     backends.Failed,
	"canceled":   backends.Failed,
	"aborted":    backends.Failed,
}

// wordReasons are the reasons that the words of failures say by themselves.
var wordReasons = map[string]backends.Reason{
	"canceled": backends.TaskCancelled,
	"aborted":  backends.UpstreamBusy,
}

// phrases are what the texts of failures hold that have a reason of their own:
// models write them as they like.
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

// usual are the names that most models' inputs have.
var usual = wire.Names{
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

// submission is the body of a new prediction.
type submission struct {
	Version string         `json:"version,omitempty"`
	Input   map[string]any `json:"input"`
	Webhook string         `json:"webhook,omitempty"`
	Events  []string       `json:"webhook_events_filter,omitempty"`
}

// prediction is what the API answers with.
type prediction struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"`
	Output      json.RawMessage `json:"output"`
	Error       wire.Text       `json:"error"`
	DataRemoved json.RawMessage `json:"data_removed"`
	Metrics     wire.Object     `json:"metrics"`
}

// explain reads an error: a problem as RFC 9457 has it.
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
	input, err := wire.Input(job, usual, r.Inputs)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	asked := submission{Input: input}
	if job.NotifyURL != "" && r.WebhookSecret != "" {
		asked.Webhook, asked.Events = job.NotifyURL, []string{"completed"}
	}
	path := "/v1/models/" + model + "/predictions"
	if strings.HasPrefix(model, "deployments/") {
		path = "/v1/" + model + "/predictions"
	} else if _, version, pinned := strings.Cut(model, ":"); pinned {
		path, asked.Version = "/v1/predictions", version
	}
	body, err := wire.Encode(asked)
	if err != nil {
		return backends.Ref{}, backends.Invalid("ext_info", "it cannot be written as JSON")
	}
	answer, err := r.client.Do(ctx, wire.Call{Act: wire.Submitting, URL: r.client.Base + path, Body: body})
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	var p prediction
	if err := r.client.Decode(wire.Submitting, answer, &p); err != nil {
		return backends.Ref{}, err
	}
	return r.client.Ref(string(job.Kind), p.ID)
}

// ask sends a request about a prediction and reads it from the answer.
func (r *Replicate) ask(ctx context.Context, act wire.Act, ref backends.Ref, verb string) (wire.Answer, prediction, error) {
	var p prediction
	base, err := r.client.At(ref)
	if err != nil {
		return wire.Answer{}, p, err
	}
	call := wire.Call{Act: act, URL: base + "/v1/predictions/" + url.PathEscape(ref.ID) + verb}
	if verb != "" {
		call.Method = http.MethodPost
	}
	answer, err := r.client.Do(ctx, call)
	if err != nil {
		return answer, p, err
	}
	return answer, p, r.client.Decode(act, answer, &p)
}

// Poll implements backends.Backend.
func (r *Replicate) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	answer, p, err := r.ask(ctx, wire.Polling, ref, "")
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
		return r.client.Going(state, p.Status, 0)
	}
}

// reason is why a prediction failed.
func reason(p prediction) backends.Reason {
	if why, says := wordReasons[strings.ToLower(p.Status)]; says {
		return why
	}
	text := strings.ToLower(string(p.Error))
	for _, row := range phrases {
		if strings.Contains(text, row.phrase) {
			return row.reason
		}
	}
	return backends.ModelFailed
}

// Cancel implements backends.Canceler. The prediction has to be over by the
// answer: a cancellation that is under way is none yet.
func (r *Replicate) Cancel(ctx context.Context, ref backends.Ref) error {
	answer, p, err := r.ask(ctx, wire.Cancelling, ref, "/cancel")
	if err != nil {
		return err
	}
	kind := backends.Doubtful
	switch words.State(p.Status) {
	case backends.Failed:
		return nil
	case backends.Succeeded:
		kind = backends.Refused
	}
	return r.client.Judge(wire.Cancelling, answer, wire.Explanation{Kind: kind, Message: "it is " + p.Status})
}

// Check implements backends.Checker: it asks whose token it has.
func (r *Replicate) Check(ctx context.Context) error {
	answer, err := r.client.Do(ctx, wire.Call{Act: wire.Checking, URL: r.client.Base + "/v1/account"})
	if err != nil {
		return err
	}
	var account struct {
		Username wire.Text `json:"username"`
	}
	if err := r.client.Decode(wire.Checking, answer, &account); err != nil {
		return err
	}
	if account.Username == "" {
		return r.client.Unreadable(wire.Checking, "it is no account")
	}
	return nil
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
		return "", errors.New("the webhook names no prediction")
	}
	return p.ID, nil
}
