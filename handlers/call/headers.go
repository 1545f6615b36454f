package call

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"golang.org/x/net/http/httpguts"
)

// headerList says which headers pass between a caller and a backend.
type headerList struct {
	names    map[string]bool // in canonical form
	prefixes []string        // of further names, in canonical form
	never    map[string]bool // names that cannot be added, nor by a prefix; beside X-Forwarded-*
}

func (l *headerList) has(name string) bool {
	if l.names[name] {
		return true
	}
	for _, prefix := range l.prefixes {
		if strings.HasPrefix(name, prefix) {
			return !l.bars(name)
		}
	}
	return false
}

// bars reports whether name may not be added to l.
func (l *headerList) bars(name string) bool {
	return l.never[name] || strings.HasPrefix(name, "X-Forwarded-")
}

// with returns l with more names, or prefixes that end with an asterisk.
func (l *headerList) with(names ...string) (*headerList, error) {
	more := &headerList{names: maps.Clone(l.names), prefixes: slices.Clone(l.prefixes), never: l.never}
	for _, given := range names {
		name, prefix := strings.CutSuffix(given, "*")
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case strings.Contains(name, "*") || !httpguts.ValidHeaderFieldName(name) && given != "*":
			return nil, fmt.Errorf("%q is neither the name of a header nor the beginning of one followed by *", given)
		case prefix:
			more.prefixes = append(more.prefixes, canonical)
		case l.bars(canonical):
			return nil, fmt.Errorf("%s never passes between callers and backends", canonical)
		default:
			more.names[canonical] = true
		}
	}
	return more, nil
}

// upstream are the headers of a caller that go to the backend: those in which
// today's SDKs send a version, betas, an idempotency key and their own name.
// Any other may decide what the vendor charges, or choose among the operator's
// accounts. Of X-Forwarded-* there are the three that Caddy rewrites.
var upstream = &headerList{
	names: setOf(
		"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent",
		"Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access", "Openai-Beta",
		"Idempotency-Key", "X-Client-Request-Id", "X-App", "Traceparent", "Tracestate",
		"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host",
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

// downstream are the headers of a backend that come in here: those that describe
// the content, that SDKs read, and by which a vendor finds a request again. Of
// these X-Request-Id is there for the operator's log alone: callers get ours.
var downstream = &headerList{
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

// clean deletes the headers that passing does not list, and those that Connection
// names (RFC 9110, section 7.6.1).
func clean(header http.Header, passing *headerList) {
	for _, list := range header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for name := range header {
		if !passing.has(name) {
			delete(header, name)
		}
	}
}

// cleanRequest makes r fit to leave: headers, query, encodings.
func cleanRequest(r *http.Request, passing *headerList, stream bool) {
	clean(r.Header, passing)
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

// cleanAnswer deletes from a backend's answer, before anything has read or logged
// it, the headers that passing does not list and the values that hold what the
// operator has sent to the backend in one of the headers named in credentials. Trailers
// get the names by which answer.end finds them.
func cleanAnswer(resp *http.Response, passing *headerList, credentials []string, sent http.Header) {
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

// minCredential is the length of the shortest value that is looked for as a
// credential, in bytes. Shorter ones, such as a region, occur in other headers by
// chance.
const minCredential = 8

// credentialsOf returns the names of the headers that header_up and
// request_header set in routes. Their values are the operator's, and may be
// credentials; those that callers send, too, hold none.
func credentialsOf(routes caddyhttp.RouteList) (names []string) {
	repl := caddy.NewReplacer() // a name may be a placeholder
	note := func(ops *headers.HeaderOps) {
		if ops == nil {
			return
		}
		for _, fields := range []http.Header{ops.Set, ops.Add} {
			for name := range fields {
				name = http.CanonicalHeaderKey(repl.ReplaceKnown(name, ""))
				if !upstream.has(name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	eachHandler(routes, func(handler caddyhttp.MiddlewareHandler) {
		switch h := handler.(type) {
		case *reverseproxy.Handler:
			if h.Headers != nil {
				note(h.Headers.Request)
			}
		case *headers.Handler:
			note(h.Request)
		}
	})
	return names
}

// ownIdempotencyKey has the caller's idempotency keys differ from those of any
// other API key, with which it may share the account at the vendor: an answer
// that is kept there must not be another tenant's.
func ownIdempotencyKey(header http.Header, keyID string) {
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
