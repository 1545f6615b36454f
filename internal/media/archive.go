package media

import (
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
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Retention is how long a file is given out (docs/reference/tasks.md#files).
const Retention = 7 * 24 * time.Hour

// Bounds of the size of a file, in bytes.
const (
	DefaultMaxFile = 2 << 30
	GreatestFile   = 32 << 30 // of what may be configured
)

// Options are what an [Archive] is told by the rest of the house.
type Options struct {
	// Resolver finds the addresses that results are fetched from. Default: the
	// machine's own.
	Resolver *net.Resolver

	// Logger is told of what an operator must know. Default: none.
	Logger *zap.Logger
}

// Config is what a configuration says. It is replaced as a whole by a reload.
type Config struct {
	// Place is where files lie. Without one nothing can be kept, and what was
	// kept cannot be opened.
	Place Place

	// BaseURL begins the links to files: https://gateway.example.com. It is
	// needed where there is a Place.
	BaseURL string

	// MaxFile is the greatest size of a file, in bytes. Default: 2 GiB; at most
	// 32 GiB.
	MaxFile int64

	// Allow are addresses that results may be fetched from beside the public ones.
	Allow egress.Allowed

	// Kept is how long the records of files are kept, which should be how long
	// tasks are. Default: 90 days; never less than Retention.
	Kept time.Duration
}

// Validate tells what is wrong with a configuration, in the words of an
// operator. It touches nothing.
func (c Config) Validate() error {
	switch {
	case c.MaxFile < 0 || c.MaxFile > GreatestFile:
		return fmt.Errorf("media.max_file is from 1 to %d bytes (32 GiB), this is %d", int64(GreatestFile), c.MaxFile)
	case c.Kept < 0:
		return fmt.Errorf("records of files are kept for %v at least, this is %v", Retention, c.Kept)
	case c.Place == nil:
		return nil
	case c.BaseURL == "":
		return errors.New("copies of media need base_url, which begins their links")
	}
	if base, err := url.Parse(c.BaseURL); err != nil || base.Scheme != "https" && base.Scheme != "http" ||
		base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return errors.New("the address that begins the links of media is an absolute http or https URL without user, query and fragment")
	}
	return nil
}

// config is a Config, ready for use.
type config struct {
	Config
	client *http.Client
}

// Archive keeps the files of one store. It is safe for concurrent use.
type Archive struct {
	store *storage.Store
	opts  Options
	log   *zap.Logger

	config atomic.Pointer[config]
	slots  copySlots
	work   busy
	round  round

	// Bounds that tests make smaller.
	step     int64         // bytes of a draft that the end of the process may take
	silence  time.Duration // how long a source may send nothing
	watched  time.Duration // over which a source is held to the least rate
	sweepFor time.Duration // how long a Sweep goes on

	copies, bytes, failures, removed atomic.Uint64
}

var _ task.Keeper = (*Archive)(nil)

// Open returns the archive of a store. It keeps nothing until [Archive.Serve]
// tells it where.
func Open(store *storage.Store, opts Options) *Archive {
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	a := &Archive{store: store, opts: opts, log: opts.Logger, step: step, silence: silence, watched: watched, sweepFor: sweepFor}
	a.config.Store(&config{Config: Config{MaxFile: DefaultMaxFile, Kept: task.DefaultKept}, client: http.DefaultClient})
	return a
}

// Serve makes a configuration the one in force, after its place was made ready.
// Copies under way end as they began.
func (a *Archive) Serve(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.MaxFile == 0 {
		c.MaxFile = DefaultMaxFile
	}
	if c.Kept == 0 {
		c.Kept = task.DefaultKept
	}
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

// Close ends idle connections. A copy under way ends with its own context.
func (a *Archive) Close() { a.config.Load().client.CloseIdleConnections() }

// Stats counts what an [Archive] has done since it was opened.
type Stats struct {
	Copies   uint64 `json:"copies"`   // files that were kept
	Bytes    uint64 `json:"bytes"`    // of these files
	Failures uint64 `json:"failures"` // attempts at a copy that failed; it is tried again
	Removed  uint64 `json:"removed"`  // files that were removed
}

// Stats returns the counts.
func (a *Archive) Stats() Stats {
	return Stats{Copies: a.copies.Load(), Bytes: a.bytes.Load(), Failures: a.failures.Load(), Removed: a.removed.Load()}
}

// Check writes a file to the place, reads it and removes it, so that an operator
// hears now what would fail later.
func (a *Archive) Check(ctx context.Context) error {
	place := a.config.Load().Place
	if place == nil {
		return errNoPlace
	}
	if err := probe(ctx, place, drawName()); err != nil {
		return fmt.Errorf("media in %v: %w", place, err)
	}
	return nil
}

var errNoPlace = errors.New("no place for copies of media is configured")

// busy are the tasks whose files somebody works on.
type busy struct {
	mu    sync.Mutex
	tasks map[string]chan struct{} // closed when the work is done
}

// enter waits until nobody else works on the files of a task, and returns what
// ends the work.
func (b *busy) enter(ctx context.Context, task string) (leave func(), err error) {
	for {
		leave, others := b.try(task)
		if others == nil {
			return leave, nil
		}
		select {
		case <-others:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try is enter that does not wait: where somebody is at work it returns what is
// closed when that ends.
func (b *busy) try(task string) (leave func(), others <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if others, at := b.tasks[task]; at {
		return nil, others
	}
	if b.tasks == nil {
		b.tasks = make(map[string]chan struct{})
	}
	done := make(chan struct{})
	b.tasks[task] = done
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.tasks, task)
		close(done)
	}, nil
}
