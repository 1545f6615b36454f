// Package badger stores a modelgate store in a directory on this machine, in
// the embedded database Badger. It is the default engine: it needs no other
// process, and one process at a time may have the directory open.
//
// [Badger] is the Caddy module modelgate.storage.badger; opening it returns a
// storage.Engine. Committed data survives the end of the process at any moment,
// and a power failure if the system's sync does. On macOS the sync that Badger
// uses (msync) leaves data in the cache of the drive. The package imports Caddy
// and package storage, and is the only one that imports Badger.
package badger

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(new(Badger))
}

// Badger stores data in a directory on this machine. Committed data has been
// synced to disk. The directory belongs to one process at a time; the error of
// a second process names the first. Other users of the machine have no access
// to the directory (mode 0700) or its files (0600).
type Badger struct {
	// Path is the directory. It is created when the configuration starts. It
	// must be new, empty or a store, and on a local disk. Placeholders such as
	// `{env.STORE}` are resolved. Default: `modelgate/store` in Caddy's data
	// directory.
	Path string `json:"path,omitempty"`

	// Memory selects how much memory the engine uses for speed: `small`,
	// `normal` or `large`. It sets the sizes of memtables (1.75, 3.5 or 28 MiB),
	// tables, buffers and caches. One transaction may be 15 % of a memtable.
	// Default: `normal`.
	Memory string `json:"memory,omitempty"`

	// MinFree is the free disk space in bytes below which writes are refused,
	// because a full disk would kill the process. The minimum is 17, 40 or 320
	// MiB, depending on Memory. Default: that minimum or 256 MiB, whichever is
	// more.
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

// Provision resolves the path and sets the defaults. It neither creates nor
// opens anything, so that a configuration can be validated while a server runs.
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

// Validate checks the values of the configuration.
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
	return settings.Block(d, map[string]settings.Reader{
		"memory": settings.Checked(&b.Memory, func(word string) error {
			if _, ok := sizings[word]; !ok {
				return fmt.Errorf("memory is small, normal or large, not %q", word)
			}
			return nil
		}),
		"min_free": settings.Size(&b.MinFree),
	})
}

// Key implements [storage.Opener]. It returns the real path of the directory,
// whether or not it exists yet, so that two paths to one directory share one
// engine.
func (b *Badger) Key() string {
	return "badger:" + b.dir
}

// KeyFile implements [storage.KeyFiler]. The file is next to the
// directory, not inside, so that a copy of the store does not contain its key.
func (b *Badger) KeyFile() string {
	return b.dir + ".key"
}

// MediaDir implements [storage.MediaDirer]. The directory is next to that of the
// store. Media files leave twice MinFree if that is more than their usual
// minimum, so that writes to the store are not refused because of them.
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
	_ caddy.Provisioner     = (*Badger)(nil)
	_ caddy.Validator       = (*Badger)(nil)
	_ caddyfile.Unmarshaler = (*Badger)(nil)
	_ storage.Opener        = (*Badger)(nil)
	_ storage.KeyFiler      = (*Badger)(nil)
	_ storage.MediaDirer    = (*Badger)(nil)
)
