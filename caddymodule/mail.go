package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/mail"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/settings"
)

// Mail configures the mails to users who have confirmed an address: codes for a new
// password, low balances, and log-ins from new devices. They need base_url.
type Mail struct {
	// The mail server that takes the mails, as `smtp.example.com:587`. Default: none;
	// no mails are sent.
	SMTP string `json:"smtp,omitempty"`

	// The sender, as `noreply@example.com` or `Example AI <noreply@example.com>`.
	// Required with smtp.
	From string `json:"from,omitempty"`

	// The name by which the gateway logs in at the mail server. Default: it does not.
	User string `json:"user,omitempty"`

	// The password for user. Placeholders are resolved, such as
	// `{env.MODELGATE_MAIL_PASSWORD}`. Required with user.
	Password settings.Secret `json:"password,omitempty"`

	// The encryption of the connection: `starttls`, which the mail server must offer;
	// `tls` from the first byte, as on port 465; or `off`, which takes no password.
	// Default: `starttls`.
	TLS string `json:"tls,omitempty"`

	server *mail.Server // nil: no mails are sent
}

// provisionMail checks the settings of mails and resolves placeholders.
func (a *App) provisionMail() error {
	m := &a.Mail
	if *m == (Mail{}) {
		return nil
	}
	for _, required := range []struct{ word, value string }{{"smtp", m.SMTP}, {"from", m.From}} {
		if required.value == "" {
			return fmt.Errorf("mail: %s is missing", required.word)
		}
	}
	m.TLS = cmp.Or(m.TLS, mail.StartTLS)
	switch {
	case a.BaseURL == "":
		return errors.New("mail: base_url is missing; the links in mails begin with it")
	case (m.User == "") != (m.Password == ""):
		return errors.New("mail: user and password need each other")
	case m.User != "" && m.TLS == mail.Off:
		return errors.New("mail: tls off takes no password, which would be sent in clear")
	}
	if m.User != "" {
		if err := errors.Join(settings.Resolve("mail: user", &m.User), settings.Resolve("mail: password", &m.Password)); err != nil {
			return err
		}
	}
	if err := errors.Join(settings.Resolve("mail: smtp", &m.SMTP), checkTLS(m.TLS), checkSMTP(m.SMTP)); err != nil {
		return err
	}
	from, err := parseSender(m.From)
	if err != nil {
		return err
	}
	base, err := url.Parse(a.BaseURL)
	if err != nil {
		return fmt.Errorf("mail: base_url: %w", err)
	}
	m.server = &mail.Server{
		Address: m.SMTP, Encryption: m.TLS, User: m.User, Password: m.Password.Reveal(), From: *from, Host: ehloName(base.Hostname()),
	}
	return nil
}

// ehloName returns the name by which the gateway introduces itself to a mail server: a host name, or
// an address in the form of SMTP (RFC 5321, section 4.1.3).
func ehloName(host string) string {
	switch ip := net.ParseIP(host); {
	case ip == nil:
		return host
	case ip.To4() == nil:
		return "[IPv6:" + host + "]"
	}
	return "[" + host + "]"
}

func checkTLS(word string) error {
	if word != mail.StartTLS && word != mail.TLS && word != mail.Off {
		return fmt.Errorf("mail: tls %q is not supported; allowed: %s, %s, %s", word, mail.StartTLS, mail.TLS, mail.Off)
	}
	return nil
}

// checkSMTP returns an error for an address that is not host:port. It passes placeholders, which only
// the server resolves.
func checkSMTP(address string) error {
	if strings.Contains(address, "{") {
		return nil
	}
	if _, _, err := mail.SplitAddress(address); err != nil {
		return fmt.Errorf("mail: smtp: %w", err)
	}
	return nil
}

func checkSender(text string) error {
	_, err := parseSender(text)
	return err
}

func parseSender(text string) (*netmail.Address, error) {
	from, err := netmail.ParseAddress(text)
	if err != nil || !mail.CheckAddress(from.Address) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, fmt.Errorf("mail: from %q is not a sender; allowed: an address, or a name and an address, such as Example AI <noreply@example.com>", text)
	}
	return from, nil
}

// CheckMail returns a fault if no mails are sent.
func (a *App) CheckMail() *fault.Fault {
	if a.Mail.server == nil {
		return fault.New(fault.NotFound, "this gateway sends no mails; ask its operator")
	}
	return nil
}

// ConsolePage returns the address of a page of the console; path is below that of the pages. Without a
// base_url it is without the host. It is empty if no site has pages.
func (a *App) ConsolePage(path string) string {
	if a.console.path == "" {
		return ""
	}
	return a.BaseURL + a.console.path + path
}

// SendMail queues a mail to a user. It sets Site, User and Minutes of facts. Their Link is a path below
// that of the console. It does not block; failures are in the log.
func (a *App) SendMail(runtime *Runtime, kind string, to identity.Recipient, facts mail.Facts) {
	facts.Site, facts.User, facts.Minutes = a.Issuer(), to.UserName, int(identity.MailCodeLife/time.Minute)
	if facts.Link != "" {
		facts.Link = a.ConsolePage(facts.Link)
	}
	message, err := mail.Write(kind, to.Language, to.Address, to.UserID, facts)
	if err != nil {
		runtime.logger.Error("a mail cannot be written", zap.String("mail", kind), zap.Error(err))
		return
	}
	runtime.Mail.Send(message)
}

// QueueBalanceMails queues a mail to each user whose balance has fallen below their amount.
func (rt *Runtime) QueueBalanceMails(ctx context.Context) error {
	a := rt.adopted.Load()
	if a == nil || a.Mail.server == nil {
		return nil
	}
	notices, err := rt.Directory.BalanceNotices(ctx)
	if err != nil {
		return err
	}
	for _, notice := range notices {
		funds, err := rt.Ledger.Funds(ctx, notice.UserID)
		if err != nil {
			return err
		}
		to, err := rt.Directory.NoteBalance(ctx, notice, funds.Wallet.Balance)
		if err != nil {
			return err
		}
		if to != nil {
			amount := func(of money.Amount) string { return of.String() + " " + a.Currency }
			a.SendMail(rt, mail.Balance, *to, mail.Facts{
				Link: "/wallet", Balance: amount(funds.Wallet.Balance), Limit: amount(notice.Amount),
			})
		}
	}
	return nil
}

// unmarshalCaddyfile reads
//
//	mail {
//		smtp     <host>:<port>
//		from     <sender>
//		user     <name>
//		password <password>
//		tls      starttls|tls|off
//	}
func (m *Mail) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"smtp":     settings.Checked(&m.SMTP, checkSMTP),
		"from":     settings.Checked(&m.From, checkSender),
		"user":     settings.One(settings.Text(&m.User)),
		"password": settings.Into(&m.Password, secretArg),
		"tls":      settings.Checked(&m.TLS, checkTLS),
	})
}
