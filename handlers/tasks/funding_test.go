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

// ends are the ways in which a task can end. It costs 0.80 if it succeeds.
var ends = map[string]struct {
	end  func(t *testing.T, w *fixture, task string)
	cost money.Amount
}{
	"a success": {func(t *testing.T, w *fixture, task string) {
		w.service.tells(task, made("https://cdn.example/v.mp4"))
		w.notify(t, task)
		w.notify(t, task)
	}, 80 * money.Unit / 100},
	"a failure": {func(t *testing.T, w *fixture, task string) {
		w.service.tells(task, failed(backends.InvalidInput, "no"))
		w.notify(t, task)
	}, 0},
	"a cancellation": {func(t *testing.T, w *fixture, task string) {
		w.MustAdmin(t, http.MethodPost, "/modelgate/tasks/"+task+"/cancel", nil, nil)
		w.service.tells(task, made("https://cdn.example/v.mp4")) // too late
		w.notify(t, task)
	}, 0},
}

// startSelling starts a fixture with plans and a payment service.
func startSelling(t *testing.T, more string) *fixture {
	t.Helper()
	config := configOf(t.Name(), gatetest.Selling+more)
	config.Site += gatetest.Console
	w := startWith(t, config)
	w.service.stopsJobs()
	return w
}

// over ends a task of a buyer and waits until its hold has ended.
func (w *fixture) over(t *testing.T, b gatetest.Buyer, task string, end func(t *testing.T, w *fixture, task string)) gatetest.Wallet {
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

func TestMoneyThatIsTakenBackDuringATaskLeavesItsChargeAlone(t *testing.T) {
	w := startSelling(t, "")
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, b gatetest.Buyer, order string)
		net       money.Amount // left of the 10.00 that were paid
		cleared   bool
	}{
		"a refund":           {func(t *testing.T, b gatetest.Buyer, order string) { b.Told(t, "refunded", order, "10.00") }, 0, false},
		"a refund of a part": {func(t *testing.T, b gatetest.Buyer, order string) { b.Told(t, "refunded", order, "9.00") }, money.Unit, false},
		"two refunds": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Told(t, "refunded", order, "5.00")
			b.Told(t, "refunded", order, "10.00")
			b.Told(t, "refunded", order, "5.00")
		}, 0, false},
		"a dispute that is won": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Told(t, "disputed", order, "10.00")
			b.Told(t, "restored", order, "10.00")
		}, 10 * money.Unit, false},
		"a refund that is cleared": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Told(t, "refunded", order, "10.00")
			w.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+b.UserID+"/clear", map[string]any{"reason": "a test"}, nil)
		}, 80 * money.Unit / 100, true}, // the hold
	} {
		for end, e := range ends {
			t.Run(name+" "+end, func(t *testing.T) {
				b := w.NewBuyer(t, nil)
				order := b.TopUp(t, "10.00")
				task := w.must(t, b.Key, videoPath, asking(videoPath, nil)).Task_ID
				c.meanwhile(t, b, order)
				if got := w.over(t, b, task, e.end); got.Balance-got.Owed != c.net-e.cost || got.Held != 0 {
					t.Errorf("there are %+v, want %v", got, c.net-e.cost)
				}
			})
		}
	}
}

func TestATaskIsPaidFromThePeriodInWhichItBegan(t *testing.T) {
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
		held      money.Amount // held of the wallet, if the quota did not suffice
	}{
		"nothing changes":       {5, func(*testing.T, gatetest.Buyer, int64) {}, true, 0},
		"the subscription ends": {5, func(*testing.T, gatetest.Buyer, int64) { w.Wait(3 * time.Hour) }, true, 0},
		"the period ends": {6, func(*testing.T, gatetest.Buyer, int64) {
			w.Wait(w.Now().UTC().Truncate(24 * time.Hour).Add(24*time.Hour + time.Minute).Sub(w.Now()))
		}, false, 0},
		"it is renewed": {5, func(t *testing.T, b gatetest.Buyer, id int64) {
			b.Ask(t, http.MethodPost, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"r"}`, id))
			w.Credit(t, b.UserID, "1.00")
		}, true, 0},
		"it ends and is renewed": {5, func(t *testing.T, b gatetest.Buyer, id int64) {
			w.Wait(3 * time.Hour)
			b.Ask(t, http.MethodPost, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"r"}`, id))
			w.Credit(t, b.UserID, "1.00")
		}, false, 0},
		"it is cancelled": {5, func(t *testing.T, _ gatetest.Buyer, id int64) {
			w.MustAdmin(t, http.MethodPost, fmt.Sprintf("/modelgate/subscriptions/%d/cancel", id), map[string]any{"reason": "a test"}, nil)
		}, true, 0},
		"another preference": {5, func(t *testing.T, b gatetest.Buyer, _ int64) {
			b.Ask(t, http.MethodPut, "/api/subscription/self/preference", `{"preference":"wallet_only"}`)
		}, true, 0},
		"the quota does not suffice": {7, func(*testing.T, gatetest.Buyer, int64) { w.Wait(3 * time.Hour) }, true, 5 * money.Unit / 100},
	} {
		for end, e := range ends {
			t.Run(name+" "+end, func(t *testing.T) {
				b := w.NewBuyer(t, nil)
				w.Credit(t, b.UserID, "10.00")
				id := b.Buy(t, c.plan)
				before := w.Wallet(t, b.UserID).Balance
				task := w.must(t, b.Key, videoPath, asking(videoPath, nil)).Task_ID
				c.meanwhile(t, b, id)
				got := w.over(t, b, task, e.end)
				wallet := min(e.cost, c.held)
				if got.Balance != before-wallet || got.Held != 0 {
					t.Errorf("of %v in the wallet %v are left, and %v is held; the task should have taken %v", before, got.Balance, got.Held, wallet)
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
				if name == "it is cancelled" {
					return // a lapsed quota counts as used
				}
				if s := list.Items[0]; s.Used != want || s.Held != 0 {
					t.Errorf("of the quota %v is used and %v held, want %v", s.Used, s.Held, want)
				}
			})
		}
	}
}

func TestATaskWhoseOwnerIsGoneIsChargedOnceOrNever(t *testing.T) {
	w := startSelling(t, "")
	for name, gone := range map[string]func(t *testing.T, b gatetest.Buyer){
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
				task := w.must(t, b.Key, videoPath, asking(videoPath, nil)).Task_ID
				waited := make(chan gatetest.Answer, 1)
				go func() { waited <- w.get(t, b.Key, tasksPath+"/"+task+"?wait=5") }()
				gone(t, b)
				for _, path := range []string{"", "?wait=1"} {
					if got := w.get(t, b.Key, tasksPath+"/"+task+path); got.Status != http.StatusUnauthorized {
						t.Errorf("a poll is answered %d %s", got.Status, got.Body)
					}
				}
				if got := w.post(t, b.Key, tasksPath+"/"+task+"/cancel", ""); got.Status != http.StatusUnauthorized {
					t.Errorf("a cancellation is answered %d %s", got.Status, got.Body)
				}
				if got := w.post(t, b.Key, videoPath, asking(videoPath, nil)); got.Status != http.StatusUnauthorized {
					t.Errorf("a submission is answered %d %s", got.Status, got.Body)
				}
				if got := w.over(t, b, task, e.end); got.Balance != 10*money.Unit-e.cost || got.Held != 0 {
					t.Errorf("there are %+v, the task should have cost %v", got, e.cost)
				}
				<-waited
			})
		}
	}
}
