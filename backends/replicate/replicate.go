// Package replicate runs tasks at Replicate.
//
// The file replicate.go is the Caddy module modelgate.backends.replicate, a
// backends.Backend; predictions.go has the API calls. The package imports
// backends, backends/wire, settings and Caddy.
package replicate

import (
	"cmp"
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

// Replicate runs tasks at Replicate. Each of its models has its own input. The
// configuration maps the gateway's models to Replicate's models, and the fields
// of a task to names of the input where they differ from these defaults:
//
//	prompt, negative_prompt, seed, duration, resolution, aspect_ratio
//	image               the first frame
//	num_outputs         the number of images, if greater than one
//	output_format       images only
//
// A field without a name is not sent. A task that sets an input, a subject or a
// scene without a name is refused.
//
// Replicate deletes results after an hour. The gateway copies them before.
type Replicate struct {
	// URL is the address of the API, without `/v1`. Default:
	// `https://api.replicate.com`.
	URL string `json:"url,omitempty"`

	// Key is an API token, `r8_…`. Placeholders are resolved. Required.
	Key settings.Secret `json:"key,omitempty"`

	// WebhookSecret is the secret of the account's webhooks, `whsec_…`. With
	// it, a webhook triggers a poll. Placeholders are resolved. Default:
	// webhooks are rejected.
	WebhookSecret settings.Secret `json:"webhook_secret,omitempty"`

	// Models maps the gateway's models to Replicate's, each `owner/name`,
	// `owner/name:version` or `deployments/owner/name`. Required.
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

const defaultURL = "https://api.replicate.com"

// CaddyModule returns the Caddy module information.
func (*Replicate) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.replicate", New: func() caddy.Module { return new(Replicate) }}
}

// modelForm is the form of a model's name.
var modelForm = regexp.MustCompile(`^(deployments/)?[\w.-]+/[\w.-]+$|^[\w.-]+/[\w.-]+:[0-9a-f]{64}$`)

// Provision resolves the key. It returns an error if the key is missing or a
// model is invalid.
func (r *Replicate) Provision(caddy.Context) error {
	r.URL = cmp.Or(r.URL, defaultURL)
	if err := errors.Join(
		settings.ResolveURL("url", &r.URL),
		settings.Resolve("key", &r.Key),
		wire.ResolveSecret("webhook_secret", &r.WebhookSecret),
	); err != nil {
		return err
	}
	if len(r.Models) == 0 {
		return errors.New("model is missing: map at least one model of the gateway to a model of Replicate")
	}
	for ours, theirs := range r.Models {
		if !modelForm.MatchString(theirs) {
			return fmt.Errorf("model %s: %q is not valid; allowed: owner/name, owner/name:version and deployments/owner/name", ours, theirs)
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

// Cleanup closes idle connections.
func (r *Replicate) Cleanup() error { return r.client.Close() }

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
	_ caddy.Provisioner     = (*Replicate)(nil)
	_ caddy.CleanerUpper    = (*Replicate)(nil)
	_ caddyfile.Unmarshaler = (*Replicate)(nil)
	_ backends.Backend      = (*Replicate)(nil)
	_ backends.Canceler     = (*Replicate)(nil)
	_ backends.Checker      = (*Replicate)(nil)
	_ backends.Notified     = (*Replicate)(nil)
)
