package reply

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

// own are the exact paths that this build's directives serve. The first of our
// directives that sees a misspelt form of one refuses it, so that no path can
// be written in a way that slips past the gate to whatever comes after it.
var own = map[string]bool{
	"/healthz":                  true,
	"/readyz":                   true,
	"/v1/messages":              true,
	"/v1/messages/count_tokens": true,
	"/v1/completions":           true,
	"/v1/chat/completions":      true,
	"/v1/models":                true,
	"/v1/usage":                 true,
	"/v1/platform/video":        true,
	"/v1/platform/image":        true,
	"/v1/platform/tasks":        true,
	"/v1/video/generations":     true,
}

// taskPatterns are the paths of tasks that have an id in them, as [Match] takes
// them.
var taskPatterns = []string{
	"/v1/platform/tasks/{id}",
	"/v1/platform/tasks/{id}/cancel",
	"/v1/video/generations/{id}",
	"/v1/notices/{backend}",
}

// ownPatterns are the paths of the console, as [Match] takes them.
var ownPatterns = []string{
	"/api/status",
	"/api/setup",
	"/api/user/register",
	"/api/user/login",
	"/api/user/login/2fa",
	"/api/user/logout",
	"/api/user/password",
	"/api/user/password/reset",
	"/api/user/self",
	"/api/user/self/sessions/",
	"/api/user/self/sessions/{id}",
	"/api/user/self/passkeys/{id}",
	"/api/user/activity/",
	"/api/user/2fa/status",
	"/api/user/2fa/setup",
	"/api/user/2fa/enable",
	"/api/user/2fa/disable",
	"/api/user/2fa/backup_codes",
	"/api/user/passkey/",
	"/api/user/passkey/register/begin",
	"/api/user/passkey/register/finish",
	"/api/user/passkey/login/begin",
	"/api/user/passkey/login/finish",
	"/api/user/passkey/verify/begin",
	"/api/user/passkey/verify/finish",
	"/api/verify",
	"/api/user/token",
	"/api/token/",
	"/api/token/{id}",
	"/api/token/{id}/rotate",
	"/api/token/{id}/callback_secret",
	"/api/task/self/",
	"/api/task/self/{task_id}",
	"/api/task/self/{task_id}/cancel",
	"/api/callback/deliveries/",
	"/api/callback/deliveries/{id}/redeliver",
	"/api/callback/test",
	"/api/subscription/plans/",
	"/api/subscription/self/",
	"/api/subscription/self/preference",
	"/api/subscription/wallet/pay",
	"/api/subscription/free/pay",
	"/api/subscription/wallet/renew",
	"/api/user/ledger/",
	"/api/user/topup/info",
	"/api/user/topup/self/",
	"/api/user/topup/{trade_no}",
	"/api/user/{provider}/pay",
	"/api/user/{provider}/webhook",
	"/api/user/{provider}/page/{trade_no}",
	"/api/log/self/",
	"/api/data/self/",
}

// ownPrefixes are paths of ours with an id behind them, which keeps its case
// and may hold slashes.
var ownPrefixes = []string{"/v1/models/", "/v1/files/"}

// Route is one path that a directive serves.
type Route struct {
	Path    string // exact, or a prefix when it ends in "/"
	Methods []string
}

func (r Route) serves(wire string) bool {
	if strings.HasSuffix(r.Path, "/") {
		return len(wire) > len(r.Path) && strings.HasPrefix(wire, r.Path)
	}
	return wire == r.Path
}

// Find returns the row of the routes that serves r's path as it was written on
// the wire, or -1. A wrong method is a fault with the ones allowed.
func Find(routes []Route, r *http.Request) (int, *fault.Fault) {
	wire := r.URL.EscapedPath()
	for i, route := range routes {
		if !route.serves(wire) {
			continue
		}
		if slices.Contains(route.Methods, r.Method) {
			return i, nil
		}
		allow := strings.Join(route.Methods, ", ")
		f := fault.New(fault.MethodNotAllowed, "%s takes %s", strings.TrimSuffix(route.Path, "/"), allow)
		f.Allow = allow
		return i, f
	}
	return -1, nil
}

// Match tells whether wire, a path as it was written, is of a pattern, and
// returns the segments that stand for those which the pattern has in braces.
// Such a segment has letters, digits, "_" and "-", and keeps its case; {*name}
// stands for any, as it was written. A pattern that ends in "/" is that of a
// collection, which has two paths: with the slash and without it.
func Match(pattern, wire string) (values []string, ok bool) {
	if collection, is := strings.CutSuffix(pattern, "/"); is {
		pattern, wire = collection, strings.TrimSuffix(wire, "/")
	}
	for pattern != "" && wire != "" {
		var wanted, have string
		wanted, pattern = nextSegment(pattern)
		have, wire = nextSegment(wire)
		switch {
		case strings.HasPrefix(wanted, "/{*") && have != "/":
			values = append(values, have[1:])
		case strings.HasPrefix(wanted, "/{") && isID(strings.TrimPrefix(have, "/")):
			values = append(values, have[1:])
		case wanted != have:
			return nil, false
		}
	}
	return values, pattern == wire
}

// nextSegment splits a path after its first segment, slash included.
func nextSegment(path string) (segment, rest string) {
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[:end+1], path[end+1:]
	}
	return path, ""
}

func isID(segment string) bool {
	for _, c := range []byte(segment) {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return segment != ""
}

// isOwn tells whether a path is written exactly as one of ours.
func isOwn(path string) bool {
	if own[path] {
		return true
	}
	patterns := taskPatterns
	if under(path, "/api") {
		patterns = ownPatterns
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		_, ok := Match(pattern, path)
		return ok
	})
}

// Pass hands a request that is not the caller's own to the next handler, and
// makes sure that something is answered: a misspelt path of ours, and one under
// /v1 or /api that nobody serves, is 404 in the dialect of its prefix.
func Pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, versionHeader string) error {
	if wire := r.URL.EscapedPath(); !isOwn(wire) {
		clean, readable := canonical(wire)
		if !readable || misspelt(wire, clean) {
			NotFound(w, r, versionHeader)
			return nil
		}
		if !isClaimed(clean) && !isClaimed(wire) {
			return next.ServeHTTP(w, r)
		}
	}
	err := next.ServeHTTP(w, r)
	if unhandled, _ := caddyhttp.GetVar(r.Context(), "unhandled").(bool); err == nil && unhandled {
		// Another of our directives may stand before this one and would refuse
		// a second time.
		caddyhttp.SetVar(r.Context(), "unhandled", false)
		NotFound(w, r, versionHeader)
	}
	return err
}

// isClaimed tells whether a path lies where nothing is answered but by us.
func isClaimed(path string) bool { return under(path, "/v1") || under(path, "/api") }

// NotFound answers that there is nothing at r's path.
func NotFound(w http.ResponseWriter, r *http.Request, versionHeader string) {
	DialectOf(r, versionHeader).RefuseUnread(w, r, fault.New(fault.NotFound, "there is nothing at this path"), requestid.New())
}

// misspelt tells whether wire, whose canonical form is clean and which is none
// of our paths, is one of them in another spelling: other case, doubled, dotted
// or encoded segments, a trailing slash.
func misspelt(wire, clean string) bool {
	if isOwn(clean) {
		return true
	}
	for _, prefix := range ownPrefixes {
		if under(clean, strings.TrimSuffix(prefix, "/")) && !strings.HasPrefix(wire, prefix) {
			return true
		}
	}
	return false
}

// canonical returns the clean lower-case form of a path, as the most lenient
// server behind us might read it: encoding is undone until nothing changes, a
// backslash is a slash, path parameters are dropped, and a query, a fragment or
// a control character ends it. Readable is false for what is encoded within itself
// more often than maxEncoded.
func canonical(wire string) (clean string, readable bool) {
	readable = true
	for depth := 0; ; depth++ {
		plain := unescape(wire)
		if plain == wire {
			break
		}
		if wire = plain; depth == maxEncoded {
			wire, readable = unescapeAll(wire), false
			break
		}
	}
	if end := strings.IndexFunc(wire, func(r rune) bool { return r == '?' || r == '#' || r < ' ' || r == 0x7f }); end >= 0 {
		wire = wire[:end]
	}
	segments := strings.Split(strings.ReplaceAll(wire, `\`, "/"), "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	clean = path.Clean("/" + strings.Join(segments, "/"))
	return strings.ToLower(strings.TrimRight(clean, "/.:,% ")), readable
}

// maxEncoded is how often a path may be encoded within itself.
const maxEncoded = 8

// unescape undoes one layer of encoding and leaves what is no encoding as it is.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	plain := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				plain = append(plain, byte(c))
				i += 2
				continue
			}
		}
		plain = append(plain, s[i])
	}
	return string(plain)
}

// unescapeAll undoes every layer of encoding, in one pass: an escape that ends with
// a byte that was itself escaped is undone as soon as it is complete.
func unescapeAll(s string) string {
	plain := make([]byte, 0, len(s))
	for _, c := range []byte(s) {
		plain = append(plain, c)
		for n := len(plain); n >= 3 && plain[n-3] == '%'; n = len(plain) {
			c, err := strconv.ParseUint(string(plain[n-2:]), 16, 8)
			if err != nil {
				break
			}
			plain = append(plain[:n-3], byte(c))
		}
	}
	return string(plain)
}

// under tells whether path is root or lies below it.
func under(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}
