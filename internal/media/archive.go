package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/keymutex"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Retention is how long a file can be downloaded
// (docs/reference/tasks.md#files).
const Retention = 7 * 24 * time.Hour

// Limits of the size of a file in bytes.
const (
	DefaultMaxFile = 2 << 30
	LargestFile    = 32 << 30 // largest configurable value
)

// Options are the parts of the runtime that an [Archive] uses.
type Options struct {
	// Resolver resolves the hosts of results. Default: the system's resolver.
	Resolver *net.Resolver

	// Logger receives failures for the operator. Default: none.
	Logger *zap.Logger
}

// Config is the configuration of an archive. A reload replaces it as a whole.
type Config struct {
	// Place stores the files. If it is nil, nothing can be kept, and kept files
	// cannot be opened.
	Place Place

	// BaseURL begins the links to files, such as
	// https://gateway.example.com. It is required if Place is set.
	BaseURL string

	// MaxFile is the maximum size of a file in bytes. Default: 2 GiB; at most
	// 32 GiB.
	MaxFile int64

	// Allow has addresses from which results may be fetched, in addition to
	// public ones.
	Allow egress.Allowed

	// Kept is how long the records of files are kept, which should equal the
	// retention of tasks. Default: 90 days; at least Retention.
	Kept time.Duration
}

// Validate returns an error for the operator if the configuration is invalid.
// It has no side effects.
func (c Config) Validate() error {
	switch {
	case c.MaxFile < 0 || c.MaxFile > LargestFile:
		return fmt.Errorf("media.max_file: %d is not supported; allowed: 1 to %d bytes (32 GiB)", c.MaxFile, int64(LargestFile))
	case c.Kept < 0:
		return fmt.Errorf("retention of file records: %v is not supported; allowed: %v or more", c.Kept, Retention)
	case c.Place == nil:
		return nil
	case c.BaseURL == "":
		return errors.New("base_url is missing: copies of media need it for their links")
	}
	if base, err := url.Parse(c.BaseURL); err != nil || base.Scheme != "https" && base.Scheme != "http" ||
		base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return errors.New("base_url is not valid; allowed: an absolute http or https URL without user, query and fragment")
	}
	return nil
}

// config is a Config with defaults, ready for use.
type config struct {
	Config
	client *http.Client
}

// Archive keeps the files of one store. Its methods may be called concurrently.
type Archive struct {
	store *storage.Store
	opts  Options
	log   *zap.Logger

	config atomic.Pointer[config]
	slots  sync.Map            // concurrent copies: name of a backend → limit.Semaphore
	work   keymutex.KeyedMutex // by task, for its files
	round  round

	// Limits that tests reduce.
	draftStep    int64         // bytes of a draft that a crash may lose
	silenceLimit time.Duration // maximum time without data from a source
	rateInterval time.Duration // interval at which the rate of a source is checked
	sweepFor     time.Duration // maximum duration of a Sweep

	copies, bytes, failures, removed atomic.Uint64
}

var _ task.Keeper = (*Archive)(nil)

// Open returns the archive of a store. It needs [Archive.Serve] before it can
// keep files.
func Open(store *storage.Store, opts Options) *Archive {
	opts.Logger = cmp.Or(opts.Logger, zap.NewNop())
	a := &Archive{store: store, opts: opts, log: opts.Logger, draftStep: draftStep, silenceLimit: silenceLimit, rateInterval: rateInterval, sweepFor: sweepFor}
	a.config.Store(&config{Config: Config{MaxFile: DefaultMaxFile, Kept: task.DefaultKept}, client: http.DefaultClient})
	return a
}

// Serve prepares the place of a configuration and makes it the current one.
// Running copies finish with their old configuration.
func (a *Archive) Serve(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c.MaxFile = cmp.Or(c.MaxFile, DefaultMaxFile)
	c.Kept = cmp.Or(c.Kept, task.DefaultKept)
	c.Kept = max(c.Kept, Retention)
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.Place != nil {
		if err := c.Place.Prepare(); err != nil {
			return fmt.Errorf("media in %v: %w", c.Place, err)
		}
	}
	a.config.Swap(&config{Config: c, client: egress.New(c.Allow, a.opts.Resolver).Client()}).client.CloseIdleConnections()
	return nil
}

// Close closes idle connections. Running copies end with their own context.
func (a *Archive) Close() { a.config.Load().client.CloseIdleConnections() }

// Stats are the counters of an [Archive] since it was opened.
type Stats struct {
	Copies   uint64 `json:"copies"`   // files kept
	Bytes    uint64 `json:"bytes"`    // of these files
	Failures uint64 `json:"failures"` // failed attempts at a copy, which is retried
	Removed  uint64 `json:"removed"`  // files removed
}

// Stats returns the counters.
func (a *Archive) Stats() Stats {
	return Stats{Copies: a.copies.Load(), Bytes: a.bytes.Load(), Failures: a.failures.Load(), Removed: a.removed.Load()}
}

// Check writes a file to the place, reads it and removes it, so that the
// operator learns of an error before the first task.
func (a *Archive) Check(ctx context.Context) error {
	place := a.config.Load().Place
	if place == nil {
		return errNoPlace
	}
	if err := probe(ctx, place, newName()); err != nil {
		return fmt.Errorf("media in %v: %w", place, err)
	}
	return nil
}

var errNoPlace = errors.New("no place for copies of media is configured")
