package console

import (
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// The roles of the rows of the administration.
var (
	onlyAdmin = []identity.Role{identity.Admin}
	forPeople = []identity.Role{identity.Admin, identity.Support} // accounts and tasks
	forMoney  = []identity.Role{identity.Admin, identity.Finance} // decisions about payments
	forAll    = []identity.Role{identity.Admin, identity.Support, identity.Finance}
)

// adminRoutes are the operations of package adminapi that users with a role can request below
// /api/admin/. What is not here only the operator can do: backups, the master key, new users, and
// secrets of others. A change takes a reason, and is an event of the audit.
var adminRoutes = []struct {
	method, path string // of the operation
	roles        []identity.Role
	asks         *protection
	params       string
}{
	{"GET", "status", forPeople, nothingMore, ""},
	{"GET", "verify", forPeople, nothingMore, ""},
	{"POST", "verify", onlyAdmin, nothingMore, ""},

	{"GET", "users", forAll, nothingMore, "q after limit"},
	{"GET", "users/{user}", forPeople, nothingMore, ""},
	{"GET", "users/{user}/activity", forPeople, nothingMore, "after limit"},
	{"POST", "users/{user}/role", onlyAdmin, stepUp, ""},
	{"DELETE", "users/{user}/factors", forPeople, stepUp, "reason"},
	{"POST", "users/{user}/reset-password", onlyAdmin, stepUp, ""},
	{"POST", "users/{user}/unblock", forPeople, stepUp, ""},
	{"POST", "users/{user}/sign-out", forPeople, stepUp, ""},
	{"POST", "users/{user}/disable", onlyAdmin, stepUp, ""},
	{"POST", "users/{user}/enable", onlyAdmin, stepUp, ""},
	{"POST", "users/{user}/limits", onlyAdmin, stepUp, ""},
	{"DELETE", "users/{user}/limits", onlyAdmin, stepUp, "reason"},
	{"DELETE", "users/{user}/token", onlyAdmin, stepUp, "reason"},

	{"GET", "keys", forPeople, nothingMore, "user"},
	{"POST", "keys/{key}/limits", onlyAdmin, stepUp, ""},
	{"DELETE", "keys/{key}/limits", onlyAdmin, stepUp, "reason"},
	{"POST", "keys/{key}/revoke", onlyAdmin, stepUp, ""},

	{"GET", "wallets/{user}", forAll, nothingMore, ""},
	{"GET", "wallets/{user}/ledger", forAll, nothingMore, "account skip limit"},
	{"POST", "wallets/{user}/credit", onlyAdmin, stepUp, ""},
	{"POST", "wallets/{user}/debit", onlyAdmin, stepUp, ""},
	{"POST", "wallets/{user}/clear", onlyAdmin, stepUp, ""},
	{"GET", "plans", forAll, nothingMore, ""},
	{"GET", "subscriptions", forAll, nothingMore, "user"},
	{"POST", "subscriptions", onlyAdmin, stepUp, ""},
	{"POST", "subscriptions/{id}/cancel", onlyAdmin, stepUp, ""},
	{"GET", "usage", forAll, nothingMore, "user from to group format"},
	{"GET", "calls", forAll, nothingMore, "user key model from to status min_cost after limit"},
	{"GET", "calls/{request}", forAll, nothingMore, ""},

	{"GET", "orders", forAll, nothingMore, "user provider payment status time from to totals format after limit"},
	{"GET", "orders/{order}", forAll, nothingMore, ""},
	{"GET", "mismatches", forAll, nothingMore, "user provider payment kind status after limit"},
	{"POST", "mismatches/{id}/resolve", forMoney, nothingMore, ""},
	{"GET", "sales", forAll, nothingMore, "from to group format"},
	{"GET", "payments", forAll, nothingMore, "from to group format"},
	{"GET", "ledger", forAll, nothingMore, "from to"},

	{"GET", "tasks", forPeople, nothingMore, "user status after limit"},
	{"GET", "tasks/{task}", forPeople, nothingMore, ""},
	{"POST", "tasks/{task}/retry", onlyAdmin, stepUp, ""},
	{"POST", "tasks/{task}/cancel", onlyAdmin, stepUp, ""},
	{"GET", "callbacks", forPeople, nothingMore, "user after limit"},
	{"POST", "callbacks/{task}/redeliver", forPeople, nothingMore, ""},
	{"GET", "backends", forPeople, nothingMore, ""},
	{"POST", "backends/{backend}/check", onlyAdmin, nothingMore, ""},
	{"POST", "backends/{backend}/drain", onlyAdmin, stepUp, ""},
	{"POST", "backends/{backend}/enable", onlyAdmin, stepUp, ""},
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
