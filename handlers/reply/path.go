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

// Match reports whether wire, a path as it was sent, matches a pattern. It returns the values
// of the segments in braces. {name} matches letters, digits, "_" and "-". {*name} matches any
// segment, and {name...} the rest of the path. A pattern that ends in "/" matches with and
// without that slash.
func Match(pattern, wire string) (values []string, ok bool) {
	if collection, is := strings.CutSuffix(pattern, "/"); is {
		pattern, wire = collection, strings.TrimSuffix(wire, "/")
	}
	for pattern != "" && wire != "" {
		var wanted, have string
		wanted, pattern = nextSegment(pattern)
		if pattern == "" && strings.HasSuffix(wanted, "...}") && wire != "/" {
			return append(values, wire[1:]), true
		}
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

// isOwn reports whether path is exactly the path of a route.
func isOwn(path string) bool {
	return registry.literals[path] || slices.ContainsFunc(registry.patterns, func(pattern string) bool {
		_, ok := Match(pattern, path)
		return ok
	})
}

// Pass passes a request that the calling directive does not serve to the next handler. It
// answers 404 for a misspelt path of a route, and for a path under /v1 or /api that no handler
// serves. The answer has the dialect of the prefix. Thus no spelling of a route's path reaches
// a server behind the gateway without the checks of the gateway.
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
	if err == nil && Unhandled(r) {
		notFound(w, r, versionHeader, servedPaths(r))
	}
	return err
}

// Unhandled reports whether no handler has answered r. If so, the caller must answer r: an earlier
// directive of this module gets the result that r was handled.
func Unhandled(r *http.Request) bool {
	unhandled, _ := caddyhttp.GetVar(r.Context(), "unhandled").(bool)
	if unhandled {
		caddyhttp.SetVar(r.Context(), "unhandled", false)
	}
	return unhandled
}

// isClaimed reports whether a path is below a prefix of the gateway.
func isClaimed(path string) bool { return under(path, "/v1") || under(path, "/api") }

// NotFound answers 404 in the dialect of the path.
func NotFound(w http.ResponseWriter, r *http.Request, versionHeader string) {
	notFound(w, r, versionHeader, "")
}

// notFound answers 404. The message lists paths as those that are served, unless it is empty.
func notFound(w http.ResponseWriter, r *http.Request, versionHeader, paths string) {
	f := fault.New(fault.NotFound, "there is nothing at this path")
	if paths != "" {
		f = fault.New(fault.NotFound, "there is nothing at this path; POST is served at %s", paths)
	}
	if clean, _ := canonical(r.URL.EscapedPath()); under(clean, "/v1/v1") {
		f = fault.New(fault.NotFound, "there is nothing at this path: the base URL has /v1 twice")
	}
	DialectOf(r, versionHeader).RefuseUnread(w, r, f, requestid.New())
}

// servedPathsVar is the request variable with the paths that [AddServedPaths] has collected.
const servedPathsVar = "modelgate.served_paths"

// AddServedPaths adds the paths of table that take POST requests to the variables of r. If no directive
// serves r, the answer lists the paths of all directives.
func AddServedPaths(r *http.Request, table Table) {
	if clean, _ := canonical(r.URL.EscapedPath()); !under(clean, "/v1") || under(clean, "/v1/platform") {
		return
	}
	paths, _ := caddyhttp.GetVar(r.Context(), servedPathsVar).([]string)
	for i := range table {
		if table[i].literal && table[i].Method == http.MethodPost && !slices.Contains(paths, table[i].Path) {
			paths = append(paths, table[i].Path)
		}
	}
	caddyhttp.SetVar(r.Context(), servedPathsVar, paths)
}

// servedPaths returns the paths of [AddServedPaths], separated by commas, or "" if there are none.
func servedPaths(r *http.Request) string {
	paths, _ := caddyhttp.GetVar(r.Context(), servedPathsVar).([]string)
	return strings.Join(paths, ", ")
}

// misspelt reports whether wire is another spelling of a route's path: in another case, with
// doubled, dotted or encoded segments, or with a trailing slash. The canonical form of wire is
// clean, and wire itself is not the path of a route.
func misspelt(wire, clean string) bool {
	if isOwn(clean) {
		return true
	}
	for _, prefix := range registry.prefixes {
		if under(clean, strings.TrimSuffix(prefix, "/")) && !strings.HasPrefix(wire, prefix) {
			return true
		}
	}
	return false
}

// canonical returns the clean lower-case form of a path, as the most lenient server behind
// the gateway might read it. It decodes until nothing changes, reads a backslash as a slash,
// drops path parameters, and ends at a query, a fragment or a control character. The result
// readable is false if the path is encoded more than maxEncoded times.
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

// maxEncoded is the maximum number of times that a path may be encoded.
const maxEncoded = 8

// unescape undoes one layer of encoding and leaves invalid escapes as they are.
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

// unescapeAll undoes every layer of encoding in one pass. An escape that ends with
// an escaped byte is undone as soon as it is complete.
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

// under reports whether path is root or is below it.
func under(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}
