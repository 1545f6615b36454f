// Package replicate runs tasks at Replicate.
//
// The file replicate.go is the Caddy module modelgate.backends.replicate, a
// backends.Backend; predictions.go has the API calls. The package imports
// backends, backends/wire, settings and Caddy.
package replicate

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Replicate))
}

// Replicate runs tasks at Replicate. Each model there has an input of its own,
// so that the configuration says which one is meant by which of ours, and how
// its input calls what a task says, where that is not as usual:
//
//	prompt, negative_prompt, seed, duration, resolution, aspect_ratio
//	image               the first frame
//	num_outputs         the number of images, where it is more than one
//	output_format       of images
//
// What has no name is not sent; a task with an input, a subject or a scene that
// has none is refused.
//
// Replicate deletes results after an hour; the gateway has copied them by then.
type Replicate struct {
	// URL is where the API is, without `/v1`. Default:
	// `https://api.replicate.com`.
	URL string `json:"url,omitempty"`

	// Key is an API token, `r8_…`. Placeholders are resolved. Required.
	Key settings.Secret `json:"key,omitempty"`

	// WebhookSecret is the secret of the account's webhooks, `whsec_…`. With it
	// they wake the poll. Placeholders are resolved. Default: none is believed.
	WebhookSecret settings.Secret `json:"webhook_secret,omitempty"`

	// Models are Replicate's models by ours, each `owner/name`,
	// `owner/name:version` or `deployments/owner/name`. Required.
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

const defaultURL = "https://api.replicate.com"

// CaddyModule returns the Caddy module information.
func (*Replicate) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "modelgate.backends.replicate",
		New: func() caddy.Module { return new(Replicate) },
	}
}

// modelForm is how a model is named.
var modelForm = regexp.MustCompile(`^(deployments/)?[\w.-]+/[\w.-]+$|^[\w.-]+/[\w.-]+:[0-9a-f]{64}$`)

// Provision resolves the key, and refuses a configuration without one or with a
// model that cannot be there.
func (r *Replicate) Provision(caddy.Context) error {
	if r.URL == "" {
		r.URL = defaultURL
	}
	if err := errors.Join(settings.Resolve("url", &r.URL), settings.Resolve("key", &r.Key)); err != nil {
		return err
	}
	if err := settings.CheckURL(r.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if r.WebhookSecret != "" {
		if err := settings.Resolve("webhook_secret", &r.WebhookSecret); err != nil {
			return err
		}
		if err := wire.CheckSecret(r.WebhookSecret); err != nil {
			return fmt.Errorf("webhook_secret: %w", err)
		}
	}
	if len(r.Models) == 0 {
		return errors.New("model is missing: it says which of Replicate's models is meant by which of ours")
	}
	for ours, theirs := range r.Models {
		if !modelForm.MatchString(theirs) {
			return fmt.Errorf("model %s: %q is none of owner/name, owner/name:version and deployments/owner/name", ours, theirs)
		}
	}
	if err := wire.CheckNames(r.Inputs); err != nil {
		return err
	}
	r.client = wire.Connect(wire.Client{
		Service:   "Replicate",
		Base:      r.URL,
		Secret:    r.Key,
		Authorize: wire.Bearer(r.Key),
		Explain:   explain,
	})
	return nil
}

// Cleanup closes the connections that are kept.
func (r *Replicate) Cleanup() error {
	r.client.Close()
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter replicate {
//		url            <url>
//		key            <token>
//		webhook_secret <secret>
//		model          <ours> <owner/name>
//		input          <ours> <theirs>
//	}
func (r *Replicate) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url":            settings.Text(&r.URL),
		"key":            settings.Text(&r.Key),
		"webhook_secret": settings.Text(&r.WebhookSecret),
	}.UnmarshalWith(d, settings.Pairs{
		"model": settings.Entries(&r.Models),
		"input": settings.Entries(&r.Inputs),
	})
}

// Interface guards
var (
	_ caddy.Module          = (*Replicate)(nil)
	_ caddy.Provisioner     = (*Replicate)(nil)
	_ caddy.CleanerUpper    = (*Replicate)(nil)
	_ caddyfile.Unmarshaler = (*Replicate)(nil)
	_ backends.Backend      = (*Replicate)(nil)
	_ backends.Canceler     = (*Replicate)(nil)
	_ backends.Checker      = (*Replicate)(nil)
	_ backends.Notified     = (*Replicate)(nil)
)
