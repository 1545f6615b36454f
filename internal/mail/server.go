package mail

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"regexp"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"
)

// The kinds of encryption of the connection to a mail server.
const (
	StartTLS = "starttls" // required: a server without it is refused
	TLS      = "tls"      // from the first byte
	Off      = "off"
)

// Server is a mail server, and the sender of the mails.
type Server struct {
	Address        string // host:port
	Encryption     string
	User, Password string       // empty: no log-in
	From           mail.Address // of every mail
	Host           string       // name of this gateway in EHLO and in Message-IDs

	// RootCAs are the authorities of the server's certificate. Nil: those of the system.
	RootCAs *x509.CertPool
}

// SplitAddress returns the host and the port of the address of a mail server.
func SplitAddress(address string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil || host == "" || strings.ContainsAny(host, " /@") || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q is not the host and the port of a mail server, such as smtp.example.com:587", address)
	}
	return host, port, nil
}

// addressForm is the form of the addresses that are mailed: HTML, section "Valid e-mail address", with
// a domain of at least two labels. No address has a space, a quote or a line break.
var addressForm = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// CheckAddress reports whether mails are sent to an address: local@domain in ASCII, without comments,
// quotes and addresses of machines.
func CheckAddress(address string) bool {
	local, _, _ := strings.Cut(address, "@")
	return len(address) <= 254 && len(local) <= 64 && addressForm.MatchString(address)
}

// outgoing is a message with its Message-ID. All attempts have the same Message-ID, by which mail
// systems recognize a repetition.
type outgoing struct {
	Message
	id string
}

func newOutgoing(m Message, server *Server) *outgoing {
	return &outgoing{m, rand.Text() + "@" + server.Host}
}

// send sends a mail. It blocks until the mail server has accepted it, or until ctx ends.
func (s *Server) send(ctx context.Context, m *outgoing) error {
	if !CheckAddress(m.To) {
		return permanentError{errors.New("the address of the recipient is invalid")}
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&s.From)
	msg.ToMailAddress(&mail.Address{Address: m.To})
	msg.Subject(m.Subject)
	msg.SetDate()
	msg.SetMessageIDWithValue(m.id)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no automatic replies
	msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	client, err := s.client(ctx)
	if err == nil {
		err = client.DialAndSendWithContext(ctx, msg)
	}
	if msg.IsDelivered() {
		return nil // only the end of the connection failed
	}
	return err
}

// client returns a client for one attempt, whose connection ends with ctx.
func (s *Server) client(ctx context.Context) (*gomail.Client, error) {
	host, port, err := SplitAddress(s.Address)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, RootCAs: s.RootCAs, MinVersion: tls.VersionTLS12}
	options := []gomail.Option{
		gomail.WithPort(port), gomail.WithHELO(s.Host), gomail.WithTimeout(sendTimeout), gomail.WithTLSConfig(config),
		gomail.WithDialContextFunc(func(dialing context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(dialing, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			if s.Encryption != TLS {
				return conn, nil
			}
			encrypted := tls.Client(conn, config)
			return encrypted, encrypted.HandshakeContext(dialing)
		}),
	}
	switch s.Encryption {
	case TLS:
		options = append(options, gomail.WithSSL())
	case StartTLS:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	}
	if s.User != "" {
		options = append(options, gomail.WithUsername(s.User), gomail.WithPassword(s.Password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin, gomail.SMTPAuthCramMD5))
	}
	return gomail.NewClient(host, options...)
}

// permanentError is an error of a mail that is not tried again.
type permanentError struct{ error }

// isFinal reports whether a mail is not tried again: its address is invalid, or the mail server has
// rejected it with a permanent reply (RFC 5321, section 4.2.1). Rejected log-ins are tried again,
// because the operator can correct them.
func isFinal(err error) bool {
	if errors.As(err, new(permanentError)) {
		return true
	}
	var refused *gomail.SendError
	return errors.As(err, &refused) && refused.ErrorCode() >= 500
}

// maxReason bounds the text of a mail server in the log, in bytes.
const maxReason = 300

// reasonOf returns the text of an error without the address of the recipient, which the log does not
// have, and without line breaks.
func reasonOf(err error) string {
	text := err.Error()
	text = addresses.ReplaceAllString(text, "<address>")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return strings.ToValidUTF8(text, "")
}

var addresses = regexp.MustCompile(`<?[^\s<>@]+@[^\s<>@]+>?`)
