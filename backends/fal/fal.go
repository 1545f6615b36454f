// Package fal runs tasks at the queue of fal.
//
// The file fal.go is the Caddy module modelgate.backends.fal, a
// backends.Backend; queue.go has the API calls. The package imports backends,
// backends/wire, settings and Caddy.
package fal

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Fal))
}

// Fal runs tasks at the queue of fal. Each of its models has its own input. The
// configuration maps the gateway's models to fal's models, and the fields of a
// task to names of the input where they differ from these defaults:
//
//	prompt, negative_prompt, seed, duration, resolution, aspect_ratio
//	image_url           the first frame
//	num_images          the number of images, if greater than one
//	output_format       images only
//
// A field without a name is not sent. A task that sets an input, a subject or a
// scene without a name is refused. fal does not confirm cancellations, so tasks
// that were submitted run to their end.
type Fal struct {
	// URL is the address of the queue. Default: `https://queue.fal.run`.
	URL string `json:"url,omitempty"`

	// Key is the API key, `id:secret`. Placeholders are resolved. Required.
	Key settings.Secret `json:"key,omitempty"`

	// Models maps the gateway's models to fal's, each `owner/app` or a path
	// below it, such as `fal-ai/wan/v2.2/text-to-video`. Required.
	Models map[string]string `json:"models,omitempty"`

	// Inputs maps the gateway's field names to names of the model's input. The
	// field names are `first_frame`, `last_frame`, `reference_images`,
	// `reference_videos`, `subject_images`, `audio`, `count`, `format`,
	// `width`, `height`, `fps`, `scene_type`, `enhance_prompt`, those listed
	// above, and `ext_info.<member>` and `metadata.<member>` for the caller's
	// own members. A name that ends in `:string` sends a number as a string.
	// The name `-` omits the field.
	Inputs map[string]string `json:"inputs,omitempty"`

	client *wire.Client
}

const defaultURL = "https://queue.fal.run"

// CaddyModule returns the Caddy module information.
func (*Fal) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.fal", New: func() caddy.Module { return new(Fal) }}
}

// modelForm is the form of a model's path.
var modelForm = regexp.MustCompile(`^[\w-]+/[\w-][\w.-]*(/[\w-][\w.-]*)*$`)

// Provision resolves the key. It returns an error if the key is missing or a
// model is invalid.
func (f *Fal) Provision(caddy.Context) error {
	f.URL = cmp.Or(f.URL, defaultURL)
	if err := errors.Join(settings.ResolveURL("url", &f.URL), settings.Resolve("key", &f.Key)); err != nil {
		return err
	}
	if len(f.Models) == 0 {
		return errors.New("model is missing: map at least one model of the gateway to a model of fal")
	}
	for ours, theirs := range f.Models {
		if !modelForm.MatchString(theirs) {
			return fmt.Errorf("model %s: %q is not owner/app or a path below it", ours, theirs)
		}
	}
	if err := wire.CheckNames(f.Inputs); err != nil {
		return err
	}
	f.client = wire.Connect(wire.Client{
		Service:   "fal",
		Base:      f.URL,
		Secret:    f.Key,
		Authorize: func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Key "+f.Key.Reveal()) },
		Explain:   explain,
		Params:    params,
	})
	return nil
}

// Cleanup closes idle connections.
func (f *Fal) Cleanup() error { return f.client.Close() }

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter fal {
//		url   <url>
//		key   <key>
//		model <ours> <owner/app>
//		input <ours> <theirs>
//	}
func (f *Fal) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url": settings.Text(&f.URL),
		"key": settings.Text(&f.Key),
	}.UnmarshalWith(d, settings.Pairs{
		"model": settings.Entries(&f.Models),
		"input": settings.Entries(&f.Inputs),
	})
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Fal)(nil)
	_ caddy.CleanerUpper    = (*Fal)(nil)
	_ caddyfile.Unmarshaler = (*Fal)(nil)
	_ backends.Backend      = (*Fal)(nil)
)
