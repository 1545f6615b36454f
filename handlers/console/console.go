// Package console serves the accounts of users below /api: log-in, second factors, API
// keys, tasks, subscriptions, top-ups, ledger and usage. Below /api/admin it serves the
// operations of package adminapi to users with a role. [Console] is the directive
// modelgate_console. It answers JSON, errors included; only payment_page.go sends a browser on, to
// a payment service and back. The pages for browsers are package pages, a client of these routes.
//
// The table in routes.go declares each route and everything that is checked before it is
// served. The file request.go applies it, and protection.go has the kinds of proof that a
// route can ask for. To add a route, add a row, its handler and its line in
// docs/reference/console.md.
package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/console/pages"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(Console{})
	caddymodule.RegisterDirective("modelgate_console", func() caddymodule.Directive { return new(Console) })
}

// Console serves the accounts below /api to users who are logged in and to programs with an
// access token. It also serves the webhooks and pages of the payment services. It lets every
// other path pass.
//
// Placeholder | Description
// ------------|-------------
// `{http.auth.user.id}` | The id of the user
// `{http.modelgate.request_id}` | The id of the request, as in X-Request-Id
type Console struct {
	// How many requests that only read a user may send in a minute.
	// Default: 6000.
	Reads int64 `json:"reads_per_minute,omitempty"`

	// How many requests that change something a user may send in a minute.
	// Default: 3000. It does not protect money: idempotency keys and the balance do.
	Writes int64 `json:"writes_per_minute,omitempty"`

	// How many requests for payment pages and for what is public may come from one address in
	// a minute. An IPv6 address counts by its first 64 bits. Default: 600.
	Pages int64 `json:"pages_per_minute,omitempty"`

	// How many log-ins, registrations and codes may come from one address in a
	// minute. The limits of the app bound the attempts by password, too. Default: 300.
	Logins int64 `json:"logins_per_minute,omitempty"`

	// How many webhooks may come from one address in a minute. Default: 6000.
	Webhooks int64 `json:"webhooks_per_minute,omitempty"`

	// on or off: whether users with a role can act on the accounts of others by the routes below
	// /api/admin. Default: on.
	Admin string `json:"admin,omitempty"`

	// The path of the pages for browsers, such as /console, or off for a site with the routes
	// below /api alone. The pages include the landing page at /. Default: /console.
	Path string `json:"path,omitempty"`

	// The name of the gateway on the pages. Default: modelgate.
	Title string `json:"title,omitempty"`

	// A file with an image that the pages show beside the title: SVG, PNG, JPEG or WebP, at most
	// 256 KiB. Default: none.
	Logo string `json:"logo,omitempty"`

	// The languages of the pages, of en and zh; the first is the default. Default: both.
	Languages []string `json:"languages,omitempty"`

	pages       *pages.Site // nil: off
	app         *caddymodule.App
	logger      *zap.Logger
	crossOrigin *http.CrossOriginProtection
}

// CaddyModule returns the Caddy module information.
func (Console) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_console", New: func() caddy.Module { return new(Console) }}
}

// Provision finds the app and sets the defaults.
func (c *Console) Provision(ctx caddy.Context) (err error) {
	c.logger = ctx.Logger()
	c.crossOrigin = http.NewCrossOriginProtection()
	c.Reads = cmp.Or(c.Reads, 6000)
	c.Writes = cmp.Or(c.Writes, 3000)
	c.Pages = cmp.Or(c.Pages, 600)
	c.Logins = cmp.Or(c.Logins, 300)
	c.Webhooks = cmp.Or(c.Webhooks, 6000)
	c.Admin = cmp.Or(c.Admin, "on")
	if c.app, err = caddymodule.Of(ctx); err != nil {
		return err
	}
	for i := range routes {
		if event := routes[i].event; event != "" {
			c.app.Metrics().AuthEvent(event)
		}
	}
	for _, provider := range c.app.Payments() {
		c.app.Metrics().Payments(provider)
	}
	if err = c.provisionPages(); err != nil {
		return err
	}
	path := ""
	if c.pages != nil {
		path = c.Path
	}
	c.app.ServeConsole(path)
	return nil
}

// rates returns the rates by the words of the configuration.
func (c *Console) rates() map[string]*int64 {
	return map[string]*int64{
		"reads_per_minute": &c.Reads, "writes_per_minute": &c.Writes,
		"pages_per_minute": &c.Pages, "logins_per_minute": &c.Logins, "webhooks_per_minute": &c.Webhooks,
	}
}

// maxRate bounds the requests of a minute; more is no limit.
const maxRate = 1_000_000

// Validate returns an error if a rate is not from 1 to maxRate.
func (c *Console) Validate() error {
	var errs []error
	for word, rate := range c.rates() {
		if *rate < 1 || *rate > maxRate {
			errs = append(errs, fmt.Errorf("%s is from 1 to %d, not %d", word, maxRate, *rate))
		}
	}
	if c.Admin != "on" && c.Admin != "off" {
		errs = append(errs, fmt.Errorf("admin: %q is not supported; allowed: on, off", c.Admin))
	}
	return errors.Join(append(errs, c.validatePages())...)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if c.pages != nil && c.pages.Serves(r) {
		c.pages.ServeHTTP(w, r)
		return nil
	}
	if !c.serveAPI(w, r) {
		return reply.Pass(w, r, next, c.app.VersionHeader)
	}
	return nil
}

// serveAPI serves the routes of the table. It reports false if none of them has the path.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/api/") { // most requests are model calls
		return false
	}
	i, wrongMethod := table.Find(r)
	if i < 0 {
		return false
	}
	req := c.newRequest(w, r)
	if routes[i].roles != nil && c.Admin == "off" {
		req.refuse(fault.New(fault.NotFound, "there is nothing at this path"))
		return true
	}
	req.run(&routes[i], wrongMethod)
	return true
}

// UnmarshalCaddyfile reads
//
//	modelgate_console [<matcher>] {
//		reads_per_minute    <count>
//		writes_per_minute   <count>
//		pages_per_minute    <count>
//		logins_per_minute   <count>
//		webhooks_per_minute <count>
//		admin               on|off
//		path                <path>|off
//		title               <text>
//		logo                <file>
//		languages           <language>…
//	}
func (c *Console) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	words := make(map[string]settings.Reader)
	for word, rate := range c.rates() {
		words[word] = settings.Count(rate, maxRate)
	}
	words["admin"] = settings.One(settings.Text(&c.Admin))
	words["path"] = settings.One(settings.Text(&c.Path))
	words["title"] = settings.One(settings.Text(&c.Title))
	words["logo"] = settings.One(settings.Text(&c.Logo))
	words["languages"] = func(d *caddyfile.Dispenser) error {
		if c.Languages = d.RemainingArgs(); len(c.Languages) == 0 {
			return d.ArgErr()
		}
		return nil
	}
	return settings.Block(d, words)
}

// Interface guards.
var (
	_ caddy.Provisioner = (*Console)(nil)
	_ caddy.Validator   = (*Console)(nil)
)
