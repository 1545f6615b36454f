// Package openai runs tasks at a server with the videos API that OpenAI had
// until 2026-09-24, such as vLLM-Omni or SGLang.
//
// The file openai.go is the Caddy module modelgate.backends.openai, a
// backends.Backend; videos.go has the API calls. The package imports backends,
// backends/wire, settings and Caddy.
package openai

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(OpenAI))
}

// OpenAI runs tasks at a server with OpenAI's former videos API (`/v1/videos`).
// It generates videos from a prompt and at most one reference image. Reading its
// results needs the key, so the gateway has to keep media. It changes a video
// that it has made if the server has `/v1/videos/{id}/remix`.
//
// The API's name of a model is the gateway's without `video-`: `video-wan-2.2`
// becomes `wan-2.2`. Tasks that set a field which the API does not have, such as
// negative_prompt, are refused.
type OpenAI struct {
	// URL is the address of the API, without `/v1`. Required, because OpenAI
	// has ended its own.
	URL string `json:"url,omitempty"`

	// Key is the API key. Placeholders are resolved, such as
	// `{env.RENDER_API_KEY}`. Required.
	Key settings.Secret `json:"key,omitempty"`

	// Models maps the gateway's model names to the API's, where the rule above
	// does not apply.
	Models map[string]string `json:"models,omitempty"`

	client *wire.Client
}

// CaddyModule returns the Caddy module information.
func (*OpenAI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.openai", New: func() caddy.Module { return new(OpenAI) }}
}

// Provision resolves URL and key. It returns an error if one of them is
// missing.
func (o *OpenAI) Provision(caddy.Context) error {
	if err := errors.Join(settings.ResolveURL("url", &o.URL), settings.Resolve("key", &o.Key)); err != nil {
		return err
	}
	o.client = wire.Connect(wire.Client{
		Service:   "the videos API",
		Base:      o.URL,
		Secret:    o.Key,
		Authorize: wire.Bearer(o.Key),
		Explain:   codes.Explain(),
		Params:    params,
	})
	return nil
}

// Cleanup closes idle connections.
func (o *OpenAI) Cleanup() error { return o.client.Close() }

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter openai {
//		url   <url>
//		key   <key>
//		model <ours> <theirs>
//	}
func (o *OpenAI) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url": settings.Text(&o.URL),
		"key": settings.Text(&o.Key),
	}.UnmarshalWith(d, settings.Pairs{"model": settings.Entries(&o.Models)})
}

// Interface guards
var (
	_ caddy.Provisioner     = (*OpenAI)(nil)
	_ caddy.CleanerUpper    = (*OpenAI)(nil)
	_ caddyfile.Unmarshaler = (*OpenAI)(nil)
	_ backends.Backend      = (*OpenAI)(nil)
	_ backends.Remixer      = (*OpenAI)(nil)
	_ backends.Fetcher      = (*OpenAI)(nil)
	_ backends.Checker      = (*OpenAI)(nil)
)
