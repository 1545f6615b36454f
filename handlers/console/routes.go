package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// route is one row of the console: everything that is decided about a request
// before it is served.
type route struct {
	method string // GET answers HEAD too
	path   string // as reply.Match takes it
	who    class
	takes  intake
	rate   rate

	// stepUp demands a fresh proof of the user's second factor.
	stepUp bool

	serve func(*visit) error
}

// class is who may come in.
type class string

const (
	user    class = "user"    // with an access token
	service class = "service" // a payment service: the signature of what it sends tells who it is
	nobody  class = "nobody"  // without a credential: the path has a secret in it
)

// intake is what a route takes as the body of a request.
type intake struct {
	limit int64  // bytes; zero: there is no body, and what comes is not read
	media string // the one type there may be; empty: the route looks at it itself
}

var (
	nothing  = intake{}
	jsonBody = intake{limit: 64 << 10, media: "application/json"}
	form     = intake{limit: 64 << 10, media: "application/x-www-form-urlencoded"}
	notice   = intake{limit: 256 << 10}
)

// table is a set of routes. Of two paths that a request is of, the first
// decides.
type table []route

// routes are those of users and of the pages of payment services. All of them
// refuse what another site has a browser send.
var routes = table{
	{"GET", "/api/user/self", user, nothing, reads, false, showSelf},

	{"GET", "/api/subscription/plans/", user, nothing, reads, false, listPlans},
	{"GET", "/api/subscription/self/", user, nothing, reads, false, listSubscriptions},
	{"PUT", "/api/subscription/self/preference", user, jsonBody, writes, false, setPreference},
	{"POST", "/api/subscription/wallet/pay", user, jsonBody, writes, false, buyPlan},
	{"POST", "/api/subscription/free/pay", user, jsonBody, writes, false, claimPlan},
	{"POST", "/api/subscription/wallet/renew", user, jsonBody, writes, false, renewSubscription},

	{"GET", "/api/user/topup/info", user, nothing, reads, false, showTopUp},
	{"GET", "/api/user/topup/self/", user, nothing, reads, false, listOrders},
	{"POST", "/api/user/{provider}/pay", user, jsonBody, writes, false, openOrder},
	{"GET", "/api/user/topup/{trade_no}", user, nothing, reads, false, showOrder},
	{"GET", "/api/user/{provider}/page/{trade_no}", nobody, nothing, pages, false, servePage},
	{"POST", "/api/user/{provider}/page/{trade_no}", nobody, form, pages, false, servePage},

	{"GET", "/api/user/ledger/", user, nothing, reads, false, showLedger},
	{"GET", "/api/log/self/", user, nothing, reads, false, listCalls},
	{"GET", "/api/data/self/", user, nothing, reads, false, showUsage},
}

// webhooks are those of payment services. They come from other sites by their
// nature, so they stand in a table of their own beside the protection against
// that, instead of in a list of exceptions to it. Which of the methods a
// service uses is for its adapter to say.
var webhooks = table{
	{"POST", "/api/user/{provider}/webhook", service, notice, notices, false, takeNotice},
	{"GET", "/api/user/{provider}/webhook", service, notice, notices, false, takeNotice},
}

// has tells whether a request is for a path of the table, by whatever method.
func (t table) has(r *http.Request) bool {
	wire := r.URL.EscapedPath()
	return strings.HasPrefix(wire, "/api/") && slices.ContainsFunc(t, func(rt route) bool {
		_, ok := reply.Match(rt.path, wire)
		return ok
	})
}

// find returns the route of a request whose path the table has, and puts the
// values in the path where PathValue finds them. A wrong method is a fault with
// those that are allowed.
func (t table) find(r *http.Request) (*route, *fault.Fault) {
	wire := r.URL.EscapedPath()
	path := ""
	var allowed []string
	for i := range t {
		rt := &t[i]
		values, ok := reply.Match(rt.path, wire)
		if !ok || path != "" && rt.path != path {
			continue
		}
		path = rt.path
		if rt.method == r.Method || rt.method == http.MethodGet && r.Method == http.MethodHead {
			for i, name := range names(path) {
				r.SetPathValue(name, values[i])
			}
			return rt, nil
		}
		allowed = append(allowed, rt.method)
		if rt.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	return nil, notAllowed(strings.TrimSuffix(path, "/"), allowed)
}

func notAllowed(path string, methods []string) *fault.Fault {
	allow := strings.Join(methods, ", ")
	f := fault.New(fault.MethodNotAllowed, "%s takes %s", path, allow)
	f.Allow = allow
	return f
}

// names returns what a pattern calls its values: those in braces.
func names(pattern string) (names []string) {
	for segment := range strings.SplitSeq(pattern, "/") {
		if strings.HasPrefix(segment, "{") {
			names = append(names, strings.Trim(segment, "{}"))
		}
	}
	return names
}
