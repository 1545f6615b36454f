package tasks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestAnIdempotencyKeyCreatesOneTask(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	body := bodyFor(videoPath, object{"session_id": "s1"})
	once := "Idempotency-Key: k1"
	task := w.submit(t, key, videoPath, body, once)
	again := func(path, body string, headers ...string) gatetest.Answer {
		return w.post(t, key, path, body, append(headers, once)...)
	}

	// White space and the order of members do not matter.
	got := again(videoPath, `{ "session_id":"s1", "prompt":"a boat",  "model":"video-e-1" }`)
	if got.Header.Get("Idempotent-Replayed") != "true" || decoded[resource](t, got).Task_ID != task.Task_ID {
		t.Errorf("a replay is answered %v %s", got.Header, got.Body)
	}
	reused := refusal{422, fault.IdempotencyKeyReused, "Idempotency-Key", "use a new one"}
	reused.check(t, videoPath, again(videoPath, bodyFor(videoPath, object{"prompt": "another boat"})))
	reused.check(t, imagePath, again(imagePath, bodyFor(imagePath, nil)))
	reused.check(t, generationsPath, again(generationsPath, `{"model":"video-e-1","prompt":"a boat"}`))

	w.finish(t, key, task.Task_ID, succeeded("https://cdn.example/req.mp4"))
	if got := decoded[resource](t, again(videoPath, body)); got.Status != "success" || got.Task_ID != task.Task_ID {
		t.Errorf("a replay does not return the current status: %+v", got)
	}
	for name, header := range map[string]string{"empty": "Idempotency-Key:", "long": "Idempotency-Key: " + strings.Repeat("k", 256), "two": "Idempotency-Key: a\nIdempotency-Key: b", "not ASCII": "Idempotency-Key: ü"} {
		t.Run(name, func(t *testing.T) {
			refusal{400, fault.InvalidParameter, "Idempotency-Key", ""}.check(t, videoPath, w.post(t, key, videoPath, bodyFor(videoPath, nil), header))
		})
	}
	// The same idempotency key of another user is independent.
	other := w.fundedKey(t)
	if got := w.submit(t, other, videoPath, bodyFor(videoPath, nil), once); got.Task_ID == task.Task_ID {
		t.Error("two API keys share an idempotency key")
	}
	if n := len(w.service.submissions()); n != 2 {
		t.Errorf("the backend received %d submissions", n)
	}
	w.checkWallet(t, key, "99.20", "0")

	// One of several concurrent equal requests creates a task.
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			ids[i] = w.submit(t, key, videoPath, bodyFor(videoPath, nil), "Idempotency-Key: race").Task_ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("concurrent requests created %v", ids)
			break
		}
	}
	w.checkWallet(t, key, "99.20", "0.80")
}

func TestASessionIDIsUsedOnce(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	fifty := strings.Repeat("界", 50)
	with := func(id any) string { return bodyFor(videoPath, object{"session_id": id}) }
	first := w.submit(t, key, videoPath, with(fifty)).Task_ID

	got := w.post(t, key, videoPath, with(fifty))
	duplicate := refusal{409, fault.DuplicateSessionID, "session_id", first}
	duplicate.check(t, videoPath, got)
	if !strings.Contains(got.Body, fmt.Sprintf(`,"task_id":%q,"error":{`, first)) {
		t.Errorf("answered %s", got.Body)
	}
	// Images and videos share session ids; API keys do not.
	duplicate.check(t, imagePath, w.post(t, key, imagePath, bodyFor(imagePath, object{"session_id": fifty})))
	w.submit(t, w.fundedKey(t), videoPath, with(fifty))

	refusal{400, fault.InvalidParameter, "session_id", "at most 50 characters, not 51"}.check(t, videoPath, w.post(t, key, videoPath, with(fifty+"!")))
	refusal{400, fault.InvalidParameter, "session_context", "at most 1000"}.check(t, videoPath, w.post(t, key, videoPath, bodyFor(videoPath, object{"session_context": strings.Repeat("界", 1001)})))
	for range 2 {
		w.submit(t, key, videoPath, with(""))
		w.submit(t, key, videoPath, with(nil))
	}
	w.checkWallet(t, key, "100", "4.00")

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
		t.Errorf("concurrent requests are answered %v", statuses)
	}
	w.checkWallet(t, key, "100", "4.80")
}

func TestASessionIDHasNoControlCharacters(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	for _, id := range []string{"a\x00b", "a\nb", "\x7f", "a\u0085b", "\t"} {
		for _, path := range []string{videoPath, imagePath} {
			refusal{400, fault.InvalidParameter, "session_id", "control characters"}.check(t, path, w.post(t, key, path, bodyFor(path, object{"session_id": id})))
		}
	}
	w.submit(t, key, videoPath, bodyFor(videoPath, object{"session_id": "a b \u00e9"}))
}
