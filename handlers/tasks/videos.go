package tasks

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// videoStatus has the states that have another name in the form of /v1/videos.
var videoStatus = map[task.State]string{task.Pending: "queued", task.Success: "completed"}

// videoObject is a video in the form that OpenAI's API had. All members are always present.
type videoObject struct {
	ID                 string      `json:"id"`
	Object             string      `json:"object"` // "video"
	Model              string      `json:"model"`
	Status             string      `json:"status"`   // queued, in_progress, completed or failed
	Progress           int         `json:"progress"` // percent
	CreatedAt          int64       `json:"created_at"`
	CompletedAt        *int64      `json:"completed_at"`
	ExpiresAt          *int64      `json:"expires_at"` // of the file
	Seconds            *string     `json:"seconds"`
	Size               *string     `json:"size"`
	Prompt             *string     `json:"prompt"` // null if it is long
	RemixedFromVideoID *string     `json:"remixed_from_video_id"`
	Error              *videoError `json:"error"`
}

type videoError struct {
	Code    backends.Reason `json:"code"`
	Message string          `json:"message"`
}

// set returns a pointer to a value, or nil if it is the zero value.
func set[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// videoOf returns a task in the form of /v1/videos. What the service reports of the result replaces
// what was requested.
func (req *request) videoOf(ctx context.Context, t *task.Task) (*videoObject, error) {
	v := &videoObject{
		ID: t.ID, Object: "video", Model: t.Model, Status: string(t.Status), Progress: progressOf(t),
		CreatedAt: t.CreatedAt, CompletedAt: set(t.CompletedAt), Prompt: set(t.Detail.Prompt()),
	}
	if word, differs := videoStatus[t.Status]; differs {
		v.Status = word
	}
	var seconds float64
	var size string
	if asked := t.Detail.Video; asked != nil {
		seconds, size = asked.Seconds, asked.Size
		v.RemixedFromVideoID = set(asked.RemixOf)
	}
	if t.Error != nil {
		v.Error = &videoError{t.Error.Reason, t.Error.Message}
	}
	if t.Result != nil {
		made := t.Detail.Results[0]
		if made.Duration > 0 {
			seconds = made.Duration
		}
		if made.Width > 0 && made.Height > 0 {
			size = strconv.Itoa(made.Width) + "x" + strconv.Itoa(made.Height)
		}
		gone, err := req.runtime.Media.GoneAt(ctx, t.Result.URL)
		if err != nil {
			return nil, err
		}
		if !gone.IsZero() {
			v.ExpiresAt = set(gone.Unix())
		}
	}
	v.Seconds, v.Size = set((backends.Output{Duration: seconds}).Seconds()), set(size)
	return v, nil
}

// answerVideo answers a video.
func (req *request) answerVideo(t *task.Task) error {
	v, err := req.videoOf(req.r.Context(), t)
	if err != nil {
		return err
	}
	return req.answer(v)
}

// video returns the task of the path, which must make videos.
func (req *request) video() (*task.Task, error) {
	t, err := req.readTask()
	if err == nil && t.Detail.Kind.Makes() != backends.VideoFile {
		err = task.ErrNotFound
	}
	return t, err
}

// showVideo serves GET /v1/videos/{task_id}?wait=. It shows videos from all routes.
func showVideo(req *request) error {
	t, err := req.video()
	if err != nil {
		return err
	}
	return req.answerVideo(t)
}

// videoList is a page of the videos of an API key.
type videoList struct {
	Object  string         `json:"object"` // "list"
	Data    []*videoObject `json:"data"`
	FirstID *string        `json:"first_id"`
	LastID  *string        `json:"last_id"` // the value of `after` for the next page
	HasMore bool           `json:"has_more"`
}

// listVideos serves GET /v1/videos?after=&limit=&order=.
func listVideos(req *request) error {
	q := query.Of(req.r)
	p := q.PageAfter()
	page := task.Page{After: p.After, Limit: int(p.Limit), Makes: backends.VideoFile, Oldest: q.Word("order", "desc", "asc") == "asc"}
	if q.Fault != nil {
		return q.Fault
	}
	tasks, next, err := req.runtime.Tasks.List(req.r.Context(), task.OfKey(req.principal.KeyID), page)
	if err != nil {
		return err
	}
	list := videoList{Object: "list", Data: []*videoObject{}, HasMore: next != ""}
	for _, t := range tasks {
		v, err := req.videoOf(req.r.Context(), t)
		if err != nil {
			return err
		}
		list.Data = append(list.Data, v)
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return req.answer(list)
}

// deletion is the answer to a deletion.
type deletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "video.deleted"
	Deleted bool   `json:"deleted"`
}

// deleteVideo serves DELETE /v1/videos/{task_id}. It cancels an unfinished video, by the rule of
// cancelTask. The files expire before the task is hidden, so that a deletion that is interrupted can be
// repeated.
func deleteVideo(req *request) error {
	owner, id := task.OfKey(req.principal.KeyID), req.r.PathValue("task_id")
	err := req.untilEnd(func(ctx context.Context) error {
		t, err := req.video()
		if err == nil && t.CompletedAt == 0 {
			_, err = req.runtime.Tasks.Cancel(ctx, owner, id)
		}
		if err == nil {
			err = req.runtime.Media.Discard(ctx, id)
		}
		if err == nil {
			err = req.runtime.Tasks.Delete(ctx, owner, id)
		}
		return err
	})
	if err != nil {
		return err
	}
	return req.answer(deletion{id, "video.deleted", true})
}

// serveContent serves GET /v1/videos/{task_id}/content?variant=. If the gateway keeps no copy of the
// video, it redirects to the link of the service.
func serveContent(req *request) error {
	q := query.Of(req.r)
	variant := q.Word("variant", "video", "thumbnail", "spritesheet")
	if q.Fault != nil {
		return q.Fault
	}
	t, err := req.video()
	switch {
	case err != nil:
		return err
	case t.Result == nil:
		return fault.New(fault.NotFound, "the video has no content: it is %s", strings.ReplaceAll(string(t.Status), "_", " "))
	case variant != "video":
		return fault.At(fault.NotFound, "variant", "there is no %s of this video; allowed: video", variant)
	}
	file, err := req.runtime.Media.OpenResult(req.r.Context(), t.ID, 0)
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.Code == fault.NotFound {
		return req.redirect(t.Result.URL)
	}
	return req.serve(file, err)
}

// redirect sends the caller to the link of a service.
func (req *request) redirect(link string) error {
	header := req.w.Header()
	dialect.Stamp(header, req.route.dialect, req.id)
	header.Set("Location", link)
	header.Set("Cache-Control", "no-store")
	req.w.WriteHeader(http.StatusFound)
	return nil
}
