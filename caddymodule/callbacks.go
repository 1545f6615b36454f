package caddymodule

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Callback configures the callbacks about ended tasks, and which addresses they may
// reach.
type Callback struct {
	// The receiver of callbacks for API keys without an address of their own: an
	// absolute http or https URL. Placeholders are resolved. Default: none.
	URL string `json:"url,omitempty"`

	// The secret that signs callbacks to url, in the form of Standard Webhooks: `whsec_`
	// and the base64 of 24 to 64 random bytes. Placeholders are resolved, such as
	// `{env.MODELGATE_CALLBACK_SECRET}`. Required with url. The addresses of keys have
	// their own secrets.
	Secret settings.Secret `json:"secret,omitempty"`

	// The addresses that callbacks may reach besides public ones, each with its port:
	// `hooks.example.org:8443`, `10.1.0.0/16:443`, `[fd00::/8]:443`. A name means
	// every address to which it resolves when the gateway dials it.
	Allow []string `json:"allow,omitempty"`

	allowed egress.Allowed
	keys    [][]byte
}

func (c *Callback) provision() (err error) {
	if c.allowed, err = egress.ParseAllowed(c.Allow); err != nil {
		return fmt.Errorf("callback: %w", err)
	}
	switch {
	case c.URL == "" && c.Secret == "":
		return nil
	case c.URL == "":
		return errors.New("callback: secret needs url; the secret signs callbacks to url, keys have their own secrets")
	case c.Secret == "":
		return errors.New("callback: url needs secret, which signs the callbacks, such as secret {env.NAME}")
	}
	if err := errors.Join(settings.Resolve("callback: url", &c.URL), settings.Resolve("callback: secret", &c.Secret)); err != nil {
		return err
	}
	if err := c.allowed.CheckURL(c.URL); err != nil {
		return fmt.Errorf("callback: url %w; name addresses that are not public in allow", err)
	}
	key, err := identity.ParseCallbackSecret(c.Secret.Reveal())
	if err != nil {
		return fmt.Errorf("callback: secret: %w", err)
	}
	c.keys = [][]byte{key}
	return nil
}

// check returns an error if the callback address of a key is neither public nor named in
// allow. If allow names an address, check accepts names of the local network. They may
// resolve to that address, and the gateway checks them again when it dials.
func (c *Callback) check(url string) error { return c.allowed.CheckRegistered(url) }

// unmarshalCaddyfile reads
//
//	callback {
//		url    <url>
//		secret <secret>
//		allow  <host>:<port>|<prefix>/<bits>:<port>...
//	}
func (c *Callback) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"url":    settings.One(settings.Text(&c.URL)),
		"secret": settings.Into(&c.Secret, secretArg),
		"allow":  settings.Into(&c.Allow, allowed),
	}, "allow")
}

// allowed reads the allowed addresses that are not public, in one line or several.
func allowed(d *caddyfile.Dispenser, into *[]string) error {
	entries := d.RemainingArgs()
	if len(entries) == 0 {
		return d.ArgErr()
	}
	*into = append(*into, entries...)
	_, err := egress.ParseAllowed(*into)
	return settings.Located(d, err)
}

// callbacks returns the callback address of an API key, or the configured one if the key
// has none.
type callbacks struct {
	directory *identity.Directory
	url       string // of the configuration; empty: none
	keys      [][]byte
	logger    *zap.Logger
}

// Address implements task.CallbackAddresses. If the secrets of a key's own address cannot
// be read, the address has no secret: its callbacks wait unsent, and the task ends.
func (c *callbacks) Address(r storage.Reader, key string) (task.Address, bool, error) {
	own, err := c.directory.KeyCallback(r, key)
	if err != nil {
		return task.Address{}, false, err
	}
	address := task.Address{URL: c.url, Secrets: c.keys}
	if own.URL != "" {
		address.URL = own.URL
		if address.Secrets, err = c.directory.CallbackKeys(r, key); err != nil {
			c.logger.Error("the secret of a callback address cannot be read", zap.String("key_id", key), zap.Error(err))
		}
	}
	return address, address.URL != "" && address.URL != own.Gone, nil
}

// Disable implements task.CallbackAddresses.
func (c *callbacks) Disable(t storage.Txn, now time.Time, key, url string) (*audit.Event, error) {
	own, err := c.directory.KeyCallback(t, key)
	if err != nil || own.URL == "" && c.url != url {
		return nil, err
	}
	return c.directory.DisableCallback(t, now, key, url)
}

// Interface guards.
var _ task.CallbackAddresses = (*callbacks)(nil)
