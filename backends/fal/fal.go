// Package fal runs tasks at the queue of fal.
//
// The file fal.go is the Caddy module modelgate.backends.fal, a
// backends.Backend; queue.go has the API calls. The package imports backends,
// backends/wire, settings and Caddy.
package fal

import (
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

// Fal runs tasks at the queue of fal. Each model there has an input of its own,
// so that the configuration says which one is meant by which of ours, and how
// its input calls what a task says, where that is not as usual:
//
//	prompt, negative_prompt, seed, duration, resolution, aspect_ratio
//	image_url           the first frame
//	num_images          the number of images, where it is more than one
//	output_format       of images
//
// What has no name is not sent; a task with an input, a subject or a scene that
// has none is refused. fal does not confirm that a job has been cancelled, so
// that tasks handed over run to their end.
type Fal struct {
	// URL is where the queue is. Default: `https://queue.fal.run`.
	URL string `json:"url,omitempty"`

	// Key is the API key, `id:secret`. Placeholders are resolved. Required.
	Key settings.Secret `json:"key,omitempty"`

	// Models are fal's models by ours, each `owner/app` or a path below it, such
	// as `fal-ai/wan/v2.2/text-to-video`. Required.
	Models map[string]string `json:"models,omitempty"`

	// Inputs are the names of a model's input by ours: `first_frame`,
	// `last_frame`, `reference_images`, `reference_videos`, `subject_images`,
	// `audio`, `count`, `format`, `width`, `height`, `fps`, `scene_type`,
	// `enhance_prompt`, those above, and `ext_info.<member>` and
	// `metadata.<member>` for what callers may hand through. A name that ends in
	// `:string` takes a number as a string; `-` leaves a thing out.
	Inputs map[string]string `json:"inputs,omitempty"`

	client *wire.Client
}

const defaultURL = "https://queue.fal.run"

// CaddyModule returns the Caddy module information.
func (*Fal) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "modelgate.backends.fal",
		New: func() caddy.Module { return new(Fal) },
	}
}

// modelForm is how a model is named.
var modelForm = regexp.MustCompile(`^[\w-]+/[\w-][\w.-]*(/[\w-][\w.-]*)*$`)

// Provision resolves the key, and refuses a configuration without one or with a
// model that cannot be there.
func (f *Fal) Provision(caddy.Context) error {
	if f.URL == "" {
		f.URL = defaultURL
	}
	if err := errors.Join(settings.Resolve("url", &f.URL), settings.Resolve("key", &f.Key)); err != nil {
		return err
	}
	if err := settings.CheckURL(f.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if len(f.Models) == 0 {
		return errors.New("model is missing: it says which of fal's models is meant by which of ours")
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

// Cleanup closes the connections that are kept.
func (f *Fal) Cleanup() error {
	f.client.Close()
	return nil
}

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
	_ caddy.Module          = (*Fal)(nil)
	_ caddy.Provisioner     = (*Fal)(nil)
	_ caddy.CleanerUpper    = (*Fal)(nil)
	_ caddyfile.Unmarshaler = (*Fal)(nil)
	_ backends.Backend      = (*Fal)(nil)
)
