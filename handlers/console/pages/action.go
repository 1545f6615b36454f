package pages

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// submit does what the form of a page asks for.
func (req *request) submit(p *page) {
	if !req.enter(p) {
		return
	}
	if !req.readForm() {
		return
	}
	if p.resumes {
		req.view.Pending = req.pendingForm()
	}
	user, _ := req.view.Self["id"].(string)
	name := req.form.Get("do")
	a := p.actions[name]
	switch {
	case a == nil:
		req.fail(&Fault{Status: http.StatusBadRequest, Code: "INVALID_PARAMETER", Message: req.text("error.form")})
	case req.view.Self != nil && req.form.Has("as") && req.form.Get("as") != user:
		// Another tab has logged in another user meanwhile.
		req.fail(&Fault{Status: http.StatusConflict, Code: "CONFLICT", Message: req.text("error.other_user")})
	case p.name == "preferences":
		req.prefer(name)
	case p.name == "admin_find":
		req.find()
	case p.name == "verify":
		req.verify(a)
	default:
		req.do(name, a)
	}
}

// readForm reads the form. It reports false if it has answered.
func (req *request) readForm() bool {
	form, refused := req.site.ReadForm(req.w, req.r, get[string](req.view.Self, "id"))
	if refused != nil {
		req.fail(&Fault{Status: refused.Status(), Code: string(refused.Code), Message: refused.Message, Wait: refused.RetryAfter})
		return false
	}
	req.form = form
	req.hideSecret()
	return true
}

// do makes the calls of an action, and answers what comes next.
func (req *request) do(name string, a *action) {
	var data any
	for _, c := range a.calls {
		path, _, _ := strings.Cut(c.route, "?")
		if slices.ContainsFunc(names(path), func(name string) bool { return req.value(name) == "" }) {
			// Without the value, the path is that of another route: that of all sessions, not of one.
			req.refused(name, &Fault{Status: http.StatusBadRequest, Code: "INVALID_PARAMETER", Message: req.text("error.form")})
			return
		}
		in, f := encode(c.fields, req.form)
		switch {
		case f != nil:
			f.Message = req.text(f.Message)
		case c.method != "":
			data, f = req.call(c.method, req.fill(c.route), in)
		}
		if f != nil && f.Param == "idempotency_key" && req.form.Get("case") != "" {
			f.Param = "case"
		}
		if f != nil {
			req.refused(name, f)
			return
		}
	}
	if a.check != nil {
		if f := a.check(req); f != nil {
			req.refused(name, f)
			return
		}
	}
	answer, _ := data.(map[string]any)
	switch {
	case req.view.Pending != nil:
		req.loggedIn(answer["require_2fa"] == true)
	case answer["require_2fa"] == true:
		req.redirect("/login/code?next=" + url.QueryEscape(req.form.Get("next")))
	case a.then == "{next}" || a.then == "{return}":
		req.returnTo(req.form.Get(strings.Trim(a.then, "{}")))
	case a.then != "":
		for _, id := range names(a.then) { // of what has been made
			if made, ok := answer[id].(string); ok && req.view.ID[id] == "" {
				req.view.ID[id] = made
			}
		}
		path := req.fill(a.then)
		if answer["replayed"] == true && req.form.Get("case") != "" {
			path, _, _ = strings.Cut(path, "?")
			path = after(path, "case_replayed")
		}
		if answer["email_removed"] == true {
			path = after("/login", "reset_email")
		}
		if req.replayed {
			path, _, _ = strings.Cut(path, "?")
			path = after(path, here(&req.view, "replayed", "admin_replayed"))
		}
		req.redirect(path)
	default:
		req.view.Answer, req.view.Form = data, withoutSecrets(req.form)
		req.load(http.StatusOK)
	}
}

// refused answers a form that the API has refused: with the page, what was typed, and the fault.
func (req *request) refused(name string, f *Fault) {
	switch f.Code {
	case "VERIFICATION_REQUIRED", "VERIFICATION_EXPIRED":
		req.askVerification(f)
		return
	case "NOT_LOGGED_IN":
		if req.page.access == member {
			req.askLogIn("/login")
			return
		}
	}
	if f.Code == "FORBIDDEN" && req.view.Admin { // nothing that is typed anew would help
		if a := req.page.actions[name]; !has(a.roles, roleOf(&req.view)) {
			f.Message = req.roleNeeded("error.role_act", a.roles)
		}
		req.fail(f)
		return
	}
	req.view.Fault, req.view.Form = f, withoutSecrets(req.form)
	req.view.Form.Set("do", name)
	req.load(f.Status)
}

// secretFields are the fields that a page never shows again.
var secretFields = []string{"password", "new_password", "code"}

func withoutSecrets(form url.Values) url.Values {
	kept := url.Values{}
	for name, values := range form {
		if !slices.Contains(secretFields, name) {
			kept[name] = values
		}
	}
	return kept
}
