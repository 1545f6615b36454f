package tasks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestARequestWithAnIdempotencyKeyIsDoneOnce(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	body := asking(videoPath, object{"session_id": "s1"})
	once := "Idempotency-Key: k1"
	task := w.must(t, key, videoPath, body, once)
	again := func(path, body string, headers ...string) gatetest.Answer {
		return w.post(t, key, path, body, append(headers, once)...)
	}

	// A request with other white space and another order of members is the same request.
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
	// The same idempotency key of another user is independent.
	other := w.rich(t)
	if got := w.must(t, other, videoPath, asking(videoPath, nil), once); got.Task_ID == task.Task_ID {
		t.Error("two keys share an idempotency key")
	}
	if n := len(w.service.asked()); n != 2 {
		t.Errorf("the backend was asked %d times", n)
	}
	w.has(t, key, "99.20", "0")

	// Of concurrent equal requests, one makes a task.
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
	// Images and videos share session ids; API keys do not.
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
