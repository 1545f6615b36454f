package tasks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestBodyMemoryIsSharedAmongUsersAndReleased(t *testing.T) {
	w := start(t, "limits {\n body_memory 64MiB\n }") // a user can use 32 MiB of it, the size of the largest body
	key, other := w.fundedKey(t), w.fundedKey(t)
	const part = 12 << 20
	body := bodyFor(generationsPath, object{"model": "sora-2", "duration": 1})
	body = body[:len(body)-1] + strings.Repeat(" ", part) + "}"
	for range 4 {
		w.submit(t, key, generationsPath, body)
	}

	// Two incomplete bodies use most of this share.
	var slow []*gatetest.Wire
	for range 2 {
		conn := w.Dial(t)
		_ = conn.SetDeadline(time.Now().Add(6 * gatetest.Timeout)) // under the race detector each body takes seconds to read
		conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: gate\nX-Api-Key: %s\nContent-Length: %d\n\n", generationsPath, key.Secret, len(body)))
		if _, err := io.WriteString(conn, body[:part]); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	runtime := gatetest.Runtime(t)
	gatetest.Eventually(t, "both bodies use memory", func() (used int64, ok bool) {
		used = runtime.Bodies.Users.Used()
		return used, used >= 2*part
	})
	w.submit(t, other, generationsPath, body)
	for _, conn := range slow {
		if _, err := io.WriteString(conn, body[part:]); err != nil {
			t.Fatal(err)
		}
		decoded[resource](t, conn.Receive(t, "POST"))
	}
	w.submit(t, key, generationsPath, body)
	gatetest.Eventually(t, "all memory is released", func() (used int64, ok bool) {
		used = runtime.Bodies.Users.Used()
		return used, used == 0
	})
}

func TestASubmissionWithoutMoneyIsRefusedBeforeTheBodyIsRead(t *testing.T) {
	w := start(t, "")
	unfunded, limited := w.NewKey(t, nil), w.NewKey(t, object{"limits": object{"requests_per_second": 1}})
	unread := func(key gatetest.Key, path, headers string) gatetest.Answer {
		conn := w.Dial(t)
		conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: gate\nX-Api-Key: %s\nContent-Length: 1000000\nExpect: 100-continue\n%s\n", path, key.Secret, headers))
		return conn.Receive(t, http.MethodPost)
	}
	noMoney := refusal{402, fault.InsufficientQuota, "", "there is no money for this request: 0.00 is available"}
	for _, path := range []string{videoPath, imagePath, generationsPath} {
		noMoney.check(t, path, unread(unfunded, path, ""))
		noMoney.check(t, path, unread(unfunded, path, "Idempotency-Key: never-used\n"))
		if got := unread(unfunded, path+"?dry_run=true", ""); got.Status != http.StatusContinue {
			t.Errorf("%s: a dry run is answered %d %s", path, got.Status, got.Body)
		}
	}
	w.Credit(t, limited.UserID, "100")
	var got gatetest.Answer
	for range 20 { // within a second or so
		if got = unread(limited, videoPath, ""); got.Status != http.StatusContinue {
			break
		}
	}
	refusal{429, fault.RateLimited, "", "1 request per second of your key"}.check(t, videoPath, got)
}

func TestARepeatedSubmissionNeedsNoMoney(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, nil)
	w.Credit(t, key.UserID, "0.80") // what one video may cost
	first := w.submit(t, key, videoPath, bodyFor(videoPath, nil), "Idempotency-Key: once")
	again := w.post(t, key, videoPath, bodyFor(videoPath, nil), "Idempotency-Key: once")
	if got := decoded[resource](t, again); got.Task_ID != first.Task_ID || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("answered %+v", got)
	}
	refusal{402, fault.InsufficientQuota, "", "no money"}.check(t, videoPath, w.post(t, key, videoPath, bodyFor(videoPath, nil), "Idempotency-Key: twice"))
}

func TestReadingDoesNotCountInTheRateLimitOfAKey(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, object{"limits": object{"requests_per_second": 2}})
	w.Credit(t, key.UserID, "100")
	limited := refusal{429, fault.RateLimited, "", "2 requests per second of your key"}
	var refused gatetest.Answer
	var last resource
	for range 20 { // within a second or so
		got := w.post(t, key, videoPath, bodyFor(videoPath, nil))
		if got.Status == http.StatusTooManyRequests {
			refused = got
			break
		}
		last = decoded[resource](t, got)
	}
	limited.check(t, videoPath, refused)
	if refused.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: %q", refused.Header.Get("Retry-After"))
	}
	for range 50 {
		decoded[resource](t, w.get(t, key, tasksPath+"/"+last.Task_ID))
	}
	for range 20 {
		if refused = w.post(t, key, tasksPath+"/"+last.Task_ID+"/cancel", ""); refused.Status == http.StatusTooManyRequests {
			break
		}
	}
	limited.check(t, tasksPath, refused)
}

// TestBodyBytesOfAUserAreLimitedPerMinute checks a limit over all keys of a user. It exists because
// submitting and cancelling costs nothing.
func TestBodyBytesOfAUserAreLimitedPerMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("sends more than 256 MiB")
	}
	w := start(t, "")
	key, other := w.fundedKey(t), w.fundedKey(t)
	var second gatetest.Key
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys", object{"user": key.UserID}, &second)
	body := bodyFor(generationsPath, object{"model": "sora-2", "duration": 1})
	body = body[:len(body)-1] + strings.Repeat(" ", 15<<20) + "}"
	var got gatetest.Answer
	kept := 0
	for ; kept < 100; kept++ { // 256 MiB at once, and what the limiter refills during the loop
		w.post(t, key, generationsPath+"?dry_run=true", "{}")
		if got = w.post(t, key, generationsPath, body); got.Status != http.StatusOK {
			break
		}
		task := decoded[resource](t, got).Task_ID
		w.post(t, key, tasksPath+"/"+task+"/cancel", "")
	}
	limited := refusal{429, fault.RateLimited, "", "256 MiB per minute"}
	limited.check(t, generationsPath, got)
	if seconds, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 5 || kept < 17 {
		t.Errorf("after %d bodies: headers %v", kept, got.Header)
	}
	// The limit refills by 4 MiB a second, so on a slow machine some bodies are accepted.
	for range 5 {
		if got = w.post(t, second, generationsPath, body); got.Status != http.StatusOK {
			break
		}
	}
	limited.check(t, generationsPath, got)
	w.submit(t, other, generationsPath, body)
	w.submit(t, key, generationsPath, bodyFor(generationsPath, object{"model": "sora-2", "duration": 1})) // a small body is accepted
}

func TestTooManyUnfinishedTasksOfAKeyAreRefused(t *testing.T) {
	w := start(t, "limits {\n unfinished_tasks 2\n }")
	key := w.fundedKey(t)
	first := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	w.submit(t, key, imagePath, bodyFor(imagePath, nil))
	got := w.post(t, key, videoPath, bodyFor(videoPath, nil))
	refusal{429, fault.TooManyTasks, "", "2 unfinished tasks, at most 2"}.check(t, videoPath, got)
	if got.Header.Get("Retry-After") == "" {
		t.Errorf("headers %v", got.Header)
	}
	w.submit(t, w.fundedKey(t), videoPath, bodyFor(videoPath, nil)) // another user has a separate limit
	w.finish(t, key, first, succeeded("https://cdn.example/req.mp4"))
	w.submit(t, key, videoPath, bodyFor(videoPath, nil))
}

func TestAFailedStoreReturns503InTheDialect(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	w.FailStore(t)
	for path, method := range keyRoutes {
		got := w.Do(t, method, path, "X-Api-Key: "+key.Secret, bodyFor(path, nil))
		refusal{503, fault.StoreUnavailable, "", ""}.check(t, path, got)
		if got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: headers %v", path, got.Header)
		}
	}
}

func TestFinishedRequestsReleaseTheStore(t *testing.T) {
	w, path := startWithMedia(t, "a.mp4")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	for path, method := range keyRoutes {
		w.Do(t, method, path, "X-Api-Key: "+key.Secret, "")
		w.Do(t, method, path, "", "")
	}
	w.get(t, key, tasksPath+"/"+task+"?wait=1")
	w.notify(t, task)
	w.file(t, path)

	_, closed := gatetest.Engine(w.Store)
	config := configOf(t.Name(), "")
	config.Store = t.Name() + " after"
	if err := w.Reload(config); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(gatetest.Timeout):
		t.Error("the store is still open")
	}
}

// TestListsOfAUserAreLimitedPerMinute checks a limit over all keys of a user. It exists because a
// list by status reads up to 5000 tasks, even if it is empty.
func TestListsOfAUserAreLimitedPerMinute(t *testing.T) {
	w := start(t, "")
	key, other := w.fundedKey(t), w.fundedKey(t)
	var got gatetest.Answer
	for range 400 {
		if got = w.get(t, key, tasksPath+"?status=pending"); got.Status != http.StatusOK {
			break
		}
	}
	refusal{429, fault.RateLimited, "", "300 lists of tasks per minute"}.check(t, tasksPath, got)
	if got = w.get(t, other, tasksPath+"?status=pending"); got.Status != http.StatusOK {
		t.Errorf("another user: %d", got.Status)
	}
}

// TestConcurrentWaitsOfAUserAreLimited also checks that the limit applies neither to polls without
// wait nor to other users.
func TestConcurrentWaitsOfAUserAreLimited(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	other := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	otherTask := w.submit(t, other, videoPath, bodyFor(videoPath, nil)).Task_ID
	const limit = 128
	ctx, cancel := context.WithCancel(t.Context())
	var open sync.WaitGroup
	for range limit {
		open.Go(func() {
			for ctx.Err() == nil { // the request below may count for a moment
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(tasksPath+"/"+task+"?wait=60"), nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Api-Key", key.Secret)
				if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	// On a busy machine, opening all connections takes a while.
	for begun := time.Now(); w.get(t, key, tasksPath+"/"+task+"?wait=1").Status != http.StatusTooManyRequests; {
		if time.Since(begun) > 6*gatetest.Timeout {
			t.Fatal("no request is refused")
		}
	}
	got := w.get(t, key, tasksPath+"/"+task+"?wait=60")
	refusal{429, fault.RateLimited, "wait", "allowed: 128"}.check(t, tasksPath, got)
	if got.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if got := w.get(t, key, tasksPath+"/"+task); got.Status != http.StatusOK {
		t.Errorf("without wait: answered %d %s", got.Status, got.Body)
	}
	if got := w.get(t, other, tasksPath+"/"+otherTask+"?wait=1"); got.Status != http.StatusOK {
		t.Errorf("another user: answered %d %s", got.Status, got.Body)
	}
	cancel()
	open.Wait()
	gatetest.Eventually(t, "a wait is accepted again", func() (got gatetest.Answer, ok bool) {
		got = w.get(t, key, tasksPath+"/"+task+"?wait=1")
		return got, got.Status == http.StatusOK
	})
}
