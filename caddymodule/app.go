// Package caddymodule is modelgate as Caddy knows it: the app "modelgate", which
// is configuration over a node; the order of the directives; the admin routes
// and the commands over them; the metrics.
package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(App{})
}

// AppID is the id of the app in Caddy's configuration.
const AppID = "modelgate"

// App is the account side of the gateway: where users, keys and money are kept,
// and what holds for every model call. The directives of a site are its doors.
//
// Without a word of configuration it keeps its records in Badger below Caddy's
// data directory.
type App struct {
	// Where everything is kept. Default: `badger`.
	StorageRaw json.RawMessage `json:"storage,omitempty" caddy:"namespace=modelgate.storage inline_key=engine"`

	// The request header that names the version of the messages dialect; it is
	// required on /v1/messages and has the form of a date, as 2023-06-01.
	// Default: `anthropic-version`.
	VersionHeader string `json:"version_header,omitempty"`

	// Bounds that hold for every model call.
	Limits Limits `json:"limits,omitzero"`

	logger  *zap.Logger
	opener  storage.Opener
	metrics *Metrics
	started int64 // Unix seconds of this configuration's provisioning

	offers *offers
	lease  *lease
}

// offers are the models that callers are shown, sorted.
type offers struct {
	sync.Mutex
	names []string
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: AppID, New: func() caddy.Module { return new(App) }}
}

// Provision sets the defaults and loads the storage module. It opens nothing:
// `caddy validate` must work beside a running server.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	a.started = time.Now().Unix()
	a.offers = new(offers)
	a.lease = newLease(a.logger)
	if a.VersionHeader == "" {
		a.VersionHeader = "anthropic-version"
	}
	a.Limits.setDefaults()

	var module any
	var err error
	if a.StorageRaw != nil {
		module, err = ctx.LoadModule(a, "StorageRaw")
	} else {
		module, err = ctx.LoadModuleByID("modelgate.storage.badger", nil)
	}
	if err != nil {
		return fmt.Errorf("loading the storage module: %w", err)
	}
	opener, ok := module.(storage.Opener)
	if !ok {
		return fmt.Errorf("the storage module %T opens no engine", module)
	}
	a.opener = opener

	a.metrics, err = provideMetrics(ctx.GetMetricsRegistry())
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Validate refuses limits that no call could keep.
func (a *App) Validate() error {
	return errors.Join(a.Limits.validate(), validateHeaderName(a.VersionHeader))
}

// Start opens the node, or joins the one that the configuration before this
// one has open.
func (a *App) Start() error { return a.lease.start(a.opener) }

// Stop lets go of the node. It stays open while calls of this configuration
// run, which on a reload is as long as their streams last.
func (a *App) Stop() error {
	a.lease.stop()
	return nil
}

// Cleanup does what Stop does, for a configuration that never started.
func (a *App) Cleanup() error {
	if a.lease != nil {
		a.lease.stop()
	}
	return nil
}

// Metrics returns the meters of this process.
func (a *App) Metrics() *Metrics { return a.metrics }

// Offer adds names to the list of models that callers are shown. Directives and
// matchers call it while they are provisioned.
func (a *App) Offer(models ...string) {
	a.offers.Lock()
	defer a.offers.Unlock()
	for _, model := range models {
		if i, found := slices.BinarySearch(a.offers.names, model); !found {
			a.offers.names = slices.Insert(a.offers.names, i, model)
		}
	}
}

// Offered returns the models that callers are shown, sorted, and since when, in
// Unix seconds.
func (a *App) Offered() ([]string, int64) {
	a.offers.Lock()
	defer a.offers.Unlock()
	return a.offers.names, a.started
}

// Of returns the app of a configuration that is being provisioned, with
// defaults when it has none.
func Of(ctx caddy.Context) (*App, error) {
	module, err := ctx.App(AppID)
	if err != nil {
		return nil, err
	}
	return module.(*App), nil
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.Validator    = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
