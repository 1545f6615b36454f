package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestAThiefKeepsNoWayInByMail lets a thief with the password confirm an address, and the operator
// give the account back.
func TestAThiefKeepsNoWayInByMail(t *testing.T) {
	s, g, b, name := startMailing(t)

	// The owner learns of the change at the earlier address.
	b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"thief@example.org","password":%q}`, password))
	code := codeIn(t, g, s.Next(t), "thief@example.org", "e-mail")
	s.None(t) // nothing has changed yet
	b.does(t, "POST", "/api/user/self/email", fmt.Sprintf(`{"code":%q}`, code))
	codeIn(t, g, s.Next(t), "ann@example.org", "was changed")

	// The code of the operator removes the address, and one that waits for its code; the page says so.
	b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"other@example.org","password":%q}`, password))
	s.Next(t)
	forgets(t, g, name)
	posted(t)
	mailed := codeIn(t, g, s.Next(t), "thief@example.org", "new password")
	issued := resetCode(t, g, name)
	owner := newBrowser(g)
	form := hidden(t, owner.page(t, "/console/reset").Body, "reset")
	form.Set("code", issued)
	form.Set("password", "another horse battery")
	leads(t, owner.sends(t, "/console/reset", form), "/console/login?done=reset_email")
	shows(t, owner.page(t, "/console/login?done=reset_email"), 200, "The e-mail address of the account was removed")
	owner.refused(t, "POST", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":"a third horse battery"}`, mailed), 403, "VERIFICATION_FAILED")
	owner.does(t, "POST", "/api/user/login", credentials(name, "another horse battery"))
	if self := owner.mailed(t); self.Email != "" || self.Pending != "" {
		t.Errorf("the account is %+v", self)
	}
	forgets(t, g, name)
	posted(t)
	s.None(t)

	// Without an address nothing is said. A mailed code proves the address, which stays.
	issued = resetCode(t, g, name)
	if data := string(owner.does(t, "POST", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":%q}`, issued, password))); data != "{}" {
		t.Errorf("the reset is answered %s", data)
	}
	owner.does(t, "POST", "/api/user/login", credentials(name, password))
	owner.confirms(t, s, "ann@example.org")
	g.Wait(24 * time.Hour)
	forgets(t, g, name)
	posted(t)
	mailed = codeIn(t, g, s.Next(t), "ann@example.org", "new password")
	owner.does(t, "POST", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":"another horse battery"}`, mailed))
	owner.does(t, "POST", "/api/user/login", credentials(name, "another horse battery"))
	if self := owner.mailed(t); self.Email != "ann@example.org" {
		t.Errorf("the account is %+v", self)
	}
}

// TestOneNetworkSendsMailsToFewPersons asks for codes to many addresses by many users.
func TestOneNetworkSendsMailsToFewPersons(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	sent := 0
	for user := range 8 {
		b := newBrowser(g)
		b.registers(t)
		for i := range 5 {
			answer, e := b.ask(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"person-%d-%d@example.org","password":%q}`, user, i, password))
			switch {
			case e.Success:
				s.Next(t)
				sent++
			case e.Code != "TOO_MANY_ATTEMPTS":
				t.Fatalf("answered %d %s", answer.Status, answer.Body)
			}
		}
	}
	if s.None(t); sent != 30 {
		t.Errorf("%d mails were sent", sent)
	}
}

// TestTagsAreOneMailbox asks for codes to one mailbox by two users and many tags.
func TestTagsAreOneMailbox(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	for _, sent := range []int{3, 2} {
		b := newBrowser(g)
		name := b.registers(t)
		for i := range 3 {
			answer, e := b.ask(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"Ann+%s-%d@Example.org","password":%q}`, name, i, password))
			if e.Success != (i < sent) {
				t.Errorf("the code %d of %s is answered %d %s", i, name, answer.Status, answer.Body)
			}
			if e.Success {
				s.Next(t)
			}
		}
	}
	other := newBrowser(g) // another mailbox is free
	other.registers(t)
	other.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"bob+1@example.org","password":%q}`, password))
	s.Next(t)
	s.None(t)
}
