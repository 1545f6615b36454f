package egress_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"code.dny.dev/ssrf"

	"github.com/caddy-modelgate/modelgate/internal/egress"
)

// spellings are hosts that resolve, or may resolve, to an address that is not
// public.
var spellings = map[string]string{
	"loopback":                        "127.0.0.1",
	"all of loopback":                 "127.255.255.254",
	"this network":                    "0.0.0.0",
	"a private network":               "10.0.0.1",
	"a private network of B":          "172.31.255.255",
	"a private network of C":          "192.168.1.1",
	"a carrier network":               "100.64.0.1",
	"a metadata service":              "169.254.169.254",
	"a benchmark":                     "198.19.0.1",
	"multicast":                       "224.0.0.1",
	"broadcast":                       "255.255.255.255",
	"documentation":                   "203.0.113.1",
	"decimal":                         "2130706433",
	"decimal of a private network":    "167772161",
	"octal":                           "0177.0.0.1",
	"octal as a whole":                "017700000001",
	"octal with many zeros":           "00000177.0.0.01",
	"hexadecimal":                     "0x7f.0.0.1",
	"hexadecimal and short":           "0x7f.1",
	"hexadecimal as a whole":          "0x7f000001",
	"hexadecimal in capitals":         "0X7F000001",
	"an empty hexadecimal number":     "0x",
	"short":                           "127.1",
	"shorter":                         "0",
	"three parts":                     "127.0.1",
	"mixed":                           "0x7f.0.0.01",
	"octal to one, private to others": "010.8.8.8",
	"beyond a byte":                   "127.0.0.257",
	"beyond 32 bits":                  "4294967297",
	"five parts":                      "1.127.0.0.1",
	"a public one in decimal":         "134744072",
	"a name that ends in a number":    "example.1",
	"a trailing dot":                  "127.0.0.1.",
	"a trailing dot when short":       "127.1.",
	"a public one with a dot":         "8.8.8.8.",
	"escaped":                         "%31%32%37.0.0.1",
	"escaped in part":                 "127%2e0%2E0%2e1",
	"escaped twice":                   "%2531%2532%2537.0.0.1",
	"a broken escape":                 "127.0.0.1%",
	"an escaped name":                 "%6cocalhost",
	"circled digits":                  "①②⑦.⓪.⓪.①",
	"full-width digits":               "１２７.0.0.1",
	"ideographic full stops":          "127。0。0。1",
	"a circled letter":                "ⓛocalhost",
	"loopback of IPv6":                "[::1]",
	"loopback without brackets":       "::1",
	"loopback in full":                "[0000:0000:0000:0000:0000:0000:0000:0001]",
	"unspecified":                     "[::]",
	"link-local":                      "[fe80::1]",
	"link-local with a zone":          "[fe80::1%25eth0]",
	"loopback with a zone":            "[::1%lo]",
	"a public one with a zone":        "[2606:4700::1%25eth0]",
	"unique local":                    "[fd00::1]",
	"the metadata service of IPv6":    "[fd00:ec2::254]",
	"site-local":                      "[fec0::1]",
	"multicast of IPv6":               "[ff02::1]",
	"mapped":                          "[::ffff:127.0.0.1]",
	"mapped in hexadecimal":           "[::ffff:7f00:1]",
	"mapped and public":               "[::ffff:8.8.8.8]",
	"compatible":                      "[::127.0.0.1]",
	"compatible in hexadecimal":       "[::7f00:1]",
	"translated":                      "[::ffff:0:127.0.0.1]",
	"NAT64":                           "[64:ff9b::127.0.0.1]",
	"NAT64 in hexadecimal":            "[64:ff9b::7f00:1]",
	"NAT64 with a local prefix":       "[64:ff9b:1::7f00:1]",
	"6to4":                            "[2002:7f00:1::]",
	"Teredo":                          "[2001:0:7f00:1::]",
	"documentation of IPv6":           "[2001:db8::1]",
	"documentation since 2024":        "[3fff::1]",
	"localhost":                       "localhost",
	"localhost in capitals":           "LocalHost",
	"localhost with a dot":            "localhost.",
	"below localhost":                 "a.b.localhost",
	"localhost.localdomain":           "localhost.localdomain",
	"localhost of IPv6":               "ip6-localhost",
	"loopback by name":                "ip6-loopback",
	"localhost6":                      "localhost6.localdomain6.localhost6",
	"a name of the link":              "printer.local",
	"the metadata service by name":    "metadata.google.internal",
	"a name of a home network":        "nas.home.arpa",
}

// special reports whether a URL with this host is refused as special. It adds
// brackets if necessary.
func special(host string) bool {
	if strings.Contains(host, ":") && host[0] != '[' {
		host = "[" + host + "]"
	}
	err := egress.CheckURL("http://" + host)
	return err != nil && slices.ContainsFunc([]string{"is a special address", "can be read in different ways", "is not in ASCII"}, func(why string) bool {
		return strings.Contains(err.Error(), why)
	})
}

func TestSpecialHostsAreRefusedInEverySpelling(t *testing.T) {
	t.Parallel()
	for name, host := range spellings {
		if !special(host) {
			t.Errorf("%s: %q passes", name, host)
		}
		for _, url := range []string{"http://" + host, "https://" + host + "/a.png", "HTTP://" + host + ":8080/?a=b", "http://" + host + "?x", "http://" + host + "#x"} {
			if egress.CheckURL(url) == nil {
				t.Errorf("%s: %q passes", name, url)
			}
		}
	}
}

// TestEveryPrefixOfTheRegistriesIsSpecial checks the first and the last address of
// each prefix that the guard of the dialler refuses.
func TestEveryPrefixOfTheRegistriesIsSpecial(t *testing.T) {
	t.Parallel()
	for _, prefix := range append(ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes...) {
		for _, address := range []netip.Addr{prefix.Addr(), last(prefix)} {
			if host := address.String(); !special(host) {
				t.Errorf("%s of %v passes", host, prefix)
			}
		}
	}
}

func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

func TestAPublicHostIsNotSpecial(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"example.com", "EXAMPLE.com", "example.com.", "a.example", "files.example", "my_bucket.s3.eu-west-1.amazonaws.com", "xn--bcher-kva.example",
		"8.8.8.8", "9.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.1", "172.15.255.255", "172.32.0.0", "192.167.255.255",
		"192.169.0.0", "169.253.255.255", "169.255.0.0", "100.63.255.255", "100.128.0.0", "223.255.255.255",
		"[2606:4700:4700::1111]", "[2A00::1]", "[2003::1]",
		"localhost.example.com", "notlocalhost", "mylocal", "internal.example.com", "1.example", "10.0.0.1.example.com", "0x7f.example", "0xg", "1a", "backend",
		strings.Repeat("a", 63) + ".example", strings.Repeat("a.", 126) + "b",
	} {
		if err := egress.CheckURL("https://" + host + ":8443/a"); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
}
