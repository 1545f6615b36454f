// Package pages is the console in the browser: HTML pages below a path of the site, and the landing
// page at /. [Site] serves them; modelgate_console owns the Site.
//
// A page is a client of the routes below /api. It reads its data from them and sends them its
// forms, within the process, with the cookie of the browser. So a page can do nothing that a route
// does not allow, and every figure is that of the API. The table in table.go declares each page:
// who may see it, the routes that it reads, and the routes that its forms call. To add a page, add
// a row, a template and its messages in both languages.
//
// Every page works without scripts, except passkeys. The only state is in the browser: the session
// cookie, and one cookie each for the language and the theme.
package pages

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Config configures a [Site].
type Config struct {
	// API serves a request to a route below /api.
	API http.HandlerFunc

	// ReadForm reads the form of a request of a user; user is empty without a log-in.
	ReadForm func(w http.ResponseWriter, r *http.Request, user string) (url.Values, *fault.Fault)

	// Failed reports that a page could not be shown.
	Failed func(requestID string, err error)

	// ReadOnly reports whether nothing can be changed now. Every page says so then.
	ReadOnly func(context.Context) bool

	// Path is the path of the console, such as "/console".
	Path string

	// Title is the name of the gateway on every page.
	Title string

	// Logo is an image beside the title, and LogoType its media type. Empty: there is none.
	Logo     []byte
	LogoType string

	// BaseURL is the public address of the site. Empty: the Host of a request counts.
	BaseURL string

	// MediaURL is the address of the site that serves the results of tasks. Empty: none are kept.
	MediaURL string

	// NoAdmin is set if the routes of the administration are off. Its pages are then, too.
	NoAdmin bool

	// VersionHeader is the header with the version of the Anthropic dialect, for examples.
	VersionHeader string

	// Languages are the languages on offer; the first is the default.
	Languages []string
}

// Site serves the pages. It is safe for concurrent use.
type Site struct {
	Config
	assets      map[string]*asset // by name
	locales     []*locale         // in the order of Languages
	crossOrigin *http.CrossOriginProtection
}

// New returns the pages of a console.
func New(config Config) (*Site, error) {
	s := &Site{Config: config, crossOrigin: http.NewCrossOriginProtection()}
	if err := s.loadAssets(); err != nil {
		return nil, err
	}
	return s, s.loadLocales()
}

// policy allows a page its own scripts, styles, images and forms, and of another origin only the
// results of tasks, if they are served there.
func (s *Site) policy(r *http.Request) string {
	results := ""
	if s.MediaURL != "" && !strings.HasSuffix(s.MediaURL, "://"+r.Host) {
		results = " " + s.MediaURL
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'" + results + "; media-src 'self'" + results + "; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
}

// Serves reports whether the path of r is one of the site. The landing page is only for browsers:
// other clients get the answer of the next directive.
func (s *Site) Serves(r *http.Request) bool {
	wire := r.URL.EscapedPath()
	if wire == "/" {
		return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
	}
	return wire == s.Path || strings.HasPrefix(wire, s.Path+"/")
}

// ServeHTTP answers a request for which Serves is true.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", s.policy(r))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	wire, below := strings.CutPrefix(r.URL.EscapedPath(), s.Path)
	if below && wire == "/" {
		wire = "" // the overview; the path "/" of the table is the landing page
	}
	if name, ok := strings.CutPrefix(wire, "/assets/"); ok {
		s.serveAsset(w, r, name)
		return
	}
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Language, Cookie")
	req := s.newRequest(w, r, wire)
	page := find(wire)
	switch {
	case page == nil || page.roles != "" && s.NoAdmin:
		req.fail(&Fault{Code: "NOT_FOUND", Message: req.text("error.no_page"), Status: http.StatusNotFound})
	case s.crossOrigin.Check(r) != nil:
		req.fail(&Fault{Code: "CROSS_ORIGIN", Message: req.text("error.cross_origin"), Status: http.StatusForbidden})
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		req.show(page)
	case r.Method == http.MethodPost && len(page.actions) > 0:
		req.submit(page)
	default:
		allowed := "GET, HEAD"
		if len(page.actions) > 0 {
			allowed += ", POST"
		}
		header.Set("Allow", allowed)
		req.fail(&Fault{Code: "METHOD_NOT_ALLOWED", Message: req.text("error.method"), Status: http.StatusMethodNotAllowed})
	}
}

// OrderPath returns the path of the page of an order, which waits for its payment.
func (s *Site) OrderPath(tradeNo string) string { return s.Path + "/orders/" + tradeNo }

// find returns the page of a path below that of the console; nil if there is none. The path "/"
// is the landing page, the empty one the overview.
func find(wire string) *page {
	for i := range table {
		if _, ok := reply.Match(table[i].path, wire); ok {
			return &table[i]
		}
	}
	return nil
}
