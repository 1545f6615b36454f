package tasks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const someTask = "task_AAAAAAAAAAAAAAAAAAAAAAAAAA"

// keyRoutes has the method of each path that requires an API key.
var keyRoutes = func() map[string]string {
	methods := make(map[string]string)
	for _, route := range reply.Routes() {
		if route.Credential == reply.APIKey && (strings.HasPrefix(route.Path, "/v1/platform/") || strings.HasPrefix(route.Path, "/v1/video/")) {
			methods[strings.Replace(route.Path, "{task_id}", someTask, 1)] = route.Method
		}
	}
	return methods
}()

func TestEveryRouteChecksItsCredentialBeforeTheBody(t *testing.T) {
	if len(keyRoutes) != 7 {
		t.Errorf("%d routes require an API key, want 7", len(keyRoutes))
	}
	w := start(t, "")
	good, revoked := w.fundedKey(t), w.fundedKey(t)
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+revoked.ID+"/revoke", nil, nil)
	unauthorized := refusal{401, fault.Unauthorized, "", "the API key is missing or not valid"}
	for path, method := range keyRoutes {
		for name, c := range map[string]struct {
			headers string
			want    refusal
		}{
			"none":         {"", unauthorized},
			"unknown":      {"Authorization: Bearer sk-00000000000000000000000000000000000000000003P9rQy", unauthorized},
			"revoked":      {"X-Api-Key: " + revoked.Secret, unauthorized},
			"access token": {"Authorization: Bearer mgat_0123456789", unauthorized},
			"in a cookie":  {"Cookie: session=" + good.Secret, unauthorized},
			"in the query": {"", unauthorized},
			"two keys": {"Authorization: Bearer " + good.Secret + "\nX-Api-Key: " + revoked.Secret,
				refusal{400, fault.InvalidParameter, "Authorization", "different credentials"}},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				// The body is announced and never sent, so a handler that reads it would block.
				conn := w.Dial(t)
				target := path
				if name == "in the query" {
					target += "?key=" + good.Secret + "&api_key=" + good.Secret
				}
				head := method + " " + target + " HTTP/1.1\nHost: gate\n" + c.headers
				if c.headers != "" {
					head += "\n"
				}
				conn.Send(t, head+"Content-Length: 1000000\n\n")
				c.want.check(t, path, conn.Receive(t, method))
			})
		}
	}
	t.Cleanup(func() {
		if jobs := w.service.submissions(); len(jobs) != 0 {
			t.Errorf("the backend received %+v", jobs)
		}
	})
}

func TestOtherMethodsAreRefusedWithAllow(t *testing.T) {
	w := start(t, "")
	paths := map[string]string{"/v1/files/abc/a.mp4": "GET", "/v1/notices/works": "POST"}
	for path, method := range keyRoutes {
		paths[path] = method
	}
	for path, allowed := range paths {
		allow := strings.Replace(allowed, "GET", "GET, HEAD", 1)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "post"} {
			if method == allowed {
				continue
			}
			t.Run(method+" "+path, func(t *testing.T) {
				t.Parallel()
				conn := w.Dial(t)
				conn.Send(t, method+" "+path+" HTTP/1.1\nHost: gate\nContent-Length: 0\n\n")
				got := conn.Receive(t, "GET")
				refusal{405, fault.MethodNotAllowed, "", allow}.check(t, path, got)
				if got.Header.Get("Allow") != allow {
					t.Errorf("Allow: %q", got.Header.Get("Allow"))
				}
			})
		}
	}
}

func TestOtherSpellingsOfAPathAreNotFound(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil))
	for target, flat := range map[string]bool{
		"/v1/platform/Video": true, "/V1/platform/video": true, "/v1/platform/video/": true, "//v1/platform/video": true, "/v1/platform//video": true,
		"/v1/platform/x/../video": true, "/v1/platform/%76ideo": true, "/v1/platform%2Fvideo": true, "/v1/platform/video%00": true,
		"/v1/platform/tasks/": true, "/v1/platform/Tasks/" + task.Task_ID: true, "/v1/platform/tasks/" + task.Task_ID + "/": true,
		"/v1/platform/tasks/%74" + task.Task_ID[1:]: true, "/v1/platform/tasks/" + task.Task_ID + ";x": true, "/v1/platform/tasks/" + task.Task_ID + "%00": true,
		"/v1/platform/tasks/" + task.Task_ID + "/Cancel": true, "/v1/platform/tasks/" + task.Task_ID + "/cancel/": true,
		"/v1/platform/tasks/../tasks/" + task.Task_ID: true, "/v1/platform": true, "/v1/platform/other": true,
		"/v1/video/generations/": false, "/v1/Video/generations": false, "/v1/video/generations/" + task.Task_ID + "/": false,
		"/v1/video/generations/%74" + task.Task_ID[1:]: false, "/v1/video": false, "/v1/notices/": false, "/v1/notices/works/": false, "/V1/notices/works": false,
		"/v1/files/": false, "/v1/files/abc": false, "/v1/files/abc/": false, "/V1/files/abc/a.mp4": false, "/v1//files/abc/a.mp4": false, "/v1/files/abc/a/b": false,
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(method+" "+target, func(t *testing.T) {
				t.Parallel()
				conn := w.Dial(t)
				conn.Send(t, method+" "+target+" HTTP/1.1\nHost: gate\nX-Api-Key: "+key.Secret+"\nContent-Length: 0\n\n")
				got := conn.Receive(t, method)
				path := generationsPath
				if flat {
					path = videoPath
				}
				refusal{404, fault.NotFound, "", "there is nothing at this path"}.check(t, path, got)
			})
		}
	}
}

func TestTaskIDsAreCaseSensitive(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil))
	if got := decoded[resource](t, w.get(t, key, tasksPath+"/"+task.Task_ID)); got.Task_ID != task.Task_ID {
		t.Errorf("answered %+v", got)
	}
	w.get(t, key, tasksPath+"/"+strings.ToLower(task.Task_ID))
	refusal{404, fault.TaskNotFound, "", "there is no such task"}.check(t, tasksPath, w.get(t, key, tasksPath+"/"+strings.ToLower(task.Task_ID)))
}

func TestTooLargeOrEncodedBodiesAreRefusedUnread(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	for path, limit := range map[string]int{videoPath: 1 << 20, imagePath: 1 << 20, generationsPath: 16 << 20} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			large := refusal{413, fault.PayloadTooLarge, "", fmt.Sprintf("larger than %d MiB", limit>>20)}
			head := "POST " + path + " HTTP/1.1\nHost: gate\nX-Api-Key: " + key.Secret + "\n"

			conn := w.Dial(t)
			conn.Send(t, head+fmt.Sprintf("Content-Length: %d\n\n", limit+1))
			large.check(t, path, conn.Receive(t, "POST"))

			conn = w.Dial(t)
			conn.Send(t, head+"Transfer-Encoding: chunked\n\n"+fmt.Sprintf("%x\n", limit+1))
			go func() { _, _ = io.WriteString(conn, strings.Repeat("x", limit+1)+"\r\n") }()
			large.check(t, path, conn.Receive(t, "POST"))

			conn = w.Dial(t)
			conn.Send(t, head+"Content-Encoding: gzip\nContent-Length: 1000\n\n")
			refusal{415, fault.UnsupportedMediaType, "", `"gzip"`}.check(t, path, conn.Receive(t, "POST"))

			// A body of exactly the maximum size is read.
			body := bodyFor(path, nil)
			body = body[:len(body)-1] + strings.Repeat(" ", limit-len(body)) + "}"
			w.submit(t, key, path, body, "Content-Encoding: identity", "Content-Type: text/plain")
		})
	}
}

func TestASlowBodyTimesOut(t *testing.T) {
	w := start(t, "limits {\n body_read 200ms\n }")
	key := w.fundedKey(t)
	conn := w.Dial(t)
	conn.Send(t, "POST "+videoPath+" HTTP/1.1\nHost: gate\nX-Api-Key: "+key.Secret+"\nContent-Length: 100\n\n{")
	refusal{408, fault.RequestTimeout, "", "did not arrive"}.check(t, videoPath, conn.Receive(t, "POST"))
	conn = w.Dial(t)
	conn.Send(t, "POST "+videoPath+" HTTP/1.1\nHost: gate\nX-Api-Key: "+key.Secret+"\nContent-Length: 100\n\n{")
	if err := conn.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	refusal{400, fault.InvalidJSON, "", "ended early"}.check(t, videoPath, conn.Receive(t, "POST"))
}

func TestAKeyIsUsedOnlyForItsModels(t *testing.T) {
	w := start(t, "default_model sora-2")
	key := w.NewKey(t, object{"models": []string{"video-e-*", "sora-1"}})
	w.Credit(t, key.UserID, "100")
	forbidden := func(model string) refusal {
		return refusal{403, fault.Forbidden, "model", fmt.Sprintf("may not use the model %q", model)}
	}
	w.submit(t, key, videoPath, bodyFor(videoPath, nil))
	w.submit(t, key, generationsPath, `{"model":"sora-1","duration":4}`)
	forbidden("video-a-1").check(t, videoPath, w.post(t, key, videoPath, bodyFor(videoPath, object{"model": "video-a-1"})))
	forbidden("video-unknown-1").check(t, videoPath, w.post(t, key, videoPath, bodyFor(videoPath, object{"model": "video-unknown-1"})))
	forbidden("image-e-1").check(t, imagePath, w.post(t, key, imagePath, bodyFor(imagePath, nil)))
	forbidden("sora-2").check(t, generationsPath, w.post(t, key, generationsPath, `{"duration":4}`)) // the default model
	forbidden("video-a-1").check(t, videoPath, w.post(t, key, videoPath+"?dry_run=true", bodyFor(videoPath, object{"model": "video-a-1"})))
	if n := len(w.service.submissions()); n != 2 {
		t.Errorf("the backend received %d submissions", n)
	}
}

func TestSubmissionsAreLoggedWithoutTheirContent(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	const secret, link = "a very private boat", "https://files.example/private.png"
	body := bodyFor(videoPath, object{"prompt": secret, "session_context": "private-context", "inputs": []any{object{"url": link}}})
	got := w.post(t, key, videoPath, body)
	task := decoded[resource](t, got)
	line := w.taskLine(t, got)
	for field, want := range map[string]string{
		"route": "video", "user_id": key.UserID, "key_id": key.ID, "model": "video-e-1", "family": "E", "backend": "works",
		"task_id": task.Task_ID, "task_status": "queued", "hold": "0.80", "code": "",
	} {
		if line.Text(field) != want {
			t.Errorf("%s is logged as %q, want %q", field, line.Text(field), want)
		}
	}
	if line.Number("status") != 200 || line.Number("bytes_in") != float64(len(body)) || line.Number("duration") <= 0 {
		t.Errorf("logged %v", line)
	}
	got = w.post(t, key, videoPath, bodyFor(videoPath, object{"output.duration": 5}))
	if line = w.taskLine(t, got); line.Text("code") != "INVALID_PARAMETER" || line.Number("status") != 400 || line.Text("task_id") != "" {
		t.Errorf("logged %v", line)
	}
	for _, text := range []string{secret, link, "private-context", key.Secret} {
		if w.Logged(text) {
			t.Errorf("%q is in the log", text)
		}
	}
}

func TestPlaceholdersOfARequest(t *testing.T) {
	config := configOf(t.Name(), "")
	config.Site = `
		log
		log_append user {http.auth.user.id}
		log_append key {http.modelgate.key_id}
		log_append id {http.modelgate.request_id}
		log_append model {http.modelgate.model}
		log_append task {http.modelgate.task_id}
	` + config.Site
	w := startWith(t, config)
	key := w.fundedKey(t)
	logged := func(id string) gatetest.Line {
		return w.WaitLine(t, func(l gatetest.Line) bool { return l.Text("msg") == "handled request" && l.Text("id") == id })
	}
	got := w.post(t, key, videoPath, bodyFor(videoPath, nil))
	task := decoded[resource](t, got).Task_ID
	line := logged(got.RequestID())
	if line.Text("user") != key.UserID || line.Text("key") != key.ID || line.Text("model") != "video-e-1" || line.Text("task") != task {
		t.Errorf("logged %v", line)
	}
	line = logged(w.get(t, key, tasksPath+"/"+task).RequestID())
	if line.Text("user") != key.UserID || line.Text("task") != task {
		t.Errorf("logged %v", line)
	}

	// A caller who disconnects while waiting gets no answer, and no error is logged.
	ctx, cancel := context.WithCancel(t.Context())
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { time.AfterFunc(100*time.Millisecond, cancel) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, w.URL(tasksPath+"/"+task+"?wait=60"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key.Secret)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		t.Errorf("answered %d", resp.StatusCode)
		resp.Body.Close()
	}
	w.WaitLine(t, func(l gatetest.Line) bool { return l.Number("status") == 499 && l.Text("task") == task })
	if w.Logged("a request for a task failed") {
		t.Error("the disconnect was logged as a failure")
	}
}

func TestTheDirectiveTakesNoArguments(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"modelgate_tasks now", "modelgate_tasks {\n models x\n }"} {
		if _, err := gatetest.Adapt(":80 {\n " + line + "\n }"); err == nil || !strings.Contains(err.Error(), "modelgate_tasks") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// taskLine returns the log line of a submission.
func (w *fixture) taskLine(t testing.TB, got gatetest.Answer) gatetest.Line {
	t.Helper()
	return w.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("msg") == "task" && l.Text("request_id") == got.RequestID()
	})
}
