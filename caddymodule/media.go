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

// Media says where the results of tasks are kept. They are copied before a
// success is recorded, and given out for 7 days, by links that only their owner
// knows.
type Media struct {
	// Whether no copies are made: callers get the links of the generation
	// services, which end when those say so. It is refused with adapters that give
	// bytes and no links. Copies that were made before are still given out, as the
	// other words have it. Default: copies are made.
	Off bool `json:"off,omitempty"`

	// The directory in which files lie. Default: beside the store, `<directory of the
	// store>.media`.
	Path string `json:"path,omitempty"`

	// The bucket in which files lie, in place of a directory.
	S3 *S3 `json:"s3,omitempty"`

	// The greatest size of one file, in bytes. A result that is larger is not
	// copied: after an hour its task ends with the link of the service, or fails
	// where that has none. Default: 2 GiB, at most 32 GiB.
	MaxFile int64 `json:"max_file,omitempty"`

	// Where the files are reached from outside, if that is not base_url: a host of
	// their own keeps what others have made apart from the console. The site there
	// has modelgate_tasks, too. Default: as base_url.
	BaseURL string `json:"base_url,omitempty"`

	// What results may be fetched from beside public addresses, each with its port:
	// `renderer.internal:8443`, `10.1.0.0/16:443`.
	Allow []string `json:"allow,omitempty"`

	place   media.Place // nil: there is none
	allowed egress.Allowed
}

// S3 is a bucket of Amazon S3, or of a service that is like it. Placeholders are
// resolved in all words.
type S3 struct {
	// The address of the service, as `https://s3.eu-central-1.amazonaws.com`.
	Endpoint string `json:"endpoint,omitempty"`

	// The bucket. It must be there.
	Bucket string `json:"bucket,omitempty"`

	// Default: `us-east-1`.
	Region string `json:"region,omitempty"`

	// The credential, such as `{env.S3_ACCESS_KEY}` and `{env.S3_SECRET_KEY}`.
	AccessKey settings.Secret `json:"access_key,omitempty"`
	SecretKey settings.Secret `json:"secret_key,omitempty"`

	// What the names of objects begin with, so that a bucket can be shared.
	Prefix string `json:"prefix,omitempty"`

	// Whether the bucket stands in the path and not in the name of the host.
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

// provisionMedia determines where files are kept, and refuses settings with which callers
// would not get their results.
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
		return errors.New("media: the store has no directory beside which results could be kept; name one: media { path <directory> }")
	case a.mediaURL() == "":
		return errors.New("backends need base_url, as https://ai.example.com: the links to their results are made of it; or pass the links of the services on by media off")
	}
	return a.mediaConfig().Validate()
}

// mediaURL returns the beginning of links to files.
func (a *App) mediaURL() string { return cmp.Or(a.Media.BaseURL, a.BaseURL) }

// mediaConfig is what the configuration says of files. Without an address there
// are no links, and so no place.
func (a *App) mediaConfig() media.Config {
	c := media.Config{
		Place: a.Media.place, BaseURL: a.mediaURL(), MaxFile: a.Media.MaxFile,
		Allow: a.Media.allowed, Kept: time.Duration(a.Retention.Tasks),
	}
	if c.BaseURL == "" {
		c.Place = nil
	}
	return c
}

// findPlace makes the place of files. Where nothing is said of them, and there
// is nothing to be kept, that is only one that has been there before: files of
// earlier tasks are still given out.
func (m *Media) findPlace(opener storage.Opener, needed bool) (err error) {
	switch {
	case m.S3 != nil && m.Path != "":
		return errors.New("files lie in path or in s3, not in both")
	case m.S3 != nil:
		if m.place, err = m.S3.place(); err != nil {
			return fmt.Errorf("s3: %w", err)
		}
		return nil
	case m.Path != "":
		if err := settings.Resolve("path", &m.Path); err != nil {
			return err
		}
		m.place = media.Dir(m.Path, 0)
		return nil
	}
	if beside, ok := opener.(storage.MediaDirer); ok {
		path, minFree := beside.MediaDir()
		if _, err := os.Stat(path); err == nil || needed && !m.Off {
			m.place = media.Dir(path, minFree)
		}
	}
	return nil
}

// refuseBytes refuses backends whose results have no links to pass on.
func (a *App) refuseBytes() error {
	for _, b := range a.BackendRows {
		if f, is := b.adapter.(backends.Fetcher); is && f.OnlyBytes() {
			return fmt.Errorf("media off: the backend %s gives bytes and no links, which must be kept here; take the line out, or the backend", b.Name)
		}
	}
	return nil
}

// unmarshalCaddyfile reads
//
//	media [off] {
//		path     <directory>
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
			return d.Errf("media is followed by off or by a block, not by %q", d.Val())
		}
		m.Off = true
		if d.NextArg() {
			return d.ArgErr()
		}
	}
	return settings.Block(d, map[string]settings.Reader{
		"path":     settings.One(settings.Text(&m.Path)),
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
