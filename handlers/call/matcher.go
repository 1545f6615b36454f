package call

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

func init() {
	caddy.RegisterModule(Model{})
}

// Model matches a model call by its model, within the block of modelgate_messages or
// modelgate_completions. A pattern is an exact name or a prefix followed by "*". Exact names
// join the list of models that callers see. Outside of such a block it matches nothing.
type Model struct {
	// The patterns. A call matches if one of them matches.
	Patterns []string `json:"patterns,omitempty"`

	patterns catalog.Patterns
}

// CaddyModule returns the Caddy module information.
func (Model) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.matchers.modelgate_model", New: func() caddy.Module { return new(Model) }}
}

// Provision parses the patterns and adds the exact ones to the list of models.
func (m *Model) Provision(ctx caddy.Context) (err error) {
	if m.patterns, err = catalog.ParsePatterns(m.Patterns); err != nil {
		return err
	}
	app, err := caddymodule.Of(ctx)
	if err != nil {
		return err
	}
	for i, p := range m.patterns {
		if p.Exact() {
			app.Offer(string(p))
			m.patterns[i] = catalog.Pattern(app.Resolve(string(p)))
		}
	}
	return nil
}

// MatchWithError implements caddyhttp.RequestMatcherWithError.
func (m *Model) MatchWithError(r *http.Request) (bool, error) {
	c, ok := caddyhttp.GetVar(r.Context(), callVar).(*call)
	return ok && m.patterns.Match(c.request.Model), nil
}

// UnmarshalCaddyfile reads
//
//	modelgate_model <pattern>...
func (m *Model) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	for d.Next() {
		patterns := d.RemainingArgs()
		if len(patterns) == 0 {
			return d.ArgErr()
		}
		m.Patterns = append(m.Patterns, patterns...)
		if d.NextBlock(0) {
			return d.Err("modelgate_model takes no block")
		}
	}
	if _, err := catalog.ParsePatterns(m.Patterns); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner                 = (*Model)(nil)
	_ caddyhttp.RequestMatcherWithError = (*Model)(nil)
	_ caddyfile.Unmarshaler             = (*Model)(nil)
)
