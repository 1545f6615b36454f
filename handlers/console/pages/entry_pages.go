package pages

var (
	logIn  = call{"POST", "/api/user/login", "username password"}
	status = load{"status", "/api/status", ""}
)

// entryPages are the pages without a session: the landing page, the log-in and what it may need.
var entryPages = []page{
	{path: "/", name: "landing", access: anyone, loads: []load{status}},
	{path: "/login", name: "login", access: anyone, resumes: true, loads: []load{status}, actions: map[string]*action{
		"login": {calls: []call{logIn}, then: "{next}"},
	}},
	{path: "/login/code", name: "login_code", access: anyone, resumes: true, actions: map[string]*action{
		"code": do("POST", "/api/user/login/2fa", "code", "{next}"),
	}},
	{path: "/logout", name: "logout", access: anyone, actions: map[string]*action{
		"logout": do("POST", "/api/user/logout", "", after("/login", "logged_out")),
	}},
	{path: "/register", name: "register", access: anyone, loads: []load{status}, actions: map[string]*action{
		"register": {calls: []call{{"POST", "/api/user/register", "username password"}, logIn}, then: "{next}"},
	}},
	{path: "/setup", name: "setup", access: anyone, loads: []load{status}, actions: map[string]*action{
		"setup": {calls: []call{{"POST", "/api/setup", "code username password"}, logIn}, then: "{next}"},
	}},
	{path: "/reset", name: "reset", access: anyone, loads: []load{status}, actions: map[string]*action{
		"reset": do("POST", "/api/user/password/reset", "code password", after("/login", "reset")),
	}},
	{path: "/forgot", name: "forgot", access: anyone, loads: []load{status}, actions: map[string]*action{
		"forgot": do("POST", "/api/user/password/forgot", "username", after("/reset", "forgot")),
	}},
	{path: "/preferences", name: "preferences", access: anyone, actions: map[string]*action{
		"language": {then: "{return}"}, "theme": {then: "{return}"},
	}},
	{path: "/verify", name: "verify", resumes: true, loads: []load{{"factors", "/api/user/2fa/status", ""}}, actions: map[string]*action{
		"verify": do("POST", "/api/verify", "method code", ""),
		"resume": {}, // after a log-in by passkey
	}},
}
