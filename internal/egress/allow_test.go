package egress_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/egress"
)

func TestOnlyAllowedDestinationsAreReached(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry  string // PORT stands for the port of the forbidden server
		host   string
		opened bool
	}{
		"the address":                      {"127.0.0.1:PORT", "127.0.0.1", true},
		"the address by a name":            {"127.0.0.1:PORT", "any.example", true},
		"the address of localhost":         {"127.0.0.1:PORT", "localhost.", true},
		"the address, mapped":              {"127.0.0.1:PORT", "[::ffff:127.0.0.1]", true},
		"the address, written mapped":      {"[::ffff:127.0.0.1]:PORT", "127.0.0.1", true},
		"another address":                  {"127.0.0.2:PORT", "127.0.0.1", false},
		"another port":                     {"127.0.0.1:1", "127.0.0.1", false},
		"the prefix":                       {"127.0.0.0/8:PORT", "127.0.0.1", true},
		"another prefix":                   {"10.0.0.0/8:PORT", "127.0.0.1", false},
		"the prefix with another port":     {"127.0.0.0/8:1", "127.0.0.1", false},
		"everything of IPv6":               {"[::/0]:PORT", "127.0.0.1", false},
		"the name":                         {"hooks.example:PORT", "hooks.example", true},
		"the name in capitals":             {"Hooks.Example:PORT", "hooks.EXAMPLE.", true},
		"the name with another port":       {"hooks.example:1", "hooks.example", false},
		"another name of the same address": {"hooks.example:PORT", "other.example", false},
		"a name below it":                  {"hooks.example:PORT", "a.hooks.example", false},
		"the address of an allowed name":   {"hooks.example:PORT", "127.0.0.1", false},
	} {
		tr := newForbiddenServer(t, ok)
		guard := egress.New(allowed(t, strings.Replace(c.entry, "PORT", tr.port, 1)), answering(loopback))
		status, err := get(t, guard.Client(), "http://"+c.host+":"+tr.port+"/")
		if opened := err == nil && status == http.StatusOK; opened != c.opened || tr.connections.Load() > 0 != c.opened {
			t.Errorf("%s: %s with %s allowed: status %d, %v, %d connections", name, c.host, c.entry, status, err, tr.connections.Load())
		}
	}
}

func TestCheckURLAcceptsAllowedDestinations(t *testing.T) {
	t.Parallel()
	a := allowed(t, "10.1.0.0/16:80", "hooks.internal:8443", "[fd00::/8]:443", "127.0.0.1:443")
	for text, passes := range map[string]bool{
		"http://10.1.2.3/":               true,
		"http://10.1.2.3:80/":            true,
		"https://10.1.2.3/":              false,
		"http://10.2.0.1/":               false,
		"http://0xa010203/":              false,
		"https://hooks.internal:8443/x":  true,
		"https://HOOKS.internal.:8443/x": true,
		"https://hooks.internal/x":       false,
		"https://a.hooks.internal:8443/": false,
		"https://[fd12::1]/":             true,
		"http://[fd12::1]/":              false,
		"https://127.0.0.1":              true,
		"https://u@127.0.0.1":            false,
		"https://localhost":              false,
		"https://example.com:1":          true,
	} {
		if err := a.CheckURL(text); (err == nil) != passes {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestInvalidAllowedDestinationsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries []string
		want    string
	}{
		"no port":                    {[]string{"10.0.0.1"}, "form host:port"},
		"a URL":                      {[]string{"http://10.0.0.1:80"}, "form host:port"},
		"IPv6 without brackets":      {[]string{"fd00::1:80"}, "form host:port"},
		"port 0":                     {[]string{"10.0.0.1:0"}, "not from 1 to 65535"},
		"any port":                   {[]string{"10.0.0.1:*"}, "not from 1 to 65535"},
		"a port too high":            {[]string{"10.0.0.1:65536"}, "not from 1 to 65535"},
		"a port with a leading zero": {[]string{"10.0.0.1:080"}, "not from 1 to 65535"},
		"a service":                  {[]string{"10.0.0.1:http"}, "not from 1 to 65535"},
		"no host":                    {[]string{":80"}, "not a valid host name"},
		"any host":                   {[]string{"*:80"}, "not a valid host name"},
		"a wildcard":                 {[]string{"*.example.com:80"}, "not a valid host name"},
		"bits after the prefix":      {[]string{"10.0.0.1/8:80"}, "did you mean 10.0.0.0/8?"},
		"too many bits":              {[]string{"10.0.0.0/33:80"}, "not a prefix such as"},
		"a named prefix":             {[]string{"example.com/8:80"}, "not a prefix such as"},
		"a mapped prefix":            {[]string{"[::ffff:10.0.0.0/104]:80"}, "an IPv4 prefix"},
		"a zone":                     {[]string{"[fe80::1%eth0]:80"}, "a zone cannot be allowed"},
		"a short address":            {[]string{"127.1:80"}, "can be read in different ways"},
		"a prefix twice":             {[]string{"10.0.0.0/8:80", "10.0.0.0/8:80"}, "it is listed twice"},
		"a name twice":               {[]string{"a.example:80", "A.example.:80"}, "it is listed twice"},
	} {
		_, err := egress.ParseAllowed(c.entries)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.entries[len(c.entries)-1]) {
			t.Errorf("%s was answered %v, want %q", name, err, c.want)
		}
	}
	if _, err := egress.ParseAllowed([]string{"10.0.0.0/8:80", "10.0.0.0/8:443", "a.example:80", "a.example:443"}); err != nil {
		t.Errorf("one host with two ports: %v", err)
	}
}

// TestALiteralAddressIsCheckedWhenItIsRegistered checks that an allowed address
// does not permit others.
func TestALiteralAddressIsCheckedWhenItIsRegistered(t *testing.T) {
	t.Parallel()
	a := allowed(t, "10.1.0.0/16:80", "hooks.internal:8443", "127.0.0.1:443")
	for text, passes := range map[string]bool{
		"https://hooks.example.com/x":          true,
		"http://10.1.2.3/":                     true,
		"https://hooks.internal:8443/":         true,
		"https://127.0.0.1/":                   true,
		"https://localhost/":                   true, // may resolve to 127.0.0.1, which is allowed
		"http://hooks.corp.internal/":          true, // may resolve to 10.1.2.3
		"http://printer.local/":                true,
		"http://127.0.0.1/":                    false,
		"http://localhost/":                    false,
		"http://127.1/":                        false,
		"http://2130706433/":                   false,
		"http://[::1]/":                        false,
		"http://169.254.169.254/latest":        false,
		"http://[fe80::1]/":                    false,
		"http://[::ffff:169.254.169.254]/":     false,
		"http://metadata.google.internal/":     false,
		"http://instance-data.ec2.internal./x": false,
		"http://192.168.1.1/":                  false,
	} {
		if err := a.CheckRegistered(text); (err == nil) != passes {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := (egress.Allowed{}).CheckRegistered("http://printer.local/"); err == nil {
		t.Error("a local name passes, and no destination is allowed")
	}
}
