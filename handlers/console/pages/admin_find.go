package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
)

// idPages have the page of an object whose id says what it is.
var idPages = []struct{ prefix, page, path string }{
	{"req_", "admin_call", "/admin/calls/"}, {"task_", "admin_task", "/admin/tasks/"}, {"usr_", "admin_user", "/admin/users/"},
}

// noSecret is the pattern of a field whose value a browser puts into a URL: the browser then refuses a key
// or a token.
const noSecret = `(?!sk-|mgat_).*` //nolint:gosec // no credential

// hideSecret replaces a secret in the form of the search by its hint. So no later step, such as a log-in
// in between, has the secret.
func (req *request) hideSecret() {
	if req.page.name == "admin_find" {
		req.form.Set("text", credential.Shortened(strings.TrimSpace(req.form.Get("text"))))
	}
}

// find redirects to the page of what a text names. If the text names several things or none, it shows
// these. The text is in the body of the request, because it may have been a secret.
func (req *request) find() {
	text := req.form.Get("text")
	for _, p := range idPages {
		switch {
		case !strings.HasPrefix(text, p.prefix):
			continue
		case !sees(&req.view, p.page):
			req.fail(&Fault{Status: http.StatusForbidden, Code: "FORBIDDEN", Message: req.roleNeeded("error.find", rolesOf(p.page))})
		default:
			req.redirect(p.path + url.PathEscape(text))
		}
		return
	}
	answer, f := req.call(http.MethodGet, "/api/admin/find?text="+url.QueryEscape(text), nil)
	if f != nil {
		req.refused("find", f)
		return
	}
	items := get[[]any](answer, "items")
	isUser := func(item any) bool { return item.(map[string]any)["kind"] == "user" }
	switch {
	case len(items) == 1 && !get[bool](answer, "more"):
		req.redirect(foundPath(items[0].(map[string]any)))
	case text == "", len(items) > 1 && !slices.ContainsFunc(items, func(item any) bool { return !isUser(item) }) && !strings.Contains(text, "@"):
		req.redirect("/admin/users?q=" + url.QueryEscape(text))
	default:
		req.view.Data["found"], req.view.Form = answer, url.Values{"text": {text}}
		req.load(http.StatusOK)
	}
}

// rolesOf returns the roles of a page by its name.
func rolesOf(name string) string {
	i := slices.IndexFunc(table, func(p page) bool { return p.name == name })
	return table[i].roles
}

// foundPath returns the page of an element of the answer of /api/admin/find.
func foundPath(item map[string]any) string {
	id, user := url.PathEscape(fmt.Sprint(item["id"])), "/admin/users/"+url.PathEscape(fmt.Sprint(item["user_id"]))
	switch item["kind"] {
	case "user":
		return user
	case "key":
		if item["console_key"] == true {
			return after(user, "console_key")
		}
		return user + "#" + id
	case "mismatch":
		return "/admin/mismatches?payment=" + url.QueryEscape(fmt.Sprint(item["id"])) + "&status=all"
	case "transfer":
		return "/admin/transfers/" + id
	}
	return "/admin/orders/" + id
}
