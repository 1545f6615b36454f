package backends

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/egress"
)

// redacted replaces an address that the caller must not see.
const redacted = "[address]"

// internalNames are suffixes of host names in private networks, in addition to
// those of package egress.
var internalNames = []string{"svc", "lan", "corp", "intranet", "private", "consul", "docker", "localnet", "invalid"}

// addresses matches text that may be an address: links of any scheme, IP
// addresses and names of internal hosts, with or without a port.
var addresses = regexp.MustCompile(
	`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>]+` +
		`|\[[0-9a-fA-F:.]+\](:[0-9]+)?` +
		`|[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]+)?` +
		`|[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*(:[0-9]+)?`)

// RedactAddresses returns a service's text without internal addresses. It
// replaces special IP addresses, names of internal hosts, and links to hosts
// that are not public or are in hosts. It also replaces links that contain a
// user or are not http. It removes the query of other links, which may contain
// a signature.
func RedactAddresses(text string, hosts ...string) string {
	return addresses.ReplaceAllStringFunc(text, func(found string) string {
		if strings.Contains(found, "://") {
			link := strings.TrimRight(found, `.,;:!?)}]`)
			u, err := url.Parse(link)
			if err != nil || egress.CheckURL(link) != nil || isInternal(u.Hostname(), hosts) {
				return redacted + found[len(link):]
			}
			u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
			return u.String() + found[len(link):]
		}
		host, _, _ := strings.Cut(found, ":")
		last := host[strings.LastIndexByte(host, '.')+1:]
		_, notAddress := netip.ParseAddr(host)
		switch {
		case found[0] == '[', strings.EqualFold(host, "localhost"):
			return redacted
		case !strings.Contains(host, "."), notAddress != nil && strings.Trim(last, "0123456789") == "": // a word or a number
			return found
		case isInternal(host, hosts):
			return redacted
		}
		return found
	})
}

// isInternal reports whether a host is not public or is listed in hosts.
func isInternal(host string, hosts []string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if slices.Contains(hosts, host) || !strings.Contains(host, ".") {
		return true
	}
	if slices.Contains(internalNames, host[strings.LastIndexByte(host, '.')+1:]) {
		return true
	}
	return egress.CheckURL("http://"+host) != nil
}
