// Package caddymodule owns the Caddy app "modelgate": its configuration, the order of
// the directives, and the running instance behind it.
//
// [App] is a configuration as Caddy provisions, starts and stops it. [Runtime] is the
// open store with its services; configurations with the same store share it. A handler
// gets it from [App.Enter] for each call. The sub-packages cli, adminapi and doctor import
// this package; it imports the sub-package metrics.
package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule/metrics"
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ownership"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(App{})
}

// AppID is the id of the app in Caddy's configuration.
const AppID = "modelgate"

// DefaultCurrency is the currency if the configuration names none.
const DefaultCurrency = "USD"

// ModulePath is the path of this Go module.
const ModulePath = "github.com/caddy-modelgate/modelgate"

// App is the configuration of the gateway: the store of users, keys and money, and the
// settings of all model calls and tasks. The directives of sites use it.
//
// Without configuration it keeps its records in Badger below Caddy's data directory.
type App struct {
	// The storage engine. Default: `badger`.
	StorageRaw json.RawMessage `json:"storage,omitempty" caddy:"namespace=modelgate.storage inline_key=engine"`

	// The request header that names the version of the messages dialect. It is
	// required on /v1/messages; its value is a date such as 2023-06-01.
	// Default: `anthropic-version`.
	VersionHeader string `json:"version_header,omitempty"`

	// The public address of the site, as `https://ai.example.com`: scheme and host,
	// without a path. Links, payment pages and callbacks begin with it.
	BaseURL string `json:"base_url,omitempty"`

	// The one currency of all money, by ISO 4217. Default: `USD`.
	Currency string `json:"currency,omitempty"`

	// The prices of models. Without any price, no call is charged.
	PriceRows []catalog.Price `json:"prices,omitempty"`

	// If other models have a price, whether the gateway refuses calls of a model without
	// one: `refuse`, or `allow`, free of charge. Default: `refuse`.
	Unpriced string `json:"unpriced,omitempty"`

	// Other names of models, and the models that they stand for. A call of such a name is
	// a call of the model: it has its price, and needs a key that may use it. The backend
	// receives the name of the model.
	Aliases map[string]string `json:"aliases,omitempty"`

	// What happens to a call with a price if its caller disconnects before the end of
	// the answer: `cancel`, or `finish` and how long the call to the backend may
	// continue, as in `finish 5m`. Default: `finish 5m` for calls without stream and
	// for streams that have sent no content. For streams with content it is `finish
	// 30s` if a part of the cost is unknown until the end: the price has
	// `reasoning`, or the request or the answer has reasoning, audio, images as
	// output, server-side tools, other models or a compaction. Else it is `cancel`.
	OnDisconnect catalog.OnDisconnect `json:"on_disconnect,omitzero"`

	// Whether a call with a price is charged its input if the backend received it and
	// then timed out or broke off before any content. Default: it is charged nothing.
	ChargeFailedInput bool `json:"charge_failed_input,omitempty"`

	// Whether model calls may name objects that the vendor stores for the operator's
	// account, such as files, containers and earlier answers. They may belong to
	// another user. `off` refuses such calls; `own` allows a user to name the responses,
	// items, conversations and containers of their own calls of modelgate_openai;
	// `shared` allows all, for a gateway whose users may read each other's objects.
	// A block may have its own `state`. Default: `off`.
	State VendorState `json:"state,omitempty"`

	// How long a user owns such an object, at least an hour. Default: 30 days.
	StateKept caddy.Duration `json:"state_kept,omitempty"`

	// The part of a user's spend of the last 24 hours that may stay uncollected, as
	// `1%` or `0.5%`. Above it, the user can make one call at a time, and each call
	// reserves the whole context. `off` never restricts them. Default: `1%`.
	UncollectedTolerance string `json:"uncollected_tolerance,omitempty"`

	// The models that generate images and videos, by family, and how their options
	// differ from those of the family. A platform task needs a model in a family.
	FamilyRows []catalog.FamilyRow `json:"families,omitempty"`

	// The services that generate images and videos.
	BackendRows []*Backend `json:"backends,omitempty"`

	// The model of a request to /v1/video/generations that names none. Default:
	// such a request is refused.
	DefaultModel string `json:"default_model,omitempty"`

	// The receiver of callbacks about ended tasks.
	Callback Callback `json:"callback,omitzero"`

	// Where the results of tasks are kept.
	Media Media `json:"media,omitzero"`

	// How long records are kept.
	Retention Retention `json:"retention,omitzero"`

	// The plans on sale, in the order in which buyers see them.
	PlanRows []billing.Plan `json:"plans,omitempty"`

	// The services by which users top up their wallets, each at most once. They
	// need base_url. Default: none; only operators credit wallets.
	PaymentsRaw []json.RawMessage `json:"payments,omitempty" caddy:"namespace=modelgate.payments inline_key=provider"`

	// The bounds of one payment into a wallet.
	TopUp TopUp `json:"topup,omitzero"`

	// Who may create an account: with `open`, anyone who reaches the console; with
	// `closed`, only operators. Default: `closed`.
	Registration string `json:"registration,omitempty"`

	// How long users stay logged in.
	Session Session `json:"session,omitzero"`

	// When users must prove their second factor again.
	Verification Verification `json:"verification,omitzero"`

	// The site of passkeys. Default: base_url if that is https with a name, or
	// http://localhost; else there are no passkeys.
	Passkey Passkey `json:"passkey,omitzero"`

	// The mails to users. Default: none are sent.
	Mail Mail `json:"mail,omitzero"`

	// The master keys, which seal the secrets in the store: 32 random bytes each, in
	// base64 or hexadecimal. The first one seals, all of them open. Placeholders are
	// resolved, such as `{env.MODELGATE_SECRET}` and `{file./path}`. Default: a key that
	// the gateway creates once, in the file `<directory of the store>.key`. Without its
	// key a store does not open: keep a copy apart from the backups of the store.
	Secrets masterKeys `json:"secrets,omitempty"`

	// The limits of model calls, keys and log-ins.
	Limits Limits `json:"limits,omitzero"`

	logger                     *zap.Logger
	opener                     storage.Opener
	metrics                    *metrics.Metrics
	prices                     *catalog.Prices
	callsCost, generationsCost bool // see CallsCost
	plans                      *billing.Plans
	payments                   map[string]payments.Provider // by name
	tolerance                  ledger.Tolerance

	families         *catalog.Families
	generationPrices generationPrices
	routes           catalog.Models[*Backend]
	sender           *http.Client // of callbacks

	started int64 // Unix seconds of this configuration's provisioning
	console console

	offers    *offers
	members   *membership
	following bool // the membership is followed
	pollers   *pollers
}

// pollers poll background responses, one for each block.
type pollers struct {
	sync.Mutex
	list []ownership.Poller
}

// console is what the app knows of the console of its sites.
type console struct {
	served bool   // a site has it, so users can log in
	path   string // of its pages; empty: it has none
}

// offers are the names of the listed models, sorted.
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
	a.pollers = new(pollers)
	a.members = &membership{stop: make(chan struct{}), ended: make(chan struct{})}
	a.members.current.Store(newLease(a))
	a.VersionHeader = cmp.Or(a.VersionHeader, "anthropic-version")
	a.Currency = cmp.Or(a.Currency, DefaultCurrency)
	a.Unpriced = cmp.Or(a.Unpriced, refuseUnpriced)
	a.State = cmp.Or(a.State, StateOff)
	a.UncollectedTolerance = cmp.Or(a.UncollectedTolerance, "1%")
	a.Limits.setDefaults()
	a.Retention.setDefaults()
	if err := a.setSessionDefaults(); err != nil {
		return err
	}
	if err := a.Secrets.resolve(); err != nil {
		return err
	}

	if err := a.provisionMail(); err != nil {
		return err
	}

	var err error
	if a.tolerance, err = parseTolerance(a.UncollectedTolerance); err != nil {
		return err
	}
	if a.prices, err = catalog.NewPrices(a.PriceRows); err != nil {
		return err
	}
	a.generationPrices = newGenerationPrices(a.PriceRows)
	a.findFree()
	a.Offer(a.prices.Names()...)
	if err = a.provisionAliases(); err != nil {
		return err
	}
	if a.families, err = catalog.NewFamilies(a.FamilyRows); err != nil {
		return err
	}
	a.Offer(namesOf(a.FamilyRows)...)
	if err = a.provisionBackends(ctx); err != nil {
		return err
	}
	if err = a.provisionTasks(); err != nil {
		return err
	}
	if a.plans, err = billing.NewPlans(a.PlanRows); err != nil {
		return err
	}
	if err = a.provisionPayments(ctx); err != nil {
		return err
	}

	var module any
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
		return fmt.Errorf("the storage module %T is not a storage engine", module)
	}
	a.opener = opener
	if shared, ok := opener.(storage.Sharer); ok && shared.Shared() {
		if err := a.refuseLocal(); err != nil {
			return err
		}
	}
	if err := a.provisionMedia(); err != nil {
		return err
	}

	build := ReadBuild()
	a.metrics, err = metrics.Provide(ctx.GetMetricsRegistry(), build.Version, build.Commit, metricSources)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Validate returns an error for unknown words and for limits that no call could satisfy.
func (a *App) Validate() error {
	errs := []error{
		a.Limits.validate(),
		validateHeaderName(a.VersionHeader),
		validateCurrency(a.Currency),
		validateUnpriced(a.Unpriced),
		a.validateState(),
		a.validateSessions(),
		a.Retention.validate(),
	}
	if a.BaseURL != "" {
		errs = append(errs, validateBaseURL(a.BaseURL))
	}
	return errors.Join(errs...)
}

// validateBaseURL returns an error if a path cannot be appended to the URL.
func validateBaseURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || text != u.Scheme+"://"+u.Host {
		return fmt.Errorf("base_url %q: it is http:// or https:// and a host, without user, path or query, as https://ai.example.com", text)
	}
	return nil
}

// Start opens the runtime, or joins the one of the previous configuration. It returns an
// error if the money in the store has another currency, or if the master keys do not open
// its secrets. It changes no setting of the store: see [Runtime.adopt].
func (a *App) Start() error {
	if err := a.members.current.Load().start(); err != nil {
		return err
	}
	go a.members.follow(a)
	a.following = true
	return nil
}

// Stop releases the runtime. The runtime stays open while calls of this configuration
// run: streams may continue after a reload.
func (a *App) Stop() error {
	a.endFollowing()
	a.members.current.Load().stop()
	return nil
}

// Cleanup releases the runtime like Stop, also if the configuration never started.
func (a *App) Cleanup() error {
	if a.members != nil {
		a.endFollowing()
		l := a.members.current.Load()
		l.stopWatching()
		l.withdraw()
		l.stop()
	}
	if a.sender != nil {
		a.sender.CloseIdleConnections()
	}
	return nil
}

// endFollowing ends the watch over the store and waits for it.
func (a *App) endFollowing() {
	if a.following {
		a.following = false
		close(a.members.stop)
		<-a.members.ended
	}
}

// Metrics returns the metrics of this process.
func (a *App) Metrics() *metrics.Metrics { return a.metrics }

// Offer adds names to the list of models. Directives and matchers call it while they are
// provisioned.
func (a *App) Offer(models ...string) {
	a.offers.Lock()
	defer a.offers.Unlock()
	for _, model := range models {
		if i, found := slices.BinarySearch(a.offers.names, model); !found {
			a.offers.names = slices.Insert(a.offers.names, i, model)
		}
	}
}

// Offered returns the listed models, sorted, and the time of their provisioning in Unix
// seconds.
func (a *App) Offered() ([]string, int64) {
	a.offers.Lock()
	defer a.offers.Unlock()
	return a.offers.names, a.started
}

// Of returns the app of a configuration that is being provisioned. If the configuration
// has none, the app has the defaults.
func Of(ctx caddy.Context) (*App, error) {
	module, err := ctx.App(AppID)
	if err != nil {
		return nil, err
	}
	return module.(*App), nil
}

// Active returns the app of the running configuration, or a fault if that has none.
// Caddy sets up the admin endpoint before the apps, so the admin API calls Active at each
// request.
func Active() (*App, error) {
	module, err := caddy.ActiveContext().AppIfConfigured(AppID)
	if err != nil {
		return nil, fault.New(fault.NotFound, "the running configuration has no modelgate option")
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
