// Package vod runs tasks at the generation service of Tencent VOD, whose fields
// have the same meaning as those of the platform.
//
// The file vod.go is the Caddy module modelgate.backends.vod, a
// backends.Backend; sign.go signs its calls, request.go maps a job to a
// request, tasks.go has the API calls. The package imports backends,
// backends/wire, settings and Caddy.
package vod

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(VOD))
}

// VOD runs tasks at Tencent VOD (CreateAigcVideoTask, CreateAigcImageTask). The
// service has every field of the platform. The token of the task is sent as
// SessionId, so that a submission whose outcome is unknown can be found and is
// not repeated.
//
// The service's model name and version are parts of the gateway's model name:
// `video-kling-2.1` is `Kling` `2.1`. The service runs one task at a time
// unless the account allows more. Set the backend's max_running to that number.
type VOD struct {
	// URL is the address of the API. Default:
	// `https://vod.tencentcloudapi.com`.
	URL string `json:"url,omitempty"`

	// SecretID and SecretKey are the API key. Placeholders are resolved.
	// Required.
	SecretID  string          `json:"secret_id,omitempty"`
	SecretKey settings.Secret `json:"secret_key,omitempty"`

	// SubAppID is the application that tasks belong to. Placeholders are
	// resolved. Required.
	SubAppID string `json:"sub_app_id,omitempty"`

	// Models maps the gateway's models to the service's, each
	// `ModelName/ModelVersion`, where the rule above does not apply.
	Models map[string]string `json:"models,omitempty"`

	client *wire.Client
	app    uint64
	now    func() time.Time
}

const defaultURL = "https://vod.tencentcloudapi.com"

// CaddyModule returns the Caddy module information.
func (*VOD) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.vod", New: func() caddy.Module { return new(VOD) }}
}

// Provision resolves the key. It returns an error if the key is missing.
func (v *VOD) Provision(caddy.Context) error {
	v.URL = cmp.Or(v.URL, defaultURL)
	if err := errors.Join(
		settings.ResolveURL("url", &v.URL),
		settings.Resolve("secret_id", &v.SecretID),
		settings.Resolve("secret_key", &v.SecretKey),
		settings.Resolve("sub_app_id", &v.SubAppID),
	); err != nil {
		return err
	}
	app, err := strconv.ParseUint(v.SubAppID, 10, 64)
	if err != nil {
		return fmt.Errorf("sub_app_id %q is not a number", v.SubAppID)
	}
	for ours, theirs := range v.Models {
		if name, version, ok := strings.Cut(theirs, "/"); !ok || name == "" || version == "" {
			return fmt.Errorf("model %s: %q is not ModelName/ModelVersion", ours, theirs)
		}
	}
	v.app, v.now = app, time.Now
	v.client = wire.Connect(wire.Client{
		Service: "VOD",
		Base:    v.URL,
		Secret:  v.SecretKey,
		Authorize: func(r *http.Request, body []byte) {
			sign(r, body, v.SecretID, v.SecretKey, v.now())
		},
	})
	return nil
}

// Cleanup closes idle connections.
func (v *VOD) Cleanup() error { return v.client.Close() }

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter vod {
//		url        <url>
//		secret_id  <id>
//		secret_key <key>
//		sub_app_id <number>
//		model      <ours> <ModelName/ModelVersion>
//	}
func (v *VOD) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url":        settings.Text(&v.URL),
		"secret_id":  settings.Text(&v.SecretID),
		"secret_key": settings.Text(&v.SecretKey),
		"sub_app_id": settings.Text(&v.SubAppID),
	}.UnmarshalWith(d, settings.Pairs{"model": settings.Entries(&v.Models)})
}

// Interface guards
var (
	_ caddy.Provisioner     = (*VOD)(nil)
	_ caddy.CleanerUpper    = (*VOD)(nil)
	_ caddyfile.Unmarshaler = (*VOD)(nil)
	_ backends.Backend      = (*VOD)(nil)
	_ backends.Reconciler   = (*VOD)(nil)
	_ backends.Checker      = (*VOD)(nil)
)
