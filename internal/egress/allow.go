package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Allowed has destinations that the operator permits in addition to public
// addresses. The zero Allowed permits none.
type Allowed struct {
	names    []allowedName
	prefixes []allowedPrefix
}

type allowedName struct {
	host string // as returned by hostName
	port uint16
}

type allowedPrefix struct {
	prefix netip.Prefix
	port   uint16
}

// ParseAllowed parses destinations of the form host:port, address:port and
// prefix/bits:port, with IPv6 addresses in brackets: "hooks.example.org:8443",
// "10.1.0.0/16:443", "[fd00::/8]:443". A name permits every address that it
// resolves to when it is dialled, but no other name for the same address. A
// duplicate is an error.
func ParseAllowed(entries []string) (Allowed, error) {
	var all Allowed
	for _, entry := range entries {
		if err := all.add(entry); err != nil {
			return Allowed{}, fmt.Errorf("allowed address %q: %w", entry, err)
		}
	}
	return all, nil
}

func (a *Allowed) add(entry string) error {
	host, port, err := splitHostPort(entry)
	if err != nil {
		return err
	}
	prefix, err := parsePrefix(host)
	switch {
	case err == nil:
		row := allowedPrefix{prefix, port}
		if slices.Contains(a.prefixes, row) {
			return errors.New("it is listed twice")
		}
		a.prefixes = append(a.prefixes, row)
		return nil
	case strings.ContainsAny(host, "/:"):
		return err
	}
	name, err := hostName(host)
	if err != nil {
		return err
	}
	if numeric(name) {
		return errAmbiguous
	}
	row := allowedName{name, port}
	if slices.Contains(a.names, row) {
		return errors.New("it is listed twice")
	}
	a.names = append(a.names, row)
	return nil
}

// parsePrefix parses a prefix, or an address as a prefix of its full length. If
// bits are set after the prefix, it returns an error, because the intention is
// unclear.
func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		if address.Zone() != "" {
			return netip.Prefix{}, errors.New("an address with a zone cannot be allowed")
		}
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("it is not a prefix such as 10.1.0.0/16")
	case prefix.Addr().Is4In6():
		return netip.Prefix{}, errors.New("write the prefix of an IPv4 network as an IPv4 prefix")
	case prefix != prefix.Masked():
		return netip.Prefix{}, fmt.Errorf("bits are set after the prefix; did you mean %v?", prefix.Masked())
	}
	return prefix, nil
}

// splitHostPort is net.SplitHostPort with a numeric port.
func splitHostPort(text string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, errors.New("it is not of the form host:port")
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits[0] == '0' {
		return "", 0, errors.New("its port is not from 1 to 65535")
	}
	return host, uint16(n), nil
}

// name reports whether the operator permits host by its name.
func (a Allowed) name(host string, port uint16) bool {
	name, err := hostName(host)
	return err == nil && slices.Contains(a.names, allowedName{name, port})
}

// address reports whether the operator permits the address itself.
func (a Allowed) address(peer netip.AddrPort) bool {
	address := peer.Addr().Unmap()
	return slices.ContainsFunc(a.prefixes, func(p allowedPrefix) bool {
		return p.port == peer.Port() && p.prefix.Contains(address)
	})
}

// opensLoopback reports whether the operator permits an address of this
// machine.
func (a Allowed) opensLoopback(port uint16) bool {
	return a.address(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)) || a.address(netip.AddrPortFrom(netip.IPv6Loopback(), port))
}

// opens reports whether the operator permits a host as written in a URL.
func (a Allowed) opens(host string, port uint16) bool {
	if a.name(host, port) {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.address(netip.AddrPortFrom(address, port))
}
