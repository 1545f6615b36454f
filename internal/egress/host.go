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

// Reasons why a host is refused. They describe the form of the address, and do not
// reveal whether it can be reached.
var (
	errSpecial   = errors.New("is a special address; allowed: public addresses")
	errAmbiguous = errors.New("is an address in a form that can be read in different ways; write it as 192.0.2.1 or [2001:db8::1]")
	errForeign   = errors.New("is not in ASCII; write it in its xn-- form")
	errName      = errors.New("is not a valid host name: letters, digits, `-`, `_` and single dots, up to 253 characters")
)

// special are names of this machine or its network, including all
// names below them.
var special = []string{
	"localhost",   // RFC 6761, section 6.3
	"localdomain", // appended to localhost by some systems
	"local",       // RFC 6762
	"internal",    // reserved by ICANN in 2024 for private use; metadata services live there
	"home.arpa",   // RFC 8375
	"localhost6", "ip6-localhost", "ip6-loopback",
}

// loopbackNames and metadataNames are the special names for this machine, and
// for the metadata services of clouds.
var (
	loopbackNames = []string{"localhost", "localhost6", "ip6-localhost", "ip6-loopback", "localdomain"}
	metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata.internal", "metadata.azure.internal", "instance-data.ec2.internal"}
)

// isLoopbackName reports whether host is a name of this machine.
func isLoopbackName(host string) bool { return isBelow(host, loopbackNames) }

// isLocalName reports whether host is a special name that is neither a loopback
// name nor a metadata name.
func isLocalName(host string) bool {
	return isBelow(host, special) && !isLoopbackName(host) && !isBelow(host, metadataNames)
}

// isBelow reports whether host is one of the names, or below one.
func isBelow(host string, names []string) bool {
	name, err := hostName(host)
	return err == nil && slices.ContainsFunc(names, func(parent string) bool { return name == parent || strings.HasSuffix(name, "."+parent) })
}

// checkHost checks the host of a URL, with or without brackets. It returns an
// error for a host that is not public in the reading of any URL parser:
// decimal, octal, hexadecimal or short IPv4 addresses (2130706433, 0177.0.0.1,
// 0x7f.1, 127.1), IPv4 within IPv6, zones, trailing dots, escapes, and the
// names of this machine. A host that is not ASCII is refused too, because
// parsers map other digits and dots to ASCII. An invalid host is also refused.
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

// checkEscaped refuses every host with a percent sign. The zone of an IPv6
// address belongs to this machine, and parsers read escapes in a name differently.
// The error is that of the decoded host, if it has one.
func checkEscaped(host string) error {
	if strings.Contains(host, ":") {
		return errSpecial // a zone
	}
	decoded, err := url.PathUnescape(host)
	if err != nil || strings.Contains(decoded, "%") {
		return errAmbiguous
	}
	if err := checkHost(decoded); err != nil {
		return err
	}
	return errName
}

// checkAddress checks an address in brackets, which must be a public IPv6
// address. All addresses that contain an IPv4 address (mapped, compatible,
// 6to4, NAT64, Teredo) are not public.
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

// checkQuad checks a host that begins like an IPv4 address. It must be public
// and consist of four decimal numbers, which all parsers read in the same way.
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

// numeric reports whether parsers of the URL Standard and inet_aton treat name as an IPv4
// address. They do if its last label is a decimal, octal or hexadecimal number.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// hostName returns host in lower case and without a trailing dot, or an error
// if it cannot be a name.
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

// hostError is the error for the host of a URL.
func hostError(host string, err error) error {
	if len(host) > 64 {
		host = host[:64] + "…"
	}
	return fmt.Errorf("has the host %q, which %w", host, err)
}
