package tasks_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestATaskIsCancelledOnlyWhenTheBackendConfirms(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	path := tasksPath + "/" + task + "/cancel"
	refusal{409, fault.TaskNotCancellable, "", "has not confirmed"}.check(t, path, w.post(t, key, path, ""))
	w.checkWallet(t, key, "100", "0.80")
	w.service.enableCancel()
	for range 2 {
		got := decoded[resource](t, w.post(t, key, path, `{"why":"not"}`))
		if got.Task_ID != task || got.Status != "failed" || got.Error.Reason != "TASK_CANCELLED" || got.Completed_At == nil {
			t.Errorf("answered %+v", got)
		}
	}
	w.checkWallet(t, key, "100", "0")

	task = w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	w.finish(t, key, task, succeeded("https://cdn.example/req.mp4"))
	path = tasksPath + "/" + task + "/cancel"
	refusal{409, fault.TaskNotCancellable, "", "the task is over: success"}.check(t, path, w.post(t, key, path, ""))
	w.checkWallet(t, key, "99.20", "0")
	w.Verify(t)
}

func TestUnknownPlatformPathsAreRefusedInItsDialect(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
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
