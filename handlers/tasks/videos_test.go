package tasks_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func init() {
	caddy.RegisterModule(RemixAdapter{})
}

// RemixAdapter is an [Adapter] whose service can change its videos.
type RemixAdapter struct{ Adapter }

// CaddyModule returns the Caddy module information.
func (RemixAdapter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.remixer", New: func() caddy.Module { return new(RemixAdapter) }}
}

// Remix implements backends.Remixer.
func (a *RemixAdapter) Remix(ctx context.Context, source backends.Ref, job backends.Job) (backends.Ref, error) {
	if job.Source == nil || job.Source.ID != source.ID || source.ID == "" {
		return backends.Ref{}, backends.Invalid("prompt", "the job has no source")
	}
	return a.Submit(ctx, job)
}

// remixer is the configuration of a backend that can change its videos, and runs family F.
func remixer(t *testing.T) string {
	return "backend studio {\n models video-f-1\n adapter remixer \"" + t.Name() + "\"\n }\n"
}

func TestAVideoIsAnotherFormOfATask(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	body, contentType := form(t, "prompt", "a <boat>", "model", "video-e-1", "seconds", "8", "size", "1280x720", "@input_reference", picture)
	got := w.post(t, key, videosPath, body, contentType)
	video := decoded[clip](t, got)
	// The picture makes the job too long to be kept, so its prompt is not shown.
	shown := `{"id":%q,"object":"video","model":"video-e-1","status":%q,"progress":%d,"created_at":%d,"completed_at":%s,"expires_at":null,` +
		`"seconds":"8","size":"1280x720","prompt":null,"remixed_from_video_id":null,"error":null}`
	want := fmt.Sprintf(shown, video.ID, "queued", 0, video.Created_At, "null")
	if got.Body != want || !strings.HasPrefix(video.ID, "task_") {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	path := videosPath + "/" + video.ID
	if got := w.get(t, key, path); got.Body != want {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	job := w.service.job(t, video.ID)
	if job.Kind != backends.Generations || job.Prompt != "a <boat>" || job.Output.Duration != 8 || job.Output.Width != 1280 || job.Output.Height != 720 ||
		len(job.Inputs) != 1 || job.Inputs[0].Usage != backends.FirstFrame || job.Inputs[0].URL != "data:image/png;base64,"+base64.StdEncoding.EncodeToString([]byte(picture)) {
		t.Errorf("the job is %.500v", job)
	}
	w.checkWallet(t, key, "100", "0.80")
	line := w.taskLine(t, got)
	if line.Text("route") != "videos" || line.Text("task_id") != video.ID || line.Text("hold") != "0.80" || line.Number("bytes_in") != float64(len(body)) {
		t.Errorf("logged %v", line)
	}

	end := w.finish(t, key, video.ID, succeeded("https://cdn.example/req.mp4"))
	want = fmt.Sprintf(shown, video.ID, "completed", 100, video.Created_At, fmt.Sprint(*end.Completed_At))
	if got := w.get(t, key, path+"?wait=1"); got.Body != want {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	w.checkWallet(t, key, "99.20", "0")
	// Without media, the content is at the service.
	moved := w.noRedirect(t, key, path+"/content")
	if moved.Status != 302 || moved.Header.Get("Location") != "https://cdn.example/req.mp4" || moved.RequestID() == "" {
		t.Errorf("the content is answered %d %v", moved.Status, moved.Header)
	}

	// The default duration and size are those of the family, and a short prompt is shown.
	video = decoded[clip](t, w.post(t, key, videosPath, `{"prompt":"a boat","model":"video-e-1","input_reference":{"image_url":"https://files.example/a.png"}}`))
	if text(video.Seconds) != "8" || text(video.Size) != "1280x720" || text(video.Prompt) != "a boat" {
		t.Errorf("answered %+v", video)
	}
	w.finish(t, key, video.ID, failed(backends.ContentRejected, "no boat"))
	got = w.get(t, key, videosPath+"/"+video.ID)
	if video = decoded[clip](t, got); video.Status != "failed" || video.Error == nil || video.Error.Code != "CONTENT_REJECTED" || video.Error.Message != "no boat" || text(video.Prompt) != "a boat" {
		t.Errorf("answered %s", got.Body)
	}
	// The other forms show the same tasks, and this form theirs, without images.
	if got := decoded[resource](t, w.get(t, key, generationsPath+"/"+video.ID)); got.Status != "failed" || got.ID != video.ID {
		t.Errorf("the generic form shows %+v", got)
	}
	other := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	if got := decoded[clip](t, w.get(t, key, videosPath+"/"+other)); got.ID != other || got.Status != "queued" || got.Seconds != nil {
		t.Errorf("answered %+v", got)
	}
	refusal{404, fault.TaskNotFound, "", "there is no such task"}.check(t, videosPath, w.get(t, key, videosPath+"/"+w.submit(t, key, imagePath, bodyFor(imagePath, nil)).Task_ID))
	w.Verify(t)
}

func TestInvalidVideosAreRefused(t *testing.T) {
	w := start(t, "price sora-p {\n request 0.10\n second 720P 0.10\n }")
	key := w.fundedKey(t)
	ok := []string{"prompt", "a boat", "model", "video-e-1"}
	for name, c := range map[string]struct {
		fields []string
		want   refusal
	}{
		"no prompt":               {[]string{"model", "video-e-1"}, refusal{400, fault.MissingParameter, "prompt", "required"}},
		"an empty prompt":         {[]string{"model", "video-e-1", "prompt", " "}, refusal{400, fault.InvalidParameter, "prompt", "empty"}},
		"no model":                {[]string{"prompt", "a boat"}, refusal{400, fault.MissingParameter, "model", "required"}},
		"an unknown model":        {[]string{"prompt", "a boat", "model", "film-1"}, refusal{404, fault.ModelNotFound, "model", ""}},
		"an unknown member":       {append(ok, "quality", "high"), refusal{400, fault.InvalidParameter, "quality", "is not a parameter"}},
		"a second count":          {append(ok, "n", "2"), refusal{400, fault.InvalidParameter, "n", "is not a parameter"}},
		"a member twice":          {append(ok, "seconds", "4", "seconds", "12"), refusal{400, fault.InvalidParameter, "seconds", "twice"}},
		"seconds of no number":    {append(ok, "seconds", "0x8"), refusal{400, fault.InvalidParameter, "seconds", "must be a number of seconds"}},
		"empty seconds":           {append(ok, "seconds", ""), refusal{400, fault.InvalidParameter, "seconds", "must be a number of seconds"}},
		"seconds of no family":    {append(ok, "seconds", "5"), refusal{400, fault.InvalidParameter, "seconds", "`seconds` must be 4, 8 or 12"}},
		"too few seconds":         {[]string{"prompt", "a boat", "model", "sora-p", "seconds", "0.5"}, refusal{400, fault.InvalidParameter, "seconds", "at least 1 second"}},
		"no seconds":              {[]string{"prompt", "a boat", "model", "sora-p"}, refusal{400, fault.MissingParameter, "seconds", "`seconds` is required"}},
		"a size of one side":      {append(ok, "size", "720p"), refusal{400, fault.InvalidParameter, "size", "such as 1280x720"}},
		"a size of no family":     {append(ok, "size", "1920x1080"), refusal{400, fault.InvalidParameter, "size", "requests 1080P"}},
		"a size without a price":  {[]string{"prompt", "a boat", "model", "sora-p", "seconds", "4", "size", "1920x1080"}, refusal{400, fault.InvalidParameter, "size", "`size` requests 1080P"}},
		"a size that is too big":  {append(ok, "size", "99999x720"), refusal{400, fault.InvalidParameter, "size", "from 1 to 16384"}},
		"a command of length":     {[]string{"prompt", "a boat --dur 12", "model", "video-e-1", "seconds", "4"}, refusal{400, fault.InvalidParameter, "prompt", "`seconds`"}},
		"a reference as text":     {append(ok, "input_reference", "https://files.example/a.png"), refusal{400, fault.InvalidParameter, "input_reference", "object"}},
		"a reference to a host":   {append(ok, "input_reference[image_url]", "http://127.0.0.1/a.png"), refusal{400, fault.InvalidParameter, "input_reference", ""}},
		"a reference by id":       {append(ok, "input_reference[file_id]", "file-1"), refusal{400, fault.InvalidParameter, "input_reference.file_id", "not supported"}},
		"two references":          {append(ok, "input_reference[image_url]", "https://files.example/a.png", "@input_reference", picture), refusal{400, fault.InvalidParameter, "input_reference", "twice"}},
		"a file that is no image": {append(ok, "@input_reference", "Example data"), refusal{400, fault.InvalidParameter, "input_reference", "must be an image"}},
		"a file as a text":        {append(ok, "@seconds", "8"), refusal{400, fault.InvalidParameter, "seconds", "must not be a file"}},
		"text that is not UTF-8":  {[]string{"prompt", "\xff", "model", "video-e-1"}, refusal{400, fault.InvalidParameter, "prompt", "UTF-8"}},
		"too many fields":         {append(ok, strings.Split(strings.Repeat("x,", 256), ",")[:256]...), refusal{400, fault.InvalidParameter, "", "more than 128 parts"}},
	} {
		t.Run(name, func(t *testing.T) {
			body, contentType := form(t, c.fields...)
			c.want.check(t, videosPath, w.post(t, key, videosPath, body, contentType))
		})
	}
	body, contentType := form(t, ok...)
	cut := refusal{400, fault.InvalidParameter, "", "the form cannot be read"}
	cut.check(t, videosPath, w.post(t, key, videosPath, body[:len(body)-10], contentType))
	cut.check(t, videosPath, w.post(t, key, videosPath, body, "Content-Type: multipart/form-data; boundary=another"))
	refusal{400, fault.InvalidParameter, "", "boundary"}.check(t, videosPath, w.post(t, key, videosPath, body, "Content-Type: multipart/form-data"))
	refusal{400, fault.InvalidParameter, "", "Content-Transfer-Encoding"}.check(t, videosPath,
		w.post(t, key, videosPath, strings.Replace(body, "\r\n\r\n", "\r\nContent-Transfer-Encoding: base64\r\n\r\n", 1), contentType))
	refusal{400, fault.InvalidJSON, "", ""}.check(t, videosPath, w.post(t, key, videosPath, body))
	refusal{413, fault.PayloadTooLarge, "", "12 MiB"}.check(t, videosPath, w.post(t, key, videosPath, strings.Repeat(" ", 12<<20+1)))
	refusal{400, fault.InvalidParameter, "look", "is not a parameter"}.check(t, videosPath, w.post(t, key, videosPath, `{"prompt":"a","model":"video-e-1","look":1}`))
	if n := len(w.service.submissions()); n != 0 {
		t.Errorf("the backend received %d submissions", n)
	}
	w.service.acceptBy(func(backends.Job) error { return backends.Invalid("width", "the width is odd") })
	refusal{422, fault.UpstreamRejected, "size", "the width is odd"}.check(t, videosPath, w.post(t, key, videosPath, body, contentType))
	w.checkWallet(t, key, "100", "0")
}

func TestAVideoHasTheRulesOfASubmission(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, object{"models": []string{"video-e-*"}})
	body, contentType := form(t, "prompt", "a boat", "model", "video-e-1")
	refusal{402, fault.InsufficientQuota, "", ""}.check(t, videosPath, w.post(t, key, videosPath, body, contentType))
	w.Credit(t, key.UserID, "100")
	refusal{403, fault.Forbidden, "model", ""}.check(t, videosPath, w.post(t, key, videosPath, `{"prompt":"a boat","model":"video-a-1"}`))
	refusal{401, fault.Unauthorized, "", ""}.check(t, videosPath, w.Do(t, http.MethodPost, videosPath, contentType, body))

	if got := decoded[struct{ Hold, Rule string }](t, w.post(t, key, videosPath+"?dry_run=true", body, contentType)); got.Hold != "0.80" {
		t.Errorf("a dry run is answered %+v", got)
	}
	once := "Idempotency-Key: k1"
	video := decoded[clip](t, w.post(t, key, videosPath, body, contentType, once))
	again, otherBoundary := form(t, "model", "video-e-1", "prompt", "a boat")
	got := w.post(t, key, videosPath, again, otherBoundary, once)
	if decoded[clip](t, got).ID != video.ID || got.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a replay is answered %v %s", got.Header, got.Body)
	}
	again, otherBoundary = form(t, "model", "video-e-1", "prompt", "a boat", "@input_reference", picture)
	refusal{422, fault.IdempotencyKeyReused, "Idempotency-Key", ""}.check(t, videosPath, w.post(t, key, videosPath, again, otherBoundary, once))
	w.checkWallet(t, key, "100", "0.80")
}

func TestVideosAreListedInBothOrders(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	type list struct {
		Object            string
		Data              []clip
		First_ID, Last_ID *string
		Has_More          bool
	}
	read := func(query string) (list, []string) {
		t.Helper()
		l := decoded[list](t, w.get(t, key, videosPath+query))
		var ids []string
		for _, v := range l.Data {
			ids = append(ids, v.ID)
		}
		if l.Object != "list" || (len(ids) > 0) != (l.First_ID != nil) || len(ids) > 0 && (*l.First_ID != ids[0] || *l.Last_ID != ids[len(ids)-1]) {
			t.Errorf("%s: answered %+v", query, l)
		}
		return l, ids
	}
	if l, ids := read(""); len(ids) != 0 || l.Has_More || l.Data == nil {
		t.Errorf("an empty list is %+v", l)
	}
	var videos []string // latest first
	for i := range 5 {
		videos = append([]string{w.createVideo(t, key, "model", "video-e-1", "prompt", fmt.Sprint("boat ", i)).ID}, videos...)
		w.submit(t, key, imagePath, bodyFor(imagePath, nil))
	}
	w.createVideo(t, w.fundedKey(t), "model", "video-e-1", "prompt", "of another user")
	oldest := slices.Clone(videos)
	slices.Reverse(oldest)
	for order, want := range map[string][]string{"desc": videos, "asc": oldest} {
		var all []string
		for after := ""; ; {
			l, ids := read("?limit=2&order=" + order + after)
			all = append(all, ids...)
			if !l.Has_More || len(ids) == 0 {
				break
			}
			after = "&after=" + *l.Last_ID
		}
		if !slices.Equal(all, want) {
			t.Errorf("%s: listed %q, want %q", order, all, want)
		}
	}
	if _, ids := read(""); !slices.Equal(ids, videos) {
		t.Errorf("listed %q, want %q", ids, videos)
	}
	for query, param := range map[string]string{"?order=up": "order", "?limit=0": "limit", "?limit=101": "limit", "?after=task_x": "after", "?after=" + strings.Repeat("A", 31): "after"} {
		refusal{400, fault.InvalidParameter, param, ""}.check(t, videosPath, w.get(t, key, videosPath+query))
	}
}

func TestTheContentOfAVideoIsServedToItsKey(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(film)) }))
	defer source.Close()
	w := start(t, "media {\n path "+t.TempDir()+"/media\n allow "+strings.TrimPrefix(source.URL, "http://")+"\n }")
	key, otherKey := w.fundedKey(t), w.fundedKey(t)
	video := w.createVideo(t, key, "model", "video-e-1", "prompt", "a boat")
	path := videosPath + "/" + video.ID + "/content"
	refusal{404, fault.NotFound, "", "it is queued"}.check(t, path, w.get(t, key, path))
	link := w.finish(t, key, video.ID, succeeded(source.URL+"/req.mp4")).Result.URL

	got := w.get(t, key, path)
	if got.Status != 200 || got.Body != film || got.Header.Get("Content-Type") != "video/mp4" || got.Header.Get("Content-Length") != fmt.Sprint(len(film)) {
		t.Errorf("answered %d %v with %d bytes", got.Status, got.Header, len(got.Body))
	}
	name := strings.Split(link, "/")[5]
	if got.Header.Get("Etag") != `"`+name+`"` || got.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("the headers of %s are %v", link, got.Header)
	}
	part := w.Do(t, http.MethodGet, path+"?variant=video", "X-Api-Key: "+key.Secret+"\nRange: bytes=4-11", "")
	if part.Status != 206 || part.Body != film[4:12] {
		t.Errorf("a range is answered %d %q", part.Status, part.Body)
	}
	refusal{404, fault.NotFound, "variant", "no thumbnail"}.check(t, path, w.get(t, key, path+"?variant=thumbnail"))
	refusal{400, fault.InvalidParameter, "variant", ""}.check(t, path, w.get(t, key, path+"?variant=film"))
	if got := decoded[clip](t, w.get(t, key, videosPath+"/"+video.ID)); got.Expires_At == nil || *got.Expires_At-*got.Completed_At < 604_700 || *got.Expires_At-*got.Completed_At > 604_801 {
		t.Errorf("answered %+v", got)
	}

	// What belongs to others is answered as what does not exist.
	unknown := videosPath + "/task_" + strings.Repeat("A", 26)
	for _, rest := range []string{"", "/content", "/content?variant=thumbnail"} {
		foreign, none := w.get(t, otherKey, videosPath+"/"+video.ID+rest), w.get(t, otherKey, unknown+rest)
		refusal{404, fault.TaskNotFound, "", ""}.check(t, path, foreign)
		if foreign.Body != none.Body {
			t.Errorf("answered %s and %s", foreign.Body, none.Body)
		}
	}
	refusal{404, fault.TaskNotFound, "", ""}.check(t, path, w.delete(t, otherKey, videosPath+"/"+video.ID))
	refusal{404, fault.TaskNotFound, "", ""}.check(t, path, w.post(t, otherKey, videosPath+"/"+video.ID+"/remix", `{"prompt":"a ship"}`))
	refusal{401, fault.Unauthorized, "", ""}.check(t, path, w.file(t, path))

	// A deleted video is gone for its key. Its charge and its task stay.
	got = w.delete(t, key, videosPath+"/"+video.ID)
	if want := fmt.Sprintf(`{"id":%q,"object":"video.deleted","deleted":true}`, video.ID); got.Status != 200 || got.Body != want {
		t.Errorf("answered %d %s, want %s", got.Status, got.Body, want)
	}
	for _, rest := range []string{"", "/content"} {
		refusal{404, fault.TaskNotFound, "", ""}.check(t, path, w.get(t, key, videosPath+"/"+video.ID+rest))
	}
	refusal{404, fault.TaskNotFound, "", ""}.check(t, path, w.delete(t, key, videosPath+"/"+video.ID))
	refusal{404, fault.TaskNotFound, "", ""}.check(t, tasksPath, w.get(t, key, tasksPath+"/"+video.ID))
	if list := decoded[page](t, w.get(t, key, tasksPath)); len(list.Data) != 0 {
		t.Errorf("the list has %+v", list)
	}
	refusal{410, fault.Gone, "", ""}.check(t, "/v1/files", w.file(t, strings.TrimPrefix(link, "https://gate.example")))
	var kept struct {
		TaskID  string `json:"task_id"`
		Charged string
	}
	w.MustAdmin(t, http.MethodGet, "/modelgate/tasks/"+video.ID, nil, &kept)
	if kept.TaskID != video.ID || kept.Charged != "0.80" {
		t.Errorf("the operator sees %+v", kept)
	}
	w.checkWallet(t, key, "99.20", "0")
	w.Verify(t)
}

func TestAnUnfinishedVideoIsCancelledOrKept(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	video := w.createVideo(t, key, "model", "video-e-1", "prompt", "a boat")
	path := videosPath + "/" + video.ID
	refusal{409, fault.TaskNotCancellable, "", "has not confirmed"}.check(t, path, w.delete(t, key, path))
	if got := decoded[clip](t, w.get(t, key, path)); got.Status != "queued" {
		t.Errorf("answered %+v", got)
	}
	w.checkWallet(t, key, "100", "0.80")
	w.service.enableCancel()
	if got := w.delete(t, key, path); got.Status != 200 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	refusal{404, fault.TaskNotFound, "", ""}.check(t, path, w.get(t, key, path))
	w.checkWallet(t, key, "100", "0")
	// An idempotency key stays in use.
	video = decoded[clip](t, w.post(t, key, videosPath, `{"prompt":"a boat","model":"video-e-1"}`, "Idempotency-Key: k1"))
	w.delete(t, key, videosPath+"/"+video.ID)
	if got := decoded[clip](t, w.post(t, key, videosPath, `{"prompt":"a boat","model":"video-e-1"}`, "Idempotency-Key: k1")); got.ID != video.ID || got.Status != "failed" {
		t.Errorf("answered %+v", got)
	}
	w.checkWallet(t, key, "100", "0")
	w.Verify(t)
}

func TestARemixIsANewTask(t *testing.T) {
	w := start(t, remixer(t))
	key := w.fundedKey(t)
	original := w.createVideo(t, key, "model", "video-f-1", "prompt", "a boat", "seconds", "4", "size", "1280x720", "@input_reference", picture)
	path := videosPath + "/" + original.ID + "/remix"
	const body = `{"prompt":"a ship"}`
	refusal{409, fault.Conflict, "", "only a completed video"}.check(t, path, w.post(t, key, path, body))
	w.finish(t, key, original.ID, succeeded("https://cdn.example/req.mp4"))
	w.checkWallet(t, key, "99.60", "0")

	refusal{400, fault.MissingParameter, "prompt", ""}.check(t, path, w.post(t, key, path, `{}`))
	refusal{400, fault.InvalidParameter, "seconds", ""}.check(t, path, w.post(t, key, path, `{"prompt":"a ship","seconds":"8"}`))
	if got := decoded[struct{ Hold string }](t, w.post(t, key, path+"?dry_run=true", body)); got.Hold != "0.40" {
		t.Errorf("a dry run is answered %+v", got)
	}
	got := w.post(t, key, path, body, "Idempotency-Key: k1")
	video := decoded[clip](t, got)
	if video.ID == original.ID || text(video.Remixed_From_Video_ID) != original.ID || text(video.Prompt) != "a ship" || text(video.Seconds) != "4" || text(video.Size) != "1280x720" || video.Model != "video-f-1" {
		t.Errorf("answered %s", got.Body)
	}
	if line := w.taskLine(t, got); line.Text("route") != "remix" || line.Text("hold") != "0.40" {
		t.Errorf("logged %v", line)
	}
	job := w.service.job(t, video.ID)
	if job.Source == nil || job.Source.ID != backends.Token(original.ID) || len(job.Inputs) != 0 || job.Output.Duration != 4 {
		t.Errorf("the job is %+v", job)
	}
	if again := decoded[clip](t, w.post(t, key, path, body, "Idempotency-Key: k1")); again.ID != video.ID {
		t.Errorf("a replay is answered %+v", again)
	}
	w.checkWallet(t, key, "99.60", "0.40")
	w.finish(t, key, video.ID, succeeded("https://cdn.example/remix.mp4"))
	w.checkWallet(t, key, "99.20", "0") // the service reports 8 seconds, of which 4 are held

	// A service that cannot change a video, and a video of another form, are refused without a charge.
	other := w.createVideo(t, key, "model", "video-e-1", "prompt", "a boat")
	w.finish(t, key, other.ID, succeeded("https://cdn.example/req.mp4"))
	before := len(w.service.submissions())
	w.checkWallet(t, key, "98.40", "0")
	refusal{422, fault.UpstreamRejected, "", "cannot change it"}.check(t, path, w.post(t, key, videosPath+"/"+other.ID+"/remix", body))
	platform := w.submit(t, key, videoPath, bodyFor(videoPath, object{"model": "video-f-1", "output.duration": 4})).Task_ID
	w.finish(t, key, platform, succeeded("https://cdn.example/req.mp4"))
	refusal{409, fault.Conflict, "", "submitted to /v1/videos"}.check(t, path, w.post(t, key, videosPath+"/"+platform+"/remix", body))
	if n := len(w.service.submissions()); n != before+1 {
		t.Errorf("the backend received %d submissions", n-before)
	}
	w.Verify(t)
}
