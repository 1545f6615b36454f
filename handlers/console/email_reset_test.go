package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestAForgottenPasswordIsResetByMail(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	b, plain := newBrowser(g), newBrowser(g)
	name, without := b.registers(t), plain.registers(t)
	b.confirms(t, s, "ann@example.org")
	b.enrols(t)

	// The answer is the same for all names.
	answers := make(map[string]bool)
	for _, who := range []string{without, "nobody-of-this-name", "usr_1", strings.Repeat("x", 300), "\u202e", strings.ToUpper(name), name} {
		answer := forgets(t, g, who)
		answer.Header.Del("X-Request-Id")
		answer.Header.Del("Date")
		answers[fmt.Sprint(answer.Status, answer.Body, answer.Header)] = true
	}
	if len(answers) != 1 {
		t.Errorf("the answers are %v", answers)
	}
	m := s.Next(t)
	code := codeIn(t, g, m, "ann@example.org", "new password")
	if link := mailedLink.FindString(m.Text); link != g.URL("/console/reset?code="+code) || !strings.Contains(m.Text, name) {
		t.Errorf("the mail is\n%s", m.Text)
	}
	posted(t)
	s.None(t) // no second mail within some minutes

	// The link fills in the code and changes nothing. The code survives a refused form.
	reset := newBrowser(g)
	page := reset.page(t, "/console/reset?code="+code)
	shows(t, page, 200, code)
	form := hidden(t, page.Body, "reset")
	form.Set("code", code)
	form.Set("password", "short")
	shows(t, reset.sends(t, "/console/reset?code="+code, form), 400, code)
	form.Set("password", "another horse battery")
	leads(t, reset.sends(t, "/console/reset?code="+code, form), "/console/login?done=reset")
	refused(t, "the session before", g.Do(t, "GET", "/api/user/self", b.cookies(), ""), 401, "NOT_LOGGED_IN")
	again := fmt.Sprintf(`{"code":%q,"password":"a third horse battery"}`, code)
	reset.refused(t, "POST", "/api/user/password/reset", again, 403, "VERIFICATION_FAILED")
	var entry struct {
		Due bool `json:"require_2fa"`
	}
	into(t, reset.does(t, "POST", "/api/user/login", credentials(name, "another horse battery")), &entry)
	if !entry.Due {
		t.Error("the reset has removed the second factor")
	}
	if g.Logged(code) {
		t.Error("the log has the code")
	}
}

func TestAMailedCodeExpiresAndLeavesThatOfAnOperatorInForce(t *testing.T) {
	s, g, b, name := startMailing(t)
	issued := resetCode(t, g, name)
	code := func() string {
		forgets(t, g, name)
		return codeIn(t, g, s.Next(t), "ann@example.org", "new password")
	}
	uses := func(code string) string {
		_, e := newBrowser(g).ask(t, "POST", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":"another horse battery"}`, code))
		return e.Code
	}
	first := code()
	g.Wait(5 * time.Minute)
	second := code()
	if got := uses(first); got != "VERIFICATION_FAILED" {
		t.Errorf("a replaced code is answered %q", got)
	}
	g.Wait(30 * time.Minute)
	if got := uses(second); got != "VERIFICATION_FAILED" {
		t.Errorf("an expired code is answered %q", got)
	}
	for range 3 { // five in a day
		code()
		g.Wait(5 * time.Minute)
	}
	forgets(t, g, name)
	posted(t)
	if got := uses(issued); got != "" {
		t.Errorf("the code of the operator is answered %q", got)
	}
	g.Wait(24 * time.Hour)

	// A code that went to the earlier address ends with it.
	b.does(t, "POST", "/api/user/login", credentials(name, "another horse battery"))
	b.does(t, "PUT", "/api/user/self", `{"email":"ann@example.org","password":"another horse battery"}`) // the code has removed it
	b.does(t, "POST", "/api/user/self/email", fmt.Sprintf(`{"code":%q}`, codeIn(t, g, s.Next(t), "ann@example.org", "e-mail")))
	last := code()
	b.does(t, "PUT", "/api/user/self", `{"email":"","password":"another horse battery"}`)
	codeIn(t, g, s.Next(t), "ann@example.org", "was changed")
	if got := uses(last); got != "VERIFICATION_FAILED" {
		t.Errorf("a code to the removed address is answered %q", got)
	}
	forgets(t, g, name)
	posted(t)
	s.None(t)
}
