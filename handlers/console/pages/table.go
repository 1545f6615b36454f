package pages

import "slices"

// page is a row of the table of pages.
type page struct {
	path   string // below the path of the console, as [reply.Match] takes it
	name   string // of its template, and of its title: "title.<name>"
	access access

	// roles are the roles that the page is for, separated by spaces; empty: it is for every user.
	roles string

	// template is the name of the template, if it serves several pages; empty: name.
	template string

	// section is the page of the navigation that leads to this one; empty: the page itself.
	section string
	nav     bool // the page is in the navigation

	// loads are the routes that the page reads, in this order.
	loads []load

	// filtered is set if the query of the page filters what it shows. If a route refuses a
	// parameter, the page is shown with the fault and without the answer of that route.
	filtered bool

	// partial is set if some roles may not read all routes of the page. It is then shown without the
	// answers that a role is refused, except that of the first route.
	partial bool

	// fits reports whether an administrator can do something here for a user of whom the route of a
	// user answers this; nil: always.
	fits func(user map[string]any) bool

	// unfinished reports whether the page shows something that changes soon, from the answers of
	// its loads. The browser then loads it again.
	unfinished func(data map[string]any) bool

	// resumes is set if a form of another page may wait for the forms of this one. It is shown once
	// more afterwards, to be confirmed.
	resumes bool

	// actions are what the forms of the page do, by the value of their field "do".
	actions map[string]*action
}

// access says who may see a page.
type access int

const (
	member access = iota // a user who is logged in; the account is in the view
	anyone
)

// load is a route that a page reads.
type load struct {
	name  string // of the answer in the view
	route string // below /api; {id} is a value of the path of the page
	query string // the parameters that the route takes from the query of the page, as [passed] takes them
}

// action is what a form does: it calls routes, one after the other, until one refuses.
type action struct {
	calls []call

	// then is where the browser goes afterwards, below the path of the console; {id} is a value
	// of the path or of the form. Empty: the page is shown again with the answer of the last
	// call, which is shown once and not stored.
	then string

	// review is the action that shows what this one will do, on the same page. After a step-up, the browser
	// gets the review again, and not the page that confirms any form.
	review string

	// inPlace is set if the page of the form is itself the review.
	inPlace bool

	// check returns a fault for a form whose fields are valid. It runs after the calls. nil: no check.
	check func(req *request) *Fault

	// roles are the roles that the action is for, as in [page].
	roles string
}

// call is a route that an action calls. Without a method it only checks the fields of the form.
type call struct {
	method string
	route  string // below /api; {id} is a value of the path or of the form
	fields string // the fields of the form that the body has, as [encode] takes them
}

// do returns an action of one call.
func do(method, route, fields, then string) *action {
	return &action{calls: []call{{method, route, fields}}, then: then}
}

// after returns the path with a notice, which the next page shows: the message "done.<name>".
func after(path, notice string) string { return path + "?done=" + notice }

// table is all pages, by area. The first row that matches counts.
var table = slices.Concat(overviewPages, usagePages, keyPages, walletPages, taskPages, accountPages, guidePages, entryPages, downloadPages,
	adminHome, adminUserPages, adminActionPages, cancelPages, adminRecordPages, watchPages)
