package pages

import (
	"net/http"
	"net/url"
	"strings"
)

// downloadPages redirect to files of the API. Links to files go through them, so that a browser whose
// session has ended gets the log-in page and not an error of the API.
var downloadPages = []page{{path: "/download", name: "download"}}

// downloadURL returns the URL of the page that redirects to a route of the API.
func downloadURL(v *View, route string) string {
	return v.Site.Path + "/download?of=" + url.QueryEscape(route)
}

// download redirects to the file that the query names. It redirects only to routes below /api.
func (req *request) download() {
	target, err := url.Parse(req.r.URL.Query().Get("of"))
	if err != nil || target.IsAbs() || target.Host != "" || !strings.HasPrefix(target.Path, "/api/") || strings.Contains(target.Path, "..") {
		req.fail(&Fault{Status: http.StatusNotFound, Code: "NOT_FOUND", Message: req.text("error.no_page")})
		return
	}
	http.Redirect(req.w, req.r, target.RequestURI(), http.StatusSeeOther) //nolint:gosec // a route of the API here
}

// returnToReferer makes a log-in return to the page with the link to a file, and not to the file.
func (req *request) returnToReferer() {
	if from, err := url.Parse(req.r.Referer()); err == nil && from.Host == req.r.Host {
		req.view.Here = req.site.inside(from.RequestURI())
	}
}
