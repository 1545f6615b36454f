package reply

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
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
}

// ownPrefixes are paths of ours with an id behind them, which keeps its case
// and may hold slashes.
var ownPrefixes = []string{"/v1/models/"}

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

// Pass hands a request that is not the caller's own to the next handler, and
// makes sure that something is answered: a misspelt path of ours, and one under
// /v1 or /api that nobody serves, is 404 in the dialect of its prefix.
func Pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, versionHeader string) error {
	if wire := r.URL.EscapedPath(); !own[wire] {
		clean := canonical(wire)
		if misspelt(wire, clean) {
			NotFound(w, r, versionHeader)
			return nil
		}
		if !under(clean, "/v1") && !under(clean, "/api") {
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

// NotFound answers that there is nothing at r's path.
func NotFound(w http.ResponseWriter, r *http.Request, versionHeader string) {
	DialectOf(r, versionHeader).RefuseUnread(w, r, fault.New(fault.NotFound, "there is nothing at this path"), NewRequestID())
}

// misspelt tells whether wire, whose canonical form is clean and which is none
// of our paths, is one of them in another spelling: other case, doubled, dotted
// or encoded segments, a trailing slash.
func misspelt(wire, clean string) bool {
	if own[clean] {
		return true
	}
	for _, prefix := range ownPrefixes {
		if under(clean, strings.TrimSuffix(prefix, "/")) && !strings.HasPrefix(wire, prefix) {
			return true
		}
	}
	return false
}

// canonical returns the clean lower-case form of a path. Encoding is undone
// until nothing changes, and a backslash counts as a slash, as some servers
// behind us would have it.
func canonical(wire string) string {
	for range 4 {
		plain, err := url.PathUnescape(wire)
		if err != nil || plain == wire {
			break
		}
		wire = plain
	}
	wire = strings.ReplaceAll(wire, `\`, "/")
	if i := strings.IndexByte(wire, 0); i >= 0 {
		wire = wire[:i]
	}
	return strings.ToLower(strings.TrimRight(path.Clean("/"+wire), "/. ;\t"))
}

// under tells whether path is root or lies below it.
func under(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}
