package pages

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The sets of roles of the pages of the administration, named as those of the routes. The API decides
// what a role may do; these sets only hide forms that the API would refuse.
const (
	adminRoles   = "admin"
	supportRoles = "admin support"
	financeRoles = "admin finance"
	allRoles     = "admin support finance"
)

// adminHome is the first page of the administration, and where its field leads.
var adminHome = []page{
	{path: "/admin", name: "admin", roles: allRoles, nav: true, partial: true, loads: []load{
		{"mismatches", "/api/admin/mismatches?limit=5", ""},
		{"status", "/api/admin/status", ""},
		{"backends", "/api/admin/backends", ""},
		{"verification", "/api/admin/verify", ""},
	}},
	{path: "/admin/find", name: "admin_find", section: "admin", roles: allRoles, actions: map[string]*action{"find": {}}},
}

// watchPages show the figures of the operator, the backends and the store.
var watchPages = []page{
	{path: "/admin/backends", name: "admin_backends", roles: supportRoles, nav: true, loads: []load{
		{"backends", "/api/admin/backends", ""},
	}, actions: map[string]*action{
		"backend_check":  do("POST", "/api/admin/backends/{backend}/check", "reason", "").only(adminRoles),
		"backend_drain":  do("POST", "/api/admin/backends/{backend}/drain", "reason", after("/admin/backends", "backend_drained")).only(adminRoles),
		"backend_enable": do("POST", "/api/admin/backends/{backend}/enable", "reason", after("/admin/backends", "backend_enabled")).only(adminRoles),
	}},
	{path: "/admin/receipts", name: "admin_receipts", roles: allRoles, nav: true, filtered: true, loads: []load{
		{"payments", "/api/admin/payments?group=day&group=provider&totals=true", span},
		{"sales", "/api/admin/sales", span},
	}},
	{path: "/admin/usage", name: "admin_usage", roles: allRoles, nav: true, filtered: true, loads: []load{
		{"usage", "/api/admin/usage", "user group=day " + span},
		{"total", "/api/admin/usage", "user " + span},
	}},
	{path: "/admin/verify", name: "admin_verify", roles: supportRoles, nav: true, loads: []load{
		{"verification", "/api/admin/verify", ""},
	}, actions: map[string]*action{
		"verify_run": do("POST", "/api/admin/verify", "reason", after("/admin/verify", "verified")).only(adminRoles),
	}},
}

// transferID matches the id of a transfer in a message.
var transferID = regexp.MustCompile(`\b[0-9a-f]{32}\b`)

// monthOf returns the query of the days of a month, by how many months it is ago. Days are those of UTC.
func monthOf(ago int) string {
	now := time.Now().UTC()
	first := time.Date(now.Year(), now.Month()-time.Month(ago), 1, 0, 0, 0, 0, time.UTC)
	return url.Values{"from": {first.Format(time.DateOnly)}, "to": {first.AddDate(0, 1, -1).Format(time.DateOnly)}}.Encode()
}

// span are the parameters of a report; by default it is about the last 30 days.
const span = "from=-29d to"

// only returns the action as one of some roles.
func (a *action) only(roles string) *action {
	a.roles = roles
	return a
}

// has reports whether a list of roles, separated by spaces, has one; an empty list has all.
func has(roles, role string) bool {
	return roles == "" || slices.Contains(strings.Fields(roles), role)
}

// isFor reports whether a page is for the user of an account.
func (p *page) isFor(self map[string]any) bool {
	return has(p.roles, get[string](self, "role"))
}

// roleOf returns the role of the user; empty: none.
func roleOf(v *View) string { return get[string](v.Self, "role") }

// may reports whether the role of the user may do an action of the page.
func may(v *View, name string) bool {
	for _, p := range table {
		if p.name == v.Page {
			a := p.actions[name]
			return a != nil && has(a.roles, roleOf(v))
		}
	}
	return false
}

// adminFunctions are the functions of the templates of these pages.
var adminFunctions = template.FuncMap{
	"here":         here,
	"csv":          csvURL,
	"columns":      func(file string) []parameter { return fileColumns[file] },
	"download":     downloadURL,
	"order_filter": func() string { return orderFilter },
	"acts":         actsFor,
	"refusal":      actionRefusal,
	"reserved":     reservedActs,
	"reserved_at":  reservedHere,
	"transfer_in":  transferID.FindString,
	"month":        monthOf,
	"millis":       func(n any) int64 { return integer(n) / 1000 },
	"took":         func(nanoseconds any) int64 { return integer(nanoseconds) / 1e6 },
	"down":         backendsDown,
	"query_or":     queryOr,
	"sees":         sees,
	"found_path":   foundPath,
	"no_secret":    func() string { return noSecret },
	"same":         same,
	"begins":       strings.HasPrefix,
	"day_of":       dayOf,
	"past":         past,
	"console_keys": func(rows []any) bool {
		return slices.ContainsFunc(rows, func(row any) bool { return get[bool](row, "console_key") })
	},
	"limits_of": limitsOf,
	"available": available,
	"greatest":  func(a, b int64) int64 { return max(a, b) },
	"negative":  func(amount any) string { return (-amountOf(amount)).String() },
}

// here returns the value for a page of the user, or that for one of the administration.
func here(v *View, user, admin string) string {
	if v.Admin {
		return admin
	}
	return user
}

// same returns the address of the page for its forms, with the filter in its query.
func same(v *View) string {
	path, raw, _ := strings.Cut(v.Here, "?")
	query, _ := url.ParseQuery(raw)
	if query.Del("done"); len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// csvURL returns the URL of [downloadURL] of a CSV file with what a page shows. names are those of
// [passed].
func csvURL(v *View, route, names string) string {
	_, raw, _ := strings.Cut(v.Here, "?")
	query, _ := url.ParseQuery(raw)
	joint := "?"
	if strings.Contains(route, "?") {
		joint = "&"
	}
	return downloadURL(v, route+joint+passed(names, query))
}

// queryOr returns the parameter of the query of a page, or the value that counts without it.
func queryOr(v *View, name, value string) string {
	if v.Form.Has(name) {
		return v.Form.Get(name)
	}
	return value
}

// roleNeeded returns a message that names the roles of which one is needed, and that of the user.
func (req *request) roleNeeded(key, roles string) string {
	return req.text(key, roleNames(req.text, roles), req.text("role."+cmp.Or(roleOf(&req.view), "none")))
}

// roleNames returns the names of roles, which are separated by spaces.
func roleNames(text func(key string, args ...any) string, roles string) string {
	var names []string
	for role := range strings.FieldsSeq(roles) {
		names = append(names, text("role."+role))
	}
	return strings.Join(names, ", ")
}

// reserved are the keys of the names of actions that need one of some roles.
type reserved struct {
	Roles string
	Keys  []string
}

// reserve adds an action to those that need these roles.
func reserve(all []reserved, roles, key string) []reserved {
	i := slices.IndexFunc(all, func(r reserved) bool { return r.Roles == roles })
	if i < 0 {
		i, all = len(all), append(all, reserved{Roles: roles})
	}
	all[i].Keys = append(all[i].Keys, key)
	return all
}

// reservedHere returns the actions of the page that the role of its user cannot take.
func reservedHere(v *View) (all []reserved) {
	for _, p := range table {
		if p.name != v.Page {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(p.actions)) {
			if roles := p.actions[name].roles; !has(roles, roleOf(v)) {
				all = reserve(all, roles, "act."+name)
			}
		}
	}
	return all
}

// reservedActs returns the actions on a user that the role of the user of the page cannot take. user is nil
// if the role does not see them.
func reservedActs(v *View, user map[string]any) (all []reserved) {
	for _, p := range slices.Concat(adminActionPages, cancelPages) {
		if p.isFor(v.Self) || p.fits != nil && (user == nil || !p.fits(user)) {
			continue
		}
		all = reserve(all, p.roles, "title."+p.name)
	}
	return all
}

// actionRefusal returns the key of the message that says why the user of the page cannot act on another
// user; empty if they can. Users with a role cannot act on their own account, and only administrators act
// on the account of a user with a role.
func actionRefusal(v *View, user map[string]any) string {
	switch {
	case user["id"] == v.Self["id"]:
		return "admin.acts.own"
	case user["role"] != nil && roleOf(v) != "admin":
		return "admin.acts.role"
	}
	return ""
}

// checkAction returns a fault if the page is the form of an action, and its user cannot act on the user
// that it shows.
func (req *request) checkAction() *Fault {
	user, _ := req.view.Data["user"].(map[string]any)
	if user == nil || !req.page.acts() {
		return nil
	}
	if why := actionRefusal(&req.view, user); why != "" {
		return &Fault{Status: http.StatusForbidden, Code: "FORBIDDEN", Message: req.text(why)}
	}
	return nil
}

// acts reports whether the page is the form of an action on a user.
func (p *page) acts() bool { return p.template == "user_action" || p.template == "money_action" }

// actsFor returns the pages of the actions that the user of the page can take on another user.
func actsFor(v *View, user map[string]any) (entries []entry) {
	if actionRefusal(v, user) != "" {
		return nil
	}
	for _, p := range adminActionPages {
		if p.isFor(v.Self) && (p.fits == nil || p.fits(user)) {
			path := strings.ReplaceAll(p.path, "{user}", url.PathEscape(fmt.Sprint(v.ID["user"])))
			entries = append(entries, entry{p.name, path})
		}
	}
	return entries
}

// sees reports whether a page is for the role of the user.
func sees(v *View, name string) bool {
	return slices.ContainsFunc(table, func(p page) bool { return p.name == name && p.isFor(v.Self) })
}

// dayOf writes a day of a report, such as 20261120.
func dayOf(day any) string {
	if at, err := time.Parse("20060102", fmt.Sprint(day)); err == nil {
		return at.Format(time.DateOnly)
	}
	return fmt.Sprint(day)
}

// past reports whether one of some times of the API, in Unix seconds, has passed.
func past(times ...any) bool {
	return slices.ContainsFunc(times, func(at any) bool { return integer(at) > 0 && integer(at) <= time.Now().Unix() })
}

// limitsOf returns the limits of a scope, in the order of their names.
func limitsOf(scope map[string]any) (limits []parameter) {
	all, _ := scope["limits"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		limits = append(limits, parameter{name, fmt.Sprint(all[name])})
	}
	return limits
}

// backendsDown returns the backends of a list that get no tasks now.
func backendsDown(list map[string]any) (down []any) {
	for _, item := range get[[]any](list, "items") {
		backend, _ := item.(map[string]any)
		if backend["configured"] != true || backend["drained"] == true || backend["busy"] == true {
			down = append(down, item)
		}
	}
	return down
}
