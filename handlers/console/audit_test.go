package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestAuditNamesTheRequest makes changes of every kind that writes events. It looks for the
// request id of each answer in the audit log and in the user's activity.
func TestAuditNamesTheRequest(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing + generating, Site: doors})
	a := newAccount(t, g)
	g.Credit(t, a.name, "50.00")
	task := a.composes(t, film("stays")).ID
	a.until(t, task, "in_progress")
	paid := post[order](t, a, "/api/user/demo/pay", `{"amount":"5.00"}`).TradeNo

	console := func(method, path, body string) func() gatetest.Answer {
		return func() gatetest.Answer {
			answer, _ := a.ask(t, method, path, body)
			return answer
		}
	}
	admin := func(path string, body any) func() gatetest.Answer {
		return func() gatetest.Answer { return g.AdminAnswer(t, "POST", "/modelgate/"+path, body) }
	}
	webhook := func(id, amount string) func() gatetest.Answer {
		notice := paidNotice(id, paid, amount, "USD")
		return func() gatetest.Answer { return g.Do(t, "POST", hook, signed(id, notice, time.Now()), notice) }
	}
	type event struct {
		Action    string
		RequestID string `json:"request_id"`
	}
	seen := make(map[string]bool)
	for _, c := range []struct {
		action string
		change func() gatetest.Answer
		status int
	}{
		{"profile.change", console("PUT", "/api/user/self", `{"display_name":"Ann"}`), 200},
		{"subscription.preference", console("PUT", "/api/subscription/self/preference", `{"preference":"wallet_first"}`), 200},
		{"subscription.buy", console("POST", "/api/subscription/wallet/pay", `{"plan_id":1,"idempotency_key":"a"}`), 200},
		{"login.refuse", console("POST", "/api/user/login", credentials(a.name, "a wrong password")), 401},
		{"user.limit", admin("users/"+a.name+"/limits", map[string]any{"streams": 1}), 200},
		{"wallet.credit", admin("wallets/"+a.name+"/credit", map[string]any{"amount": "1.00", "reason": "test"}), 200},
		{"task.retry", admin("tasks/"+task+"/retry", nil), 200},
		{"task.cancel", console("POST", "/api/task/self/"+task+"/cancel", ""), 200},
		{"topup.mismatch", webhook("evt_1", "4.00"), 200},
		{"topup.paid", webhook("evt_2", "5.00"), 200},
	} {
		answer := c.change()
		id := answer.RequestID()
		if answer.Status != c.status || !strings.HasPrefix(id, "req_") || seen[id] {
			t.Errorf("%s: answered %d %q %s", c.action, answer.Status, id, answer.Body)
			continue
		}
		seen[id] = true
		g.WaitLine(t, func(l gatetest.Line) bool {
			return l.Text("logger") == "modelgate.audit" && l.Text("msg") == c.action && l.Text("request_id") == id
		})
		newest := get[page[event]](t, a, "/api/user/activity/?page_size=1").Items
		if len(newest) != 1 || newest[0] != (event{c.action, id}) {
			t.Errorf("the activity tells of %+v, not of %s by %s", newest, c.action, id)
		}
	}
	g.Verify(t)
}
