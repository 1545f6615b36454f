package pages

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
)

// View is what the template of a page sees.
type View struct {
	Site    *Site
	Lang    string // the language of the page, such as "en"
	Theme   string // "light", "dark", or empty: that of the browser
	Page    string // the name of the page
	Section string // the name of the page of the navigation that leads to it
	Admin   bool   // the page is one of the administration
	Refresh bool   // the browser loads the page again after some seconds
	Here    string // the path and the query of the page, to come back to
	Origin  string // the address of the site, for examples

	Self map[string]any // the account of the user; nil if nobody is logged in
	ID   map[string]string
	Data map[string]any // the answers of the loads, by name
	Form url.Values     // what was typed, if the form was refused; or the query of the page

	Notice string // a message: what has just been done
	Fault  *Fault // why the form was refused, or why the page cannot be shown
	Answer any    // the answer of an action, which is shown once

	ReadOnly bool // nothing can be changed now

	Pending *pending      // the form that waits for a step-up
	Body    template.HTML // of the page, for the frame
}

// Fault is an error that a page shows.
type Fault struct {
	Status    int
	Code      string `json:"code"`
	Message   string `json:"message"`
	Param     string `json:"param"` // the field that is wrong; empty: none alone
	RequestID string
	Wait      time.Duration // until a further attempt makes sense; 0: unknown
}

// Seconds returns Wait in seconds.
func (f *Fault) Seconds() int { return int(f.Wait / time.Second) }

// Error implements error.
func (f *Fault) Error() string { return f.Code + ": " + f.Message }

// request is one request for a page that is being served.
type request struct {
	site    *Site
	w       http.ResponseWriter
	r       *http.Request
	locale  *locale
	wire    string            // the path below that of the console, as it was written
	cookies map[string]string // cookies that the API has set meanwhile
	form    url.Values        // the form that was sent; nil: none

	replayed bool // the last call had been made before, by its idempotency key

	page *page
	view View
}

func (s *Site) newRequest(w http.ResponseWriter, r *http.Request, wire string) *request {
	req := &request{site: s, w: w, r: r, wire: wire, locale: s.localeOf(r)}
	req.view = View{
		Site: s, Lang: req.locale.name, Theme: themeOf(r), Here: r.URL.RequestURI(), Origin: s.origin(r),
		ID: make(map[string]string), Data: make(map[string]any), Form: r.URL.Query(),
	}
	return req
}

// origin returns the address of the site that users call.
func (s *Site) origin(r *http.Request) string {
	switch {
	case s.BaseURL != "":
		return s.BaseURL
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// text returns a message in the language of the request.
func (req *request) text(key string, args ...any) string { return req.locale.text(key, args...) }

// show answers a page.
func (req *request) show(p *page) {
	if p.name == "download" {
		req.returnToReferer()
	}
	if !req.enter(p) {
		return
	}
	if p.name == "download" {
		req.download()
		return
	}
	if p.roles != "" && len(p.actions) > 0 {
		req.view.Form.Del("do") // a link fills in no form of the administration
		if !p.filtered {
			maps.DeleteFunc(req.view.Form, func(name string, _ []string) bool { return name != "done" && name != "after" })
		}
	}
	if done := req.view.Form.Get("done"); done != "" && req.locale.has("done."+done) {
		req.view.Notice = req.text("done." + done)
	}
	req.load(http.StatusOK)
}

// enter finds the account, if the page needs one. It reports false if it has answered.
func (req *request) enter(p *page) bool {
	req.open(p)
	self, f := req.call(http.MethodGet, "/api/user/self", nil)
	if f == nil {
		req.view.Self, _ = self.(map[string]any)
		if !p.isFor(req.view.Self) {
			message := req.text("error.staff")
			if roleOf(&req.view) != "" {
				message = req.roleNeeded("error.role", p.roles)
			}
			req.fail(&Fault{Status: http.StatusForbidden, Code: "FORBIDDEN", Message: message})
			return false
		}
		return true
	}
	switch {
	case p.access == anyone && f.Status == http.StatusUnauthorized:
		return true
	case f.Code == "NOT_LOGGED_IN":
		req.askLogIn("/login")
	case f.Code == "SECOND_FACTOR_REQUIRED":
		req.askLogIn("/login/code")
	default:
		req.fail(f)
	}
	return false
}

// open makes p the page of the answer.
func (req *request) open(p *page) {
	req.page, req.view.Page, req.view.Section = p, p.name, cmp.Or(p.section, p.name)
	req.view.Admin = p.roles != ""
	values, _ := reply.Match(p.path, req.wire)
	for i, name := range names(p.path) {
		req.view.ID[name] = values[i]
	}
}

// load reads what the page shows, and answers it with a status.
func (req *request) load(status int) {
	query := req.r.URL.Query()
	for i, l := range req.page.loads {
		route := req.fill(l.route)
		if parameters := passed(l.query, query); parameters != "" {
			joint := "?"
			if strings.Contains(route, "?") {
				joint = "&"
			}
			route += joint + parameters
		}
		data, f := req.call(http.MethodGet, route, nil)
		if f != nil && req.page.filtered && (f.Status == http.StatusBadRequest || f.Status == http.StatusNotFound) && query.Has(f.Param) {
			req.view.Fault, status = f, f.Status
			continue
		}
		if f != nil && req.page.partial && f.Status == http.StatusForbidden && i > 0 {
			continue
		}
		if f != nil {
			req.fail(f)
			return
		}
		req.view.Data[l.name] = data
	}
	if f := req.checkAction(); f != nil {
		req.fail(f)
		return
	}
	req.view.Refresh = req.page.unfinished != nil && req.page.unfinished(req.view.Data)
	req.render(cmp.Or(req.page.template, req.page.name), status)
}

// passed returns the parameters of a route that the query of its page has. names are separated by
// spaces. A name may have the value that counts if the query does not have it: "group=day", or
// "from=-29d", which is the day 29 days ago.
func passed(names string, query url.Values) string {
	parameters := url.Values{}
	for name := range strings.FieldsSeq(names) {
		name, value, _ := strings.Cut(name, "=")
		if days, ok := strings.CutSuffix(value, "d"); ok && strings.HasPrefix(days, "-") {
			value = daysAgo(-integer(days))
		}
		if query.Has(name) {
			value = query.Get(name)
		}
		if value != "" {
			parameters.Set(name, value)
		}
	}
	return parameters.Encode()
}

// fill replaces {name} in a route or path by a value of the path of the page, or else of the form.
func (req *request) fill(route string) string {
	for _, name := range names(route) {
		value := req.value(name)
		before, after, _ := strings.Cut(route, "{"+name+"}")
		if strings.Contains(before, "?") {
			value = url.QueryEscape(value)
		} else {
			value = url.PathEscape(value)
		}
		route = before + value + after
	}
	return route
}

// value returns the value that replaces {name}; empty if there is none.
func (req *request) value(name string) string {
	return cmp.Or(req.view.ID[name], req.form.Get(name))
}

// names returns the names in braces in a path.
func names(path string) (found []string) {
	for {
		_, rest, ok := strings.Cut(path, "{")
		if !ok {
			return found
		}
		var name string
		name, path, _ = strings.Cut(rest, "}")
		found = append(found, name)
	}
}

// fail answers with a page that shows only the fault.
func (req *request) fail(f *Fault) {
	req.view.Fault, req.view.Page = f, "error"
	if f.Wait > 0 {
		req.w.Header().Set("Retry-After", fmt.Sprint(f.Seconds()))
	}
	req.render("error", f.Status)
}

// render writes the page of a template.
func (req *request) render(name string, status int) {
	var body, whole bytes.Buffer
	req.view.ReadOnly = req.site.ReadOnly(req.r.Context())
	err := req.locale.templates.ExecuteTemplate(&body, name, &req.view)
	if err == nil {
		req.view.Body = template.HTML(body.String()) //nolint:gosec // the output of html/template
		err = req.locale.templates.ExecuteTemplate(&whole, "frame", &req.view)
	}
	if err != nil {
		// A template that does not fit its data. Nothing has been sent yet.
		req.site.Failed(req.w.Header().Get("X-Request-Id"), fmt.Errorf("the page %s: %w", name, err))
		http.Error(req.w, req.text("error.internal"), http.StatusInternalServerError)
		return
	}
	header := req.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", fmt.Sprint(whole.Len()))
	header.Set("Content-Language", req.locale.name)
	req.w.WriteHeader(status)
	if req.r.Method != http.MethodHead {
		_, _ = io.Copy(req.w, &whole)
	}
}

// redirect sends the browser to a path below that of the console, by a GET.
func (req *request) redirect(path string) {
	http.Redirect(req.w, req.r, req.site.Path+path, http.StatusSeeOther) //nolint:gosec // begins with the path of the console
}

// returnTo sends the browser to a path that it sent itself, if that is one of the console, or else
// to the overview.
func (req *request) returnTo(path string) {
	http.Redirect(req.w, req.r, req.site.inside(path), http.StatusSeeOther) //nolint:gosec // the path of a page here, without a host
}

// inside returns a path that a browser sent if it is that of a page here, or else the path of the
// overview. Scripts follow the paths that pages contain, so templates need it, too.
func (s *Site) inside(path string) string {
	target, err := url.Parse(path)
	if err != nil || target.IsAbs() || target.Host != "" {
		return s.Path
	}
	wire, ours := strings.CutPrefix(target.EscapedPath(), s.Path)
	if path == "/" || ours && wire != "/" && find(wire) != nil {
		return path
	}
	return s.Path
}
