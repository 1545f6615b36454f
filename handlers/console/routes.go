package console

import (
	"strings"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// route is one row of the console: everything that is checked before a request is served,
// and what serves it.
type route struct {
	method string // GET answers HEAD, too
	path   string // as reply.Match takes it
	who    reply.Credential
	takes  intake
	rate   rate
	asks   *protection

	// params are the names of the parameters that the query of a user's request may
	// have, separated by spaces. Other names are refused.
	params string

	endpoint
}

// Short names for the rows of the table.
const (
	public  = reply.Public
	user    = reply.User
	half    = reply.HalfOpen
	service = reply.Signature
)

// intake describes the body of a request.
type intake struct {
	limit    int64  // bytes; zero: there is no body, and none is read
	media    string // the type that is required; empty: the payment service checks it
	optional bool   // the body may be left out, with its type
}

var (
	nothing  = intake{}
	jsonBody = intake{limit: 64 << 10, media: "application/json"}
	taskBody = intake{limit: 1 << 20, media: "application/json"} // as that of the routes below /v1/platform
	maybe    = intake{limit: 64 << 10, media: "application/json", optional: true}
	form     = intake{limit: 64 << 10, media: "application/x-www-form-urlencoded"}
	notice   = intake{limit: 64 << 10}
)

// routes are the routes of the console. If two routes match a path, the first serves it.
var routes = append([]route{
	// Webhooks come first, because {provider} is any name.
	{"POST", "/api/user/{provider}/webhook", service, notice, notices, nothingMore, "", plain(takeNotice)},
	{"GET", "/api/user/{provider}/webhook", service, notice, notices, nothingMore, "", plain(takeNotice)},

	{"GET", "/api/status", public, nothing, openPages, nothingMore, "", plain(showStatus)},
	{"POST", "/api/setup", public, jsonBody, logins, nothingMore, "", takes(setUp).counted("setup")},

	{"POST", "/api/user/register", public, jsonBody, logins, nothingMore, "", takes(register).counted("register")},
	{"POST", "/api/user/login", public, jsonBody, logins, nothingMore, "", takes(logIn).counted("login")},
	{"POST", "/api/user/login/2fa", half, jsonBody, logins, nothingMore, "", takes(logInCode).counted("login_2fa")},
	{"POST", "/api/user/logout", half, maybe, writes, nothingMore, "", takes(logOut).counted("logout")},
	{"POST", "/api/user/password", user, jsonBody, writes, stepUp, "", takes(changePassword).counted("password_change")},
	{"POST", "/api/user/password/forgot", public, jsonBody, logins, nothingMore, "", takes(forgotPassword).counted("password_forgot")},
	{"POST", "/api/user/password/reset", public, jsonBody, logins, nothingMore, "", takes(resetPassword).counted("password_reset")},

	{"GET", "/api/user/self", user, nothing, reads, nothingMore, "", plain(showSelf)},
	{"PUT", "/api/user/self", user, jsonBody, writes, stepUpForEmail, "", takes(changeSelf)},
	{"POST", "/api/user/self/email", user, jsonBody, writes, nothingMore, "", takes(confirmEmail).counted("email_confirm")},
	{"GET", "/api/user/self/sessions/", user, nothing, reads, nothingMore, "p page_size", lists(listSessions)},
	{"DELETE", "/api/user/self/sessions/", user, nothing, writes, nothingMore, "which", plain(endSessions)},
	{"DELETE", "/api/user/self/sessions/{id}", user, nothing, writes, nothingMore, "", plain(endSession)},
	{"GET", "/api/user/activity/", user, nothing, reads, nothingMore, "p page_size", lists(listActivity)},

	{"GET", "/api/user/2fa/status", user, nothing, reads, nothingMore, "", plain(showFactors)},
	{"POST", "/api/user/2fa/setup", user, maybe, writes, stepUpToEnrol, "", takes(setUpTOTP)},
	{"POST", "/api/user/2fa/enable", user, jsonBody, writes, nothingMore, "", takes(enableTOTP).counted("2fa_enable")},
	{"POST", "/api/user/2fa/disable", user, jsonBody, writes, stepUp, "", takes(disableTOTP).counted("2fa_disable")},
	{"POST", "/api/user/2fa/backup_codes", user, jsonBody, writes, stepUp, "", takes(renewBackupCodes).counted("backup_codes")},

	{"GET", "/api/user/passkey/", user, nothing, reads, nothingMore, "", plain(listPasskeys)},
	{"POST", "/api/user/passkey/register/begin", user, maybe, writes, stepUpToEnrol, "", takes(beginPasskey)},
	{"POST", "/api/user/passkey/register/finish", user, jsonBody, writes, nothingMore, "", plain(finishPasskey).counted("passkey_register")},
	{"POST", "/api/user/passkey/login/begin", public, maybe, logins, nothingMore, "", takes(beginPasskeyLogin)},
	{"POST", "/api/user/passkey/login/finish", public, jsonBody, logins, nothingMore, "", plain(finishPasskeyLogin).counted("login_passkey")},
	{"POST", "/api/user/passkey/verify/begin", user, maybe, writes, nothingMore, "", takes(beginPasskeyVerify)},
	{"POST", "/api/user/passkey/verify/finish", user, jsonBody, writes, nothingMore, "", plain(finishPasskeyVerify).counted("passkey_verify")},
	{"DELETE", "/api/user/self/passkeys/{id}", user, nothing, writes, stepUp, "", plain(removePasskey)},

	{"POST", "/api/verify", user, jsonBody, writes, nothingMore, "", takes(verify).counted("verify")},

	{"POST", "/api/user/token", user, maybe, writes, stepUpOrLogIn, "", takes(mintToken)},
	{"DELETE", "/api/user/token", user, nothing, writes, nothingMore, "", plain(revokeToken)},
	{"GET", "/api/token/", user, nothing, reads, nothingMore, "p page_size", lists(listKeys)},
	{"POST", "/api/token/", user, jsonBody, writes, stepUpOrPassword, "", takes(createKey)},
	{"GET", "/api/token/{id}", user, nothing, reads, nothingMore, "", plain(showKey)},
	{"PUT", "/api/token/{id}", user, jsonBody, writes, stepUpForScope, "", takes(changeKey)},
	{"DELETE", "/api/token/{id}", user, nothing, writes, nothingMore, "", plain(revokeKey)},
	{"POST", "/api/token/{id}/rotate", user, maybe, writes, stepUpOrLogIn, "", takes(rotateKey)},
	{"POST", "/api/token/{id}/callback_secret", user, maybe, writes, stepUpOrLogIn, "", takes(renewCallbackSecret)},

	{"GET", "/api/task/self/", user, nothing, reads, nothingMore, "status key_id p page_size", lists(listTasks)},
	{"POST", "/api/task/self/", user, taskBody, writes, nothingMore, "dry_run", plain(composeTask)},
	{"GET", "/api/task/self/{task_id}", user, nothing, reads, nothingMore, "", plain(showTask)},
	{"POST", "/api/task/self/{task_id}/cancel", user, maybe, writes, nothingMore, "", takes(cancelTask)},
	{"GET", "/api/user/models/", user, nothing, reads, nothingMore, "p page_size", lists(listModels)},
	{"GET", "/api/task/models/", user, nothing, reads, nothingMore, "model p page_size", lists(listTaskModels)},
	{"GET", "/api/callback/deliveries/", user, nothing, reads, nothingMore, "p page_size", lists(listDeliveries)},
	{"POST", "/api/callback/deliveries/{id}/redeliver", user, maybe, callbacks, nothingMore, "", takes(redeliver)},
	{"POST", "/api/callback/test", user, jsonBody, callbacks, nothingMore, "", takes(testCallback)},

	{"GET", "/api/subscription/plans/", user, nothing, reads, nothingMore, "p page_size", lists(listPlans)},
	{"GET", "/api/subscription/plans/{id}", user, nothing, reads, nothingMore, "", plain(showPlan)},
	{"GET", "/api/subscription/self/", user, nothing, reads, nothingMore, "p page_size", lists(listSubscriptions)},
	{"PUT", "/api/subscription/self/preference", user, jsonBody, writes, nothingMore, "", takes(setPreference)},
	{"GET", "/api/subscription/self/{id}", user, nothing, reads, nothingMore, "", plain(showSubscription)},
	{"POST", "/api/subscription/wallet/pay", user, jsonBody, writes, stepUpAbove, "", takes(buyPlan)},
	{"POST", "/api/subscription/free/pay", user, jsonBody, writes, nothingMore, "", takes(claimPlan)},
	{"POST", "/api/subscription/wallet/renew", user, jsonBody, writes, stepUpAbove, "", takes(renewSubscription)},

	{"GET", "/api/user/topup/info", user, nothing, reads, nothingMore, "", plain(showTopUp)},
	{"GET", "/api/user/topup/self/", user, nothing, reads, nothingMore, "p page_size", lists(listOrders)},
	{"POST", "/api/user/{provider}/pay", user, jsonBody, writes, nothingMore, "", takes(openOrder)},
	{"GET", "/api/user/topup/{trade_no}", user, nothing, reads, nothingMore, "", plain(showOrder)},
	{"GET", "/api/user/{provider}/page/{trade_no}", public, nothing, openPages, nothingMore, "", plain(servePage)},
	{"POST", "/api/user/{provider}/page/{trade_no}", public, form, openPages, nothingMore, "", plain(servePage)},

	{"GET", "/api/user/ledger/", user, nothing, reads, nothingMore, "account format p page_size", plain(showLedger)},
	{"GET", "/api/log/self/", user, nothing, reads, nothingMore, "start end key_id model format p page_size", plain(showCalls)},
	{"GET", "/api/log/self/{request_id}", user, nothing, reads, nothingMore, "", plain(showCall)},
	{"GET", "/api/data/self/", user, nothing, reads, nothingMore, "start end tz group key_id model", plain(showUsage)},
}, administration()...)

// table is the routes as the registry has them, in the same order.
var table = declare()

func declare() reply.Table {
	rows := make([]reply.Route, len(routes))
	for i, rt := range routes {
		rows[i] = reply.Route{
			Method: rt.method, Path: rt.path, Dialect: dialect.Console, Credential: rt.who, Roles: rt.roleNames(), StepUp: rt.asks.name,
			Rate: string(rt.rate), MaxBody: rt.takes.limit, Query: rt.parameters(),
		}
	}
	return reply.Register(rows...)
}

// parameters returns the names of the parameters of the route.
func (rt *route) parameters() []string { return strings.Fields(rt.params) }
