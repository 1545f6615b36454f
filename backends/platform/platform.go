// Package platform runs tasks at another service with the platform interface of
// this gateway, so that gateways can be chained.
//
// The file platform.go is the Caddy module modelgate.backends.platform, a
// backends.Backend; tasks.go has the API calls. The package imports backends,
// backends/wire, settings and Caddy.
package platform

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Platform))
}

// Platform runs tasks at another service with this interface
// (`/v1/platform/video`, `/v1/platform/image`, `/v1/video/generations`), such
// as another modelgate. The service's model names are the same, except for
// those in Models. Every field is forwarded. The token of the task is sent as
// session_id, so that a submission whose outcome is unknown can be found and is
// not repeated.
type Platform struct {
	// URL is the address of the service, without `/v1`. Required.
	URL string `json:"url,omitempty"`

	// Key is an API key of the service, `sk-…`. Placeholders are resolved.
	// Required.
	Key settings.Secret `json:"key,omitempty"`

	// CallbackSecret is the secret with which the service signs the callbacks
	// of this key, `whsec_…`. With it, a callback triggers a poll, so that the
	// result is known at once. Placeholders are resolved. Default: callbacks
	// are rejected.
	CallbackSecret settings.Secret `json:"callback_secret,omitempty"`

	// Models maps the gateway's model names to the service's, where they
	// differ.
	Models map[string]string `json:"models,omitempty"`

	client *wire.Client
}

// CaddyModule returns the Caddy module information.
func (*Platform) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.platform", New: func() caddy.Module { return new(Platform) }}
}

// Provision resolves the key. It returns an error if the key is missing.
func (p *Platform) Provision(caddy.Context) error {
	if err := errors.Join(
		settings.ResolveURL("url", &p.URL),
		settings.Resolve("key", &p.Key),
		wire.ResolveSecret("callback_secret", &p.CallbackSecret),
	); err != nil {
		return err
	}
	p.client = wire.Connect(wire.Client{
		Service:   "the platform",
		Base:      p.URL,
		Secret:    p.Key,
		Authorize: wire.Bearer(p.Key),
		Explain:   codes.Explain(),
		Params:    params,
	})
	return nil
}

// Cleanup closes idle connections.
func (p *Platform) Cleanup() error { return p.client.Close() }

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter platform {
//		url             <url>
//		key             <key>
//		callback_secret <secret>
//		model           <ours> <theirs>
//	}
func (p *Platform) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url":             settings.Text(&p.URL),
		"key":             settings.Text(&p.Key),
		"callback_secret": settings.Text(&p.CallbackSecret),
	}.UnmarshalWith(d, settings.Pairs{"model": settings.Entries(&p.Models)})
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Platform)(nil)
	_ caddy.CleanerUpper    = (*Platform)(nil)
	_ caddyfile.Unmarshaler = (*Platform)(nil)
	_ backends.Backend      = (*Platform)(nil)
	_ backends.Canceler     = (*Platform)(nil)
	_ backends.Checker      = (*Platform)(nil)
	_ backends.Reconciler   = (*Platform)(nil)
	_ backends.Notified     = (*Platform)(nil)
)
