// Package health answers whether the process and its store are well.
package health

import (
	"encoding/json"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
)

func init() {
	caddy.RegisterModule(Health{})
	httpcaddyfile.RegisterHandlerDirective("modelgate_health", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		m := new(Health)
		return m, m.UnmarshalCaddyfile(h.Dispenser)
	})
}

// Health serves GET /healthz, which answers 200 as long as the process does,
// and GET /readyz, which answers 200 when calls can be taken, or 503 with the
// reasons why not: the store failed or is almost full, the process drains, or
// there are backends of generation tasks and none of them can be used, because
// it is drained or its service takes no tasks.
type Health struct {
	app *caddymodule.App
}

// CaddyModule returns the Caddy module information.
func (Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_health", New: func() caddy.Module { return new(Health) }}
}

// Provision finds the app.
func (h *Health) Provision(ctx caddy.Context) (err error) {
	h.app, err = caddymodule.Of(ctx)
	return err
}

var paths = []reply.Route{
	{Path: "/healthz", Methods: []string{http.MethodGet, http.MethodHead}},
	{Path: "/readyz", Methods: []string{http.MethodGet, http.MethodHead}},
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	i, f := reply.Find(paths, r)
	switch {
	case i < 0:
		return reply.Pass(w, r, next, h.app.VersionHeader)
	case f != nil:
		reply.Completions.RefuseUnread(w, r, f, reply.NewRequestID())
	case paths[i].Path == "/healthz":
		answer(w, http.StatusOK, state{Status: "ok"})
	default:
		if reasons := h.reasons(r); len(reasons) > 0 {
			answer(w, http.StatusServiceUnavailable, state{"unavailable", reasons})
		} else {
			answer(w, http.StatusOK, state{Status: "ready"})
		}
	}
	return nil
}

// reasons returns why no calls can be taken.
func (h *Health) reasons(r *http.Request) []string {
	node, release, err := h.app.Node(r.Context())
	if err != nil {
		return []string{err.Error()}
	}
	defer release()
	if err := node.Ready(); err != nil {
		return []string{err.Error()}
	}
	if err := node.Probe(r.Context()); err != nil {
		return []string{err.Error()}
	}
	return h.app.Unusable(r.Context(), node)
}

type state struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

func answer(w http.ResponseWriter, status int, s state) {
	body, _ := json.Marshal(s)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// UnmarshalCaddyfile reads
//
//	modelgate_health [<matcher>]
func (h *Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() || d.NextBlock(0) {
		return d.ArgErr()
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Health)(nil)
	_ caddyhttp.MiddlewareHandler = (*Health)(nil)
	_ caddyfile.Unmarshaler       = (*Health)(nil)
)
