package reply

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Credential is the kind of credential that a route requires.
type Credential string

// The credentials of docs/reference/http.md#credentials.
const (
	Public    Credential = "none"      // none is needed, or the path or the body has a secret
	APIKey    Credential = "API key"   // in Authorization or X-Api-Key
	User      Credential = "user"      // a session or an access token
	HalfOpen  Credential = "half-open" // as User, or a session whose second factor is still due
	Signature Credential = "signature" // of a payment or generation service, which proves the sender
)

// HasAccount reports whether the credential is that of a user of the console.
func (c Credential) HasAccount() bool { return c == User || c == HalfOpen }

// Route declares one route of a directive: the path, and what is checked before a request
// is served. A directive derives its checks from the same declaration that it registers.
type Route struct {
	Method     string          // GET also answers HEAD
	Path       string          // a pattern of [Match]
	Dialect    dialect.Dialect // of its errors
	Credential Credential
	Roles      []string // of users, each with a second factor; nil: no role is needed
	StepUp     string   // the name of the proof that a user must give in addition; empty: none
	Rate       string   // the class of requests for rate limits; empty: none
	MaxBody    int64    // in bytes; zero: no body is read
	Query      []string // the allowed parameters

	literal bool     // the path has no values and no second spelling
	values  []string // the names of the values in the path
}

// Table has the routes of a directive, in the order in which they are tried. If two
// patterns match a path, the first one serves it.
type Table []Route

// The registry of all routes of this build. Only Register changes it.
var registry struct {
	routes   Table
	literals map[string]bool // paths
	patterns []string        // as [Match] takes them
	prefixes []string        // of paths that end with any text
}

// Register adds the routes of a directive to the registry and returns their table. It is
// called while packages are initialised.
func Register(routes ...Route) Table {
	for i := range routes {
		r := &routes[i]
		for segment := range strings.SplitSeq(r.Path, "/") {
			if strings.HasPrefix(segment, "{") {
				r.values = append(r.values, strings.Trim(segment, "{*.}"))
			}
		}
		r.literal = len(r.values) == 0 && !strings.HasSuffix(r.Path, "/")
		switch fixed, _, _ := strings.Cut(r.Path, "{"); {
		case r.literal:
			if registry.literals == nil {
				registry.literals = make(map[string]bool)
			}
			registry.literals[r.Path] = true
		case strings.Contains(r.Path, "{*") || strings.HasSuffix(r.Path, "...}"):
			registry.prefixes = append(registry.prefixes, fixed)
		default:
			registry.patterns = append(registry.patterns, r.Path)
		}
	}
	registry.routes = append(registry.routes, routes...)
	return routes
}

// Routes returns all routes of this build.
func Routes() Table { return slices.Clone(registry.routes) }

func (r *Route) match(wire string) (values []string, ok bool) {
	if r.literal {
		return nil, r.Path == wire
	}
	return Match(r.Path, wire)
}

func (r *Route) answers(method string) bool {
	return method == r.Method || method == http.MethodHead && r.Method == http.MethodGet
}

// Find returns the index of the route that serves r's path as it was written on the wire,
// or -1. If only the method is wrong, it returns the index of a route of the path and a fault with
// the allowed methods. It sets the values in the path in r.
func (t Table) Find(r *http.Request) (int, *fault.Fault) {
	wire, first := r.URL.EscapedPath(), -1
	var allowed []string
	for i := range t {
		route := &t[i]
		if first < 0 {
			values, ok := route.match(wire)
			if !ok {
				continue
			}
			first = i
			for i, name := range route.values {
				r.SetPathValue(name, values[i])
			}
		} else if route.Path != t[first].Path {
			continue
		}
		if route.answers(r.Method) {
			return i, nil
		}
		allowed = append(allowed, route.Method)
		if route.Method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	if first < 0 {
		return -1, nil
	}
	return first, MethodNotAllowed(t[first].Path, allowed)
}

// MethodNotAllowed returns the fault of a request whose path allows only methods.
func MethodNotAllowed(path string, methods []string) *fault.Fault {
	if strings.HasSuffix(path, "...}") {
		path = path[:strings.LastIndexByte(path, '/')]
	}
	allow := strings.Join(methods, ", ")
	f := fault.New(fault.MethodNotAllowed, "%s takes %s", path, allow)
	f.Allow = allow
	return f
}
