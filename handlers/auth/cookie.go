package auth

import (
	"net/http"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Cookie returns the value of the cookie of a name, or "". It refuses cookies of one name that
// differ: they come from different hosts or paths, and one of them may have been planted.
func Cookie(header http.Header, name string) (secret string, f *fault.Fault) {
	for crumb, value := range crumbs(header) {
		switch {
		case crumb != name || value == secret:
		case secret != "":
			return "", fault.At(fault.InvalidParameter, "Cookie", "the cookie %s is there more than once, with different values; delete the cookies of this site", name)
		default:
			secret = value
		}
	}
	return secret, nil
}

// crumbs yields the cookies of a request, by name and value, as they were written: it keeps
// quotes and skips no unusual name. Software behind may read cookies in another way, but
// [dropCookies] removes what was read here.
func crumbs(header http.Header) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for _, line := range header["Cookie"] {
			for crumb := range strings.SplitSeq(line, ";") {
				if name, value, ok := cut(crumb); ok && !yield(name, value) {
					return
				}
			}
		}
	}
}

func cut(crumb string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(crumb, "=")
	return strings.Trim(name, " \t"), strings.Trim(value, " \t"), ok
}

// dropCookies removes the cookies of these names from a request and leaves the others as they
// are.
func dropCookies(header http.Header, names ...string) {
	var lines []string
	for _, line := range header["Cookie"] {
		var kept []string
		for crumb := range strings.SplitSeq(line, ";") {
			name, _, _ := cut(crumb)
			if !isOneOf(name, names) {
				kept = append(kept, strings.Trim(crumb, " \t"))
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

// isOneOf ignores case, as software behind might.
func isOneOf(name string, names []string) bool {
	for _, n := range names {
		if strings.EqualFold(name, n) {
			return true
		}
	}
	return false
}
