package task

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// finishTask creates a task and waits for its success.
func (f *fixture) finishTask(change func(s *Submission)) *record.Task {
	f.t.Helper()
	f.service.succeed(1)
	task := f.mustSubmit(with(change))
	return f.waitStatus(task.ID, record.Success, time.Minute)
}

func unchanged(*Submission) {}

// delivery returns the callback of a task.
func (f *fixture) delivery(task string) callback.Callback {
	f.t.Helper()
	list, _, err := f.Callbacks(context.Background(), ann, "", 100)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range list {
		if d.Task == task {
			return d
		}
	}
	f.t.Fatalf("the list has no callback of %s: %+v", task, list)
	return callback.Callback{}
}

func TestCallbackBody(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		task := f.finishTask(func(s *Submission) { s.SessionID, s.SessionContext = "s-1", "order 7" })
		synctest.Wait()
		failing := f.mustSubmit(video())
		f.service.set(func(s *mockService) { s.poll = nil })
		f.service.setStatus(failing.ID, failed(backends.ContentRejected))
		f.waitStatus(failing.ID, record.Failed, time.Minute)
		synctest.Wait()
		got := f.hooks.requests()
		if len(got) != 2 {
			t.Fatalf("%d callbacks", len(got))
		}
		text, _ := json.Marshal(task)
		want := fmt.Sprintf(`{"type":"task.succeeded","timestamp":%d,"data":%s,"session_id":"s-1","session_context":"order 7"}}`,
			task.CompletedAt, strings.TrimSuffix(string(text), "}"))
		if string(got[0].body) != want {
			t.Errorf("the body is\n%s, want\n%s", got[0].body, want)
		}
		if !strings.Contains(string(got[1].body), `{"type":"task.failed",`) || !strings.Contains(string(got[1].body), `"reason":"CONTENT_REJECTED"`) ||
			!strings.HasSuffix(string(got[1].body), `"session_id":"","session_context":""}}`) {
			t.Errorf("the body of the failure is\n%s", got[1].body)
		}
		for _, d := range got {
			if d.url != "https://ann.example.com/hook" || d.header.Get("Content-Type") != "application/json" {
				t.Errorf("sent to %s with %v", d.url, d.header)
			}
			checkSignatures(t, d, "current secret")
		}
		if got[0].header.Get("Webhook-Id") == got[1].header.Get("Webhook-Id") {
			t.Error("two events have the same id")
		}
		if d := f.delivery(task.ID); d.State != record.Delivered || d.Status != 200 || d.Attempts != 1 || d.ID != got[0].header.Get("Webhook-Id") || d.Next != 0 || d.Trouble != "" {
			t.Errorf("%+v", d)
		}
	})
}

// checkSignatures checks a callback according to Standard Webhooks: one signature
// for each secret, in their order.
func checkSignatures(t *testing.T, d delivered, secrets ...string) {
	t.Helper()
	sent, err := strconv.ParseInt(d.header.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || sent != d.at.Unix() {
		t.Errorf("the timestamp is %q, the callback was sent at %d", d.header.Get("Webhook-Timestamp"), d.at.Unix())
	}
	var want []string
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.%d.%s", d.header.Get("Webhook-Id"), sent, d.body)
		want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if got := d.header.Get("Webhook-Signature"); got != strings.Join(want, " ") {
		t.Errorf("the signature is %q, want %q", got, want)
	}
}

func TestTheOldSecretAlsoSignsDuringARotation(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		f.hooks.mu.Lock()
		f.hooks.address[annKey] = callback.Address{URL: "https://ann.example.com/hook", Secrets: [][]byte{[]byte("new"), []byte("old")}}
		f.hooks.mu.Unlock()
		f.finishTask(unchanged)
		synctest.Wait()
		checkSignatures(t, f.hooks.requests()[0], "new", "old")
	})
}

func TestAKeyWithoutAnAddressGetsNoCallback(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		task := f.finishTask(func(s *Submission) { s.Key = annKey })
		f.hooks.mu.Lock()
		delete(f.hooks.address, annKey)
		f.hooks.mu.Unlock()
		f.mustSubmit(video())
		f.sleep(time.Minute)
		list, next, err := f.Callbacks(f.t.Context(), ann, "", 0)
		if err != nil || next != "" || len(list) != 1 || list[0].Task != task.ID {
			t.Errorf("%+v, %q, %v", list, next, err)
		}
	})
}

func TestCallbackAttemptsFollowTheSchedule(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		f.hooks.answers(func(int) int { return 500 })
		task := f.finishTask(unchanged)
		completed := time.UnixMilli(f.record(task.ID).Completed)
		f.sleep(100 * time.Hour)
		got := f.hooks.requests()
		if len(got) != 10 {
			t.Fatalf("sent %d times", len(got))
		}
		before := completed
		for i, want := range []time.Duration{
			0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
		} {
			gap := got[i].at.Sub(before)
			if gap < want*4/5 || gap > want*6/5+time.Second {
				t.Errorf("attempt %d came after %v, want about %v", i+1, gap, want)
			}
			if string(got[i].body) != string(got[0].body) || got[i].header.Get("Webhook-Id") != got[0].header.Get("Webhook-Id") {
				t.Errorf("attempt %d is another event", i+1)
			}
			checkSignatures(t, got[i], "current secret")
			before = got[i].at
		}
		if d := f.delivery(task.ID); d.State != record.Dead || d.Attempts != 10 || d.Status != 500 || d.Next != 0 || d.Trouble != "the receiver answered 500" {
			t.Errorf("%+v", d)
		}
	})
}

func TestCallbackEndsAfterCertainAnswers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer   func(n int) int
		after    time.Duration
		state    record.CallbackState
		attempts int
		status   int
		trouble  string
	}{
		"200":          {func(int) int { return 200 }, time.Second, record.Delivered, 1, 200, ""},
		"204":          {func(int) int { return 204 }, time.Second, record.Delivered, 1, 204, ""},
		"299":          {func(int) int { return 299 }, time.Second, record.Delivered, 1, 299, ""},
		"a redirect":   {func(int) int { return 307 }, time.Second, record.Undelivered, 1, 307, "the receiver answered 307"},
		"199":          {func(int) int { return 199 }, time.Second, record.Undelivered, 1, 199, "the receiver answered 199"},
		"410":          {func(int) int { return 410 }, 10 * time.Minute, record.Dead, 1, 410, "the receiver answered 410"},
		"unreachable":  {func(int) int { return 0 }, time.Second, record.Undelivered, 1, 0, "the receiver cannot be reached"},
		"silent":       {func(int) int { return -1 }, 12 * time.Second, record.Undelivered, 1, 0, "the receiver did not answer in 10 s"},
		"500, then ok": {func(n int) int { return map[bool]int{true: 500, false: 200}[n < 3] }, 10 * time.Minute, record.Delivered, 3, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.listen()
				f.hooks.answers(row.answer)
				task := f.finishTask(unchanged)
				f.sleep(row.after)
				synctest.Wait()
				d := f.delivery(task.ID)
				if d.State != row.state || d.Attempts != row.attempts || d.Status != row.status || d.Trouble != row.trouble {
					t.Errorf("%+v", d)
				}
				want := 0
				if row.status == http.StatusGone {
					want = 1
				}
				f.hooks.mu.Lock()
				if len(f.hooks.disabled) != want {
					t.Errorf("disabled: %v", f.hooks.disabled)
				}
				f.hooks.mu.Unlock()
				for _, got := range f.hooks.requests() {
					if got.url != "https://ann.example.com/hook" {
						t.Errorf("the callback was sent to %s", got.url)
					}
				}
			})
		})
	}
}

func TestASlowReceiverDoesNotDelayOthers(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		f.hooks.mu.Lock()
		f.hooks.address[annKey2] = callback.Address{URL: "https://quick.example.com/", Secrets: [][]byte{[]byte("x")}}
		f.hooks.answer = func(n int) int {
			if f.hooks.got[n-1].url == "https://quick.example.com/" {
				return 200
			}
			return -1
		}
		f.hooks.mu.Unlock()
		f.service.succeed(1)
		for range 8 {
			f.mustSubmit(video())
		}
		f.sleep(5 * time.Second)
		f.hooks.mu.Lock()
		if f.hooks.peak != perKey {
			t.Errorf("%d concurrent attempts to one receiver, want %d", f.hooks.peak, perKey)
		}
		f.hooks.mu.Unlock()
		task := f.finishTask(func(s *Submission) { s.Key = annKey2 })
		f.sleep(100 * time.Millisecond)
		if d := f.delivery(task.ID); d.State != record.Delivered {
			t.Errorf("%+v", d)
		}
	})
}

func TestRedelivery(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		f.hooks.answers(func(int) int { return 410 })
		task := f.finishTask(unchanged)
		synctest.Wait()
		again := func() (callback.Callback, error) {
			return f.Redeliver(context.Background(), "operator", record.OfUser(ann), task.ID)
		}
		f.hooks.mu.Lock()
		f.hooks.answer = func(int) int { return 200 }
		f.hooks.mu.Unlock()
		if _, err := again(); err != nil { // the key no longer has an address
			t.Fatal(err)
		}
		synctest.Wait()
		if d := f.delivery(task.ID); d.State != record.Dead || d.Attempts != 1 || d.Trouble != "the API key has no callback address" {
			t.Errorf("%+v", d)
		}
		f.listen()
		for range 2 { // the second time, the callback is already delivered
			if d, err := again(); err != nil || d.State != record.Undelivered {
				t.Fatal(d, err)
			}
			synctest.Wait()
			if d := f.delivery(task.ID); d.State != record.Delivered {
				t.Errorf("%+v", d)
			}
		}
		got := f.hooks.requests()
		if len(got) != 3 || got[0].header.Get("Webhook-Id") != got[2].header.Get("Webhook-Id") {
			t.Errorf("%d attempts", len(got))
		}
		for _, owner := range []record.Owner{record.OfUser("user_bob"), record.OfKey(bobKey), {}} {
			if _, err := f.Redeliver(f.t.Context(), "x", owner, task.ID); codeOf(err) != fault.NotFound {
				t.Errorf("another owner: %v", err)
			}
		}
		if _, err := f.Redeliver(f.t.Context(), "x", record.Anyone, record.NewID()); codeOf(err) != fault.NotFound {
			t.Error(err)
		}
		f.sleep(redelivery - time.Second)
		if _, err := again(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		f.sleep(redelivery)
		if _, err := again(); codeOf(err) != fault.Conflict {
			t.Errorf("after 7 days: %v", err)
		}
	})
}

func TestCallbacksAreListedLatestFirst(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		var want []string
		for range 5 {
			want = append([]string{f.finishTask(unchanged).ID}, want...)
		}
		synctest.Wait()
		var got []string
		for after := ""; ; {
			list, next, err := f.Callbacks(f.t.Context(), ann, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				got = append(got, d.Task)
			}
			if after = next; next == "" {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if _, _, err := f.Callbacks(f.t.Context(), "user_bob", want[0], 2); codeOf(err) != fault.InvalidParameter {
			t.Error(err)
		}
		if _, _, err := f.Callbacks(f.t.Context(), ann, "", 101); codeOf(err) != fault.InvalidParameter {
			t.Error(err)
		}
	})
}

func TestATestEventIsSentOnce(t *testing.T) {
	withFixture(t, func(f *fixture) {
		if _, err := f.Test(f.t.Context(), "operator", ann, annKey); codeOf(err) != fault.NotFound {
			t.Error(err)
		}
		f.listen()
		for _, status := range []int{200, 500} {
			f.hooks.answers(func(int) int { return status })
			d, err := f.Test(f.t.Context(), "operator", ann, annKey)
			if err != nil || d.Status != status || (d.State == record.Delivered) != (status == 200) {
				t.Errorf("%+v, %v", d, err)
			}
		}
		f.sleep(time.Hour)
		got := f.hooks.requests()
		if len(got) != 2 || !strings.HasPrefix(string(got[0].body), `{"type":"callback.test",`) {
			t.Errorf("sent %d times", len(got))
		}
		checkSignatures(t, got[0], "current secret")
		if _, err := f.Test(f.t.Context(), "operator", ann, annKey2); codeOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}
