package vod

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// version is the version of the API.
const version = "2018-07-17"

// words maps the status words of the outer and the inner task. FINISH does not
// mean success: only the error code of the inner task shows whether it succeeded.
var words = backends.Words{
	"waiting":    backends.Queued,
	"processing": backends.Running,
	"finish":     backends.Succeeded,
	"aborted":    backends.Failed,
}

// code is the meaning of a service's error code and of all codes that begin
// with it and a dot.
type code struct {
	reason backends.Reason
	submit backends.Kind // for a submission
	poll   backends.Kind // for a poll
}

// codes maps the codes of refusals and failed tasks. VoilationContent is the
// spelling of the service. TaskDuplicate means that there is a job with the same
// token.
var codes = map[string]code{
	"RequestLimitExceeded":              {backends.UpstreamBusy, backends.Busy, backends.Busy},
	"LimitExceeded":                     {backends.UpstreamBusy, backends.Busy, backends.Busy},
	"InvalidParameter.VoilationContent": {backends.ContentRejected, backends.Refused, backends.Busy},
	"InvalidParameter":                  {backends.InvalidInput, backends.Refused, backends.Busy},
	"InvalidParameterValue":             {backends.InvalidInput, backends.Refused, backends.Busy},
	"InvalidParameterValue.TaskId":      {backends.UpstreamError, backends.Refused, backends.Gone},
	"MissingParameter":                  {backends.InvalidInput, backends.Refused, backends.Busy},
	"UnknownParameter":                  {backends.InvalidInput, backends.Refused, backends.Busy},
	"ResourceNotFound":                  {backends.UpstreamError, backends.Refused, backends.Gone},
	"ResourceInsufficient":              {backends.UpstreamError, backends.Refused, backends.Busy},
	"AuthFailure":                       {backends.UpstreamError, backends.Refused, backends.Refused},
	"UnauthorizedOperation":             {backends.UpstreamError, backends.Refused, backends.Refused},
	"UnsupportedOperation":              {backends.UpstreamError, backends.Refused, backends.Busy},
	"FailedOperation.TaskDuplicate":     {backends.UpstreamError, backends.Unconfirmed, backends.Busy},
	"FailedOperation":                   {backends.UpstreamBusy, backends.Unconfirmed, backends.Busy},
	"InternalError":                     {backends.UpstreamError, backends.Unconfirmed, backends.Busy},
}

// findCode returns the meaning of the longest prefix of an error code that has
// a row.
func findCode(text string) code {
	for text != "" {
		if c, known := codes[text]; known {
			return c
		}
		text = text[:max(0, strings.LastIndexByte(text, '.'))]
	}
	return code{backends.ModelFailed, backends.Unconfirmed, backends.Busy}
}

// reply is the API's answer to any action.
type reply struct {
	Response struct {
		Error *struct {
			Code    wire.Text `json:"Code"`
			Message wire.Text `json:"Message"`
		} `json:"Error"`
		TaskID      string       `json:"TaskId"`
		Status      string       `json:"Status"`
		Video       *task        `json:"AigcVideoTask"`
		Image       *task        `json:"AigcImageTask"`
		TaskSet     []listedTask `json:"TaskSet"`
		ScrollToken string       `json:"ScrollToken"`
		RequestID   wire.Text    `json:"RequestId"`
	} `json:"Response"`
}

// task is the inner task.
type task struct {
	Status     string      `json:"Status"`
	ErrCode    wire.Number `json:"ErrCode"`
	ErrCodeExt wire.Text   `json:"ErrCodeExt"`
	Message    wire.Text   `json:"Message"`
	Progress   wire.Number `json:"Progress"`
	Output     struct {
		FileInfos []struct {
			FileURL  wire.Text `json:"FileUrl"`
			FileType wire.Text `json:"FileType"`
			MetaData struct {
				Duration wire.Number `json:"Duration"`
				Width    wire.Number `json:"Width"`
				Height   wire.Number `json:"Height"`
			} `json:"MetaData"`
		} `json:"FileInfos"`
		Usage json.RawMessage `json:"Usage"`
	} `json:"Output"`
}

type listedTask struct {
	TaskID    wire.Text `json:"TaskId"`
	SessionID wire.Text `json:"SessionId"`
}

// do calls an action at a base address. The service reports errors with status
// 200.
func (v *VOD) do(ctx context.Context, op wire.Operation, base, action string, body any) (wire.Response, reply, error) {
	var r reply
	text, err := wire.Encode(body)
	if err != nil {
		return wire.Response{}, r, backends.Invalid("ext_info", "it cannot be written as JSON")
	}
	answer, err := v.client.Read(ctx, wire.Call{
		Operation: op, URL: base + "/", Body: text,
		Header: http.Header{"X-Tc-Action": {action}, "X-Tc-Version": {version}},
	}, &r)
	if err != nil {
		return answer, r, err
	}
	if e := r.Response.Error; e != nil {
		found := findCode(string(e.Code))
		explanation := wire.Explanation{Code: string(e.Code), Message: string(e.Message), Reason: found.reason, Kind: found.submit}
		if op != wire.Submitting {
			explanation.Kind = found.poll
		}
		return answer, r, v.client.StatusError(op, answer, explanation)
	}
	return answer, r, nil
}

// Submit implements backends.Backend.
func (v *VOD) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	request, err := v.translate(job)
	if err != nil {
		return backends.Ref{}, job.Named(err)
	}
	action := "CreateAigcVideoTask"
	if job.Kind == backends.Image {
		action = "CreateAigcImageTask"
	}
	_, r, err := v.do(ctx, wire.Submitting, v.client.Base, action, request)
	if err != nil {
		return backends.Ref{}, err
	}
	return v.client.Ref(string(job.Kind), r.Response.TaskID)
}

// Poll implements backends.Backend. The service keeps a task for three days.
func (v *VOD) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	base, err := v.client.At(ref)
	if err != nil {
		return backends.Status{}, err
	}
	answer, r, err := v.do(ctx, wire.Polling, base, "DescribeTaskDetail", map[string]any{"SubAppId": v.app, "TaskId": ref.ID})
	if err != nil {
		return backends.Status{}, err
	}
	kind := backends.JobKind(ref.Kind)
	inner := r.Response.Video
	if kind == backends.Image {
		inner = r.Response.Image
	}
	status := v.status(r.Response.Status, inner, kind.Makes())
	status.RetryAfter = wire.RetryAfter(answer.Header)
	return status, nil
}

// status returns the status of a task from its outer state and, if that is
// FINISH, from the inner task.
func (v *VOD) status(word string, inner *task, makes backends.MediaType) backends.Status {
	state := words.State(word)
	if inner == nil {
		inner = new(task)
	}
	switch state {
	case backends.Failed:
		return v.failed(word, inner)
	case backends.Succeeded:
		if words.State(inner.Status) != backends.Succeeded {
			return v.client.Unfinished(backends.Unknown, word+" "+inner.Status, inner.Progress)
		}
		if inner.ErrCode != 0 || inner.ErrCodeExt != "" {
			return v.failed(word, inner)
		}
		return v.succeeded(word, inner, makes)
	default:
		return v.client.Unfinished(state, word, inner.Progress)
	}
}

func (v *VOD) failed(word string, inner *task) backends.Status {
	text := string(inner.ErrCodeExt)
	return v.client.Failed(word, v.client.Failure(findCode(text).reason, text, string(inner.Message)))
}

func (v *VOD) succeeded(word string, inner *task, makes backends.MediaType) backends.Status {
	links := make([]string, 0, len(inner.Output.FileInfos))
	indexes := make(map[string]int)
	for i, file := range inner.Output.FileInfos {
		links = append(links, string(file.FileURL))
		indexes[string(file.FileURL)] = i
	}
	status := v.client.Success(word, makes, links...)
	for i, result := range status.Results {
		file := inner.Output.FileInfos[indexes[result.URL]]
		result.Duration, result.Width, result.Height = file.MetaData.Duration.Seconds(), file.MetaData.Width.Pixels(), file.MetaData.Height.Pixels()
		status.Results[i] = result
	}
	status.Cost = wire.Cost(inner.Output.Usage, "units")
	return status
}

// Check implements backends.Checker: it requests a list of one task.
func (v *VOD) Check(ctx context.Context) error {
	_, r, err := v.do(ctx, wire.Checking, v.client.Base, "DescribeTasks", map[string]any{"SubAppId": v.app, "Limit": 1})
	if err == nil && r.Response.RequestID == "" {
		err = v.client.Unreadable(wire.Checking, "it has no RequestId")
	}
	return err
}

// Reconcile searches this many pages of the task list, newest first.
const (
	pages    = 10
	pageSize = 100
)

// Reconcile implements backends.Reconciler. It searches the newest tasks for the job's
// session id. If it finds none, it sends the job again. The service accepts a session id once
// in three days, so there is one job in either case.
func (v *VOD) Reconcile(ctx context.Context, job backends.Job) (backends.Ref, error) {
	query := map[string]any{"SubAppId": v.app, "Limit": pageSize}
	for range pages {
		_, r, err := v.do(ctx, wire.Polling, v.client.Base, "DescribeTasks", query)
		if err != nil {
			return backends.Ref{}, err
		}
		for _, listed := range r.Response.TaskSet {
			if string(listed.SessionID) == job.Token {
				return v.client.Ref(string(job.Kind), string(listed.TaskID))
			}
		}
		if r.Response.ScrollToken == "" {
			break
		}
		query["ScrollToken"] = r.Response.ScrollToken
	}
	return v.Submit(ctx, job)
}
