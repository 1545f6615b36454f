package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Why a host is refused. They say what kind of address it is and never what is
// behind it.
var (
	errSpecial   = errors.New("is a special address; only public ones are allowed")
	errAmbiguous = errors.New("is an address in a form that readers take for different ones; write it as 192.0.2.1 or [2001:db8::1]")
	errForeign   = errors.New("is not in ASCII; write it in its xn-- form")
	errName      = errors.New("is no name of a host: letters, digits, `-`, `_` and single dots, up to 253 characters")
)

// special are names that stand for the machine itself or for its own network,
// with all names below them.
var special = []string{
	"localhost",   // RFC 6761, section 6.3
	"localdomain", // what systems put behind localhost
	"local",       // RFC 6762
	"internal",    // reserved by ICANN in 2024 for private use; metadata services live there
	"home.arpa",   // RFC 8375
	"localhost6", "ip6-localhost", "ip6-loopback",
}

// loopbackNames and metadataNames are those of the special names that stand for the
// machine itself, and for the metadata services of clouds.
var (
	loopbackNames = []string{"localhost", "localhost6", "ip6-localhost", "ip6-loopback", "localdomain"}
	metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata.internal", "metadata.azure.internal", "instance-data.ec2.internal"}
)

// isLoopbackName tells whether host is a name of the machine itself.
func isLoopbackName(host string) bool { return isBelow(host, loopbackNames) }

// isLocalName tells whether host is a name of the local network, and neither of the
// machine itself nor of a metadata service.
func isLocalName(host string) bool {
	return isBelow(host, special) && !isLoopbackName(host) && !isBelow(host, metadataNames)
}

// isBelow tells whether host is one of the names, or below one.
func isBelow(host string, names []string) bool {
	name, err := hostName(host)
	return err == nil && slices.ContainsFunc(names, func(own string) bool { return name == own || strings.HasSuffix(name, "."+own) })
}

// checkHost refuses the host of a URL, with or without brackets, that is an
// address which is not public, or may be read as one by anybody: also where it
// is decimal, octal, hexadecimal or short (2130706433, 0177.0.0.1, 0x7f.1,
// 127.1), an IPv4 address within an IPv6 one, has a zone, dots behind it or
// escapes in it, or is one of the names of the machine itself. A host that is
// not in ASCII counts as one, because readers fold other digits and dots into
// those of ASCII. What is no host at all is refused, too.
func checkHost(host string) error {
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return errForeign
	}
	if strings.Contains(host, "%") {
		return checkEscaped(host)
	}
	if inside, ok := strings.CutPrefix(host, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		if !ok {
			return errName
		}
		return checkAddress(inside)
	}
	if strings.Contains(host, ":") {
		return checkAddress(host)
	}
	name, err := hostName(host)
	if err != nil {
		return err
	}
	if numeric(name) {
		return checkQuad(host)
	}
	if isBelow(name, special) {
		return errSpecial
	}
	return nil
}

// checkEscaped refuses every host with a percent sign: the zone of an IPv6
// address is one of this machine's, and what is escaped in a name some readers
// unescape and others do not. It is special when it is so unescaped.
func checkEscaped(host string) error {
	if strings.Contains(host, ":") {
		return errSpecial // a zone
	}
	plain, err := url.PathUnescape(host)
	if err != nil || strings.Contains(plain, "%") {
		return errAmbiguous
	}
	if err := checkHost(plain); err != nil {
		return err
	}
	return errName
}

// checkAddress refuses what stands between brackets unless it is a public IPv6
// address. Those that hold an IPv4 one (mapped, compatible, 6to4, NAT64,
// Teredo) all lie outside of what is public.
func checkAddress(text string) error {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil || !address.Is6():
		return errName
	case guardian.SafeAddr(address) != nil:
		return errSpecial
	}
	return nil
}

// checkQuad refuses what begins like an IPv4 address unless it is a public one
// that has four decimal numbers and nothing else, which all readers agree on.
func checkQuad(text string) error {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return errAmbiguous
	case guardian.SafeAddr(address) != nil:
		return errSpecial
	}
	return nil
}

// numeric tells whether readers of the URL Standard and of inet_aton take name
// for an IPv4 address: its last label is a number, decimal, octal or
// hexadecimal.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// hostName returns host in lower case and without the dot of the root, and
// refuses what cannot be a name.
func hostName(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", errName
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "", errName
		}
		for _, c := range []byte(label) {
			letter, digit := 'a' <= c && c <= 'z', '0' <= c && c <= '9'
			if !letter && !digit && c != '-' && c != '_' {
				return "", errName
			}
		}
	}
	return name, nil
}

// hostError says what is wrong with the host of a URL.
func hostError(host string, err error) error {
	if len(host) > 64 {
		host = host[:64] + "…"
	}
	return fmt.Errorf("has the host %q, which %w", host, err)
}
