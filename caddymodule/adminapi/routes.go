package adminapi

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// route is a row of the table of routes.
type route struct {
	pattern string // of http.ServeMux
	handle  handler
	early   bool // also serve it before the configuration is in force
}

// routes is the table of the operator's routes.
var routes = []route{
	{pattern: "GET /modelgate/status", handle: showStatus, early: true},
	{pattern: "GET /modelgate/backup", handle: streamBackup, early: true},
	{pattern: "POST /modelgate/backup/completed", handle: func(c *call) (any, error) { return struct{}{}, c.NoteBackup(c.ctx()) }, early: true},
	{pattern: "POST /modelgate/verify", handle: verifyStore},
	{pattern: "POST /modelgate/secret/rotate", handle: func(c *call) (any, error) { return c.RotateMasterKey(c.ctx()) }},

	{pattern: "GET /modelgate/users", handle: listUsers},
	{pattern: "POST /modelgate/users", handle: taking(createUser)},
	{pattern: "GET /modelgate/users/{user}", handle: showUser},
	{pattern: "DELETE /modelgate/users/{user}/factors", handle: onUser((*identity.Directory).ResetFactors)},
	{pattern: "POST /modelgate/users/{user}/reset-password", handle: issueResetCode},
	{pattern: "POST /modelgate/users/{user}/unblock", handle: onUser((*identity.Directory).Unblock)},
	{pattern: "POST /modelgate/users/{user}/sign-out", handle: onUser((*identity.Directory).SignOut)},
	{pattern: "POST /modelgate/users/{user}/disable", handle: setUserDisabled(true)},
	{pattern: "POST /modelgate/users/{user}/enable", handle: setUserDisabled(false)},
	{pattern: "POST /modelgate/users/{user}/limits", handle: taking(changeUserLimits)},
	{pattern: "DELETE /modelgate/users/{user}/limits", handle: removeUserLimits},
	{pattern: "POST /modelgate/users/{user}/token", handle: mintToken},
	{pattern: "DELETE /modelgate/users/{user}/token", handle: onUser((*identity.Directory).RevokeToken)},

	{pattern: "GET /modelgate/keys", handle: listKeys},
	{pattern: "POST /modelgate/keys", handle: taking(createKey)},
	{pattern: "POST /modelgate/keys/{key}/limits", handle: taking(changeKeyLimits)},
	{pattern: "DELETE /modelgate/keys/{key}/limits", handle: removeKeyLimits},
	{pattern: "POST /modelgate/keys/{key}/revoke", handle: revokeKey},
	{pattern: "POST /modelgate/keys/{key}/rotate", handle: taking(rotateKey)},

	{pattern: "GET /modelgate/wallets/{user}", handle: showWallet},
	{pattern: "POST /modelgate/wallets/{user}/credit", handle: changeWallet((*billing.Service).Credit)},
	{pattern: "POST /modelgate/wallets/{user}/debit", handle: changeWallet((*billing.Service).Debit)},
	{pattern: "POST /modelgate/wallets/{user}/clear", handle: taking(clearWallet)},
	{pattern: "GET /modelgate/wallets/{user}/ledger", handle: listLines},
	{pattern: "GET /modelgate/plans", handle: func(c *call) (any, error) { return listed(c.app.Plans().All(), nil) }},
	{pattern: "GET /modelgate/subscriptions", handle: listSubscriptions},
	{pattern: "POST /modelgate/subscriptions", handle: taking(grantPlan)},
	{pattern: "POST /modelgate/subscriptions/{id}/cancel", handle: taking(cancelSubscription)},
	{pattern: "GET /modelgate/usage", handle: reportUsage},
	{pattern: "GET /modelgate/calls", handle: listCalls},
	{pattern: "GET /modelgate/calls/{request}", handle: showCall},

	{pattern: "GET /modelgate/orders", handle: listOrders},
	{pattern: "GET /modelgate/orders/{order}", handle: showOrder},
	{pattern: "GET /modelgate/mismatches", handle: listMismatches},
	{pattern: "POST /modelgate/mismatches/{id}/resolve", handle: taking(resolveMismatch)},
	{pattern: "GET /modelgate/payments", handle: reportPayments},
	{pattern: "GET /modelgate/ledger", handle: exportLedger},

	{pattern: "GET /modelgate/tasks", handle: listTasks},
	{pattern: "GET /modelgate/tasks/unfinished", handle: listUnfinishedTasks},
	{pattern: "POST /modelgate/tasks/watch", handle: taking(watchTasks)},
	{pattern: "GET /modelgate/tasks/{task}", handle: showTask},
	{pattern: "POST /modelgate/tasks/{task}/retry", handle: func(c *call) (any, error) {
		return c.shownTask(c.Tasks.Retry(c.ctx(), Operator, c.path("task")))
	}},
	{pattern: "POST /modelgate/tasks/{task}/cancel", handle: func(c *call) (any, error) {
		return c.shownTask(c.Tasks.CancelAs(c.ctx(), Operator, task.Anyone, c.path("task")))
	}},
	{pattern: "GET /modelgate/callbacks", handle: listDeliveries},
	{pattern: "POST /modelgate/callbacks/{task}/redeliver", handle: func(c *call) (any, error) {
		return c.Tasks.Redeliver(c.ctx(), Operator, task.Anyone, c.path("task"))
	}},
	{pattern: "GET /modelgate/backends", handle: func(c *call) (any, error) { return listed(c.shownBackends()) }},
	{pattern: "POST /modelgate/backends/{backend}/check", handle: checkBackend},
	{pattern: "POST /modelgate/backends/{backend}/drain", handle: setBackend((*task.Engine).Drain)},
	{pattern: "POST /modelgate/backends/{backend}/enable", handle: setBackend((*task.Engine).Enable)},
}

// onUser returns a handler that changes the user of the path. The answer is an empty
// object.
func onUser(change func(d *identity.Directory, ctx context.Context, actor, user string) error) handler {
	return func(c *call) (any, error) { return struct{}{}, change(c.Directory, c.ctx(), Operator, c.path("user")) }
}
