package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Media configures where the results of tasks are kept. The gateway copies them before
// it records a success, and serves them for 7 days at links that only their owner knows.
type Media struct {
	// Whether the gateway makes no copies: callers get the links of the generation
	// services, which expire as the services decide. Adapters that return bytes instead
	// of links need copies. Copies that exist are still served, as the other settings
	// say. Default: false.
	Off bool `json:"off,omitempty"`

	// The directory of the files. Default: `<directory of the store>.media`.
	Path string `json:"path,omitempty"`

	// Whether all gateways that share the store reach this directory, for instance over NFS.
	// Required with `path` if the store is shared. Default: false.
	Shared bool `json:"shared,omitempty"`

	// The bucket of the files, instead of a directory.
	S3 *S3 `json:"s3,omitempty"`

	// The maximum size of one file in bytes. A larger result is not copied: after an
	// hour its task ends with the link of the service, or fails if there is no link.
	// Default: 2 GiB, at most 32 GiB.
	MaxFile int64 `json:"max_file,omitempty"`

	// The public address of the files. A host of their own separates files of services
	// from the console. Its site needs modelgate_tasks, too. Default: base_url.
	BaseURL string `json:"base_url,omitempty"`

	// The addresses from which results may be fetched besides public ones, each with
	// its port: `renderer.internal:8443`, `10.1.0.0/16:443`.
	Allow []string `json:"allow,omitempty"`

	place   media.Place // nil: none
	allowed egress.Allowed
}

// S3 is a bucket of Amazon S3 or of a compatible service. Placeholders are resolved in
// all values.
type S3 struct {
	// The address of the service, as `https://s3.eu-central-1.amazonaws.com`.
	Endpoint string `json:"endpoint,omitempty"`

	// The bucket. It must exist.
	Bucket string `json:"bucket,omitempty"`

	// Default: `us-east-1`.
	Region string `json:"region,omitempty"`

	// The credential, such as `{env.S3_ACCESS_KEY}` and `{env.S3_SECRET_KEY}`.
	AccessKey settings.Secret `json:"access_key,omitempty"`
	SecretKey settings.Secret `json:"secret_key,omitempty"`

	// The prefix of the names of objects, so that a bucket can be shared.
	Prefix string `json:"prefix,omitempty"`

	// Whether the bucket is in the path instead of the host name.
	PathStyle bool `json:"path_style,omitempty"`
}

// place checks the settings; it sends no request.
func (s *S3) place() (media.Place, error) {
	for _, word := range []struct {
		name  string
		value *string
	}{{"endpoint", &s.Endpoint}, {"bucket", &s.Bucket}, {"region", &s.Region}, {"prefix", &s.Prefix}} {
		if *word.value == "" && (word.name == "region" || word.name == "prefix") {
			continue
		}
		if err := settings.Resolve(word.name, word.value); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(settings.Resolve("access_key", &s.AccessKey), settings.Resolve("secret_key", &s.SecretKey)); err != nil {
		return nil, err
	}
	return media.S3(media.S3Options{
		Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s.Region,
		AccessKey: s.AccessKey.Reveal(), SecretKey: s.SecretKey.Reveal(), Prefix: s.Prefix, PathStyle: s.PathStyle,
	})
}

// provisionMedia determines where files are kept. It returns an error for settings with
// which callers would not get their results.
func (a *App) provisionMedia() (err error) {
	m := &a.Media
	if m.allowed, err = egress.ParseAllowed(m.Allow); err != nil {
		return fmt.Errorf("media: %w", err)
	}
	if m.BaseURL != "" {
		if err := validateBaseURL(m.BaseURL); err != nil {
			return fmt.Errorf("media: %w", err)
		}
	}
	if err := m.findPlace(a.opener, len(a.BackendRows) > 0); err != nil {
		return fmt.Errorf("media: %w", err)
	}
	switch {
	case len(a.BackendRows) == 0:
	case m.Off:
		return a.refuseBytes()
	case m.place == nil:
		return errors.New("media: the store has no directory, so results need one: media { path <directory> }")
	case a.MediaURL() == "":
		return errors.New("backends need base_url, such as https://ai.example.com, for the links to results; or use the links of the services: media off")
	}
	return a.mediaConfig().Validate()
}

// MediaURL returns the beginning of links to files.
func (a *App) MediaURL() string { return cmp.Or(a.Media.BaseURL, a.BaseURL) }

// mediaConfig returns the configuration of files. Without an address there are no links,
// so the place is nil.
func (a *App) mediaConfig() media.Config {
	c := media.Config{
		Place: a.Media.place, BaseURL: a.MediaURL(), MaxFile: a.Media.MaxFile,
		Allow: a.Media.allowed, Kept: time.Duration(a.Retention.Tasks),
	}
	if c.BaseURL == "" {
		c.Place = nil
	}
	return c
}

// findPlace sets the place of files. The default directory is used only if it is needed
// or already exists: files of earlier tasks are still served.
func (m *Media) findPlace(opener storage.Opener, needed bool) (err error) {
	switch {
	case m.S3 != nil && m.Path != "":
		return errors.New("path and s3 exclude each other; name one of them")
	case m.S3 != nil:
		if m.place, err = m.S3.place(); err != nil {
			return fmt.Errorf("s3: %w", err)
		}
		return nil
	case m.Path != "":
		if err := settings.Resolve("path", &m.Path); err != nil {
			return err
		}
		if shared, ok := opener.(storage.Sharer); ok && shared.Shared() && !m.Shared {
			return errors.New("path: all gateways of the store must reach the files; write the word shared if they all reach this directory, or use s3")
		}
		m.place = media.Dir(m.Path, 0)
		return nil
	}
	if local, ok := opener.(storage.MediaDirer); ok {
		path, minFree := local.MediaDir()
		if _, err := os.Stat(path); err == nil || needed && !m.Off {
			m.place = media.Dir(path, minFree)
		}
	}
	return nil
}

// refuseBytes returns an error if a backend returns results as bytes, without links.
func (a *App) refuseBytes() error {
	for _, b := range a.BackendRows {
		if f, is := b.adapter.(backends.Fetcher); is && f.OnlyBytes() {
			return fmt.Errorf("media off: backend %s returns bytes without links, so the gateway must keep its results; remove media off, or the backend", b.Name)
		}
	}
	return nil
}

// unmarshalCaddyfile reads
//
//	media [off] {
//		path     <directory>
//		shared
//		max_file <size>
//		base_url <url>
//		allow    <host>:<port>|<prefix>/<bits>:<port>...
//		s3 {
//			endpoint   <url>
//			bucket     <name>
//			region     <name>
//			access_key <key>
//			secret_key <key>
//			prefix     <prefix>
//			path_style
//		}
//	}
func (m *Media) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		if d.Val() != "off" {
			return d.Errf("media: %q is not supported; allowed: off, or a block", d.Val())
		}
		m.Off = true
		if d.NextArg() {
			return d.ArgErr()
		}
	}
	return settings.Block(d, map[string]settings.Reader{
		"path":     settings.One(settings.Text(&m.Path)),
		"shared":   settings.Flag(&m.Shared),
		"max_file": settings.Then(settings.Size(&m.MaxFile), func() error { return media.Config{MaxFile: m.MaxFile}.Validate() }),
		"base_url": settings.Checked(&m.BaseURL, validateBaseURL),
		"allow":    settings.Into(&m.Allow, allowed),
		"s3": func(d *caddyfile.Dispenser) error {
			m.S3 = new(S3)
			return m.S3.unmarshalCaddyfile(d)
		},
	}, "allow")
}

func (s *S3) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"endpoint":   settings.One(settings.Text(&s.Endpoint)),
		"bucket":     settings.One(settings.Text(&s.Bucket)),
		"region":     settings.One(settings.Text(&s.Region)),
		"prefix":     settings.One(settings.Text(&s.Prefix)),
		"access_key": settings.Into(&s.AccessKey, secretArg),
		"secret_key": settings.Into(&s.SecretKey, secretArg),
		"path_style": settings.Flag(&s.PathStyle),
	})
}

// secretArg reads a secret. Its errors do not contain it.
func secretArg(d *caddyfile.Dispenser, into *settings.Secret) error {
	word := d.Val()
	var secret string
	if !d.AllArgs(&secret) || secret == "" {
		return d.Errf("%s takes one value", word)
	}
	*into = settings.Secret(secret)
	return nil
}
