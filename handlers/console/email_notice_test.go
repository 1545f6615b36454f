package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestALogInFromANewDeviceIsMailed(t *testing.T) {
	s, g, b, name := startMailing(t)
	answer, _ := b.ask(t, "POST", "/api/user/login", credentials(name, password))
	cookie := set(t, answer, "modelgate_session_device")
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.MaxAge != 400*86400 || len(cookie.Value) != 43 {
		t.Errorf("the cookie is %s", cookie)
	}
	posted(t)
	s.None(t)

	thief := "Content-Type: application/json\nAccept-Language: zh\nUser-Agent: Mozilla/5.0 (X11; Linux) Firefox/140.0 see https://evil.example\n"
	if answer := g.Do(t, "POST", "/api/user/login", thief, credentials(name, password)); answer.Status != 200 {
		t.Fatal(answer.Body)
	}
	m := s.Next(t)
	codeIn(t, g, m, "ann@example.org", "new device")
	for _, text := range []string{name, "Firefox, Linux", "127.0.0.1", time.Now().UTC().Format(time.DateOnly), g.URL("/console/security")} {
		if !strings.Contains(m.Text, text) {
			t.Errorf("the mail has no %q:\n%s", text, m.Text)
		}
	}
	if strings.Contains(m.Raw, "evil") {
		t.Errorf("the mail has the text of the header:\n%s", m.Raw)
	}
	// A wrong password is not mailed, nor a log-in that still needs its second factor.
	g.Do(t, "POST", "/api/user/login", thief, credentials(name, "wrong "+password))
	b.enrols(t)
	visitor := newBrowser(g)
	visitor.seed = b.seed
	visitor.does(t, "POST", "/api/user/login", credentials(name, password))
	posted(t)
	s.None(t)
	if visitor.jar["modelgate_session_device"] != "" {
		t.Error("a half-open session has a device")
	}
	visitor.does(t, "POST", "/api/user/login/2fa", `{"code":`+visitor.code(t)+`}`)
	codeIn(t, g, s.Next(t), "ann@example.org", "new device")

	// Two users of one browser keep one secret.
	second := newBrowser(g)
	other := second.registers(t)
	second.confirms(t, s, "bob@example.org")
	b.does(t, "POST", "/api/user/login", credentials(other, password))
	codeIn(t, g, s.Next(t), "bob@example.org", "new device")
	if b.jar["modelgate_session_device"] != cookie.Value {
		t.Error("another user has changed the secret of the device")
	}
	b.does(t, "POST", "/api/user/login", credentials(other, password))
	posted(t)
	s.None(t)

	// A user's devices are bounded, and so are the mails of a day.
	mails := 0
	for range 25 {
		g.Wait(time.Minute)
		g.Do(t, "POST", "/api/user/login", thief, credentials(other, password))
	}
	posted(t)
	for range 9 {
		s.Next(t)
		mails++
	}
	s.None(t)
	if g.Logged("bob@example.org") || g.Logged(cookie.Value) {
		t.Error("the log has an address or the secret of a device")
	}
}

func TestALowBalanceIsMailedOnce(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	b := newBrowser(g)
	name := b.registers(t)
	id := b.mailed(t).ID
	b.does(t, "PUT", "/api/user/self", `{"balance_notice":"5.00"}`)
	b.refused(t, "PUT", "/api/user/self", `{"balance_notice":"-1"}`, 400, "INVALID_PARAMETER")
	g.Credit(t, name, "9")
	b.confirms(t, s, "ann@example.org")
	sweep := func() {
		t.Helper()
		if err := gatetest.Runtime(t).QueueBalanceMails(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	spend := func(amount string) {
		t.Helper()
		g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+id+"/debit", map[string]any{"amount": amount, "reason": "a test"}, nil)
	}
	sweep()
	s.None(t)
	spend("4.00") // exactly the amount is not below it
	sweep()
	s.None(t)
	spend("0.50")
	sweep()
	m := s.Next(t)
	codeIn(t, g, m, "ann@example.org", "low")
	if !strings.Contains(m.Text, "4.50 USD") || !strings.Contains(m.Text, "5.00 USD") || !strings.Contains(m.Text, g.URL("/console/wallet")) {
		t.Errorf("the mail is\n%s", m.Text)
	}
	sweep()
	g.Wait(25 * time.Hour)
	sweep() // not again until it was above the amount
	g.Credit(t, name, "1")
	sweep()
	spend("1.00")
	sweep()
	codeIn(t, g, s.Next(t), "ann@example.org", "low")
	g.Credit(t, name, "1")
	sweep()
	spend("1.00")
	sweep() // within the day
	s.None(t)
	g.Wait(25 * time.Hour)
	sweep()
	codeIn(t, g, s.Next(t), "ann@example.org", "low")
	b.does(t, "POST", "/api/user/login", credentials(name, password))
	b.does(t, "PUT", "/api/user/self", `{"balance_notice":"0"}`)
	g.Wait(25 * time.Hour)
	g.Credit(t, name, "1")
	sweep()
	spend("1.00")
	sweep()
	s.None(t)
}
