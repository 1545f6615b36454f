// Package docs serves the description of the routes, and answers requests that no other directive
// of a site answers. [Docs] is the directive modelgate_docs.
package docs

import (
	_ "embed" // for the answers at /
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.yaml.in/yaml/v3"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/docs"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func init() {
	caddy.RegisterModule(Docs{})
	caddymodule.RegisterDirective("modelgate_docs", func() caddymodule.Directive { return new(Docs) })
}

// Docs serves GET /openapi.yaml, GET /openapi.json and GET /llms.txt. If no other directive of
// the site answers a request, Docs does: at / with a description of this site, elsewhere with 404.
// Without it, Caddy answers such requests with an empty 200.
type Docs struct {
	app *caddymodule.App
}

// CaddyModule returns the Caddy module information.
func (Docs) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_docs", New: func() caddy.Module { return new(Docs) }}
}

// Provision finds the app.
func (d *Docs) Provision(ctx caddy.Context) (err error) {
	d.app, err = caddymodule.Of(ctx)
	return err
}

// openAPI returns the description as JSON. The first request for it converts it.
var openAPI = sync.OnceValues(func() ([]byte, error) {
	var document any
	if err := yaml.Unmarshal(docs.OpenAPI, &document); err != nil {
		return nil, err
	}
	return json.Marshal(document)
})

// The answers at /. They are the same for every configuration, and reveal nothing about it.
var (
	//go:embed index.html
	indexHTML []byte
	//go:embed index.json
	indexJSON []byte
)

var routes = reply.Register(
	reply.Route{Method: http.MethodGet, Path: "/", Credential: reply.Public},
	reply.Route{Method: http.MethodGet, Path: "/openapi.json", Credential: reply.Public},
	reply.Route{Method: http.MethodGet, Path: "/openapi.yaml", Credential: reply.Public},
	reply.Route{Method: http.MethodGet, Path: "/llms.txt", Credential: reply.Public},
)

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (d *Docs) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	i, f := routes.Find(r)
	if i <= 0 {
		var err error
		if i < 0 {
			err = reply.Pass(w, r, next, d.app.VersionHeader)
			f = fault.New(fault.NotFound, "there is nothing at this path; GET / lists the API bases")
		} else {
			err = next.ServeHTTP(w, r) // the site may have its own page at /
		}
		if err != nil || !reply.Unhandled(r) {
			return err
		}
	}
	switch {
	case f != nil:
		reply.DialectOf(r, d.app.VersionHeader).RefuseUnread(w, r, f, requestid.New())
	case i == 0 && strings.Contains(r.Header.Get("Accept"), "text/html"):
		answer(w, "text/html; charset=utf-8", indexHTML)
	case i == 0:
		answer(w, "application/json", indexJSON)
	case i == 1:
		document, err := openAPI()
		if err != nil {
			return err
		}
		answer(w, "application/json", document)
	case i == 2:
		answer(w, "application/yaml", docs.OpenAPI)
	default:
		answer(w, "text/plain; charset=utf-8", docs.LLMs)
	}
	return nil
}

func answer(w http.ResponseWriter, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_, _ = w.Write(body)
}

// UnmarshalCaddyfile reads
//
//	modelgate_docs [<matcher>]
func (d *Docs) UnmarshalCaddyfile(dispenser *caddyfile.Dispenser) error {
	return caddymodule.NoOptions(dispenser)
}

var _ caddy.Provisioner = (*Docs)(nil)
