package pages

import (
	"net/http"
	"net/url"
	"strings"
)

// downloadPages lead to files of the API. A link to a file leads here first: a browser whose session
// has ended is led to the log-in, and not to an error of the API.
var downloadPages = []page{{path: "/download", name: "download"}}

// downloadURL returns the URL of a page that leads to a route of the API.
func downloadURL(v *View, route string) string {
	return v.Site.Path + "/download?of=" + url.QueryEscape(route)
}

// download leads to the file that the query names.
func (req *request) download() {
	of := req.r.URL.Query().Get("of")
	target, err := url.Parse(of)
	if err != nil || target.IsAbs() || target.Host != "" || !strings.HasPrefix(target.Path, "/api/") || strings.Contains(target.Path, "..") {
		req.fail(&Fault{Status: http.StatusNotFound, Code: "NOT_FOUND", Message: req.text("error.no_page")})
		return
	}
	http.Redirect(req.w, req.r, target.RequestURI(), http.StatusSeeOther) //nolint:gosec // a route of the API here
}

// linkedFrom leads back to the page with the link to a file, and not to the file, after a log-in.
func (req *request) linkedFrom() {
	if from, err := url.Parse(req.r.Referer()); err == nil && from.Host == req.r.Host {
		req.view.Here = req.site.inside(from.RequestURI())
	}
}
