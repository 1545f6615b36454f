package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/mail/mailtest"
)

// mailing returns the configuration of a gateway that sends mails to a server, and starts that.
func mailing(t testing.TB) (*mailtest.Server, gatetest.Config) {
	t.Helper()
	s := new(mailtest.Server)
	s.Start(t)
	return s, gatetest.Config{Site: site, App: app + fmt.Sprintf("mail {\nsmtp %s\nfrom \"Example AI <noreply@example.com>\"\ntls off\n}\n", s.Address())}
}

var (
	mailedCode = regexp.MustCompile(`\b[0-9A-Z]{5}(-[0-9A-Z]{5}){3}\b`)
	mailedLink = regexp.MustCompile(`https?://\S+`)
)

// codeIn returns the code of a mail, which must have a subject, and links to the gateway only.
func codeIn(t testing.TB, g *gatetest.Gate, m mailtest.Mail, to, subject string) string {
	t.Helper()
	if m.To != to || !strings.Contains(m.Subject, subject) || m.From != "noreply@example.com" {
		t.Errorf("the mail to %s is %s", m.To, m.Subject)
	}
	for _, link := range mailedLink.FindAllString(m.Text, -1) {
		if !strings.HasPrefix(link, g.URL("/console/")) {
			t.Errorf("the mail has the link %s", link)
		}
	}
	return mailedCode.FindString(m.Text)
}

// confirms sets and confirms an address for mails.
func (b *browser) confirms(t testing.TB, s *mailtest.Server, address string) {
	t.Helper()
	b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":%q,"password":%q}`, address, password))
	code := codeIn(t, b.gate, s.Next(t), address, "e-mail")
	b.does(t, "POST", "/api/user/self/email", fmt.Sprintf(`{"code":%q}`, code))
}

// startMailing starts a gateway that sends mails, with a user who has confirmed ann@example.org.
func startMailing(t testing.TB) (s *mailtest.Server, g *gatetest.Gate, b *browser, name string) {
	t.Helper()
	s, config := mailing(t)
	g = gatetest.Start(t, config)
	b = newBrowser(g)
	name = b.registers(t)
	b.confirms(t, s, "ann@example.org")
	return s, g, b, name
}

// resetCode returns a code of the operator for a new password.
func resetCode(t testing.TB, g *gatetest.Gate, name string) string {
	t.Helper()
	var issued struct {
		Code string `json:"code"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/reset-password", nil, &issued)
	return issued.Code
}

type mailSelf struct {
	ID      string `json:"id"`
	Email   string `json:"email"`
	Pending string `json:"email_pending"`
	Notice  string `json:"balance_notice"`
}

func (b *browser) mailed(t testing.TB) (self mailSelf) {
	t.Helper()
	into(t, b.does(t, "GET", "/api/user/self", ""), &self)
	return self
}

// forgets asks for a mail with a code for a new password.
func forgets(t testing.TB, g *gatetest.Gate, name string) gatetest.Answer {
	t.Helper()
	return g.Do(t, "POST", "/api/user/password/forgot", "Content-Type: application/json", fmt.Sprintf(`{"username":%q}`, name))
}

// posted waits until the store has made the changes that requests have left behind.
func posted(t testing.TB) {
	t.Helper()
	if err := gatetest.Runtime(t).Store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressCountsOnceItsCodeWasEntered(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	b, other := newBrowser(g), newBrowser(g)
	b.registers(t)
	other.registers(t)
	b.refused(t, "PUT", "/api/user/self", `{"email":"ann@example.org"}`, 400, "MISSING_PARAMETER")
	b.refused(t, "PUT", "/api/user/self", `{"email":"ann@example.org","password":"wrong"}`, 403, "VERIFICATION_FAILED")
	for _, bad := range []string{`ann`, `ann@localhost`, `ann@example.org\r\nBcc: eve@example.org`, `<ann@example.org>`, `ann@example.org,eve@example.org`, `ann@[127.0.0.1]`, `\u202eann@example.org`} {
		b.refused(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"%s","password":%q}`, bad, password), 400, "INVALID_PARAMETER")
	}
	b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":" ann@example.org ","password":%q}`, password))
	code := codeIn(t, g, s.Next(t), "ann@example.org", "e-mail")
	if self := b.mailed(t); self.Email != "" || self.Pending != "ann@example.org" {
		t.Errorf("the account is %+v", self)
	}
	entered := fmt.Sprintf(`{"code":%q}`, code)
	b.refused(t, "POST", "/api/user/self/email", `{"code":"00000-00000-00000-00000"}`, 403, "VERIFICATION_FAILED")
	other.refused(t, "POST", "/api/user/self/email", entered, 403, "VERIFICATION_FAILED")
	b.does(t, "POST", "/api/user/self/email", entered)
	b.refused(t, "POST", "/api/user/self/email", entered, 403, "VERIFICATION_FAILED")
	if self := b.mailed(t); self.Email != "ann@example.org" || self.Pending != "" {
		t.Errorf("the account is %+v", self)
	}

	// A later address leaves the earlier one in force until it is confirmed, and its code expires.
	b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"new@example.org","password":%q}`, password))
	code = codeIn(t, g, s.Next(t), "new@example.org", "e-mail")
	g.Wait(30 * time.Minute)
	b.refused(t, "POST", "/api/user/self/email", fmt.Sprintf(`{"code":%q}`, code), 403, "VERIFICATION_FAILED")
	if self := b.mailed(t); self.Email != "ann@example.org" || self.Pending != "" {
		t.Errorf("the account is %+v", self)
	}
	b.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"","password":%q}`, password))
	codeIn(t, g, s.Next(t), "ann@example.org", "was changed")
	if self := b.mailed(t); self.Email != "" {
		t.Errorf("the account is %+v", self)
	}

	// With a second factor, a change needs a step-up.
	b.enrols(t)
	g.Wait(time.Hour)
	b.refused(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"ann@example.org","password":%q}`, password), 403, "VERIFICATION_REQUIRED")
	b.does(t, "PUT", "/api/user/self", `{"display_name":"Ann"}`)
	b.verifies(t)
	b.does(t, "PUT", "/api/user/self", `{"email":"ann@example.org"}`)
	s.Next(t)

	// Nobody can fill a mailbox: five codes in a day to one address, and of one user.
	for i := range 5 {
		address, want := fmt.Sprintf("Ann+%d@example.org", i), "" // one mailbox
		if i > 1 {
			want = "TOO_MANY_ATTEMPTS"
		}
		b.verifies(t)
		if answer, e := b.ask(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":%q}`, address)); e.Code != want {
			t.Errorf("the further code %d is answered %d %s", i+1, answer.Status, answer.Body)
		}
		if want == "" {
			s.Next(t)
		}
	}
	s.None(t)
	if g.Logged("ann@example.org") || g.Logged(code) {
		t.Error("the log has an address or a code")
	}
}

func TestAMailServerThatIsDownDelaysNoRequest(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	b := newBrowser(g)
	name := b.registers(t)
	b.confirms(t, s, "ann@example.org")
	s.Stop()
	refusedBefore := forgets(t, g, name)
	if refusedBefore.Status != 200 {
		t.Errorf("answered %d %s", refusedBefore.Status, refusedBefore.Body)
	}
	line := g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("logger") == "modelgate.mail" && l.Text("level") == "warn" })
	if line.Text("mail") != "reset" || !strings.HasPrefix(line.Text("user_id"), "usr_") || line.Text("error") == "" {
		t.Errorf("the line is %v", line)
	}
	// A reload keeps what waits.
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	code := codeIn(t, g, s.Next(t), "ann@example.org", "new password")
	newBrowser(g).does(t, "POST", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":"another horse battery"}`, code))
	gatetest.Eventually(t, "the mail is counted", func() (string, bool) {
		_, body := g.Admin(t, http.MethodGet, "/metrics", nil)
		found := regexp.MustCompile(`modelgate_mails_total\{outcome="(sent|retried)".*\} [1-9]`).FindAllString(string(body), -1)
		return strings.Join(found, "\n"), len(found) == 2
	})
	s.None(t)

	// Without mail in the configuration, everything about it is closed.
	config.App = app
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	gatetest.Runtime(t)
	refused(t, "without mail", forgets(t, g, name), 404, "NOT_FOUND")
	b = newBrowser(g)
	b.does(t, "POST", "/api/user/login", credentials(name, "another horse battery"))
	b.refused(t, "PUT", "/api/user/self", `{"email":"new@example.org","password":"another horse battery"}`, 404, "NOT_FOUND")
	b.refused(t, "PUT", "/api/user/self", `{"balance_notice":"1"}`, 404, "NOT_FOUND")
	b.does(t, "PUT", "/api/user/self", `{"email":"","balance_notice":"0","password":"another horse battery"}`)
	if page := b.page(t, "/console/security"); strings.Contains(page.Body, `name="email"`) {
		t.Error("the page has a field for the address")
	}
	if page := newBrowser(g).page(t, "/console/login"); strings.Contains(page.Body, "/console/forgot") || b.jar["modelgate_session_device"] != "" {
		t.Error("the page leads to a mail, or there is a cookie for the device")
	}
}

func TestMailsAreInTheLanguageOfTheUser(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	b := newBrowser(g)
	name := b.registers(t)
	b.jar["modelgate_language"] = "zh"
	page := b.page(t, "/console/security")
	form, _ := filled(t, page, "email")
	form.Set("email", "ann@example.org")
	form.Set("password", password)
	leads(t, b.sends(t, "/console/security", form), "/console/security?done=email")
	m := s.Next(t)
	if m.Subject != "请确认您的邮箱地址" {
		t.Errorf("the subject is %s", m.Subject)
	}
	page = b.page(t, "/console/security")
	shows(t, page, 200, "ann@example.org")
	leads(t, b.completes(t, page, "email_confirm", map[string]string{"code": mailedCode.FindString(m.Text)}), "/console/security?done=email_confirmed")
	leads(t, b.fills(t, "/console/security", "notice", map[string]string{"balance_notice": "2.5"}), "/console/security?done=notice")
	if self := b.mailed(t); self.Email != "ann@example.org" || self.Notice != "2.50" {
		t.Errorf("the account is %+v", self)
	}
	visitor := newBrowser(g)
	shows(t, visitor.page(t, "/console/login"), 200, `href="/console/forgot"`)
	asking, _ := filled(t, visitor.page(t, "/console/forgot"), "forgot")
	asking.Set("username", name)
	leads(t, visitor.sends(t, "/console/forgot", asking), "/console/reset?done=forgot")
	shows(t, visitor.page(t, "/console/reset?done=forgot"), 200, "on its way")
	if m := s.Next(t); !strings.Contains(m.Subject, "重设") || !strings.Contains(m.Text, name) {
		t.Errorf("the mail is %s\n%s", m.Subject, m.Text)
	}
}
