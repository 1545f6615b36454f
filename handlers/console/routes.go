package console

import (
	"net/http"
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

	// params are the names that the query of a user's GET may have, between
	// spaces. Another is refused, as an unknown name in a body is.
	params string

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
// counts.
type table []route

// routes are those of users and of the pages of payment services. All of them
// refuse what another site has a browser send.
var routes = table{
	{"GET", "/api/user/self", user, nothing, reads, false, "", showSelf},

	{"GET", "/api/subscription/plans/", user, nothing, reads, false, "p page_size", listPlans},
	{"GET", "/api/subscription/self/", user, nothing, reads, false, "p page_size", listSubscriptions},
	{"PUT", "/api/subscription/self/preference", user, jsonBody, writes, false, "", setPreference},
	{"POST", "/api/subscription/wallet/pay", user, jsonBody, writes, false, "", buyPlan},
	{"POST", "/api/subscription/free/pay", user, jsonBody, writes, false, "", claimPlan},
	{"POST", "/api/subscription/wallet/renew", user, jsonBody, writes, false, "", renewSubscription},

	{"GET", "/api/user/topup/info", user, nothing, reads, false, "", showTopUp},
	{"GET", "/api/user/topup/self/", user, nothing, reads, false, "p page_size", listOrders},
	{"POST", "/api/user/{provider}/pay", user, jsonBody, writes, false, "", openOrder},
	{"GET", "/api/user/topup/{trade_no}", user, nothing, reads, false, "", showOrder},
	{"GET", "/api/user/{provider}/page/{trade_no}", nobody, nothing, pages, false, "", servePage},
	{"POST", "/api/user/{provider}/page/{trade_no}", nobody, form, pages, false, "", servePage},

	{"GET", "/api/user/ledger/", user, nothing, reads, false, "account format p page_size", showLedger},
	{"GET", "/api/log/self/", user, nothing, reads, false, "start end key_id model p page_size", listCalls},
	{"GET", "/api/data/self/", user, nothing, reads, false, "start end tz group", showUsage},
}

// webhooks are those of payment services. They come from other sites by their
// nature, so they stand in a table of their own beside the protection against
// that, instead of in a list of exceptions to it. Which of the methods a
// service uses is for its adapter to say.
var webhooks = table{
	{"POST", "/api/user/{provider}/webhook", service, notice, notices, false, "", takeNotice},
	{"GET", "/api/user/{provider}/webhook", service, notice, notices, false, "", takeNotice},
}

// of returns the routes of a request's path, and puts the values in the path
// where PathValue finds them; none when the table does not have the path.
func (t table) of(r *http.Request) (rows table) {
	wire := r.URL.EscapedPath()
	if !strings.HasPrefix(wire, "/api/") {
		return nil
	}
	for _, rt := range t {
		if len(rows) > 0 && rt.path != rows[0].path {
			continue
		}
		values, ok := reply.Match(rt.path, wire)
		if !ok {
			continue
		}
		for i, name := range names(rt.path) {
			r.SetPathValue(name, values[i])
		}
		rows = append(rows, rt)
	}
	return rows
}

// by returns the route of a method among those of one path. Another method is a
// fault with those that there are.
func (t table) by(method string) (*route, *fault.Fault) {
	var allowed []string
	for i := range t {
		rt := &t[i]
		if rt.method == method || rt.method == http.MethodGet && method == http.MethodHead {
			return rt, nil
		}
		allowed = append(allowed, rt.method)
		if rt.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	return nil, notAllowed(allowed)
}

func notAllowed(methods []string) *fault.Fault {
	allow := strings.Join(methods, ", ")
	f := fault.New(fault.MethodNotAllowed, "this path takes %s", allow)
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
