package tasks_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestASubmissionIsAnsweredWithItsTaskAndWhatHadNoEffect(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	w.has(t, key, "100", "0")

	got := w.post(t, key, videoPath, asking(videoPath, nil))
	if !regexp.MustCompile(`^\{"task_id":"task_[A-Z2-7]{26}","status":"queued"\}$`).MatchString(got.Body) {
		t.Errorf("answered %s", got.Body)
	}
	if got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers %v", got.Header)
	}
	w.has(t, key, "100", "0.80") // 8 seconds, the family's own duration

	// What a client of tomorrow sends beside it has no effect, and it is told.
	got = w.post(t, key, imagePath, asking(imagePath, object{"prmopt": "x", "Model": "y", "output.duration": 5, "inputs": []any{object{"url": "https://files.example/a.png", "usage": "firstFrame"}}}))
	task := decoded[resource](t, got)
	if want := `"ignored":["Model","inputs[0].usage","output.duration","prmopt"]}`; !strings.HasSuffix(got.Body, want) {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	if job := w.studio.job(t, task.Task_ID); job.Kind != backends.Image || job.Model != "image-e-1" || job.Output.Count != 1 || job.Output.Resolution != "1K" {
		t.Errorf("the backend was asked for %+v", job)
	}
	w.has(t, key, "100", "0.85")
	w.Verify(t)
}

func TestATaskIsShownFromItsBeginningToItsEnd(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	task := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	path := tasksPath + "/" + task

	created := decoded[resource](t, w.get(t, key, path)).Created_At
	head := fmt.Sprintf(`{"task_id":%q,"object":"video_task","model":"video-e-1","status":`, task)
	if got, want := w.get(t, key, path).Body, head+fmt.Sprintf(`"queued","progress":"0%%","created_at":%d}`, created); got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
	if got := w.Do(t, http.MethodHead, path, "X-Api-Key: "+key.Secret, ""); got.Status != 200 || got.Body != "" || got.Header.Get("Content-Length") == "0" {
		t.Errorf("HEAD is answered %d %q %v", got.Status, got.Body, got.Header)
	}

	const link = "https://cdn.example/req.mp4?a=1&b=<2>"
	end := w.finish(t, key, task, made(link))
	want := head + fmt.Sprintf(`"success","progress":"100%%","created_at":%d,"completed_at":%d,"result":{"url":%q,"urls":[%[3]q],"type":"video"}}`, created, *end.Completed_At, link)
	if got := w.get(t, key, path).Body; got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
	w.has(t, key, "99.20", "0")

	task = w.must(t, key, imagePath, asking(imagePath, nil)).Task_ID
	end = w.finish(t, key, task, failed(backends.ContentRejected, "the picture is unsafe"))
	if end.Object != "image_task" || end.Status != "failed" || end.Progress != "0%" || end.Result != nil ||
		end.Error == nil || end.Error.Code != "TASK_FAILED" || end.Error.Reason != "CONTENT_REJECTED" || end.Error.Message != "the picture is unsafe" {
		t.Errorf("answered %+v", end)
	}
	w.has(t, key, "99.20", "0")
}

func TestATaskIsThereForTheKeyThatHasSubmittedItAlone(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	task := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	over := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	w.finish(t, key, over, made("https://cdn.example/req.mp4"))
	var sibling gatetest.Key
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys", object{"user": key.UserID}, &sibling)
	stranger := w.rich(t)

	unknown := "task_" + strings.Repeat("A", 26)
	want := `{"code":"TASK_NOT_FOUND","message":"there is no such task","error":{"code":"TASK_NOT_FOUND","message":"there is no such task","type":"invalid_request_error","param":null}}`
	flat := `{"error":{"code":"TASK_NOT_FOUND","message":"there is no such task","type":"invalid_request_error","param":null}}`
	same := func(name string, got gatetest.Answer, want string) {
		t.Helper()
		if got.Status != 404 || got.Body != want {
			t.Errorf("%s: answered %d %s, want %s", name, got.Status, got.Body, want)
		}
	}
	for name, c := range map[string]struct {
		key gatetest.Key
		id  string
	}{
		"unknown": {key, unknown}, "of another form": {key, "7"}, "of another key": {stranger, task}, "of the user's other key": {sibling, task},
		"over, of another key": {stranger, over}, "over, of the user's other key": {sibling, over},
	} {
		same(name, w.get(t, c.key, tasksPath+"/"+c.id), want)
		same(name+", awaited", w.get(t, c.key, tasksPath+"/"+c.id+"?wait=30"), want)
		same(name+", cancelled", w.post(t, c.key, tasksPath+"/"+c.id+"/cancel", ""), want)
		same(name+", as a generation", w.get(t, c.key, generationsPath+"/"+c.id), flat)
	}
	if list := decoded[page](t, w.get(t, sibling, tasksPath)); len(list.Data) != 0 {
		t.Errorf("the other key is listed %+v", list)
	}
	w.Wait(91 * 24 * time.Hour)
	same("past its retention", w.get(t, key, tasksPath+"/"+over), want)
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/revoke", nil, nil)
	refusal{401, fault.Unauthorized, "", ""}.check(t, tasksPath, w.get(t, key, tasksPath+"/"+task))
}

func TestADryRunTellsThePriceAndSpendsNothing(t *testing.T) {
	w := start(t, "")
	poor := w.NewKey(t, nil)
	for path, c := range map[string]struct{ body, want string }{
		videoPath: {asking(videoPath, object{"output.audio": true, "x": 1}),
			`{"dry_run":true,"model":"video-e-1","family":"E","price":"1.60","hold":"1.60","currency":"USD","rule":"1 video × 8 s × 0.20 per second (with sound)","ignored":["x"]}`},
		imagePath: {asking(imagePath, object{"model": "image-a-1", "output.count": 3}),
			`{"dry_run":true,"model":"image-a-1","family":"A","price":"0.15","hold":"0.15","currency":"USD","rule":"3 images × 0.05 per image"}`},
		generationsPath: {`{"model":"sora-2","duration":2.5}`,
			`{"dry_run":true,"model":"sora-2","price":"0.50","hold":"0.50","currency":"USD","rule":"1 video × 2.5 s × 0.20 per second (with sound)"}`},
	} {
		for range 2 {
			// Neither is the session id used, nor the idempotency key.
			body := strings.Replace(c.body, `{`, `{"session_id":"dry",`, 1)
			if path == generationsPath {
				body = c.body
			}
			got := w.post(t, poor, path+"?dry_run=true", body, "Idempotency-Key: dry")
			if got.Status != 200 || got.Body != c.want {
				t.Errorf("%s: answered %d %s, want %s", path, got.Status, got.Body, c.want)
			}
		}
	}
	if jobs := w.studio.asked(); len(jobs) != 0 {
		t.Errorf("the backend was asked: %+v", jobs)
	}
	w.has(t, poor, "0", "0")
	if list := decoded[page](t, w.get(t, poor, tasksPath)); len(list.Data) != 0 {
		t.Errorf("there are tasks: %+v", list)
	}
	refusal{400, fault.InvalidParameter, "output.duration", "4, 8 or 12"}.check(t, videoPath, w.post(t, poor, videoPath+"?dry_run=true", asking(videoPath, object{"output.duration": 5})))
	for query, param := range map[string]string{"dry_run=1": "dry_run", "dry_run=": "dry_run", "dry_run": "dry_run", "dry_run=TRUE": "dry_run", "dry_run=true&dry_run=false": "dry_run", "dryrun=true": "dryrun", "%zz": ""} {
		for _, path := range []string{videoPath, imagePath, generationsPath} {
			refusal{400, fault.InvalidParameter, param, ""}.check(t, path, w.post(t, poor, path+"?"+query, asking(path, nil)))
		}
	}
	// Without the money there is no task.
	refusal{402, fault.InsufficientQuota, "", "no money for this request: 0.00 is available"}.check(t, videoPath, w.post(t, poor, videoPath+"?dry_run=false", asking(videoPath, nil)))
	w.Credit(t, poor.UserID, "0.79")
	refusal{402, fault.InsufficientQuota, "", "may cost up to 0.80, and 0.79 is available"}.check(t, videoPath, w.post(t, poor, videoPath, asking(videoPath, nil)))
	w.Verify(t)
}

func TestTheBudgetsOfKeyAndUserHold(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, object{"limits": object{"budget": "1.00"}})
	w.Credit(t, key.UserID, "100")
	w.must(t, key, videoPath, asking(videoPath, nil))
	refusal{402, fault.InsufficientKeyQuota, "", "the budget of this API key has 0.20 left"}.check(t, videoPath, w.post(t, key, videoPath, asking(videoPath, nil)))
	w.has(t, key, "100", "0.80")

	other := w.rich(t)
	w.MustAdmin(t, http.MethodPost, "/modelgate/users/"+other.UserID+"/limits", object{"budget": "0.50"}, nil)
	refusal{402, fault.InsufficientQuota, "", "the budget of your account has 0.50 left"}.check(t, videoPath, w.post(t, other, videoPath, asking(videoPath, nil)))
	w.has(t, other, "100", "0")
	w.Verify(t)
}

func TestARequestWithAnIdempotencyKeyIsDoneOnce(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	body := asking(videoPath, object{"session_id": "s1"})
	once := "Idempotency-Key: k1"
	task := w.must(t, key, videoPath, body, once)
	again := func(path, body string, headers ...string) gatetest.Answer {
		return w.post(t, key, path, body, append(headers, once)...)
	}

	// White space and the order of members make no other request.
	got := again(videoPath, `{ "session_id":"s1", "prompt":"a boat",  "model":"video-e-1" }`)
	if got.Header.Get("Idempotent-Replayed") != "true" || decoded[resource](t, got).Task_ID != task.Task_ID {
		t.Errorf("a replay is answered %v %s", got.Header, got.Body)
	}
	reused := refusal{422, fault.IdempotencyKeyReused, "Idempotency-Key", "use a new one"}
	reused.check(t, videoPath, again(videoPath, asking(videoPath, object{"prompt": "another boat"})))
	reused.check(t, imagePath, again(imagePath, asking(imagePath, nil)))
	reused.check(t, generationsPath, again(generationsPath, `{"model":"video-e-1","prompt":"a boat"}`))

	w.finish(t, key, task.Task_ID, made("https://cdn.example/req.mp4"))
	if got := decoded[resource](t, again(videoPath, body)); got.Status != "success" || got.Task_ID != task.Task_ID {
		t.Errorf("a replay does not show the present status: %+v", got)
	}
	for name, header := range map[string]string{"empty": "Idempotency-Key:", "long": "Idempotency-Key: " + strings.Repeat("k", 256), "two": "Idempotency-Key: a\nIdempotency-Key: b", "not ASCII": "Idempotency-Key: ü"} {
		t.Run(name, func(t *testing.T) {
			refusal{400, fault.InvalidParameter, "Idempotency-Key", ""}.check(t, videoPath, w.post(t, key, videoPath, asking(videoPath, nil), header))
		})
	}
	// The key of another is another one.
	other := w.rich(t)
	if got := w.must(t, other, videoPath, asking(videoPath, nil), once); got.Task_ID == task.Task_ID {
		t.Error("two keys share an idempotency key")
	}
	if n := len(w.studio.asked()); n != 2 {
		t.Errorf("the backend was asked %d times", n)
	}
	w.has(t, key, "99.20", "0")

	// Of racing twins one is done.
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			ids[i] = w.must(t, key, videoPath, asking(videoPath, nil), "Idempotency-Key: race").Task_ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("twins have made %v", ids)
			break
		}
	}
	w.has(t, key, "99.20", "0.80")
}

func TestASessionIDIsUsedOnce(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	fifty := strings.Repeat("界", 50)
	with := func(id any) string { return asking(videoPath, object{"session_id": id}) }
	first := w.must(t, key, videoPath, with(fifty)).Task_ID

	got := w.post(t, key, videoPath, with(fifty))
	duplicate := refusal{409, fault.DuplicateSessionID, "session_id", first}
	duplicate.check(t, videoPath, got)
	if !strings.Contains(got.Body, fmt.Sprintf(`,"task_id":%q,"error":{`, first)) {
		t.Errorf("answered %s", got.Body)
	}
	// Images and videos share them, keys do not.
	duplicate.check(t, imagePath, w.post(t, key, imagePath, asking(imagePath, object{"session_id": fifty})))
	w.must(t, w.rich(t), videoPath, with(fifty))

	refusal{400, fault.InvalidParameter, "session_id", "at most 50 characters, not 51"}.check(t, videoPath, w.post(t, key, videoPath, with(fifty+"!")))
	refusal{400, fault.InvalidParameter, "session_context", "at most 1000"}.check(t, videoPath, w.post(t, key, videoPath, asking(videoPath, object{"session_context": strings.Repeat("界", 1001)})))
	for range 2 {
		w.must(t, key, videoPath, with(""))
		w.must(t, key, videoPath, with(nil))
	}
	w.has(t, key, "100", "4.00")

	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 8 {
		wg.Go(func() {
			got := w.post(t, key, videoPath, with("race"))
			mu.Lock()
			defer mu.Unlock()
			statuses[got.Status]++
		})
	}
	wg.Wait()
	if statuses[200] != 1 || statuses[409] != 7 {
		t.Errorf("twins are answered %v", statuses)
	}
	w.has(t, key, "100", "4.80")
}

func TestARefusalOfTheBackendLeavesNothingBehind(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	w.studio.accepts(func(job backends.Job) error {
		if job.Prompt == "no" {
			return backends.Invalid("prompt", "the service does not draw this")
		}
		return nil
	})
	body := asking(videoPath, object{"prompt": "no", "session_id": "s1"})
	for range 2 { // neither the session id nor the idempotency key is used
		refusal{422, fault.UpstreamRejected, "prompt", "the service does not draw this"}.check(t, videoPath, w.post(t, key, videoPath, body, "Idempotency-Key: k1"))
	}
	w.has(t, key, "100", "0")
	if list := decoded[page](t, w.get(t, key, tasksPath)); len(list.Data) != 0 {
		t.Errorf("there are tasks: %+v", list)
	}
	w.must(t, key, videoPath, asking(videoPath, object{"session_id": "s1"}), "Idempotency-Key: k1")
	w.Verify(t)
}

func TestAnAnswerThatIsAwaitedComesWithTheChange(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	task := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	path := tasksPath + "/" + task
	for _, bad := range []string{"-1", "61", "1.5", "x", "1s", "+5", "0x1", "99999999999999999999", "1&wait=2"} {
		refusal{400, fault.InvalidParameter, "wait", ""}.check(t, path, w.get(t, key, path+"?wait="+bad))
		refusal{400, fault.InvalidParameter, "wait", ""}.check(t, generationsPath, w.get(t, key, generationsPath+"/"+task+"?wait="+bad))
	}
	for _, good := range []string{"0", "", "00"} {
		if got := decoded[resource](t, w.get(t, key, path+"?wait="+good)); got.Status != "queued" {
			t.Errorf("answered %+v", got)
		}
	}

	begun := time.Now()
	if got := decoded[resource](t, w.get(t, key, path+"?wait=1")); got.Status != "queued" || time.Since(begun) < time.Second {
		t.Errorf("answered %+v after %v", got, time.Since(begun))
	}

	begun = time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, path := range []string{path, generationsPath + "/" + task} {
		wg.Go(func() {
			if got := decoded[resource](t, w.get(t, key, path+"?wait=60")); got.Status == "queued" {
				t.Errorf("answered %+v without a change", got)
			}
		})
	}
	w.studio.tells(task, made("https://cdn.example/req.mp4"))
	w.notify(t, task)
	wg.Wait()
	if took := time.Since(begun); took > gatetest.Patience {
		t.Errorf("the change was told after %v", took)
	}
	begun = time.Now()
	w.get(t, key, path+"?wait=60")
	if took := time.Since(begun); took > gatetest.Patience {
		t.Errorf("a task that is over is awaited for %v", took)
	}
}

func TestATaskIsCancelledOnlyWhenTheBackendConfirms(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	task := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	path := tasksPath + "/" + task + "/cancel"
	refusal{409, fault.TaskNotCancellable, "", "has not confirmed"}.check(t, path, w.post(t, key, path, ""))
	w.has(t, key, "100", "0.80")
	w.studio.stopsJobs()
	for range 2 {
		got := decoded[resource](t, w.post(t, key, path, `{"why":"not"}`))
		if got.Task_ID != task || got.Status != "failed" || got.Error.Reason != "TASK_CANCELLED" || got.Completed_At == nil {
			t.Errorf("answered %+v", got)
		}
	}
	w.has(t, key, "100", "0")

	task = w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	w.finish(t, key, task, made("https://cdn.example/req.mp4"))
	path = tasksPath + "/" + task + "/cancel"
	refusal{409, fault.TaskNotCancellable, "", "the task is over: success"}.check(t, path, w.post(t, key, path, ""))
	w.has(t, key, "99.20", "0")
	w.Verify(t)
}

// page is a list as callers read it.
type page struct {
	Object   string
	Data     []resource
	Has_More bool
	Next     string
}

func TestTheTasksOfAKeyAreListedLatestFirst(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	if got := w.get(t, key, tasksPath); got.Body != `{"object":"list","data":[],"has_more":false}` {
		t.Errorf("answered %s", got.Body)
	}
	var ids []string
	for range 5 {
		ids = append([]string{w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID}, ids...)
		w.Wait(time.Second)
	}
	w.finish(t, key, ids[3], made("https://cdn.example/req.mp4"))

	var seen []string
	next := ""
	for range 3 {
		list := decoded[page](t, w.get(t, key, tasksPath+"?limit=2&after="+next))
		for _, task := range list.Data {
			seen = append(seen, task.Task_ID)
		}
		if next = list.Next; list.Has_More != (next != "") || list.Object != "list" {
			t.Errorf("answered %+v", list)
		}
	}
	if strings.Join(seen, " ") != strings.Join(ids, " ") || next != "" {
		t.Errorf("listed %v, want %v", seen, ids)
	}
	list := decoded[page](t, w.get(t, key, tasksPath+"?status=success"))
	if len(list.Data) != 1 || list.Data[0].Task_ID != ids[3] || list.Data[0].Result == nil {
		t.Errorf("listed %+v", list)
	}
	stranger := w.rich(t)
	for query, param := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "limit=1&limit=2": "limit", "status=done": "status", "status=QUEUED": "status",
		"after=" + someTask: "after", "after=x": "after",
	} {
		refusal{400, fault.InvalidParameter, param, ""}.check(t, tasksPath, w.get(t, key, tasksPath+"?"+query))
	}
	refusal{400, fault.InvalidParameter, "after", ""}.check(t, tasksPath, w.get(t, stranger, tasksPath+"?after="+ids[0]))
}

func TestASessionIDHasNoControlCharacters(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	for _, id := range []string{"a\x00b", "a\nb", "\x7f", "a\u0085b", "\t"} {
		for _, path := range []string{videoPath, imagePath} {
			refusal{400, fault.InvalidParameter, "session_id", "control characters"}.check(t, path, w.post(t, key, path, asking(path, object{"session_id": id})))
		}
	}
	w.must(t, key, videoPath, asking(videoPath, object{"session_id": "a b \u00e9"}))
}

// TestWhatChangesTheLengthElsewhereIsRefused: a service may read such a member
// instead of what is priced.
func TestWhatChangesTheLengthElsewhereIsRefused(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	for _, name := range []string{"video_length", "clip_length", "n_frames", "videoLength", "length", "total_frames", "length_seconds", "output_duration", "duration_ms", "extend_duration"} {
		refusal{400, fault.InvalidParameter, "metadata." + name, "must say the same as"}.check(t, generationsPath,
			w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"metadata":{"`+name+`":60}}`))
		refusal{400, fault.InvalidParameter, name, "must say the same as"}.check(t, generationsPath,
			w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"`+name+`":60}`))
		refusal{400, fault.InvalidParameter, "ext_info." + name, "must say the same as"}.check(t, videoPath,
			w.post(t, key, videoPath, asking(videoPath, object{"ext_info": object{name: 60}})))
	}
	w.must(t, key, generationsPath, `{"model":"sora-2","duration":2,"fps":24,"metadata":{"video_length":2,"n_frames":49}}`)
	refusal{400, fault.InvalidParameter, "instances[0].duration", "must say the same as"}.check(t, generationsPath,
		w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"instances":[{"prompt":"x","duration":30}]}`))
	refusal{400, fault.InvalidParameter, "candidate_count", "must say the same as"}.check(t, generationsPath,
		w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"n":1,"candidate_count":4}`))
	// What says the length or the number alone is what is priced.
	w.must(t, key, generationsPath, `{"model":"sora-2","metadata":{"video_length":3,"num_clips":2}}`)
	w.must(t, key, generationsPath, `{"model":"sora-2","milliseconds":1000}`)
	w.has(t, key, "100", "1.80")
}

func TestAPathBelowThePlatformIsAnsweredInItsDialect(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	deep := "%" + strings.Repeat("25", 12) + "2fx"
	for _, path := range []string{
		"/v1/platform/nothing", "/v1/platform/tasks/..%2f..%2fmessages", "/v1/platform/..%2f..%2fapi%2fuser", "/v1/platform/%2e%2e/messages",
		"/v1/platform" + deep, "/v1/platform/tasks/a%00b", "/v1%2fplatform%2ftasks%2fx", "/v1/PLATFORM/tasks/x", "/v1/%70latform/tasks/%ff",
		"/v1/%" + strings.Repeat("25", 12) + "70latform/tasks/x",
	} {
		got := w.get(t, key, path)
		if got.Status != 404 || !strings.HasPrefix(got.Body, `{"code":"NOT_FOUND","message":`) || !strings.Contains(got.Body, `"error":{"code":"NOT_FOUND"`) {
			t.Errorf("%s: answered %d %s", path, got.Status, got.Body)
		}
	}
}
