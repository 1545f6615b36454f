package console_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheAccountHasItsUserBalanceAndUsage(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	g.Credit(t, name, "30.00")
	b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":1,"idempotency_key":"a"}`)
	b.does(t, "POST", "/api/subscription/free/pay", `{"plan_id":2}`)
	b.does(t, "PUT", "/api/user/self", `{"display_name":"Ann 安"}`)
	type account struct {
		ID, Name    string
		DisplayName string `json:"display_name"`
		Created     int64
		Balance     string
		Plans       []struct {
			ID    int64  `json:"subscription_id"`
			Title string `json:"title"`
			Total string `json:"quota_total"`
			Used  string `json:"quota_used"`
			End   int64  `json:"end_time"`
		} `json:"subscriptions"`
		Factors struct {
			Enabled, TOTP bool
			BackupCodes   int `json:"backup_codes"`
			Passkeys      int
		}
	}
	var self account
	into(t, b.does(t, "GET", "/api/user/self", ""), &self)
	if self.Name != name || self.DisplayName != "Ann 安" || self.Balance != "20.10" || self.Created == 0 || !strings.HasPrefix(self.ID, "usr_") {
		t.Errorf("the account is %+v", self)
	}
	if len(self.Plans) != 2 || self.Plans[0].Title != "Trial" || self.Plans[1].Total != "12.00" || self.Plans[1].Used != "0.00" || self.Plans[0].End >= self.Plans[1].End {
		t.Errorf("the subscriptions are %+v", self.Plans)
	}
	b.enrols(t)
	into(t, b.does(t, "GET", "/api/user/self", ""), &self)
	if !self.Factors.Enabled || !self.Factors.TOTP || self.Factors.BackupCodes != 10 || self.Factors.Passkeys != 0 {
		t.Errorf("the factors are %+v", self.Factors)
	}
	b.refused(t, "PUT", "/api/user/self", `{"balance":"99.00"}`, 400, "INVALID_PARAMETER")
	b.refused(t, "PUT", "/api/user/self", fmt.Sprintf(`{"display_name":%q}`, strings.Repeat("a", 1000)), 400, "INVALID_PARAMETER")
}

func TestSessionsAreListedAndEnded(t *testing.T) {
	g := start(t)
	one := newBrowser(g)
	name := one.registers(t)
	more := make([]*browser, 3)
	for i := range more {
		more[i] = newBrowser(g)
		more[i].does(t, "POST", "/api/user/login", credentials(name, password))
	}
	type session struct {
		ID      string
		Current bool
	}
	sessions := func() (current string, others []string) {
		var list page[session]
		into(t, one.does(t, "GET", "/api/user/self/sessions/", ""), &list)
		for _, s := range list.Items {
			if s.Current {
				current = s.ID
			} else {
				others = append(others, s.ID)
			}
		}
		return current, others
	}
	mine, others := sessions()
	if mine == "" || len(others) != 3 {
		t.Fatalf("the sessions are %q and %q", mine, others)
	}
	otherUser := newBrowser(g)
	otherUser.registers(t)
	otherUser.refused(t, "DELETE", "/api/user/self/sessions/"+mine, "", 404, "NOT_FOUND")
	one.refused(t, "DELETE", "/api/user/self/sessions/ses_0", "", 404, "NOT_FOUND")

	in := func(b *browser) bool {
		answer, _ := b.ask(t, "GET", "/api/user/self", "")
		return answer.Status == 200
	}
	// DELETE refuses a body instead of ignoring it.
	one.refused(t, "DELETE", "/api/user/self/sessions/", `{"which":"all"}`, 400, "INVALID_PARAMETER")
	one.does(t, "DELETE", "/api/user/self/sessions/"+others[0], "")
	left := 0
	for _, b := range more {
		if in(b) {
			left++
		}
	}
	if left != 2 || !in(one) {
		t.Errorf("%d of the others are left", left)
	}
	before := one.cookies()
	one.does(t, "DELETE", "/api/user/self/sessions", "")
	if _, others := sessions(); len(others) != 0 || one.cookies() == before {
		t.Errorf("others are left: %q", others)
	}
	for _, b := range more {
		if in(b) {
			t.Error("another session is still logged in")
		}
	}
	if !in(otherUser) {
		t.Error("another user's session was ended")
	}
	one.does(t, "DELETE", "/api/user/self/sessions/"+mine, "")
	if in(one) || len(one.jar) != 0 {
		t.Errorf("the session that ended itself keeps %v", one.jar)
	}
	one.refused(t, "DELETE", "/api/user/self/sessions?which=none", "", 401, "NOT_LOGGED_IN")
	otherUser.refused(t, "DELETE", "/api/user/self/sessions?which=none", "", 400, "INVALID_PARAMETER")
}
