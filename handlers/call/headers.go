package call

import (
	"net/http"
	"net/url"
	"strings"
)

// neverUpstream are the caller's headers that stay here: credentials under any
// of their names, what would choose among the operator's accounts, what concerns
// this hop alone, and what others behind us could take for the word of a proxy
// they trust. Of X-Forwarded-* only the three stay that Caddy rewrites; it also
// drops names with an underscore.
var neverUpstream = setOf(
	"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Cookie", "Cookie2", "Proxy-Authorization",
	"Openai-Organization", "Openai-Project",
	"Connection", "Upgrade", "Te", "Trailer", "Keep-Alive", "Expect", "Incremental",
	"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Cluster-Client-Ip", "Fastly-Client-Ip",
	"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Method-Override", "X-Request-Id",
)

var rewrittenByCaddy = setOf("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host")

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// neverDownstream are the backend's headers that stay here: the operator's
// credentials, cookies of a session that is not the caller's, and challenges
// that speak of the operator's account. X-Request-Id is ours.
var neverDownstream = []string{
	"Authorization", "X-Api-Key", "Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate",
	"Authentication-Info", "Proxy-Authentication-Info", "Proxy-Authorization", "X-Request-Id",
	"Trailer", // and what it names: see answer.end
}

// cleanRequest makes r fit to leave: headers, query, encodings. Named by
// Connection means hop-by-hop (RFC 9110, section 7.6.1), so those go before
// Connection itself does.
func cleanRequest(r *http.Request, stream bool) {
	for _, list := range r.Header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			r.Header.Del(strings.TrimSpace(name))
		}
	}
	for name := range r.Header {
		if neverUpstream[name] || strings.HasPrefix(name, "X-Forwarded-") && !rewrittenByCaddy[name] {
			delete(r.Header, name)
		}
	}
	r.Trailer = nil
	// What was checked was read as JSON, so that is what the backend must read:
	// as a form, or in another charset, the same bytes could name another model.
	r.Header["Content-Type"] = []string{"application/json"}
	r.URL.RawQuery = betaOnly(r.URL.RawQuery)

	// Only an encoding that can be read on its way past is offered to the
	// backend, and none for a stream, between whose events a ping may have to go.
	if !stream && acceptsGzip(r.Header) {
		r.Header["Accept-Encoding"] = []string{"gzip"}
	} else {
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
}

// betaOnly returns the parameters named beta of a query, as they were written.
func betaOnly(query string) string {
	if query == "" {
		return ""
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil && plain == "beta" && !strings.Contains(pair, ";") {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// acceptsGzip tells whether a caller takes gzip (RFC 9110, section 12.5.3).
func acceptsGzip(header http.Header) bool {
	for _, list := range header["Accept-Encoding"] {
		for item := range strings.SplitSeq(list, ",") {
			coding, weight, _ := strings.Cut(item, ";")
			coding = strings.TrimSpace(coding)
			if (strings.EqualFold(coding, "gzip") || coding == "*") && !zeroWeight(weight) {
				return true
			}
		}
	}
	return false
}

func zeroWeight(weight string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(weight), " ", ""), "q=")
	return ok && strings.Trim(q, "0.") == ""
}

// cleanAnswer takes from a backend's headers what the caller must not see.
func cleanAnswer(header http.Header) {
	for _, name := range neverDownstream {
		delete(header, name)
	}
}
