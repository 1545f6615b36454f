package caddymodule

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/settings"
)

// backendsNamespace is the namespace of the Caddy modules for generation services.
const backendsNamespace = "modelgate.backends"

// Backend is a generation service that runs tasks.
type Backend struct {
	// The name, to which tasks refer: 1 to 64 characters of a-z, 0-9, `-` and `_`. A
	// renamed backend is another backend.
	Name string `json:"name"`

	// The models of the backend: exact names, or prefixes with `*`. A name with `video-` or
	// `image-` is for that kind. A name without this prefix is for both kinds. Among all
	// backends an exact name precedes a prefix, and a longer prefix precedes a shorter one.
	// A backend without models gets no new tasks and finishes its tasks.
	Models []catalog.Pattern `json:"models,omitempty"`

	// The maximum number of tasks that it runs at once; the others wait in a queue.
	// Default: no limit.
	MaxRunning int `json:"max_running,omitempty"`

	// The maximum number of polls per second. Default: 50.
	PollsPerSecond int `json:"polls_per_second,omitempty"`

	// How long the service may refuse one task with 429 or 403, while it accepts other
	// tasks or has none. After that the task fails without charge. From 10s to 72h.
	// Default: 30m.
	BusyTimeout caddy.Duration `json:"busy_timeout,omitempty"`

	// The adapter, which implements the interface of the service.
	AdapterRaw json.RawMessage `json:"adapter,omitempty" caddy:"namespace=modelgate.backends inline_key=adapter"`

	adapter backends.Backend
}

// The bounds of the settings of a backend.
const (
	maxMaxRunning     = 1_000_000
	maxPollsPerSecond = 10_000
	minBusyTimeout    = 10 * time.Second
	maxBusyTimeout    = 72 * time.Hour
)

func (b *Backend) validate() error {
	switch {
	case !task.IsBackendName(b.Name):
		return fmt.Errorf("backend %q: the name is not supported; allowed: 1 to 64 characters of a-z, 0-9, - and _", b.Name)
	case b.MaxRunning < 0 || b.MaxRunning > maxMaxRunning:
		return fmt.Errorf("backend %s: max_running is %d; allowed: 1 to %d", b.Name, b.MaxRunning, maxMaxRunning)
	case b.PollsPerSecond < 0 || b.PollsPerSecond > maxPollsPerSecond:
		return fmt.Errorf("backend %s: polls_per_second is %d; allowed: 1 to %d", b.Name, b.PollsPerSecond, maxPollsPerSecond)
	case b.BusyTimeout != 0 && (time.Duration(b.BusyTimeout) < minBusyTimeout || time.Duration(b.BusyTimeout) > maxBusyTimeout):
		return fmt.Errorf("backend %s: busy_timeout is %v; allowed: %v to %v", b.Name, time.Duration(b.BusyTimeout), minBusyTimeout, maxBusyTimeout)
	case b.AdapterRaw == nil:
		return fmt.Errorf("backend %s: adapter is missing; name the adapter of the service", b.Name)
	}
	return nil
}

// provisionBackends loads the adapters and builds the routes of the models.
func (a *App) provisionBackends(ctx caddy.Context) error {
	names := make(map[string]bool, len(a.BackendRows))
	for _, b := range a.BackendRows {
		if err := b.validate(); err != nil {
			return err
		}
		if names[b.Name] {
			return fmt.Errorf("backend %s is given twice", b.Name)
		}
		names[b.Name] = true
		module, err := ctx.LoadModule(b, "AdapterRaw")
		if err != nil {
			return fmt.Errorf("backend %s: loading the adapter: %w", b.Name, err)
		}
		var ok bool
		if b.adapter, ok = module.(backends.Backend); !ok {
			return fmt.Errorf("backend %s: the module %T is not an adapter", b.Name, module)
		}
	}
	var err error
	if a.routes, err = routesOf(a.BackendRows); err != nil {
		return err
	}
	return a.checkDefaultModel()
}

// Notified returns the adapter of the backend with this name if its service sends
// webhooks; false otherwise.
func (a *App) Notified(backend string) (backends.Notified, bool) {
	for _, b := range a.BackendRows {
		if b.Name == backend {
			adapter, notified := b.adapter.(backends.Notified)
			return adapter, notified
		}
	}
	return nil, false
}

// noticesPath is the path for webhooks of services; the name of the backend follows.
const noticesPath = "/v1/notices/"

// notifyURL returns the URL for webhooks of the service of b. It is empty if the service
// sends none, or if there is no base_url.
func (a *App) notifyURL(b *Backend) string {
	if _, notified := b.adapter.(backends.Notified); !notified || a.BaseURL == "" {
		return ""
	}
	return a.BaseURL + noticesPath + b.Name
}

// taskBackends returns the backends for the task engine.
func (a *App) taskBackends() []task.Backend {
	all := make([]task.Backend, len(a.BackendRows))
	for i, b := range a.BackendRows {
		all[i] = task.Backend{
			Backend: b.adapter, Name: b.Name, MaxRunning: b.MaxRunning, PollsPerSecond: b.PollsPerSecond,
			BusyTimeout: time.Duration(b.BusyTimeout),
		}
	}
	return all
}

// unmarshalBackend reads one backend:
//
//	backend <name> {
//		models           <model>...
//		max_running      <count>
//		polls_per_second <count>
//		busy_timeout     <duration>
//		adapter          <adapter> ...
//	}
func (a *App) unmarshalBackend(d *caddyfile.Dispenser) error {
	at := *d
	var b Backend
	if err := settings.One(settings.Text(&b.Name))(d); err != nil {
		return err
	}
	if slices.ContainsFunc(a.BackendRows, func(other *Backend) bool { return other.Name == b.Name }) {
		return d.Errf("backend %s is given twice", b.Name)
	}
	err := settings.Block(d, map[string]settings.Reader{
		"models": func(d *caddyfile.Dispenser) (err error) {
			words := d.RemainingArgs()
			if len(words) == 0 {
				return d.ArgErr()
			}
			b.Models, err = catalog.ParsePatterns(words)
			return settings.Located(d, err)
		},
		"max_running":      settings.Count(&b.MaxRunning, maxMaxRunning),
		"polls_per_second": settings.Count(&b.PollsPerSecond, maxPollsPerSecond),
		"busy_timeout":     settings.Duration(&b.BusyTimeout),
		"adapter":          b.unmarshalAdapter,
	})
	if err != nil {
		return err
	}
	if err := b.validate(); err != nil {
		return at.WrapErr(err)
	}
	a.BackendRows = append(a.BackendRows, &b)
	_, err = routesOf(a.BackendRows)
	return settings.Located(&at, err)
}

func (b *Backend) unmarshalAdapter(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	adapter := d.Val()
	module, err := caddyfile.UnmarshalModule(d, backendsNamespace+"."+adapter)
	if err != nil {
		return err
	}
	b.AdapterRaw = caddyconfig.JSONModuleObject(module, "adapter", adapter, nil)
	return nil
}

// routesOf returns the backend of each model pattern.
func routesOf(rows []*Backend) (catalog.Models[*Backend], error) {
	var routes catalog.Models[*Backend]
	for _, b := range rows {
		for _, p := range b.Models {
			if _, err := catalog.ParsePattern(string(p)); err != nil {
				return routes, fmt.Errorf("backend %s: %w", b.Name, err)
			}
			if other, ok := routes.Add(p, b); !ok {
				return routes, fmt.Errorf("backend %s: models: backend %[3]s already has the pattern %[2]s", b.Name, p, other.Name)
			}
		}
	}
	return routes, nil
}

// AdapterName returns the name of the adapter as the configuration has it.
func (b *Backend) AdapterName() string {
	module, _ := b.adapter.(caddy.Module)
	return module.CaddyModule().ID.Name()
}
