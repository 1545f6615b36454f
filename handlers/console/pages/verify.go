package pages

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// pending is a form that waits for a step-up or a log-in. The browser keeps it, in hidden fields, so that it
// survives a restart and reaches any node; what it asks for is checked when it is sent again.
type pending struct {
	Action  string     // the path and query of the page of the form
	Name    string     // of the action
	Fields  url.Values // without secrets
	Secrets []string   // names of the fields that must be typed again
}

// pendingPrefix begins the names of the fields of a pending form.
const pendingPrefix = "pending."

// askVerification answers a form that needs a step-up with the page that asks for the factor.
func (req *request) askVerification(f *Fault) {
	if f.Code == "VERIFICATION_REQUIRED" {
		f = nil // the page says what it is for
	}
	req.ask("/verify", f, http.StatusOK)
}

// askLogIn leads to a page of the log-in. A form that was sent waits there: the session may have
// ended while it was filled in.
func (req *request) askLogIn(path string) {
	if req.form == nil && req.r.Method == http.MethodPost && !req.readForm() {
		return
	}
	if req.page.actions[req.form.Get("do")] == nil {
		req.redirect(path + "?next=" + url.QueryEscape(req.view.Here))
		return
	}
	req.ask(path, &Fault{Code: "NOT_LOGGED_IN", Message: req.text("login.ended")}, http.StatusUnauthorized)
}

// ask answers a form with the page that must be passed before the form is sent again.
func (req *request) ask(path string, f *Fault, status int) {
	waiting := &pending{Action: req.view.Here, Name: req.form.Get("do"), Fields: withoutSecrets(req.form)}
	for _, name := range secretFields {
		if req.form.Get(name) != "" {
			waiting.Secrets = append(waiting.Secrets, name)
		}
	}
	req.view.Pending, req.view.Fault, req.view.Form = waiting, f, url.Values{"next": {req.view.Here}}
	req.page = find(path)
	req.view.Page = req.page.name
	req.load(status)
}

// verify grants the step-up, and shows the pending form.
func (req *request) verify(a *action) {
	if req.view.Pending == nil {
		req.fail(&Fault{Status: http.StatusBadRequest, Code: "INVALID_PARAMETER", Message: req.text("error.form")})
		return
	}
	for _, c := range a.calls {
		in, _ := encode(c.fields, req.form)
		if _, f := req.call(c.method, c.route, in); f != nil {
			req.view.Fault = f
			req.load(f.Status)
			return
		}
	}
	req.confirm()
}

// loggedIn shows the pending form after a log-in, or first the page that asks for the second factor.
func (req *request) loggedIn(half bool) {
	if half {
		req.view.Form = url.Values{"next": {req.form.Get("next")}}
		req.page = find("/login/code")
		req.view.Page = req.page.name
		req.load(http.StatusOK)
		return
	}
	if self, f := req.call(http.MethodGet, "/api/user/self", nil); f == nil {
		req.view.Self, _ = self.(map[string]any)
	}
	req.confirm()
}

// confirm shows the pending form for a last confirmation. Nothing is sent by itself: a charge is
// never repeated silently.
func (req *request) confirm() {
	if req.review() {
		return
	}
	req.view.Page = "confirm"
	req.render("confirm", http.StatusOK)
}

// review shows the pending form on its own page, if that shows what the form will do, such as the balance
// before and after. It reports false if there is no such page.
func (req *request) review() bool {
	waiting := req.view.Pending
	target, err := url.Parse(waiting.Action)
	if err != nil {
		return false
	}
	wire, _ := strings.CutPrefix(target.EscapedPath(), req.site.Path)
	p := find(wire)
	a := p.actions[waiting.Name]
	if a.review == "" && !a.inPlace || !p.isFor(req.view.Self) || waiting.Fields.Get("as") != get[string](req.view.Self, "id") {
		return false // another user may have logged in meanwhile; the form is then refused
	}
	r := req.r.Clone(req.r.Context())
	r.URL = target
	req.r, req.wire, req.form = r, wire, waiting.Fields
	req.view.Here, req.view.Pending, req.view.Fault, req.view.Data = waiting.Action, nil, nil, make(map[string]any)
	req.open(p)
	if a.inPlace {
		req.view.Form, req.view.Notice = waiting.Fields, req.text("verify.review")
		req.load(http.StatusOK)
		return true
	}
	req.form.Set("do", a.review)
	req.view.Notice = req.text("verify.review")
	req.do(a.review, p.actions[a.review])
	return true
}

// pendingForm reads the pending form from the form of the page; nil if it is not one of a page
// here.
func (req *request) pendingForm() *pending {
	waiting := &pending{Action: req.form.Get("action"), Fields: url.Values{}, Secrets: req.form["secret"]}
	target, err := url.Parse(waiting.Action)
	if err != nil || target.Scheme != "" || target.Host != "" {
		return nil
	}
	wire, ours := strings.CutPrefix(target.EscapedPath(), req.site.Path)
	page := find(wire)
	if !ours || page == nil || !onlyOf(waiting.Secrets, secretFields) {
		return nil
	}
	for name, values := range req.form {
		if name, ok := strings.CutPrefix(name, pendingPrefix); ok && !slices.Contains(secretFields, name) {
			waiting.Fields[name] = values
		}
	}
	waiting.Name = waiting.Fields.Get("do")
	if page.actions[waiting.Name] == nil {
		return nil
	}
	return waiting
}

func onlyOf(some, all []string) bool {
	return !slices.ContainsFunc(some, func(name string) bool { return !slices.Contains(all, name) })
}
