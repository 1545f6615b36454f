package egress_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/egress"
)

func TestPublicURLsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"http://example.com", "https://example.com/", "HTTPS://Example.COM/A", "https://example.com:8443/a/b.png?X-Sig=a%2Fb&c=@d#frag",
		"https://example.com/图.png", "https://example.com/a@b:c", "http://8.8.8.8:80", "http://[2606:4700::1]:1/x",
		"https://example.com?next=http://127.0.0.1/", "https://example.com/" + strings.Repeat("é", egress.MaxURL-len("https://example.com/")),
	} {
		if err := egress.CheckURL(text); err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

func TestInvalidURLsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":                    {"", "absolute http or https"},
		"relative":                 {"/a.png", "absolute http or https"},
		"without a scheme":         {"//example.com/a", "absolute http or https"},
		"only a name":              {"example.com/a.png", "absolute http or https"},
		"opaque":                   {"http:example.com", "absolute http or https"},
		"one slash":                {"http:/example.com", "absolute http or https"},
		"a file":                   {"file:///etc/passwd", "absolute http or https"},
		"ftp":                      {"ftp://example.com/a", "absolute http or https"},
		"data":                     {"data:image/png;base64,AAAA", "absolute http or https"},
		"no host":                  {"http:///a", "with a host"},
		"no host but a port":       {"http://:80/a", "with a host"},
		"three slashes":            {"https:///example.com", "with a host"},
		"a user":                   {"http://u@example.com/", "without a user"},
		"a user and password":      {"http://u:p@example.com/", "without a user"},
		"an empty user":            {"http://@example.com/", "without a user"},
		"a host as the user":       {"http://example.com@127.0.0.1/", "without a user"},
		"a backslash":              {`http://example.com\@127.0.0.1/`, "backslashes"},
		"backslashes as slash":     {`http:\\127.0.0.1/`, "backslashes"},
		"a space":                  {"http://example.com/a b", "white space"},
		"a space before":           {" http://example.com", "white space"},
		"a line break":             {"http://example.com/\r\nHost: x", "white space"},
		"a tab in the host":        {"http://local\thost/", "white space"},
		"a null":                   {"http://example.com/\x00", "control characters"},
		"a line separator":         {"http://example.com/\u2028", "white space"},
		"broken UTF-8":             {"http://example.com/\xff", "control characters"},
		"port 0":                   {"http://example.com:0/", "port from 1 to 65535"},
		"a port too high":          {"http://example.com:65536/", "port from 1 to 65535"},
		"a port of words":          {"http://example.com:http/", "port from 1 to 65535"},
		"no port":                  {"http://example.com:/", "port from 1 to 65535"},
		"two ports":                {"http://example.com:80:80/", "with a host and a port"},
		"IPv6 without brackets":    {"http://2606:4700::1/", "IPv6 address must be in brackets"},
		"an open bracket":          {"http://[::1/", "not a valid host name"},
		"a name in brackets":       {"http://[example.com]/", "not a valid host name"},
		"IPv4 in brackets":         {"http://[127.0.0.1]/", "not a valid host name"},
		"text after the bracket":   {"http://[2606:4700::1]a/", "not a valid host name"},
		"two dots":                 {"http://example..com/", "not a valid host name"},
		"only dots":                {"http://./", "not a valid host name"},
		"an invalid character":     {"http://exa$mple.com/", "not a valid host name"},
		"a name too long":          {"http://" + strings.Repeat("a.", 127) + "com/", `"` + strings.Repeat("a.", 32) + `…", which is not a valid host name`},
		"a label too long":         {"http://" + strings.Repeat("a", 64) + ".com/", "not a valid host name"},
		"an escaped dot":           {"http://example%2ecom/", "not a valid host name"},
		"a name that is not ASCII": {"http://bücher.example/", "xn-- form"},
		"special":                  {"http://127.0.0.1/", `has the host "127.0.0.1", which is a special address`},
		"ambiguous":                {"http://127.1/", "can be read in different ways"},
		"a broken escape":          {"http://example.com/%zz", "cannot be parsed"},
		"too long":                 {"http://example.com/" + strings.Repeat("a", egress.MaxURL), "at most 8192 characters, not 8211"},
	} {
		err := egress.CheckURL(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s was answered %v, want %q", name, err, c.want)
		}
	}
}

func TestARefusalDoesNotRepeatTheURL(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"http://u:secret@example.com/", "http://127.0.0.1/?sig=secret", "ftp://example.com/secret", "http://example.com/%zzsecret"} {
		if err := egress.CheckURL(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s was answered %v", text, err)
		}
	}
}

// FuzzCheckURL checks that net/url, which dials, finds the same host in an
// accepted URL, and that the host is not special.
func FuzzCheckURL(f *testing.F) {
	for _, host := range spellings {
		f.Add("http://" + host + "/a")
	}
	f.Add("https://example.com:8443/a?b#c")
	f.Add("http://example.com@127.0.0.1/")
	f.Add(`http://a\b`)
	f.Fuzz(func(t *testing.T, text string) {
		if egress.CheckURL(text) != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
			t.Fatalf("%q passes and is read as %+v, %v", text, u, err)
		}
		if special(u.Hostname()) {
			t.Fatalf("%q passes with the host %q", text, u.Hostname())
		}
		if a, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil && (!a.IsGlobalUnicast() || a.IsPrivate() || a.Zone() != "" || a.Is4In6()) {
			t.Fatalf("%q passes with the address %v", text, a)
		}
	})
}
