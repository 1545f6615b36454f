package console

import (
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// The sets of roles of adminRoutes.
var (
	adminRoles   = []identity.Role{identity.Admin}
	supportRoles = []identity.Role{identity.Admin, identity.Support} // accounts and tasks
	financeRoles = []identity.Role{identity.Admin, identity.Finance} // decisions about payments
	allRoles     = []identity.Role{identity.Admin, identity.Support, identity.Finance}
)

// adminRoutes are the operations of package adminapi that users with a role can request below
// /api/admin/. Only the operator can do what is not here: backups, the master key, new users, and
// secrets of other users. A change takes a reason, and the audit records it.
var adminRoutes = []struct {
	method, path string // of the operation
	roles        []identity.Role
	asks         *protection
	params       string
}{
	{"GET", "status", supportRoles, nothingMore, ""},
	{"GET", "verify", supportRoles, nothingMore, ""},
	{"POST", "verify", adminRoles, nothingMore, ""},

	{"GET", "find", allRoles, nothingMore, "text limit"},
	{"GET", "users", allRoles, nothingMore, "q after limit"},
	{"GET", "users/{user}", supportRoles, nothingMore, ""},
	{"GET", "users/{user}/activity", supportRoles, nothingMore, "after limit"},
	{"POST", "users/{user}/role", adminRoles, stepUp, ""},
	{"DELETE", "users/{user}/factors", supportRoles, stepUp, "reason"},
	{"POST", "users/{user}/reset-password", adminRoles, stepUp, ""},
	{"POST", "users/{user}/unblock", supportRoles, stepUp, ""},
	{"POST", "users/{user}/sign-out", supportRoles, stepUp, ""},
	{"POST", "users/{user}/disable", adminRoles, stepUp, ""},
	{"POST", "users/{user}/enable", adminRoles, stepUp, ""},
	{"POST", "users/{user}/limits", adminRoles, stepUp, ""},
	{"DELETE", "users/{user}/limits", adminRoles, stepUp, "reason"},
	{"DELETE", "users/{user}/token", adminRoles, stepUp, "reason"},

	{"GET", "keys", supportRoles, nothingMore, "user after limit"},
	{"POST", "keys/{key}/limits", adminRoles, stepUp, ""},
	{"DELETE", "keys/{key}/limits", adminRoles, stepUp, "reason"},
	{"POST", "keys/{key}/revoke", adminRoles, stepUp, ""},

	{"GET", "wallets/{user}", allRoles, nothingMore, ""},
	{"GET", "wallets/{user}/ledger", allRoles, nothingMore, "account skip limit"},
	{"POST", "wallets/{user}/credit", adminRoles, stepUp, ""},
	{"POST", "wallets/{user}/debit", adminRoles, stepUp, ""},
	{"POST", "wallets/{user}/clear", adminRoles, stepUp, ""},
	{"GET", "plans", allRoles, nothingMore, ""},
	{"GET", "subscriptions", allRoles, nothingMore, "user"},
	{"POST", "subscriptions", adminRoles, stepUp, ""},
	{"POST", "subscriptions/{id}/cancel", adminRoles, stepUp, ""},
	{"GET", "usage", allRoles, nothingMore, "user from to group format"},
	{"GET", "calls", allRoles, nothingMore, "user key model from to status min_cost after limit"},
	{"GET", "calls/{request}", allRoles, nothingMore, ""},

	{"GET", "orders", allRoles, nothingMore, "user provider payment status time from to totals format after limit"},
	{"GET", "orders/{order}", allRoles, nothingMore, ""},
	{"GET", "mismatches", allRoles, nothingMore, "user provider payment kind status after limit"},
	{"POST", "mismatches/{id}/resolve", financeRoles, nothingMore, ""},
	{"GET", "sales", allRoles, nothingMore, "from to group format"},
	{"GET", "payments", allRoles, nothingMore, "from to group totals format"},
	{"GET", "ledger", allRoles, nothingMore, "from to"},
	{"GET", "transfers/{transfer}", allRoles, nothingMore, ""},

	{"GET", "tasks", supportRoles, nothingMore, "user status after limit"},
	{"GET", "tasks/{task}", supportRoles, nothingMore, ""},
	{"POST", "tasks/{task}/retry", adminRoles, stepUp, ""},
	{"POST", "tasks/{task}/cancel", adminRoles, stepUp, ""},
	{"GET", "callbacks", supportRoles, nothingMore, "user after limit"},
	{"POST", "callbacks/{task}/redeliver", supportRoles, nothingMore, ""},
	{"GET", "backends", supportRoles, nothingMore, ""},
	{"POST", "backends/{backend}/check", adminRoles, nothingMore, ""},
	{"POST", "backends/{backend}/drain", adminRoles, stepUp, ""},
	{"POST", "backends/{backend}/enable", adminRoles, stepUp, ""},
}

// administration returns the rows of adminRoutes as routes.
func administration() []route {
	rows := make([]route, len(adminRoutes))
	for i, row := range adminRoutes {
		takes, rate := nothing, reads
		if row.method != "GET" {
			rate = writes
		}
		if row.method == "POST" {
			takes = jsonBody
		}
		serve := plain(administer(adminapi.Find(row.method, row.path)))
		serve.roles = append([]identity.Role{}, row.roles...) // not nil: without roles, nobody may use it
		rows[i] = route{row.method, "/api/admin/" + row.path, user, takes, rate, row.asks, row.params, serve}
	}
	return rows
}

// administer returns the handler of an operation.
func administer(o *adminapi.Operation) func(*request) (any, error) {
	return func(req *request) (any, error) {
		answer, err := o.Run(req.runtime, req.console.app, req.r, req.account, req.body)
		if write, ok := answer.(adminapi.Stream); ok && err == nil {
			write(req.w)
			return nil, nil
		}
		return answer, err
	}
}

// roleNames returns the roles of the route; nil if it needs none.
func (rt *route) roleNames() (names []string) {
	for _, role := range rt.roles {
		names = append(names, string(role))
	}
	return names
}
