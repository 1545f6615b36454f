package adminapi

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// Operation is a row of the table of operations.
type Operation struct {
	method string
	path   string                      // below /modelgate/, as a pattern of http.ServeMux
	handle handler                     // takes no parameters in a body
	take   handler                     // takes parameters in the body; see taking
	owner  func(*call) (string, error) // returns the id of the user on whose account it acts; nil: on none
	early  bool                        // also serve it before the configuration is in force
}

// operations is the table of what the operator can read and do. Administrators of the console can
// do what the table of package console offers.
var operations = []Operation{
	{method: "GET", path: "status", handle: showStatus, early: true},
	{method: "GET", path: "nodes", handle: listNodes, early: true},
	{method: "GET", path: "backup", handle: streamBackup, early: true},
	{method: "POST", path: "backup/completed", handle: func(c *call) (any, error) { return struct{}{}, c.NoteBackup(c.ctx()) }, early: true},
	{method: "GET", path: "verify", handle: showVerification},
	{method: "POST", path: "verify", handle: verifyStore},
	{method: "POST", path: "secret/rotate", handle: func(c *call) (any, error) { return c.RotateMasterKey(c.ctx()) }},

	{method: "GET", path: "find", handle: find},
	{method: "GET", path: "users", handle: listUsers},
	{method: "POST", path: "users", take: taking(createUser)},
	{method: "GET", path: "users/{user}", handle: showUser},
	{method: "GET", path: "users/{user}/activity", handle: listEvents},
	{method: "POST", path: "users/{user}/role", owner: pathUser, take: taking(setRole)},
	{method: "DELETE", path: "users/{user}/factors", owner: pathUser, handle: onUser((*identity.Directory).ResetFactors)},
	{method: "POST", path: "users/{user}/reset-password", owner: pathUser, handle: issueResetCode},
	{method: "POST", path: "users/{user}/unblock", owner: pathUser, handle: onUser((*identity.Directory).Unblock)},
	{method: "POST", path: "users/{user}/sign-out", owner: pathUser, handle: onUser((*identity.Directory).SignOut)},
	{method: "POST", path: "users/{user}/disable", owner: pathUser, handle: setUserDisabled(true)},
	{method: "POST", path: "users/{user}/enable", owner: pathUser, handle: setUserDisabled(false)},
	{method: "POST", path: "users/{user}/limits", owner: pathUser, take: taking(changeUserLimits)},
	{method: "DELETE", path: "users/{user}/limits", owner: pathUser, handle: removeUserLimits},
	{method: "POST", path: "users/{user}/token", owner: pathUser, handle: mintToken},
	{method: "DELETE", path: "users/{user}/token", owner: pathUser, handle: onUser((*identity.Directory).RevokeToken)},

	{method: "GET", path: "keys", handle: listKeys},
	{method: "POST", path: "keys", owner: bodyUser, take: taking(createKey)},
	{method: "POST", path: "keys/{key}/limits", owner: keyOwner, take: taking(changeKeyLimits)},
	{method: "DELETE", path: "keys/{key}/limits", owner: keyOwner, handle: removeKeyLimits},
	{method: "POST", path: "keys/{key}/revoke", owner: keyOwner, handle: revokeKey},
	{method: "POST", path: "keys/{key}/rotate", owner: keyOwner, take: taking(rotateKey)},

	{method: "GET", path: "wallets/{user}", handle: showWallet},
	{method: "POST", path: "wallets/{user}/credit", owner: pathUser, take: changeWallet((*billing.Service).Credit)},
	{method: "POST", path: "wallets/{user}/debit", owner: pathUser, take: changeWallet((*billing.Service).Debit)},
	{method: "POST", path: "wallets/{user}/clear", owner: pathUser, take: taking(clearWallet)},
	{method: "GET", path: "wallets/{user}/ledger", handle: listLines},
	{method: "GET", path: "plans", handle: func(c *call) (any, error) { return listed(c.app.Plans().All(), nil) }},
	{method: "GET", path: "subscriptions", handle: listSubscriptions},
	{method: "POST", path: "subscriptions", owner: bodyUser, take: taking(grantPlan)},
	{method: "POST", path: "subscriptions/{id}/cancel", owner: subscriptionOwner, handle: cancelSubscription},
	{method: "GET", path: "usage", handle: reportUsage},
	{method: "GET", path: "calls", handle: listCalls},
	{method: "GET", path: "calls/{request}", handle: showCall},

	{method: "GET", path: "orders", handle: listOrders},
	{method: "GET", path: "orders/{order}", handle: showOrder},
	{method: "GET", path: "mismatches", handle: listMismatches},
	{method: "POST", path: "mismatches/{id}/resolve", owner: mismatchUser, handle: resolveMismatch},
	{method: "GET", path: "payments", handle: reportPayments},
	{method: "GET", path: "sales", handle: reportSales},
	{method: "GET", path: "ledger", handle: exportLedger},
	{method: "GET", path: "transfers/{transfer}", handle: showTransfer},

	{method: "GET", path: "tasks", handle: listTasks},
	{method: "GET", path: "tasks/unfinished", handle: listUnfinishedTasks},
	{method: "POST", path: "tasks/watch", take: taking(watchTasks)},
	{method: "GET", path: "tasks/{task}", handle: showTask},
	{method: "POST", path: "tasks/{task}/retry", owner: taskOwner, handle: func(c *call) (any, error) {
		return c.shownTask(c.Tasks.Retry(c.ctx(), c.actor, c.path("task")))
	}},
	{method: "POST", path: "tasks/{task}/cancel", owner: taskOwner, handle: func(c *call) (any, error) {
		return c.shownTask(c.Tasks.CancelAs(c.ctx(), c.actor, task.Anyone, c.path("task")))
	}},
	{method: "GET", path: "callbacks", handle: listDeliveries},
	{method: "POST", path: "callbacks/{task}/redeliver", owner: taskOwner, handle: func(c *call) (any, error) {
		return c.Tasks.Redeliver(c.ctx(), c.actor, task.Anyone, c.path("task"))
	}},
	{method: "GET", path: "backends", handle: func(c *call) (any, error) { return listed(c.shownBackends()) }},
	{method: "POST", path: "backends/{backend}/check", handle: checkBackend},
	{method: "POST", path: "backends/{backend}/drain", handle: setBackend((*task.Engine).Drain)},
	{method: "POST", path: "backends/{backend}/enable", handle: setBackend((*task.Engine).Enable)},
}

// onUser returns a handler that changes the user of the path. The answer is an empty
// object.
func onUser(change func(d *identity.Directory, ctx context.Context, actor, user string) error) handler {
	return func(c *call) (any, error) { return struct{}{}, change(c.Directory, c.ctx(), c.actor, c.path("user")) }
}
