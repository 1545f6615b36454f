package tasks_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestChangesDuringATaskDoNotChangeItsCharge changes the configuration and the state of its user
// while a task runs.
func TestChangesDuringATaskDoNotChangeItsCharge(t *testing.T) {
	w := start(t, "")
	reload := func(more string) {
		config := configOf(t.Name(), more)
		if err := w.Reload(config); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name      string
		meanwhile func(key gatetest.Key, task string)
	}{
		{"nothing", func(gatetest.Key, string) {}},
		{"the key is revoked", func(key gatetest.Key, _ string) {
			w.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/revoke", nil, nil)
		}},
		{"the user is disabled", func(key gatetest.Key, _ string) {
			w.MustAdmin(t, http.MethodPost, "/modelgate/users/"+key.UserID+"/disable", nil, nil)
		}},
		{"the wallet is emptied", func(key gatetest.Key, _ string) {
			if status, body := w.Admin(t, http.MethodPost, "/modelgate/wallets/"+key.UserID+"/debit", map[string]any{"amount": "100", "reason": "a test"}); status == http.StatusOK {
				t.Errorf("the held amount was debited: %s", body)
			}
		}},
		{"a cancellation is not confirmed", func(key gatetest.Key, task string) {
			if got := w.post(t, key, tasksPath+"/"+task+"/cancel", ""); got.Status != http.StatusConflict {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
		}},
		// This must be the last row: tasks of later rows would have the new price.
		{"a price is added", func(gatetest.Key, string) { reload("price video-e-1 {\nsecond 5\n}") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := w.fundedKey(t)
			task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
			c.meanwhile(key, task)
			w.service.setStatus(task, succeeded("https://cdn.example/v.mp4"))
			for range 3 {
				w.notify(t, task)
			}
			gatetest.Eventually(t, "the task is charged", func() (gatetest.Wallet, bool) {
				got := w.Wallet(t, key.UserID)
				return got, got.Held == 0
			})
			w.checkWallet(t, key, "99.20", "0")
			w.Verify(t)
		})
	}
}

// TestConcurrentCancelAndEndChargeAtMostOnce cancels tasks while their jobs end.
func TestConcurrentCancelAndEndChargeAtMostOnce(t *testing.T) {
	w := start(t, "")
	w.service.enableCancel()
	key := w.fundedKey(t)
	charged := 0
	for range 30 {
		task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
		var all sync.WaitGroup
		for _, act := range []func(){
			func() { w.post(t, key, tasksPath+"/"+task+"/cancel", "") },
			func() { w.service.setStatus(task, succeeded("https://cdn.example/v.mp4")); w.notify(t, task) },
			func() { w.post(t, key, tasksPath+"/"+task+"/cancel", "") },
		} {
			all.Go(act)
		}
		all.Wait()
		end := gatetest.Eventually(t, "the task is over", func() (resource, bool) {
			got := decoded[resource](t, w.get(t, key, tasksPath+"/"+task))
			return got, got.Completed_At != nil
		})
		if end.Status == "success" {
			charged++
		}
	}
	want := amount(t, "100")
	for range charged {
		want -= amount(t, "0.80")
	}
	if got := w.Wallet(t, key.UserID); got.Balance != want || got.Held != 0 {
		t.Errorf("%d of 30 tasks succeeded: the wallet is %+v, want %v", charged, got, want)
	}
	w.Verify(t)
}

// TestATaskIsCancelledDuringItsSubmission cancels a task while its backend is
// accepting the job.
func TestATaskIsCancelledDuringItsSubmission(t *testing.T) {
	w := start(t, "")
	w.service.enableCancel()
	key := w.fundedKey(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.service.acceptBy(func(backends.Job) error {
		once.Do(func() { close(begun) })
		<-release
		return nil
	})
	done := make(chan gatetest.Answer, 1)
	go func() { done <- w.post(t, key, videoPath, bodyFor(videoPath, nil)) }()
	<-begun
	type page struct{ Data []resource }
	list := decoded[page](t, w.get(t, key, tasksPath))
	if len(list.Data) != 1 {
		t.Fatalf("the list has %d tasks, want 1", len(list.Data))
	}
	id := list.Data[0].Task_ID
	early := make(chan gatetest.Answer, 1)
	go func() { early <- w.post(t, key, tasksPath+"/"+id+"/cancel", "") }()
	close(release)
	<-done
	first := <-early
	end := w.post(t, key, tasksPath+"/"+id+"/cancel", "")
	if first.Status != http.StatusOK && first.Status != http.StatusConflict || end.Status != http.StatusOK {
		t.Errorf("answered %d %s, then %d %s", first.Status, first.Body, end.Status, end.Body)
	}
	w.service.setStatus(id, succeeded("https://cdn.example/v.mp4"))
	w.notify(t, id)
	w.checkWallet(t, key, "100", "0")
	w.Verify(t)
}
