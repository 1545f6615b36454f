package tasks_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// ends has functions that end a task. A success costs 0.80.
var ends = map[string]struct {
	end  func(t *testing.T, w *fixture, task string)
	cost money.Amount
}{
	"a success": {func(t *testing.T, w *fixture, task string) {
		w.service.setStatus(task, succeeded("https://cdn.example/v.mp4"))
		w.notify(t, task)
		w.notify(t, task)
	}, 80 * money.Unit / 100},
	"a failure": {func(t *testing.T, w *fixture, task string) {
		w.service.setStatus(task, failed(backends.InvalidInput, "no"))
		w.notify(t, task)
	}, 0},
	"a cancellation": {func(t *testing.T, w *fixture, task string) {
		w.MustAdmin(t, http.MethodPost, "/modelgate/tasks/"+task+"/cancel", nil, nil)
		w.service.setStatus(task, succeeded("https://cdn.example/v.mp4")) // too late
		w.notify(t, task)
	}, 0},
}

// startSelling starts a fixture with plans and a payment service.
func startSelling(t *testing.T, more string) *fixture {
	t.Helper()
	config := configOf(t.Name(), gatetest.Selling+more)
	config.Site += gatetest.Console
	w := startWith(t, config)
	w.service.enableCancel()
	return w
}

// endTask ends a task of a buyer and waits until its hold has ended.
func (w *fixture) endTask(t *testing.T, b gatetest.Buyer, task string, end func(t *testing.T, w *fixture, task string)) gatetest.Wallet {
	t.Helper()
	end(t, w, task)
	gatetest.Eventually(t, "the task is over", func() (string, bool) {
		var seen struct{ Status, Charged string }
		w.MustAdmin(t, http.MethodGet, "/modelgate/tasks/"+task, nil, &seen)
		return seen.Status, seen.Status == "success" || seen.Status == "failed"
	})
	w.Verify(t)
	return w.Wallet(t, b.UserID)
}

func TestRefundsDuringATaskDoNotChangeItsCharge(t *testing.T) {
	w := startSelling(t, "")
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, b gatetest.Buyer, order string)
		net       money.Amount // of the 10.00 that were paid, the amount that was not refunded
		cleared   bool
	}{
		"a refund":           {func(t *testing.T, b gatetest.Buyer, order string) { b.Notify(t, "refunded", order, "10.00") }, 0, false},
		"a refund of a part": {func(t *testing.T, b gatetest.Buyer, order string) { b.Notify(t, "refunded", order, "9.00") }, money.Unit, false},
		"two refunds": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "refunded", order, "5.00")
			b.Notify(t, "refunded", order, "10.00")
			b.Notify(t, "refunded", order, "5.00")
		}, 0, false},
		"a dispute that is won": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "disputed", order, "10.00")
			b.Notify(t, "restored", order, "10.00")
		}, 10 * money.Unit, false},
		"a refund that is cleared": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "refunded", order, "10.00")
			w.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+b.UserID+"/clear", map[string]any{"reason": "a test"}, nil)
		}, 80 * money.Unit / 100, true}, // the hold
	} {
		for end, e := range ends {
			t.Run(name+" "+end, func(t *testing.T) {
				b := w.NewBuyer(t, nil)
				order := b.TopUp(t, "10.00")
				task := w.submit(t, b.Key, videoPath, bodyFor(videoPath, nil)).Task_ID
				c.meanwhile(t, b, order)
				if got := w.endTask(t, b, task, e.end); got.Balance-got.Owed != c.net-e.cost || got.Held != 0 {
					t.Errorf("the wallet is %+v, want %v", got, c.net-e.cost)
				}
			})
		}
	}
}

func TestATaskIsPaidFromThePeriodOfItsSubmission(t *testing.T) {
	w := startSelling(t, `
		plan 5 Whole {
			price 1.00
			quota 5.00
			duration 2 hours
		}
		plan 7 Little {
			price 1.00
			quota 0.75
			duration 2 hours
		}
		plan 6 Days {
			price 1.00
			quota 5.00
			duration 1 month
			quota_reset day
		}
	`)
	for name, c := range map[string]struct {
		plan      int
		meanwhile func(t *testing.T, b gatetest.Buyer, subscription int64)
		shown     bool         // the period shown at the end is the one that paid
		held      money.Amount // held in the wallet, because the quota is too small
	}{
		"nothing changes":       {5, func(*testing.T, gatetest.Buyer, int64) {}, true, 0},
		"the subscription ends": {5, func(*testing.T, gatetest.Buyer, int64) { w.Wait(3 * time.Hour) }, true, 0},
		"the period ends": {6, func(*testing.T, gatetest.Buyer, int64) {
			w.Wait(w.Now().UTC().Truncate(24 * time.Hour).Add(24*time.Hour + time.Minute).Sub(w.Now()))
		}, false, 0},
		"a renewal": {5, func(t *testing.T, b gatetest.Buyer, id int64) {
			b.Request(t, http.MethodPost, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"r"}`, id))
			w.Credit(t, b.UserID, "1.00")
		}, true, 0},
		"the end and a renewal": {5, func(t *testing.T, b gatetest.Buyer, id int64) {
			w.Wait(3 * time.Hour)
			b.Request(t, http.MethodPost, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"r"}`, id))
			w.Credit(t, b.UserID, "1.00")
		}, false, 0},
		"a cancellation": {5, func(t *testing.T, _ gatetest.Buyer, id int64) {
			w.MustAdmin(t, http.MethodPost, fmt.Sprintf("/modelgate/subscriptions/%d/cancel", id), map[string]any{"reason": "a test"}, nil)
		}, true, 0},
		"another preference": {5, func(t *testing.T, b gatetest.Buyer, _ int64) {
			b.Request(t, http.MethodPut, "/api/subscription/self/preference", `{"preference":"wallet_only"}`)
		}, true, 0},
		"the quota is too small": {7, func(*testing.T, gatetest.Buyer, int64) { w.Wait(3 * time.Hour) }, true, 5 * money.Unit / 100},
	} {
		for end, e := range ends {
			t.Run(name+" "+end, func(t *testing.T) {
				b := w.NewBuyer(t, nil)
				w.Credit(t, b.UserID, "10.00")
				id := b.Buy(t, c.plan)
				before := w.Wallet(t, b.UserID).Balance
				task := w.submit(t, b.Key, videoPath, bodyFor(videoPath, nil)).Task_ID
				c.meanwhile(t, b, id)
				got := w.endTask(t, b, task, e.end)
				wallet := min(e.cost, c.held)
				if got.Balance != before-wallet || got.Held != 0 {
					t.Errorf("balance %v, then %v with %v held; the task must take %v", before, got.Balance, got.Held, wallet)
				}
				var list struct {
					Items []struct {
						Used money.Amount `json:"quota_used"`
						Held money.Amount `json:"quota_held"`
					}
				}
				w.MustAdmin(t, http.MethodGet, "/modelgate/subscriptions?user="+b.UserID, nil, &list)
				want := e.cost - wallet
				if !c.shown {
					want = 0
				}
				if name == "a cancellation" {
					return // a lapsed quota counts as used
				}
				if s := list.Items[0]; s.Used != want || s.Held != 0 {
					t.Errorf("quota: %v is used and %v held, want %v used", s.Used, s.Held, want)
				}
			})
		}
	}
}

func TestATaskOfARevokedKeyOrDisabledUserIsChargedAtMostOnce(t *testing.T) {
	w := startSelling(t, "")
	for name, disable := range map[string]func(t *testing.T, b gatetest.Buyer){
		"the key is revoked": func(t *testing.T, b gatetest.Buyer) {
			w.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+b.ID+"/revoke", nil, nil)
		},
		"the user is disabled": func(t *testing.T, b gatetest.Buyer) {
			w.MustAdmin(t, http.MethodPost, "/modelgate/users/"+b.UserID+"/disable", nil, nil)
		},
	} {
		for end, e := range ends {
			t.Run(name+" "+end, func(t *testing.T) {
				b := w.NewBuyer(t, nil)
				w.Credit(t, b.UserID, "10.00")
				task := w.submit(t, b.Key, videoPath, bodyFor(videoPath, nil)).Task_ID
				waited := make(chan gatetest.Answer, 1)
				go func() { waited <- w.get(t, b.Key, tasksPath+"/"+task+"?wait=5") }()
				disable(t, b)
				for _, path := range []string{"", "?wait=1"} {
					if got := w.get(t, b.Key, tasksPath+"/"+task+path); got.Status != http.StatusUnauthorized {
						t.Errorf("a poll is answered %d %s", got.Status, got.Body)
					}
				}
				if got := w.post(t, b.Key, tasksPath+"/"+task+"/cancel", ""); got.Status != http.StatusUnauthorized {
					t.Errorf("a cancellation is answered %d %s", got.Status, got.Body)
				}
				if got := w.post(t, b.Key, videoPath, bodyFor(videoPath, nil)); got.Status != http.StatusUnauthorized {
					t.Errorf("a submission is answered %d %s", got.Status, got.Body)
				}
				if got := w.endTask(t, b, task, e.end); got.Balance != 10*money.Unit-e.cost || got.Held != 0 {
					t.Errorf("the wallet is %+v, the task must cost %v", got, e.cost)
				}
				<-waited
			})
		}
	}
}
