// Package forwarding decides which headers, query parameters and encodings pass between
// callers and backends. [Upstream] and [Downstream] are the lists of headers. The package
// imports no other package of this module.
package forwarding

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// List is a list of headers that are forwarded between callers and backends.
type List struct {
	names    map[string]bool // in canonical form
	prefixes []string        // of other names, in canonical form
	never    map[string]bool // names that cannot be added, even by a prefix; the same applies to X-Forwarded-*
}

// Has reports whether the header with this canonical name passes.
func (l *List) Has(name string) bool {
	if l.names[name] {
		return true
	}
	for _, prefix := range l.prefixes {
		if strings.HasPrefix(name, prefix) {
			return !l.forbids(name)
		}
	}
	return false
}

// Never reports whether the header with this canonical name must not pass, even if the operator
// adds it.
func (l *List) Never(name string) bool { return l.never[name] }

// forbids reports whether a name may not be added to l.
func (l *List) forbids(name string) bool {
	return l.never[name] || strings.HasPrefix(name, "X-Forwarded-")
}

// Allow adds a canonical name to l, which must be a result of With.
func (l *List) Allow(name string) { l.names[name] = true }

// With returns l with more names. A name that ends with an asterisk is a prefix.
func (l *List) With(names ...string) (*List, error) {
	more := &List{names: maps.Clone(l.names), prefixes: slices.Clone(l.prefixes), never: l.never}
	for _, given := range names {
		name, prefix := strings.CutSuffix(given, "*")
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case strings.Contains(name, "*") || !httpguts.ValidHeaderFieldName(name) && given != "*":
			return nil, fmt.Errorf("%q is not valid; allowed: the name of a header, or the beginning of a name followed by *", given)
		case prefix:
			more.prefixes = append(more.prefixes, canonical)
		case l.forbids(canonical):
			return nil, fmt.Errorf("%s never passes between callers and backends", canonical)
		default:
			more.names[canonical] = true
		}
	}
	return more, nil
}

// Upstream has the headers of a caller that are forwarded to the backend. SDKs send a version,
// betas, an idempotency key and their own name in them. Another header may change the vendor's
// charge, or select one of the operator's accounts. Headers with the caller's address are not
// forwarded: see CallerHeaders.
var Upstream = &List{
	names: setOf(
		"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent",
		"Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access", "Openai-Beta",
		"Idempotency-Key", "X-Client-Request-Id", "X-App", "Traceparent", "Tracestate",
	),
	prefixes: []string{"X-Stainless-"},
	never: setOf(
		"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Cookie", "Cookie2", "Proxy-Authorization",
		"Openai-Organization", "Openai-Project", "Content-Length", "Host",
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Incremental",
		"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Cluster-Client-Ip", "Fastly-Client-Ip",
		"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Method-Override", "X-Request-Id",
	),
}

// CallerHeaders are the headers in which Caddy's reverse_proxy sends the caller's address, and the
// host and scheme of the request. An operator can send them to a backend by header_up.
var CallerHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// Downstream has the headers of a backend that the gateway accepts. They describe the content,
// identify a request at the vendor, or are read by SDKs. X-Request-Id is only for the
// operator's log: callers get the gateway's request id.
var Downstream = &List{
	names: setOf(
		"Content-Type", "Content-Length", "Content-Encoding", "Date", "Cache-Control",
		"Retry-After", "Retry-After-Ms", "X-Should-Retry",
		"Request-Id", "X-Request-Id", "Openai-Processing-Ms", "Openai-Version",
	),
	never: setOf(
		"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Set-Cookie", "Set-Cookie2", "Cookie", "Cookie2",
		"Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Proxy-Authentication-Info", "Proxy-Authorization",
		"Openai-Organization", "Openai-Project", "Anthropic-Organization-Id",
		"Location", "X-Accel-Redirect", "Clear-Site-Data",
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	),
}

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// clean deletes the headers that are not in passing, and the headers that Connection lists
// (RFC 9110, section 7.6.1).
func clean(header http.Header, passing *List) {
	for _, list := range header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for name := range header {
		if !passing.Has(name) {
			delete(header, name)
		}
	}
}

// CleanRequest removes the headers, trailers, query parameters and encodings of r that are not
// forwarded to a backend.
func CleanRequest(r *http.Request, passing *List, stream bool) {
	clean(r.Header, passing)
	for _, name := range CallerHeaders {
		r.Header[name] = nil // reverse_proxy omits a header without values
	}
	r.Trailer = nil
	// The gateway checked the body as JSON, so the backend must read it as JSON. As a form,
	// or in another charset, the same bytes could name another model.
	r.Header["Content-Type"] = []string{"application/json"}
	r.URL.RawQuery = betaOnly(r.URL.RawQuery)

	// The gateway must be able to read the answer, so it accepts no encoding but gzip. It
	// accepts none for a stream, because it may have to write a ping between the events.
	if !stream && acceptsGzip(r.Header) {
		r.Header["Accept-Encoding"] = []string{"gzip"}
	} else {
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
}

// betaOnly returns the parameters of a query with the name beta, unchanged.
func betaOnly(query string) string {
	if query == "" {
		return ""
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil && decoded == "beta" && !strings.Contains(pair, ";") {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// acceptsGzip reports whether a caller accepts gzip (RFC 9110, section 12.5.3).
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

// CleanAnswer deletes headers of a backend's answer. It deletes those that are not in passing,
// the announced trailers, and each value that contains a credential of the operator. credentials
// are the names of the headers in sent that contain credentials. Trailers that arrive later have
// [http.TrailerPrefix]. CleanAnswer must be called before the answer is read or logged.
func CleanAnswer(resp *http.Response, passing *List, credentials []string, sent http.Header) {
	clean(resp.Header, passing)
	resp.Trailer = nil
	for _, name := range credentials {
		for _, value := range sent[name] {
			secret := value[strings.LastIndexByte(value, ' ')+1:] // the text after Bearer
			if len(secret) < minCredential {
				continue
			}
			contains := func(text string) bool { return strings.Contains(text, secret) }
			for name, values := range resp.Header {
				if !slices.ContainsFunc(values, contains) {
					continue
				}
				if values = slices.DeleteFunc(values, contains); len(values) == 0 {
					delete(resp.Header, name)
				} else {
					resp.Header[name] = values
				}
			}
		}
	}
}

// minCredential is the minimum length of a value that is treated as a credential, in bytes.
// Shorter values, such as a region, also occur in other headers.
const minCredential = 8

// OwnIdempotencyKey adds a prefix to idempotency keys that depends on the API key. All API keys
// share the operator's account at the vendor, and an answer that is stored there must not be
// returned to another tenant.
func OwnIdempotencyKey(header http.Header, keyID string) {
	values := header["Idempotency-Key"]
	if len(values) == 0 {
		return
	}
	sum := sha256.Sum256([]byte(keyID))
	prefix := hex.EncodeToString(sum[:8]) + "-"
	prefixed := make([]string, len(values))
	for i, value := range values {
		prefixed[i] = prefix + value
	}
	header["Idempotency-Key"] = prefixed
}
