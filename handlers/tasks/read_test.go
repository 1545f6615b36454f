package tasks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestATaskIsReadBeforeAndAfterItsEnd(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
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
	end := w.finish(t, key, task, succeeded(link))
	want := head + fmt.Sprintf(`"success","progress":"100%%","created_at":%d,"completed_at":%d,"result":{"url":%q,"urls":[%[3]q],"type":"video"}}`, created, *end.Completed_At, link)
	if got := w.get(t, key, path).Body; got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
	w.checkWallet(t, key, "99.20", "0")

	task = w.submit(t, key, imagePath, bodyFor(imagePath, nil)).Task_ID
	end = w.finish(t, key, task, failed(backends.ContentRejected, "the picture is unsafe"))
	if end.Object != "image_task" || end.Status != "failed" || end.Progress != "0%" || end.Result != nil ||
		end.Error == nil || end.Error.Code != "TASK_FAILED" || end.Error.Reason != "CONTENT_REJECTED" || end.Error.Message != "the picture is unsafe" {
		t.Errorf("answered %+v", end)
	}
	w.checkWallet(t, key, "99.20", "0")
}

func TestATaskIsVisibleOnlyToItsKey(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	finished := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	w.finish(t, key, finished, succeeded("https://cdn.example/req.mp4"))
	var otherKey gatetest.Key
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys", object{"user": key.UserID}, &otherKey)
	otherUser := w.fundedKey(t)

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
		"unknown": {key, unknown}, "not a task id": {key, "7"}, "another user": {otherUser, task}, "another key of the user": {otherKey, task},
		"finished, another user": {otherUser, finished}, "finished, another key of the user": {otherKey, finished},
	} {
		same(name, w.get(t, c.key, tasksPath+"/"+c.id), want)
		same(name+", with wait", w.get(t, c.key, tasksPath+"/"+c.id+"?wait=30"), want)
		same(name+", cancel", w.post(t, c.key, tasksPath+"/"+c.id+"/cancel", ""), want)
		same(name+", as a generation", w.get(t, c.key, generationsPath+"/"+c.id), flat)
	}
	if list := decoded[page](t, w.get(t, otherKey, tasksPath)); len(list.Data) != 0 {
		t.Errorf("the list of the other key has %+v", list)
	}
	w.Wait(91 * 24 * time.Hour)
	same("past its retention", w.get(t, key, tasksPath+"/"+finished), want)
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/revoke", nil, nil)
	refusal{401, fault.Unauthorized, "", ""}.check(t, tasksPath, w.get(t, key, tasksPath+"/"+task))
}

func TestWaitReturnsAfterAChange(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
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
	w.service.setStatus(task, succeeded("https://cdn.example/req.mp4"))
	w.notify(t, task)
	wg.Wait()
	if took := time.Since(begun); took > gatetest.Timeout {
		t.Errorf("the change was reported after %v", took)
	}
	begun = time.Now()
	w.get(t, key, path+"?wait=60")
	if took := time.Since(begun); took > gatetest.Timeout {
		t.Errorf("the wait for a finished task took %v", took)
	}
}

// page is a list of tasks.
type page struct {
	Object   string
	Data     []resource
	Has_More bool
	Next     string
}

func TestTheTasksOfAKeyAreListedLatestFirst(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	if got := w.get(t, key, tasksPath); got.Body != `{"object":"list","data":[],"has_more":false}` {
		t.Errorf("answered %s", got.Body)
	}
	var ids []string
	for range 5 {
		ids = append([]string{w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID}, ids...)
		w.Wait(time.Second)
	}
	w.finish(t, key, ids[3], succeeded("https://cdn.example/req.mp4"))

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
	otherUser := w.fundedKey(t)
	for query, param := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "limit=1&limit=2": "limit", "status=done": "status", "status=QUEUED": "status",
		"after=" + someTask: "after", "after=x": "after",
	} {
		refusal{400, fault.InvalidParameter, param, ""}.check(t, tasksPath, w.get(t, key, tasksPath+"?"+query))
	}
	refusal{400, fault.InvalidParameter, "after", ""}.check(t, tasksPath, w.get(t, otherUser, tasksPath+"?after="+ids[0]))
}
