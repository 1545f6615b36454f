package task

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
)

// Backend is a configured backend.
type Backend struct {
	backends.Backend

	// Name identifies the backend in the records of its tasks.
	Name string

	// MaxRunning is how many tasks may run at the backend at once; the others wait.
	// Zero: no limit.
	MaxRunning int

	// PollsPerSecond limits the polls of jobs. Default: 50.
	PollsPerSecond int

	// BusyTimeout is how long the backend may refuse a task as busy, or with 403.
	// Then the task fails without charge, unless the backend also refuses other
	// tasks (with 403: those of other users). Default: 30 minutes.
	BusyTimeout time.Duration
}

// defaultBusyTimeout is the default of [Backend.BusyTimeout].
const defaultBusyTimeout = 30 * time.Minute

// defaultPolls is the default of [Backend.PollsPerSecond].
const defaultPolls = 50

// Config is the configuration of an engine. A reload replaces it; it is never
// changed.
type Config struct {
	Backends []Backend

	// Keeper copies results before success is recorded. Default: tasks return the
	// URLs of the backends.
	Keeper Keeper

	// Unfinished is the maximum number of unfinished tasks of one API key. Default: 100.
	Unfinished int

	// Kept is how long finished tasks are kept. Default: 90 days.
	Kept time.Duration

	// Callbacks returns the addresses of callbacks. Nil: no callbacks are sent.
	Callbacks callback.Addresses

	// Client sends callbacks. It must dial only permitted addresses. Redirects are
	// never followed. Required if Callbacks is set.
	Client *http.Client
}

// The defaults of a Config.
const (
	DefaultUnfinished = 100
	DefaultKept       = 90 * 24 * time.Hour
)

// config is a Config with its backends by name.
type config struct {
	Config
	backends map[string]Backend
}

// Keeper copies results into the gateway's own storage. A success is recorded
// only when the copies are there.
type Keeper interface {
	// Keep returns the URLs of the copies, one for each result, in their order.
	// After an error it is called again, also by another process, and resumes. It
	// returns the same URLs for results that it has already copied.
	Keep(ctx context.Context, k Keeping) ([]string, error)
}

// Keeping describes the results that a [Keeper] copies.
type Keeping struct {
	Task      string
	Key       string
	User      string
	Backend   string // the source of the results
	MediaName string // file name from the submission; may be empty
	Results   []backends.Result

	// Fetch opens a result without a URL by its index in Results. It is nil if the
	// backend returns URLs only.
	Fetch func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error)
}

// IsBackendName reports whether text may be the name of a backend, which is part of keys: 1 to 64
// lower-case letters, digits, hyphens and underscores.
func IsBackendName(text string) bool {
	return text != "" && len(text) <= 64 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
