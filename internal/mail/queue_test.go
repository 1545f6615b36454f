package mail_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	netmail "net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-modelgate/modelgate/internal/mail"
	"github.com/caddy-modelgate/modelgate/internal/mail/mailtest"
)

// certificate returns a certificate of 127.0.0.1 and the authorities that trust it.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}, trusted
}

func message(to string) mail.Message {
	return mail.Message{Kind: mail.Reset, UserID: "usr_1", To: to, Subject: "Subject 主题", Text: "first\n.\nlast 中文\n"}
}

// open returns a queue for a server, and its log.
func open(t *testing.T, server *mail.Server) (*mail.Queue, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	q := mail.Open(zap.New(core))
	t.Cleanup(q.Close)
	q.Use(server)
	return q, logs
}

// eventually waits until the figures of a queue are as expected.
func eventually(t *testing.T, q *mail.Queue, what string, reached func(mail.Stats) bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(30 * time.Second); !reached(q.Stats()); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: the figures are %+v", what, q.Stats())
		}
	}
}

func serverAt(s *mailtest.Server) *mail.Server {
	return &mail.Server{
		Address: s.Address(), Encryption: mail.Off, Host: "ai.example.com",
		From: netmail.Address{Name: "Example, AI 例", Address: "noreply@example.com"},
	}
}

func TestAMailIsPlainTextFromTheConfiguredSender(t *testing.T) {
	t.Parallel()
	var s mailtest.Server
	s.Start(t)
	q, _ := open(t, serverAt(&s))
	q.Send(message("ann@example.org"))
	m := s.Next(t)
	from, err := netmail.ParseAddress(m.Header.Get("From"))
	if err != nil || from.Address != "noreply@example.com" || from.Name != "Example, AI 例" || m.From != "noreply@example.com" {
		t.Errorf("from %v, %s (%v)", from, m.From, err)
	}
	if m.To != "ann@example.org" || m.Header.Get("To") != "<ann@example.org>" || m.Subject != "Subject 主题" || m.Text != "first\n.\nlast 中文\n" {
		t.Errorf("the mail is %+v", m)
	}
	if !strings.HasPrefix(m.Header.Get("Content-Type"), "text/plain") || m.Header.Get("Auto-Submitted") != "auto-generated" ||
		!strings.HasSuffix(m.Header.Get("Message-Id"), "@ai.example.com>") || strings.Contains(strings.ToLower(m.Raw), "go-mail") {
		t.Errorf("the mail is\n%s", m.Raw)
	}
}

// TestTheConnectionIsEncryptedBeforeThePassword tries each encryption against servers with and
// without it.
func TestTheConnectionIsEncryptedBeforeThePassword(t *testing.T) {
	t.Parallel()
	config, trusted := certificate(t)
	for name, c := range map[string]struct {
		server     *mailtest.Server
		encryption string
		roots      *x509.CertPool
		password   string
		sent       bool
	}{
		"starttls":               {&mailtest.Server{TLS: config, Password: "hush"}, mail.StartTLS, trusted, "hush", true},
		"tls":                    {&mailtest.Server{TLS: config, Implicit: true, Password: "hush"}, mail.TLS, trusted, "hush", true},
		"without log-in":         {&mailtest.Server{TLS: config}, mail.StartTLS, trusted, "", true},
		"wrong password":         {&mailtest.Server{TLS: config, Password: "hush"}, mail.StartTLS, trusted, "other", false},
		"no starttls":            {&mailtest.Server{Password: "hush"}, mail.StartTLS, trusted, "hush", false},
		"unknown authority":      {&mailtest.Server{TLS: config, Password: "hush"}, mail.StartTLS, nil, "hush", false},
		"unknown authority, tls": {&mailtest.Server{TLS: config, Implicit: true}, mail.TLS, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.server
			s.Start(t)
			server := serverAt(s)
			server.Encryption, server.RootCAs = c.encryption, c.roots
			if c.password != "" {
				server.User, server.Password = "gate", c.password
			}
			q, logs := open(t, server)
			q.Send(message("ann@example.org"))
			if c.sent {
				if m := s.Next(t); m.User != server.User {
					t.Errorf("logged in as %q", m.User)
				}
				return
			}
			eventually(t, q, "a failed attempt", func(s mail.Stats) bool { return s.Retried > 0 })
			s.None(t)
			for _, entry := range logs.All() {
				if text := entry.ContextMap()["error"]; strings.Contains(entry.Message, "hush") || strings.Contains(text.(string), "hush") {
					t.Errorf("the log has the password: %v", entry)
				}
			}
		})
	}
}

func TestAMailIsSentOnceWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	var s mailtest.Server
	s.Start(t)
	s.Stop()
	q, logs := open(t, serverAt(&s))
	if !q.Send(message("ann@example.org")) || !q.Send(message("bob@example.org")) {
		t.Fatal("the mails were dropped")
	}
	eventually(t, q, "failed attempts", func(s mail.Stats) bool { return s.Retried >= 2 })
	s.Start(t)
	got := []string{s.Next(t).To, s.Next(t).To}
	if slices.Sort(got); !slices.Equal(got, []string{"ann@example.org", "bob@example.org"}) {
		t.Errorf("sent to %v", got)
	}
	eventually(t, q, "both counted", func(s mail.Stats) bool { return s.Sent == 2 })
	s.None(t)
	if logs.FilterMessage("a mail was not sent and is tried again").Len() < 2 || logs.FilterMessage("a mail was sent").Len() != 2 {
		t.Errorf("the log is %v", logs.All())
	}
}

// TestARefusalOfOneRecipientDelaysNoOther checks that a final refusal is not repeated, and that a
// temporary one lets later mails pass.
func TestARefusalOfOneRecipientDelaysNoOther(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 1)
	answers <- "451 4.7.1 try later, slow@example.org"
	s := mailtest.Server{Answer: func(to string) string {
		switch to {
		case "gone@example.org":
			return "550 5.1.1 gone@example.org is not here"
		case "slow@example.org":
			select {
			case answer := <-answers:
				return answer
			default:
			}
		}
		return ""
	}}
	s.Start(t)
	q, logs := open(t, serverAt(&s))
	for _, to := range []string{"gone@example.org", "slow@example.org", "ann@example.org"} {
		q.Send(message(to))
	}
	if first, second := s.Next(t).To, s.Next(t).To; first != "ann@example.org" || second != "slow@example.org" {
		t.Errorf("sent to %s, then %s", first, second)
	}
	eventually(t, q, "all counted", func(s mail.Stats) bool { return s == mail.Stats{Sent: 2, Retried: 1, Failed: 1} })
	for _, entry := range logs.All() {
		if text, _ := entry.ContextMap()["error"].(string); strings.Contains(text, "example.org") {
			t.Errorf("the log has the address of a user: %s", text)
		}
	}
}

func TestASilentServerHoldsUpNothing(t *testing.T) {
	t.Parallel()
	s := mailtest.Server{Silent: true}
	s.Start(t)
	q, logs := open(t, serverAt(&s))
	sent := 0
	for range 300 {
		if q.Send(message("ann@example.org")) {
			sent++
		}
	}
	begin := time.Now()
	q.Close()
	if sent != 256 || time.Since(begin) > 10*time.Second {
		t.Errorf("%d were queued; Close took %v", sent, time.Since(begin))
	}
	if stats := q.Stats(); stats.Dropped != 300 || q.Send(message("ann@example.org")) {
		t.Errorf("the figures are %+v", stats)
	}
	if logs.FilterMessage("mails were dropped").Len() != 1 {
		t.Errorf("the log is %v", logs.All())
	}
}

func TestMailThatIsTurnedOffDropsWhatWaits(t *testing.T) {
	t.Parallel()
	var s mailtest.Server
	s.Start(t)
	s.Stop()
	q, _ := open(t, serverAt(&s))
	q.Send(message("ann@example.org"))
	q.Use(nil)
	if q.Send(message("ann@example.org")) || q.Stats().Dropped != 2 {
		t.Errorf("the figures are %+v", q.Stats())
	}
	s.Start(t)
	q.Use(serverAt(&s))
	q.Send(message("bob@example.org"))
	if m := s.Next(t); m.To != "bob@example.org" {
		t.Errorf("sent to %s", m.To)
	}
	s.None(t)
}

func TestOnlyPlainAddressesAreMailed(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"ann@example.org": true, "a.b+c_d'e@sub.example.co": true, "1@xn--fsq.example": true,
		"": false, "ann": false, "ann@localhost": false, "@example.org": false, "ann@": false, "ann@example.org.": false, "a..b@example.org": false,
		".a@example.org": false, "ann@127.0.0.1": false, "ann@[127.0.0.1]": false, "ann@-a.org": false, "<ann@example.org>": false,
		"ann@example.org\r\nBcc: eve@example.org": false, "ann@example.org\n": false, "ann@example.org, eve@example.org": false,
		"ann <ann@example.org>": false, `"a b"@example.org`: false, "ann@example.org>": false, "ann@eve.org@example.org": false,
		"用户@example.org": false, "ann@例.org": false, "ann@exam\x00ple.org": false, strings.Repeat("a", 65) + "@example.org": false,
		"ann@" + strings.Repeat("a.", 130) + "org": false, "ann@" + strings.Repeat("a", 64) + ".org": false, "ann\u202e@example.org": false,
	} {
		if got := mail.CheckAddress(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
	var s mailtest.Server
	s.Start(t)
	q, _ := open(t, serverAt(&s))
	m := message("ann@example.org\r\nRCPT TO:<eve@example.org>")
	q.Send(m)
	m = message("ann@example.org")
	m.Subject = "x\r\nBcc: eve@example.org\r\n\r\nbody"
	q.Send(m)
	got := s.Next(t)
	if got.To != "ann@example.org" || got.Header.Get("Bcc") != "" || strings.Contains(got.Text, "body") {
		t.Errorf("the mail is\n%s", got.Raw)
	}
	eventually(t, q, "a failure", func(s mail.Stats) bool { return s.Failed == 1 })
	s.None(t)
}

func TestEveryMailIsWrittenInEveryLanguage(t *testing.T) {
	t.Parallel()
	facts := mail.Facts{
		Site: "ai.example.com", User: "ann", Code: "CODE", Link: "https://ai.example.com/console/reset?code=CODE", Minutes: 30,
		Balance: "1.00 USD", Limit: "5.00 USD", Time: "2026-11-24 10:00:00", Address: "192.0.2.1", Device: "Firefox, Linux",
	}
	for kind, says := range map[string][]string{
		mail.Confirm: {"CODE", facts.Link, "30"}, mail.Reset: {"ann", "CODE", facts.Link, "30"},
		mail.Balance: {"ann", facts.Balance, facts.Limit, facts.Link}, mail.LogIn: {"ann", facts.Time, facts.Address, facts.Device, facts.Link},
		mail.Earlier: {"ann", facts.Link},
	} {
		subjects := map[string]bool{}
		for _, language := range append(mail.Languages, "xx") {
			m, err := mail.Write(kind, language, "ann@example.org", "usr_1", facts)
			if err != nil || m.Subject == "" || strings.ContainsAny(m.Subject, "\r\n") || !strings.HasSuffix(m.Text, "\n") {
				t.Errorf("%s in %s: %v %+v", kind, language, err, m)
			}
			for _, text := range append(says, facts.Site) {
				if !strings.Contains(m.Subject+m.Text, text) {
					t.Errorf("%s in %s has no %s:\n%s", kind, language, text, m.Text)
				}
			}
			if strings.Count(m.Text, "://") != 1 {
				t.Errorf("%s in %s has other links:\n%s", kind, language, m.Text)
			}
			subjects[m.Subject] = true
		}
		if len(subjects) != 2 {
			t.Errorf("%s: the subjects are %v", kind, subjects)
		}
	}
	if m, err := mail.Write(mail.Confirm, "en", "a@example.org", "usr_1", mail.Facts{User: "https://evil.example"}); err != nil || strings.Contains(m.Text, "evil") {
		t.Errorf("a mail to an address that is not confirmed has a text of the user: %v %s", err, m.Text)
	}
}

func TestDeviceNamesOnlyWhatItKnows(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                        "Firefox, Linux",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15":         "Safari, macOS",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0": "Edge, Windows",
		"Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36":                  "Chrome, Android",
		"curl/8.0": "curl", "": "", "visit https://evil.example now\r\nBcc: x": "",
	} {
		if got := mail.Device(agent); got != want {
			t.Errorf("%q: %q, want %q", agent, got, want)
		}
	}
}
