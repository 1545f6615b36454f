package record

import (
	"encoding/json"
	"strconv"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/money"
)

// Task is the resource that callers see (docs/reference/tasks.md#task-resource). It is
// immutable.
type Task struct {
	ID          string  `json:"task_id"`
	Object      string  `json:"object"` // "image_task" or "video_task"
	Model       string  `json:"model"`
	Status      State   `json:"status"`
	Progress    string  `json:"progress"`               // "0%" to "100%"
	CreatedAt   int64   `json:"created_at"`             // Unix seconds
	CompletedAt int64   `json:"completed_at,omitempty"` // Unix seconds; only when it is over
	Result      *Result `json:"result,omitempty"`       // only in success
	Error       *Error  `json:"error,omitempty"`        // only in failed

	// Detail has more fields, for the routes of owners and operators.
	Detail Detail `json:"-"`
}

// Result is the result of a successful task.
type Result struct {
	URL  string             `json:"url"` // the first of URLs
	URLs []string           `json:"urls"`
	Type backends.MediaType `json:"type"`
}

// Detail has the fields of a task that are not part of its resource.
type Detail struct {
	Kind           backends.JobKind  `json:"kind"`
	User           string            `json:"user_id"`
	Key            string            `json:"key_id"`
	Backend        string            `json:"backend"`
	Delivery       Delivery          `json:"handover"`
	SessionID      string            `json:"session_id,omitempty"`
	SessionContext string            `json:"session_context,omitempty"`
	Held           money.Amount      `json:"held"` // zero after the end
	Charged        money.Amount      `json:"charged"`
	Rule           string            `json:"price_rule,omitempty"` // how the maximum price was computed
	VendorCost     backends.Cost     `json:"vendor_cost,omitzero"`
	Loss           string            `json:"loss,omitempty"`     // why the operator pays for the job without a charge
	UnknownStatus  string            `json:"word,omitempty"`     // the status of the backend, if the adapter does not know it
	Ref            *backends.Ref     `json:"ref,omitempty"`      // the job at the backend
	Polled         int64             `json:"polled,omitempty"`   // time of the last poll, Unix milliseconds
	Failing        int               `json:"failing,omitempty"`  // failed polls in a row
	Due            int64             `json:"due,omitempty"`      // when the task is processed next, Unix milliseconds
	Deadline       int64             `json:"deadline,omitempty"` // Unix milliseconds
	CopyingSince   int64             `json:"made,omitempty"`     // since when the results are being copied, Unix milliseconds
	Results        []backends.Result `json:"results,omitempty"`
	Video          *VideoRequest     `json:"-"` // of a task that was submitted to /v1/videos

	body json.RawMessage // the job of such a task, if it is short
}

// Prompt returns the prompt of a task that was submitted to /v1/videos, or "" if the job was too
// long to be kept with the task.
func (d *Detail) Prompt() string {
	var job struct {
		Prompt string `json:"prompt"`
	}
	_ = json.Unmarshal(d.body, &job) // without a body, there is no prompt
	return job.Prompt
}

// Status returns the status that callers see.
func (r *Record) Status() State {
	if r.State == Queued && r.Delivery == Unknown {
		return Pending
	}
	return r.State
}

// Percent returns the progress that callers see. Only a success is at 100 %.
func (r *Record) Percent() string {
	switch r.State {
	case InProgress:
		return strconv.Itoa(min(max(r.Progress, 0), 99)) + "%"
	case Success:
		return "100%"
	}
	return "0%"
}

// Task returns the task as callers see it.
func (r *Record) Task() *Task {
	t := &Task{
		ID: r.ID, Object: string(r.Kind.Makes()) + "_task", Model: r.Model,
		Status: r.Status(), Progress: r.Percent(), CreatedAt: r.Created / 1000, CompletedAt: r.Completed / 1000,
		Error: r.Failure,
		Detail: Detail{
			Kind: r.Kind, User: r.User, Key: r.Key, Backend: r.Backend, Delivery: r.Delivery,
			SessionID: r.SessionID, SessionContext: r.SessionContext,
			Charged: r.Charged, Rule: r.Rule, VendorCost: r.VendorCost, Loss: r.Loss,
			UnknownStatus: r.UnknownStatus, Ref: r.Ref, Polled: r.Polled, Failing: r.Failing, Due: r.Due, Deadline: r.Deadline, CopyingSince: r.CopyingSince,
		},
	}
	if !r.Over() {
		t.Detail.Held = r.Hold
	}
	if r.Video != nil {
		t.Detail.Video, t.Detail.body = r.Video, r.Body
	}
	if r.Quote != nil {
		t.Detail.Rule = r.Quote.Rule
	}
	if r.State == Success && len(r.Results) > 0 {
		t.Detail.Results = BackendResults(r.Results)
		t.Result = &Result{Type: r.Kind.Makes(), URLs: make([]string, len(r.Results))}
		for i, m := range r.Results {
			t.Result.URLs[i] = m.URL
		}
		t.Result.URL = t.Result.URLs[0]
	}
	return t
}
