package pages

import "net/http"

// oneUser is a user with what support needs first.
var oneUser = load{"user", "/api/admin/users/{user}", ""}

// adminUserPages show the users.
var adminUserPages = []page{
	{path: "/admin/users", name: "admin_users", roles: allRoles, nav: true, filtered: true, loads: []load{
		{"users", "/api/admin/users", "q after"},
	}},
	{path: "/admin/users/{user}", name: "admin_user", section: "admin_users", roles: allRoles, partial: true, loads: []load{
		{"wallet", "/api/admin/wallets/{user}", ""},
		oneUser,
		{"subscriptions", "/api/admin/subscriptions?user={user}", ""},
		{"keys", "/api/admin/keys?user={user}", ""},
		{"events", "/api/admin/users/{user}/activity", "after"},
	}},
	{path: "/admin/users/{user}/ledger", name: "admin_ledger", section: "admin_users", roles: allRoles, filtered: true, loads: []load{
		{"wallet", "/api/admin/wallets/{user}", ""},
		{"subscriptions", "/api/admin/subscriptions?user={user}", ""},
		{"ledger", "/api/admin/wallets/{user}/ledger?limit=50", "account skip"},
	}},
	{path: "/admin/users/{user}/callbacks", name: "admin_callbacks", section: "admin_users", roles: supportRoles, loads: []load{
		{"deliveries", "/api/admin/callbacks?user={user}", "after"},
	}, actions: map[string]*action{
		"callback_resend": do("POST", "/api/admin/callbacks/{task}/redeliver", "reason", after("/admin/users/{user}/callbacks", "redelivered")).only(supportRoles),
	}},
}

// adminActionPages are those on which a user is changed. Each has one form with a reason, and its
// action has the name of the page.
var adminActionPages = []page{
	userAction("user_sign_out", supportRoles, "sign-out", "", nil),
	userAction("user_unblock", supportRoles, "unblock", "", func(user map[string]any) bool { return user["login_locked_until"] != nil }),
	{
		path: "/admin/users/{user}/factors", name: "user_factors", template: "user_action", section: "admin_users", roles: supportRoles, loads: []load{oneUser},
		actions: map[string]*action{"user_factors": do("DELETE", "/api/admin/users/{user}/factors?reason={reason}", "", after("/admin/users/{user}", "user_factors"))},
		fits: func(user map[string]any) bool {
			return get[bool](user, "factors", "totp") || integer(get[any](user, "factors", "passkeys")) > 0
		},
	},
	{
		path: "/admin/users/{user}/reset-password", name: "user_reset_code", template: "user_action", section: "admin_users", roles: adminRoles, loads: []load{oneUser},
		actions: map[string]*action{"user_reset_code": do("POST", "/api/admin/users/{user}/reset-password", "reason", "")},
	},
	userAction("user_disable", adminRoles, "disable", "", func(user map[string]any) bool { return user["disabled"] != true }),
	userAction("user_enable", adminRoles, "enable", "", func(user map[string]any) bool { return user["disabled"] == true }),
	userAction("user_limits", adminRoles, "limits", "budget:amount! reset?budget requests_per_second:int! streams:int! tokens_per_minute:int!", nil),
	userAction("user_role", adminRoles, "role", "role", nil),
	moneyAction("wallet_credit", "credit", "/api/admin/wallets/{user}/credit", "amount:sum!", "case:case", nil),
	moneyAction("wallet_debit", "debit", "/api/admin/wallets/{user}/debit", "amount:sum!", "case:case", nil),
	moneyAction("wallet_clear", "clear", "/api/admin/wallets/{user}/clear", "", "", func(user map[string]any) bool {
		return amountOf(get[any](user, "wallet", "owed")) > 0
	}),
	moneyAction("plan_grant", "grant", "/api/admin/subscriptions", "user plan_id:int", "", nil),
}

// cancelPages are reached from the list of the subscriptions of a user.
var cancelPages = []page{{
	path: "/admin/users/{user}/subscriptions/{subscription_id}/cancel", name: "plan_cancel", template: "user_action", section: "admin_users", roles: adminRoles,
	loads: []load{oneUser},
	actions: map[string]*action{
		"plan_cancel": do("POST", "/api/admin/subscriptions/{subscription_id}/cancel", "reason", after("/admin/users/{user}", "plan_cancel")),
	},
}}

// userAction returns the page of an action that the route of its last part does.
func userAction(name, roles, part, fields string, fits func(user map[string]any) bool) page {
	return page{
		path: "/admin/users/{user}/" + part, name: name, template: "user_action", section: "admin_users", roles: roles, fits: fits,
		loads:   []load{oneUser},
		actions: map[string]*action{name: do("POST", "/api/admin/users/{user}/"+part, fields+" reason", after("/admin/users/{user}", name))},
	}
}

// checks has the check of an action before its summary, by the name of the action. The API decides; a
// check reports its refusal earlier.
var checks = map[string]func(req *request) *Fault{"wallet_debit": (*request).checkDebit}

// checkMoney returns a fault if an action that moves money would be refused: without a step-up, or by its
// check. So the step-up comes before the summary.
func (req *request) checkMoney(name string) *Fault {
	answer, f := req.call(http.MethodGet, "/api/user/2fa/status", nil)
	if f != nil {
		return f
	}
	if !get[bool](answer, "verified") {
		return &Fault{Status: http.StatusForbidden, Code: "VERIFICATION_REQUIRED"}
	}
	if check := checks[name]; check != nil {
		return check(req)
	}
	return nil
}

// checkDebit returns a fault if the wallet of the user has less than the amount of the form.
func (req *request) checkDebit() *Fault {
	answer, f := req.call(http.MethodGet, req.fill("/api/admin/wallets/{user}"), nil)
	if f != nil {
		return f
	}
	wallet, _ := answer.(map[string]any)
	if free := available(wallet); amountOf(req.form.Get("amount")) > amountOf(free) {
		message := req.text("error.debit", number(free), wallet["currency"])
		return &Fault{Status: http.StatusPaymentRequired, Code: "INSUFFICIENT_FUNDS", Param: "amount", Message: message}
	}
	return nil
}

// available returns the balance of a wallet less what tasks and running calls have set aside, at least 0.
func available(wallet map[string]any) string {
	return max(0, amountOf(wallet["balance"])-amountOf(wallet["held"])-amountOf(wallet["reserved"])).String()
}

// moneyAction returns the page of an action that changes what a user can spend. Its form leads to a
// summary, which has the form that does it. Both have one idempotency key, which the template draws.
// The field of a case replaces the key, so that two users who answer one case change the balance once.
// caseField is that field, or "".
func moneyAction(name, part, route, fields, caseField string, fits func(user map[string]any) bool) page {
	p := page{
		path: "/admin/users/{user}/" + part, name: name, template: "money_action", section: "admin_users", roles: adminRoles, fits: fits,
		loads: []load{{"wallet", "/api/admin/wallets/{user}", ""}, oneUser, {"plans", "/api/admin/plans", ""}},
	}
	p.actions = map[string]*action{
		name:             do("POST", route, fields+" reason idempotency_key=case", after("/admin/users/{user}", name)),
		name + "_review": {calls: []call{{fields: fields + " reason:reason! " + caseField}}, check: func(req *request) *Fault { return req.checkMoney(name) }, review: name + "_review"},
	}
	p.actions[name].review = name + "_review"
	return p
}
