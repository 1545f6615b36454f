package auth

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Cookie returns the value of the cookie with this name, or "". It refuses cookies of one name
// with different values: an attacker may have set one of them from another host or path.
func Cookie(header http.Header, name string) (secret string, f *fault.Fault) {
	for cookie, value := range cookies(header) {
		switch {
		case cookie != name || value == secret:
		case secret != "":
			return "", fault.At(fault.InvalidParameter, "Cookie", "the cookie %s is given more than once, with different values; delete the cookies of this site", name)
		default:
			secret = value
		}
	}
	return secret, nil
}

// cookies yields the names and values of the cookies of a request, as they were sent. It keeps
// quotes and unusual names. A server behind the gateway may parse cookies differently, but
// [dropCookies] removes every cookie that was read here.
func cookies(header http.Header) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for _, line := range header["Cookie"] {
			for pair := range strings.SplitSeq(line, ";") {
				if name, value, ok := cut(pair); ok && !yield(name, value) {
					return
				}
			}
		}
	}
}

func cut(pair string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(pair, "=")
	return strings.Trim(name, " \t"), strings.Trim(value, " \t"), ok
}

// dropCookies removes the cookies of these names from a request and leaves the others as they
// are.
func dropCookies(header http.Header, names ...string) {
	var lines []string
	for _, line := range header["Cookie"] {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			name, _, _ := cut(pair)
			if !isOneOf(name, names) {
				kept = append(kept, strings.Trim(pair, " \t"))
			}
		}
		if len(kept) > 0 {
			lines = append(lines, strings.Join(kept, "; "))
		}
	}
	if lines == nil {
		delete(header, "Cookie")
		return
	}
	header["Cookie"] = lines
}

// isOneOf reports whether name is one of names. It ignores case, because a server behind the
// gateway might do so.
func isOneOf(name string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(name, n) })
}
