package egress

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxURL is the maximum length of a URL in characters. Signed URLs contain
// credentials.
const MaxURL = 8192

// CheckURL returns an error unless text is an absolute http or https URL of at most [MaxURL]
// characters, without user and password. Its host must not be special: an address that is not
// public in any spelling that a parser accepts, or a name of this machine. Other names are
// not resolved; their addresses are checked when they are dialled. The error is the rest of a
// sentence about the URL, such as "must be ...". It does not repeat the URL, which may be a
// credential.
func CheckURL(text string) error { return Allowed{}.CheckURL(text) }

// CheckURL is [CheckURL], but allows special addresses and names that are
// permitted with the port of the URL.
func (a Allowed) CheckURL(text string) error { return a.checkURL(text, a.opens) }

// CheckRegistered is [Allowed.CheckURL] for a URL that is dialled later. If any
// address is permitted, a name of the local network passes, because it may have
// that address then. A special address, a name of this machine and that of a
// metadata service pass only if they are permitted with their port.
func (a Allowed) CheckRegistered(text string) error {
	return a.checkURL(text, func(host string, port uint16) bool {
		return a.opens(host, port) || len(a.prefixes) > 0 && isLocalName(host) || isLoopbackName(host) && a.opensLoopback(port)
	})
}

// checkURL checks a URL; opens reports whether a special host is permitted.
func (a Allowed) checkURL(text string, opens func(host string, port uint16) bool) error {
	if n := utf8.RuneCountInString(text); n > MaxURL {
		return fmt.Errorf("must have at most %d characters, not %d", MaxURL, n)
	}
	// Some parsers strip these characters, or treat a backslash as a slash, and then
	// find another host.
	unsafe := func(r rune) bool {
		return r == '\\' || r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r)
	}
	if strings.ContainsFunc(text, unsafe) {
		return errors.New("must be a URL without white space, backslashes and control characters")
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return errors.New("must be an absolute http or https URL")
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	if strings.Contains(authority, "@") {
		return errors.New("must be a URL without a user or password")
	}
	host, port, err := splitAuthority(authority, scheme)
	if err != nil {
		return err
	}
	if err := checkHost(host); err != nil && !opens(host, port) {
		return hostError(host, err)
	}
	// Go's parser must find the same host.
	if u, err := url.Parse(text); err != nil || u.Host != authority || u.User != nil || u.Opaque != "" {
		return errors.New("must be an absolute http or https URL; it cannot be parsed")
	}
	return nil
}

// splitAuthority returns the host of a URL, in its brackets, and the port, or
// the default port of the scheme.
func splitAuthority(authority, scheme string) (host string, port uint16, err error) {
	host, digits, given := authority, "", false
	if end := strings.LastIndexByte(authority, ']'); end >= 0 || strings.Count(authority, ":") == 1 {
		if colon := strings.LastIndexByte(authority, ':'); colon > end {
			host, digits, given = authority[:colon], authority[colon+1:], true
		}
	}
	switch {
	case host == "":
		return "", 0, errors.New("must be an absolute http or https URL with a host")
	case host[0] != '[' && strings.Contains(host, ":"):
		return "", 0, errors.New("must be a URL with a host and a port; an IPv6 address must be in brackets")
	case given:
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return "", 0, errors.New("must be a URL with a port from 1 to 65535")
		}
		return host, uint16(n), nil
	case strings.EqualFold(scheme, "http"):
		return host, 80, nil
	}
	return host, 443, nil
}
