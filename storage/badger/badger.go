// Package badger keeps a modelgate store in a directory on this machine, in
// the embedded database Badger. It is the default engine: no other process is
// needed, and one process at a time may have the directory open.
//
// What was acknowledged survives the end of the process at any moment, and a
// power cut as far as the system's sync does: on macOS the sync that Badger uses
// (msync) leaves data in the cache of the drive.
//
// This file is the module a configuration names; engine.go is what it opens.
package badger

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(new(Badger))
}

// Badger keeps the store in a directory on this machine. What was acknowledged
// has been synced to the medium. The directory belongs to one process at a
// time; a second one is refused and told who holds it. It is closed to other
// users of the machine (mode 0700), and so are its files (0600).
type Badger struct {
	// Path is the directory, which is made when the configuration starts and
	// not before. It must be new, empty or a store already, and on a local
	// medium. Placeholders are resolved, such as `{env.STORE}`. Default:
	// `modelgate/store` in Caddy's data directory.
	Path string `json:"path,omitempty"`

	// Memory is how much memory the engine may use for speed: `small`, `normal` or
	// `large`. It sets the sizes of memtables (1.75, 7 or 28 MiB), tables, buffers
	// and caches. One transaction may be 15 % of a memtable. Default: `normal`.
	Memory string `json:"memory,omitempty"`

	// MinFree is the free space in bytes below which writes are refused,
	// because a full disk would kill the process. It can be no less than 18, 80 or
	// 320 MiB, by the word of Memory. Default: that or 256 MiB, whichever is more.
	MinFree int64 `json:"min_free,omitempty"`

	dir    string // the real path
	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Badger) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "modelgate.storage.badger",
		New: func() caddy.Module { return new(Badger) },
	}
}

// Provision resolves the path and fills in the defaults. It neither makes nor
// opens anything, so that a configuration can be validated beside a server.
func (b *Badger) Provision(ctx caddy.Context) error {
	b.logger = ctx.Logger()
	if b.Memory == "" {
		b.Memory = "normal"
	}
	if b.MinFree == 0 {
		b.MinFree = sizings[b.Memory].minFree()
	}

	path := filepath.Join(caddy.AppDataDir(), "modelgate", "store")
	if b.Path != "" {
		var err error
		if path, err = caddy.NewReplacer().ReplaceOrErr(b.Path, true, true); err != nil {
			return fmt.Errorf("path %q: %w", b.Path, err)
		}
	}
	var err error
	if b.dir, err = realPath(path); err != nil {
		return fmt.Errorf("path %q: %w", b.Path, err)
	}
	return nil
}

// Validate checks the words and bounds of the configuration.
func (b *Badger) Validate() error {
	size, ok := sizings[b.Memory]
	if !ok {
		return fmt.Errorf("memory is small, normal or large, not %q", b.Memory)
	}
	if least := size.leastFree(); b.MinFree < least {
		return fmt.Errorf("min_free is %s; with memory %s it must be %s or more",
			humanize.IBytes(uint64(max(b.MinFree, 0))), b.Memory, humanize.IBytes(uint64(least)))
	}
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	storage badger [<path>] {
//		memory   small|normal|large
//		min_free <size>
//	}
func (b *Badger) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		if b.Path = d.Val(); b.Path == "" {
			return d.Err("the path is empty")
		}
		if d.NextArg() {
			return d.ArgErr()
		}
	}
	seen := make(map[string]bool)
	for d.NextBlock(0) {
		word := d.Val()
		if seen[word] {
			return d.Errf("%s is given twice", word)
		}
		seen[word] = true

		var value string
		switch word {
		case "memory":
			if !d.AllArgs(&value) {
				return d.ArgErr()
			}
			if _, ok := sizings[value]; !ok {
				return d.Errf("memory is small, normal or large, not %q", value)
			}
			b.Memory = value
		case "min_free":
			if !d.AllArgs(&value) {
				return d.ArgErr()
			}
			size, err := humanize.ParseBytes(value)
			if err != nil || size == 0 || size > math.MaxInt64 {
				return d.Errf("min_free is a size such as 512MiB, not %q", value)
			}
			b.MinFree = int64(size)
		default:
			return d.Errf("unrecognized subdirective %q", word)
		}
	}
	return nil
}

// Key implements storage.Opener: the real path of the directory, whether or
// not it exists yet, so that two names of one place are one engine.
func (b *Badger) Key() string {
	return "badger:" + b.dir
}

// KeyFile returns where the key of this store is kept: beside the directory, not
// inside, so that a copy of the store is not also a copy of its key.
func (b *Badger) KeyFile() string {
	return b.dir + ".key"
}

// MediaDir returns where files lie that go with this store, beside the
// directory, and how much of the disk they leave free: so much that writes to the
// store are not refused for their sake; zero is as much as they leave anyway.
func (b *Badger) MediaDir() (path string, minFree int64) {
	const usual = 512 << 20
	if b.MinFree > usual {
		minFree = 2 * b.MinFree
	}
	return b.dir + ".media", minFree
}

// Open implements storage.Opener.
func (b *Badger) Open(ctx context.Context) (storage.Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return open(config{
		dir:     b.dir,
		size:    sizings[b.Memory],
		minFree: uint64(b.MinFree),
		free:    freeSpace,
		logger:  b.logger,
	})
}

// Interface guards
var (
	_ caddy.Module          = (*Badger)(nil)
	_ caddy.Provisioner     = (*Badger)(nil)
	_ caddy.Validator       = (*Badger)(nil)
	_ caddyfile.Unmarshaler = (*Badger)(nil)
	_ storage.Opener        = (*Badger)(nil)
	_ storage.KeyFiler      = (*Badger)(nil)
	_ storage.MediaDirer    = (*Badger)(nil)
)
