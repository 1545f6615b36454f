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
	asks   protection

	// params are the names that the query of a user's request may have, between
	// spaces. Another is refused, as an unknown name in a body is.
	params string

	serve func(*request) error
}

// class is who may come in.
type class string

const (
	user    class = "user"    // logged in, by a session or an access token
	half    class = "half"    // as user, and also by a session whose second factor is still due
	service class = "service" // a payment service: the signature of what it sends tells who it is
	nobody  class = "nobody"  // without a credential: what is sent is one, or what is read is public
)

// known tells whether a class has an account.
func (c class) known() bool { return c == user || c == half }

// protection is what a route asks for beyond the credential.
type protection string

const (
	nothingMore protection = "nothing more"

	// stepUp is a fresh proof of the second factor, if the user has one. Without
	// it a stolen cookie could take the account over.
	stepUp protection = "step-up"

	// stepUpOrPassword is stepUp, and of a user without a factor the password
	// again, in the body: else a stolen cookie would become a credential that
	// lasts.
	stepUpOrPassword protection = "step-up or password" //nolint:gosec // words, no password

	// stepUpForScope is stepUpOrPassword for changes of what a key may do: where it may
	// be used from, until when and how much, and where its callbacks go.
	stepUpForScope protection = "step-up or password for the scope" //nolint:gosec // words, no password

	// stepUpAbove is stepUp where the price is above step_up_above.
	stepUpAbove protection = "step-up above a price"
)

// intake is what a route takes as the body of a request.
type intake struct {
	limit    int64  // bytes; zero: there is no body, and what comes is not read
	media    string // the one type there may be; empty: the route looks at it itself
	optional bool   // there may be no body, and then no type
}

var (
	nothing  = intake{}
	jsonBody = intake{limit: 64 << 10, media: "application/json"}
	maybe    = intake{limit: 64 << 10, media: "application/json", optional: true}
	form     = intake{limit: 64 << 10, media: "application/x-www-form-urlencoded"}
	notice   = intake{limit: 64 << 10}
)

// table is a set of routes. Of two paths that a request is of, the first
// counts.
type table []route

// routes are those of users and of the pages of payment services. All of them
// refuse what another site has a browser send.
var routes = table{
	{"GET", "/api/status", nobody, nothing, pages, nothingMore, "", showStatus},
	{"POST", "/api/setup", nobody, jsonBody, logins, nothingMore, "", setUp},

	{"POST", "/api/user/register", nobody, jsonBody, logins, nothingMore, "", register},
	{"POST", "/api/user/login", nobody, jsonBody, logins, nothingMore, "", logIn},
	{"POST", "/api/user/login/2fa", half, jsonBody, logins, nothingMore, "", logInCode},
	{"POST", "/api/user/logout", half, maybe, writes, nothingMore, "", logOut},
	{"POST", "/api/user/password", user, jsonBody, writes, stepUp, "", changePassword},
	{"POST", "/api/user/password/reset", nobody, jsonBody, logins, nothingMore, "", resetPassword},

	{"GET", "/api/user/self", user, nothing, reads, nothingMore, "", showSelf},
	{"PUT", "/api/user/self", user, jsonBody, writes, nothingMore, "", changeSelf},
	{"GET", "/api/user/self/sessions/", user, nothing, reads, nothingMore, "p page_size", listSessions},
	{"DELETE", "/api/user/self/sessions/", user, nothing, writes, nothingMore, "which", endSessions},
	{"DELETE", "/api/user/self/sessions/{id}", user, nothing, writes, nothingMore, "", endSession},
	{"GET", "/api/user/activity/", user, nothing, reads, nothingMore, "p page_size", listActivity},

	{"GET", "/api/user/2fa/status", user, nothing, reads, nothingMore, "", showFactors},
	{"POST", "/api/user/2fa/setup", user, maybe, writes, stepUpOrPassword, "", setUpTOTP},
	{"POST", "/api/user/2fa/enable", user, jsonBody, writes, nothingMore, "", enableTOTP},
	{"POST", "/api/user/2fa/disable", user, jsonBody, writes, stepUp, "", disableTOTP},
	{"POST", "/api/user/2fa/backup_codes", user, jsonBody, writes, stepUp, "", renewBackupCodes},

	{"GET", "/api/user/passkey/", user, nothing, reads, nothingMore, "", listPasskeys},
	{"POST", "/api/user/passkey/register/begin", user, maybe, writes, stepUpOrPassword, "", beginPasskey},
	{"POST", "/api/user/passkey/register/finish", user, jsonBody, writes, nothingMore, "", finishPasskey},
	{"POST", "/api/user/passkey/login/begin", nobody, maybe, logins, nothingMore, "", beginPasskeyLogin},
	{"POST", "/api/user/passkey/login/finish", nobody, jsonBody, logins, nothingMore, "", finishPasskeyLogin},
	{"POST", "/api/user/passkey/verify/begin", user, maybe, writes, nothingMore, "", beginPasskeyVerify},
	{"POST", "/api/user/passkey/verify/finish", user, jsonBody, writes, nothingMore, "", finishPasskeyVerify},
	{"DELETE", "/api/user/self/passkeys/{id}", user, nothing, writes, stepUp, "", removePasskey},

	{"POST", "/api/verify", user, jsonBody, writes, nothingMore, "", verify},

	{"POST", "/api/user/token", user, maybe, writes, stepUp, "", mintToken},
	{"DELETE", "/api/user/token", user, nothing, writes, nothingMore, "", revokeToken},
	{"GET", "/api/token/", user, nothing, reads, nothingMore, "p page_size", listKeys},
	{"POST", "/api/token/", user, jsonBody, writes, stepUpOrPassword, "", createKey},
	{"GET", "/api/token/{id}", user, nothing, reads, nothingMore, "", showKey},
	{"PUT", "/api/token/{id}", user, jsonBody, writes, stepUpForScope, "", changeKey},
	{"DELETE", "/api/token/{id}", user, nothing, writes, nothingMore, "", revokeKey},
	{"POST", "/api/token/{id}/rotate", user, maybe, writes, stepUp, "", rotateKey},
	{"POST", "/api/token/{id}/callback_secret", user, maybe, writes, stepUp, "", renewCallbackSecret},

	{"GET", "/api/task/self/", user, nothing, reads, nothingMore, "status key_id p page_size", listTasks},
	{"POST", "/api/task/self/", user, jsonBody, writes, nothingMore, "", composeTask},
	{"GET", "/api/task/self/{task_id}", user, nothing, reads, nothingMore, "", showTask},
	{"POST", "/api/task/self/{task_id}/cancel", user, maybe, writes, nothingMore, "", cancelTask},
	{"GET", "/api/callback/deliveries/", user, nothing, reads, nothingMore, "p page_size", listDeliveries},
	{"POST", "/api/callback/deliveries/{id}/redeliver", user, maybe, callbacks, nothingMore, "", redeliver},
	{"POST", "/api/callback/test", user, jsonBody, callbacks, nothingMore, "", testCallback},

	{"GET", "/api/subscription/plans/", user, nothing, reads, nothingMore, "p page_size", listPlans},
	{"GET", "/api/subscription/self/", user, nothing, reads, nothingMore, "p page_size", listSubscriptions},
	{"PUT", "/api/subscription/self/preference", user, jsonBody, writes, nothingMore, "", setPreference},
	{"POST", "/api/subscription/wallet/pay", user, jsonBody, writes, stepUpAbove, "", buyPlan},
	{"POST", "/api/subscription/free/pay", user, jsonBody, writes, nothingMore, "", claimPlan},
	{"POST", "/api/subscription/wallet/renew", user, jsonBody, writes, stepUpAbove, "", renewSubscription},

	{"GET", "/api/user/topup/info", user, nothing, reads, nothingMore, "", showTopUp},
	{"GET", "/api/user/topup/self/", user, nothing, reads, nothingMore, "p page_size", listOrders},
	{"POST", "/api/user/{provider}/pay", user, jsonBody, writes, nothingMore, "", openOrder},
	{"GET", "/api/user/topup/{trade_no}", user, nothing, reads, nothingMore, "", showOrder},
	{"GET", "/api/user/{provider}/page/{trade_no}", nobody, nothing, pages, nothingMore, "", servePage},
	{"POST", "/api/user/{provider}/page/{trade_no}", nobody, form, pages, nothingMore, "", servePage},

	{"GET", "/api/user/ledger/", user, nothing, reads, nothingMore, "account format p page_size", showLedger},
	{"GET", "/api/log/self/", user, nothing, reads, nothingMore, "start end key_id model p page_size", listCalls},
	{"GET", "/api/data/self/", user, nothing, reads, nothingMore, "start end tz group", showUsage},
}

// webhooks are those of payment services. They come from other sites by their
// nature, so they stand in a table of their own beside the protection against
// that, instead of in a list of exceptions to it. Which of the methods a
// service uses is for its adapter to say.
var webhooks = table{
	{"POST", "/api/user/{provider}/webhook", service, notice, notices, nothingMore, "", takeNotice},
	{"GET", "/api/user/{provider}/webhook", service, notice, notices, nothingMore, "", takeNotice},
}

// events are the routes by which people are let in or prove themselves, by what
// the metrics call them.
var events = map[string]string{
	"POST /api/setup":                        "setup",
	"POST /api/user/register":                "register",
	"POST /api/user/login":                   "login",
	"POST /api/user/login/2fa":               "login_2fa",
	"POST /api/user/passkey/login/finish":    "login_passkey",
	"POST /api/user/logout":                  "logout",
	"POST /api/user/password":                "password_change",
	"POST /api/user/password/reset":          "password_reset",
	"POST /api/user/2fa/enable":              "2fa_enable",
	"POST /api/user/2fa/disable":             "2fa_disable",
	"POST /api/user/2fa/backup_codes":        "backup_codes",
	"POST /api/user/passkey/register/finish": "passkey_register",
	"POST /api/user/passkey/verify/finish":   "passkey_verify",
	"POST /api/verify":                       "verify",
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
