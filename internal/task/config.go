package task

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
)

// Backend is a configured backend.
type Backend struct {
	backends.Backend

	// Name is what tasks know it by, for as long as they live.
	Name string

	// MaxRunning is how many tasks may be there at once; the others wait here.
	// Zero: any number.
	MaxRunning int

	// PollsPerSecond bounds how often it is asked. Default: 50.
	PollsPerSecond int

	// BusyTimeout is how long the backend may refuse a task as busy, or with 403,
	// unless it refuses others, too, with 403 those of other users: then the task
	// fails without charge. Default: 30 minutes.
	BusyTimeout time.Duration
}

// defaultBusyTimeout is how long a backend may refuse one task.
const defaultBusyTimeout = 30 * time.Minute

// defaultPolls is how often a backend is asked in a second unless it is
// configured otherwise.
const defaultPolls = 50

// Config is what a configuration says. It is replaced as a whole by a reload and
// never changed.
type Config struct {
	Backends []Backend

	// Keeper copies results before success is recorded. Default: the links of
	// the backends are passed on.
	Keeper Keeper

	// Unfinished is how many tasks of one API key may be unfinished. Default: 100.
	Unfinished int

	// Kept is how long tasks are kept that are over. Default: 90 days.
	Kept time.Duration

	// CallbackAddresses says where callbacks go. Default: nowhere.
	Callbacks callback.Addresses

	// Client sends callbacks. It dials only what may be dialled; redirects are
	// not followed, whatever it says. Needed where there are Callbacks.
	Client *http.Client
}

// The defaults of a Config.
const (
	DefaultUnfinished = 100
	DefaultKept       = 90 * 24 * time.Hour
)

// config is a Config, ready for use.
type config struct {
	Config
	backends map[string]Backend
}

// Keeper copies results into the gateway's own storage. A success is recorded
// only when the copies are there.
type Keeper interface {
	// Keep returns the links under which the results are kept, one for each, in
	// their order. It is called again after an error, also by another process,
	// and resumes; for what it has kept it returns the same links.
	Keep(ctx context.Context, k Keeping) ([]string, error)
}

// Keeping is what a [Keeper] copies.
type Keeping struct {
	Task      string
	Key       string
	User      string
	Backend   string // that has made the results
	MediaName string // as the caller wants it named; may be empty
	Results   []backends.Result

	// Fetch opens the result with an index of Results that has no URL. It is nil
	// where all have one.
	Fetch func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error)
}

// isName reports whether text can name a backend: it is part of keys.
func isName(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 64
}
