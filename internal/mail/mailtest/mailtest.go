// Package mailtest has a mail server for tests: [Server] listens at 127.0.0.1 and keeps the mails that
// it accepts. Only tests import it.
package mailtest

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"
)

// timeout is the time limit of every wait. It only matters to failing tests.
const timeout = 30 * time.Second

// Mail is a mail that a Server has accepted.
type Mail struct {
	From, To string // of the envelope
	Raw      string
	Header   mail.Header
	Subject  string // decoded
	Text     string // decoded
	User     string // who has logged in
}

// Server is a mail server at 127.0.0.1 for tests. The zero value accepts every mail in clear. Set
// its fields before Start.
type Server struct {
	// TLS is for STARTTLS, or with Implicit from the first byte. Nil: none.
	TLS      *tls.Config
	Implicit bool

	// Password is the password that AUTH PLAIN must have; empty: AUTH is not offered.
	Password string

	// Answer returns the answer to RCPT, such as "550 unknown"; empty: it is accepted.
	Answer func(to string) string

	// Silent servers accept connections and never answer.
	Silent bool

	address  string
	mails    chan Mail
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
}

// Start listens at a port of 127.0.0.1, the same at each Start.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if s.mails == nil {
		s.mails, s.conns, s.address = make(chan Mail, 1000), make(map[net.Conn]bool), freeAddress(t)
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.listener = listener
	s.mu.Unlock()
	t.Cleanup(s.Stop)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			go s.serve(conn)
		}
	}()
}

// freeAddress returns an unused address. It holds the UDP port of the same number until the test ends,
// so that other tests skip it.
func freeAddress(t testing.TB) string {
	t.Helper()
	for {
		held, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { held.Close() })
		address := held.LocalAddr().String()
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
}

// Stop closes the port and all connections.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener.Close()
	for conn := range s.conns {
		conn.Close()
	}
}

// Address returns host:port.
func (s *Server) Address() string { return s.address }

// Next waits for the next mail.
func (s *Server) Next(t testing.TB) Mail {
	t.Helper()
	select {
	case m := <-s.mails:
		return m
	case <-time.After(timeout):
		t.Fatal("no mail came")
		return Mail{}
	}
}

// None fails the test if there is a mail that Next has not returned.
func (s *Server) None(t testing.TB) {
	t.Helper()
	select {
	case m := <-s.mails:
		t.Errorf("an unexpected mail came: %s\n%s", m.Subject, m.Text)
	default:
	}
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		conn.Close()
	}()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if s.Silent {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	var c = conn
	if s.Implicit {
		c = tls.Server(conn, s.TLS)
	}
	in := bufio.NewReader(c)
	say := func(line string) { _, _ = io.WriteString(c, line+"\r\n") }
	say("220 test")
	secure := s.Implicit
	var m Mail
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO", "HELO":
			extensions := []string{"test", "8BITMIME"}
			if s.TLS != nil && !secure {
				extensions = append(extensions, "STARTTLS")
			}
			if s.Password != "" {
				extensions = append(extensions, "AUTH PLAIN")
			}
			for i, extension := range extensions {
				if i == len(extensions)-1 {
					say("250 " + extension)
				} else {
					say("250-" + extension)
				}
			}
		case "STARTTLS":
			say("220 go on")
			c = tls.Server(conn, s.TLS)
			in, secure = bufio.NewReader(c), true
		case "AUTH":
			raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			fields := strings.Split(string(raw), "\x00")
			if len(fields) != 3 || fields[2] != s.Password {
				say("535 wrong")
				continue
			}
			m.User = fields[1]
			say("235 welcome")
		case "MAIL":
			m = Mail{From: between(rest, "<", ">"), User: m.User}
			say("250 ok")
		case "RCPT":
			m.To += between(rest, "<", ">")
			answer := ""
			if s.Answer != nil {
				answer = s.Answer(m.To)
			}
			if answer == "" {
				answer = "250 ok"
			}
			say(answer)
		case "DATA":
			say("354 go on")
			var raw strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				raw.WriteString(strings.TrimPrefix(line, "."))
			}
			m.Raw = raw.String()
			m.decode()
			s.mails <- m
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (m *Mail) decode() {
	parsed, err := mail.ReadMessage(strings.NewReader(m.Raw))
	if err != nil {
		m.Text = "unreadable: " + err.Error()
		return
	}
	m.Header = parsed.Header
	m.Subject, _ = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	body := parsed.Body
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		body = quotedprintable.NewReader(body)
	}
	text, _ := io.ReadAll(body)
	m.Text = strings.ReplaceAll(string(text), "\r\n", "\n")
}

func between(text, begin, end string) string {
	_, text, _ = strings.Cut(text, begin)
	text, _, _ = strings.Cut(text, end)
	return text
}
