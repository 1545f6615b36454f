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

// List is a list of headers that pass between callers and backends.
type List struct {
	names    map[string]bool // in canonical form
	prefixes []string        // of further names, in canonical form
	never    map[string]bool // names that cannot be added, not even by a prefix; X-Forwarded-* neither
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

// Never reports whether the header with this canonical name must not pass, whatever the
// operator adds.
func (l *List) Never(name string) bool { return l.never[name] }

// forbids reports whether a name may not be added to l.
func (l *List) forbids(name string) bool {
	return l.never[name] || strings.HasPrefix(name, "X-Forwarded-")
}

// Allow adds a canonical name to l, which must be a list of its own: a result of With.
func (l *List) Allow(name string) { l.names[name] = true }

// With returns l with more names. A name that ends with an asterisk is a prefix.
func (l *List) With(names ...string) (*List, error) {
	more := &List{names: maps.Clone(l.names), prefixes: slices.Clone(l.prefixes), never: l.never}
	for _, given := range names {
		name, prefix := strings.CutSuffix(given, "*")
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case strings.Contains(name, "*") || !httpguts.ValidHeaderFieldName(name) && given != "*":
			return nil, fmt.Errorf("%q is neither the name of a header nor the beginning of one followed by *", given)
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

// Upstream are the headers of a caller that go to the backend: those in which today's SDKs
// send a version, betas, an idempotency key and their own name. Any other header may decide
// what the vendor charges, or choose among the operator's accounts. Headers with the caller's
// address are not forwarded: see CallerHeaders.
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

// CallerHeaders are the headers by which Caddy's reverse_proxy tells a backend the caller's
// address, and the host and scheme of the request. An operator sends them to a backend by header_up.
var CallerHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// Downstream are the headers of a backend that the gateway accepts: those that describe the
// content, that SDKs read, and by which a vendor finds a request. X-Request-Id is only for
// the operator's log: callers get that of the gateway.
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

// clean deletes the headers that are not in passing, and those that Connection names
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

// CleanRequest removes from r what does not pass to a backend: headers, trailers, query and
// encodings.
func CleanRequest(r *http.Request, passing *List, stream bool) {
	clean(r.Header, passing)
	for _, name := range CallerHeaders {
		r.Header[name] = nil // reverse_proxy omits a header without values
	}
	r.Trailer = nil
	// The gateway checked the body as JSON, so the backend must read it as JSON: as a
	// form, or in another charset, the same bytes could name another model.
	r.Header["Content-Type"] = []string{"application/json"}
	r.URL.RawQuery = betaOnly(r.URL.RawQuery)

	// The backend is only offered an encoding that the gateway can read, and none for a
	// stream, because the gateway may have to write a ping between its events.
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
		if plain, err := url.QueryUnescape(name); err == nil && plain == "beta" && !strings.Contains(pair, ";") {
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

// CleanAnswer deletes from a backend's answer the headers that are not in passing, the
// announced trailers, and each value that contains what the operator sent to the backend in one of the
// headers named in credentials. Trailers that arrive later have [http.TrailerPrefix]. It must
// be called before anything reads or logs the answer.
func CleanAnswer(resp *http.Response, passing *List, credentials []string, sent http.Header) {
	clean(resp.Header, passing)
	resp.Trailer = nil
	for _, name := range credentials {
		for _, value := range sent[name] {
			secret := value[strings.LastIndexByte(value, ' ')+1:] // what follows Bearer
			if len(secret) < minCredential {
				continue
			}
			holds := func(text string) bool { return strings.Contains(text, secret) }
			for name, values := range resp.Header {
				if !slices.ContainsFunc(values, holds) {
					continue
				}
				if values = slices.DeleteFunc(values, holds); len(values) == 0 {
					delete(resp.Header, name)
				} else {
					resp.Header[name] = values
				}
			}
		}
	}
}

// minCredential is the least length of a value that is treated as a credential, in bytes.
// Shorter values, such as a region, occur in other headers by chance.
const minCredential = 8

// OwnIdempotencyKey makes the idempotency keys of an API key differ from those of any other
// API key, because they share the account at the vendor: an answer that is stored there must
// not go to another tenant.
func OwnIdempotencyKey(header http.Header, keyID string) {
	values := header["Idempotency-Key"]
	if len(values) == 0 {
		return
	}
	sum := sha256.Sum256([]byte(keyID))
	prefix := hex.EncodeToString(sum[:8]) + "-"
	own := make([]string, len(values))
	for i, value := range values {
		own[i] = prefix + value
	}
	header["Idempotency-Key"] = own
}
