// Package generations runs tasks at a service with the generic endpoint
// /v1/video/generations, which many gateways have.
//
// The file generations.go is the Caddy module modelgate.backends.generations, a
// backends.Backend; tasks.go has the API calls. The package imports backends,
// backends/wire, settings and Caddy.
package generations

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Generations))
}

// Generations runs tasks at `/v1/video/generations` of another gateway. It
// forwards the fields of a call to the gateway's own endpoint of that name
// unchanged, including unknown fields and metadata. It sends platform tasks as
// the fields with the same meaning, and all other fields as metadata.
//
// It reads both forms of answers that such gateways have: flat, and wrapped in
// code, message and data.
type Generations struct {
	// URL is the address of the service, without `/v1`. Required.
	URL string `json:"url,omitempty"`

	// Key is an API key of the service. Placeholders are resolved. Required.
	Key settings.Secret `json:"key,omitempty"`

	// Models maps the gateway's model names to the service's, where they
	// differ.
	Models map[string]string `json:"models,omitempty"`

	client *wire.Client
}

// CaddyModule returns the Caddy module information.
func (*Generations) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.generations", New: func() caddy.Module { return new(Generations) }}
}

// Provision resolves the key. It returns an error if the key is missing.
func (g *Generations) Provision(caddy.Context) error {
	if err := errors.Join(settings.ResolveURL("url", &g.URL), settings.Resolve("key", &g.Key)); err != nil {
		return err
	}
	g.client = wire.Connect(wire.Client{
		Service:   "the generations service",
		Base:      g.URL,
		Secret:    g.Key,
		Authorize: wire.Bearer(g.Key),
		Explain:   codes.Explain(),
		Params:    params,
	})
	return nil
}

// Cleanup closes idle connections.
func (g *Generations) Cleanup() error { return g.client.Close() }

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter generations {
//		url   <url>
//		key   <key>
//		model <ours> <theirs>
//	}
func (g *Generations) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url": settings.Text(&g.URL),
		"key": settings.Text(&g.Key),
	}.UnmarshalWith(d, settings.Pairs{"model": settings.Entries(&g.Models)})
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Generations)(nil)
	_ caddy.CleanerUpper    = (*Generations)(nil)
	_ caddyfile.Unmarshaler = (*Generations)(nil)
	_ backends.Backend      = (*Generations)(nil)
	_ backends.Fetcher      = (*Generations)(nil)
	_ backends.Checker      = (*Generations)(nil)
)
