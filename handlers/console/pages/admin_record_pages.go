package pages

// orderFilter are the parameters that filter the payments of all users.
const orderFilter = "user provider payment status time from to"

// services are the payment services of the configuration, for filters.
var services = load{"services", "/api/user/topup/info", ""}

// adminRecordPages show the calls, tasks and payments of all users.
var adminRecordPages = []page{
	{path: "/admin/calls", name: "admin_calls", roles: allRoles, nav: true, filtered: true, loads: []load{
		{"calls", "/api/admin/calls", "user key model from to status min_cost after"},
	}},
	{path: "/admin/calls/{request}", name: "admin_call", template: "call", section: "admin_calls", roles: allRoles, loads: []load{
		{"call", "/api/admin/calls/{request}", ""},
	}},
	{path: "/admin/tasks", name: "admin_tasks", roles: supportRoles, nav: true, filtered: true, loads: []load{
		{"tasks", "/api/admin/tasks", "user status after"},
	}},
	{path: "/admin/tasks/{task}", name: "admin_task", section: "admin_tasks", roles: supportRoles, loads: []load{
		{"task", "/api/admin/tasks/{task}", ""},
	}, actions: map[string]*action{
		"task_retry":      do("POST", "/api/admin/tasks/{task}/retry", "reason", after("/admin/tasks/{task}", "task_retried")).only(adminRoles),
		"task_stop":       do("POST", "/api/admin/tasks/{task}/cancel", "reason", after("/admin/tasks/{task}", "task_cancelled")).only(adminRoles),
		"callback_resend": do("POST", "/api/admin/callbacks/{task}/redeliver", "reason", after("/admin/tasks/{task}", "redelivered")).only(supportRoles),
	}},
	{path: "/admin/orders", name: "admin_orders", roles: allRoles, nav: true, filtered: true, loads: []load{
		{"orders", "/api/admin/orders?totals=true", orderFilter + " after"},
		services,
	}},
	{path: "/admin/orders/{order}", name: "admin_order", section: "admin_orders", roles: allRoles, loads: []load{
		{"order", "/api/admin/orders/{order}", ""},
	}, actions: map[string]*action{
		"mismatch_resolve": do("POST", "/api/admin/mismatches/{id}/resolve", "reason", after("/admin/orders/{order}", "mismatch_resolved")).only(financeRoles),
	}},
	{path: "/admin/transfers/{transfer}", name: "admin_transfer", section: "admin_orders", roles: allRoles, loads: []load{
		{"transfer", "/api/admin/transfers/{transfer}", ""},
	}},
	{path: "/admin/mismatches", name: "admin_mismatches", roles: allRoles, nav: true, filtered: true, loads: []load{
		{"mismatches", "/api/admin/mismatches", "user provider payment kind status after"},
		services,
	}, actions: map[string]*action{
		"mismatch_resolve": do("POST", "/api/admin/mismatches/{id}/resolve", "reason", after("/admin/mismatches", "mismatch_resolved")).only(financeRoles),
	}},
}
