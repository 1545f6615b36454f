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

func TestTheBodiesOfAUserHaveAShareOfTheMemoryWhichIsGivenBack(t *testing.T) {
	w := start(t, "limits {\n body_memory 64MiB\n }") // a user can use 32 MiB of it, the size of the largest body
	key, other := w.rich(t), w.rich(t)
	const part = 12 << 20
	body := asking(generationsPath, object{"model": "sora-2", "duration": 1})
	body = body[:len(body)-1] + strings.Repeat(" ", part) + "}"
	for range 4 {
		w.must(t, key, generationsPath, body)
	}

	// Two incomplete bodies use most of it.
	var slow []*gatetest.Wire
	for range 2 {
		conn := w.Dial(t)
		_ = conn.SetDeadline(time.Now().Add(6 * gatetest.Patience)) // under the race detector each body takes seconds to read
		conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: gate\nX-Api-Key: %s\nContent-Length: %d\n\n", generationsPath, key.Secret, len(body)))
		if _, err := io.WriteString(conn, body[:part]); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	runtime := gatetest.Runtime(t)
	gatetest.Eventually(t, "that all of what was sent is in memory", func() (taken int64, ok bool) {
		taken = runtime.Bodies.Users.Used()
		return taken, taken >= 2*part
	})
	w.must(t, other, generationsPath, body)
	for _, conn := range slow {
		if _, err := io.WriteString(conn, body[part:]); err != nil {
			t.Fatal(err)
		}
		decoded[resource](t, conn.Receive(t, "POST"))
	}
	w.must(t, key, generationsPath, body)
	gatetest.Eventually(t, "that all memory is given back", func() (taken int64, ok bool) {
		taken = runtime.Bodies.Users.Used()
		return taken, taken == 0
	})
}

func TestASubmissionWithoutMoneyIsRefusedBeforeTheBodyIsRead(t *testing.T) {
	w := start(t, "")
	poor, limited := w.NewKey(t, nil), w.NewKey(t, object{"limits": object{"requests_per_second": 1}})
	unread := func(key gatetest.Key, path, headers string) gatetest.Answer {
		conn := w.Dial(t)
		conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: gate\nX-Api-Key: %s\nContent-Length: 1000000\nExpect: 100-continue\n%s\n", path, key.Secret, headers))
		return conn.Receive(t, http.MethodPost)
	}
	broke := refusal{402, fault.InsufficientQuota, "", "there is no money for this request: 0.00 is available"}
	for _, path := range []string{videoPath, imagePath, generationsPath} {
		broke.check(t, path, unread(poor, path, ""))
		broke.check(t, path, unread(poor, path, "Idempotency-Key: never-used\n"))
		if got := unread(poor, path+"?dry_run=true", ""); got.Status != http.StatusContinue {
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
	first := w.must(t, key, videoPath, asking(videoPath, nil), "Idempotency-Key: once")
	again := w.post(t, key, videoPath, asking(videoPath, nil), "Idempotency-Key: once")
	if got := decoded[resource](t, again); got.Task_ID != first.Task_ID || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("answered %+v", got)
	}
	refusal{402, fault.InsufficientQuota, "", "no money"}.check(t, videoPath, w.post(t, key, videoPath, asking(videoPath, nil), "Idempotency-Key: twice"))
}

func TestSubmissionsCountInTheRateOfTheKeyAndReadingDoesNot(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, object{"limits": object{"requests_per_second": 2}})
	w.Credit(t, key.UserID, "100")
	limited := refusal{429, fault.RateLimited, "", "2 requests per second of your key"}
	var refused gatetest.Answer
	var last resource
	for range 20 { // within a second or so
		got := w.post(t, key, videoPath, asking(videoPath, nil))
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

// TestTheBodiesOfAUserHaveABoundPerMinute: the bound covers all keys of the user, because
// submitting and cancelling costs nothing.
func TestTheBodiesOfAUserHaveABoundPerMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("sends more than 256 MiB")
	}
	w := start(t, "")
	key, other := w.rich(t), w.rich(t)
	var second gatetest.Key
	w.MustAdmin(t, http.MethodPost, "/modelgate/keys", object{"user": key.UserID}, &second)
	body := asking(generationsPath, object{"model": "sora-2", "duration": 1})
	body = body[:len(body)-1] + strings.Repeat(" ", 15<<20) + "}"
	var got gatetest.Answer
	kept := 0
	for ; kept < 100; kept++ { // 256 MiB at once, and the part that is refilled meanwhile
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
	w.must(t, other, generationsPath, body)
	w.must(t, key, generationsPath, asking(generationsPath, object{"model": "sora-2", "duration": 1})) // a small body is accepted
}

func TestAKeyHasOnlySoManyUnfinishedTasks(t *testing.T) {
	w := start(t, "limits {\n unfinished_tasks 2\n }")
	key := w.rich(t)
	first := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	w.must(t, key, imagePath, asking(imagePath, nil))
	got := w.post(t, key, videoPath, asking(videoPath, nil))
	refusal{429, fault.TooManyTasks, "", "2 unfinished tasks, at most 2"}.check(t, videoPath, got)
	if got.Header.Get("Retry-After") == "" {
		t.Errorf("headers %v", got.Header)
	}
	w.must(t, w.rich(t), videoPath, asking(videoPath, nil)) // another user has a separate limit
	w.finish(t, key, first, made("https://cdn.example/req.mp4"))
	w.must(t, key, videoPath, asking(videoPath, nil))
}

func TestAStoreThatHasFailedIsAnOutageInTheDialectOfThePath(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	w.FailStore(t)
	for path, method := range keyRoutes {
		got := w.Do(t, method, path, "X-Api-Key: "+key.Secret, asking(path, nil))
		refusal{503, fault.StoreUnavailable, "", ""}.check(t, path, got)
		if got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: headers %v", path, got.Header)
		}
	}
}

func TestARequestThatHasEndedHoldsTheStoreNoLonger(t *testing.T) {
	w, path := kept(t, "a.mp4")
	key := w.rich(t)
	task := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
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
	case <-time.After(gatetest.Patience):
		t.Error("the store is still open")
	}
}

// TestTheListsOfAUserHaveABoundPerMinute: the bound covers all keys of the user, because a
// list by status reads up to 5000 tasks, even if it is empty.
func TestTheListsOfAUserHaveABoundPerMinute(t *testing.T) {
	w := start(t, "")
	key, other := w.rich(t), w.rich(t)
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

// TestAUserHasOnlySoManyWaitsOpen: the bound does not apply to polls without wait, nor to
// other users.
func TestAUserHasOnlySoManyWaitsOpen(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	other := w.rich(t)
	task := w.must(t, key, videoPath, asking(videoPath, nil)).Task_ID
	theirs := w.must(t, other, videoPath, asking(videoPath, nil)).Task_ID
	const most = 128
	ctx, leave := context.WithCancel(t.Context())
	var open sync.WaitGroup
	for range most {
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
		if time.Since(begun) > 6*gatetest.Patience {
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
	if got := w.get(t, other, tasksPath+"/"+theirs+"?wait=1"); got.Status != http.StatusOK {
		t.Errorf("another user: answered %d %s", got.Status, got.Body)
	}
	leave()
	open.Wait()
	gatetest.Eventually(t, "there is room again", func() (got gatetest.Answer, ok bool) {
		got = w.get(t, key, tasksPath+"/"+task+"?wait=1")
		return got, got.Status == http.StatusOK
	})
}
