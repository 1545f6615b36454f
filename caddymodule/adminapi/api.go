// Package adminapi serves the operator's routes below /modelgate/ of Caddy's admin
// endpoint.
//
// [API] is the Caddy module; its routes stand in one table, each a function of the
// [caddymodule.Runtime] and the request. The exported types are the JSON bodies of
// answers, which package cli decodes and prints. [Verify] checks a whole store.
package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(API{})
}

// API serves the operator's routes below /modelgate/ of Caddy's admin
// endpoint, and nowhere else. The commands of `caddy modelgate` speak to them.
type API struct{}

// CaddyModule returns the Caddy module information.
func (API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.modelgate", New: func() caddy.Module { return new(API) }}
}

// Operator is the actor of what is done over the admin endpoint, as the audit
// names it.
const Operator = "operator"

// endpoint is one route: what it does with the runtime and a request, and what
// it answers.
type endpoint struct {
	pattern string // of http.ServeMux
	handle  func(*caddymodule.Runtime, *http.Request) (any, error)
}

// serve answers a request by the route.
func (route endpoint) serve(w http.ResponseWriter, r *http.Request, runtime *caddymodule.Runtime) {
	answer, err := route.handle(runtime, r)
	if err != nil {
		writeFault(w, err)
		return
	}
	writeAnswer(w, http.StatusOK, answer)
}

// endpoints is the table of the routes that have the configuration in force.
var endpoints = slices.Concat(
	identityRoutes,
	moneyRoutes,
	taskRoutes,
	[]endpoint{{"POST /modelgate/secret/rotate", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return rt.RotateMasterKey(r.Context())
	}}},
)

// Routes returns the one prefix that is ours.
func (API) Routes() []caddy.AdminRoute {
	mux := http.NewServeMux()
	for _, route := range endpoints {
		mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) {
			withRuntime(w, r, (*caddymodule.App).InForce, func(runtime *caddymodule.Runtime) { route.serve(w, r, runtime) })
		})
	}
	// These tell of a store that the configuration is not in force at, too.
	mux.HandleFunc("GET /modelgate/status", func(w http.ResponseWriter, r *http.Request) {
		withRuntime(w, r, (*caddymodule.App).Runtime, func(runtime *caddymodule.Runtime) { endpoint{handle: showStatus}.serve(w, r, runtime) })
	})
	mux.HandleFunc("GET /modelgate/backup", func(w http.ResponseWriter, r *http.Request) {
		withRuntime(w, r, (*caddymodule.App).Runtime, func(runtime *caddymodule.Runtime) { streamBackup(w, r, runtime) })
	})
	mux.HandleFunc("/modelgate/", func(w http.ResponseWriter, _ *http.Request) {
		writeFault(w, fault.New(fault.NotFound, "there is no such admin route"))
	})
	return []caddy.AdminRoute{{Pattern: "/modelgate/", Handler: caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		id := requestid.New()
		w.Header().Set("X-Request-Id", id)
		mux.ServeHTTP(w, r.WithContext(requestid.With(r.Context(), id)))
		return nil
	})}}
}

// withRuntime calls fn with the runtime of the running configuration, which runtime returns.
func withRuntime(w http.ResponseWriter, r *http.Request, runtime func(*caddymodule.App, context.Context) (*caddymodule.Runtime, func(), error), fn func(*caddymodule.Runtime)) {
	app, err := caddymodule.Active()
	if err != nil {
		writeFault(w, err)
		return
	}
	held, release, err := runtime(app, r.Context())
	if err != nil {
		writeFault(w, fault.New(fault.StoreUnavailable, "%v", err))
		return
	}
	defer release()
	fn(held)
}

func writeAnswer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("admin: " + err.Error()) // our own types cannot fail to marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// Error is how the admin routes write a fault.
type Error struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Param   string     `json:"param,omitempty"`
}

func writeFault(w http.ResponseWriter, err error) {
	var f *fault.Fault
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "%v", err)
	}
	writeAnswer(w, f.Status(), Error{f.Code, f.Message, f.Param})
}

// listed wraps a list, so that the answer can grow.
func listed[T any](items []T, err error) (any, error) {
	return struct {
		Items []T `json:"items"`
	}{items}, err
}

// decode reads the JSON body of an admin request, at most 64 KiB.
func decode(r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 64<<10))
	if err != nil {
		return fault.New(fault.PayloadTooLarge, "the body is larger than 64 KiB")
	}
	if f := strictjson.Decode(body, into); f != nil {
		return f
	}
	return nil
}

// Status is what an operator sees of a running gateway.
type Status struct {
	Ready       bool          `json:"ready"`
	Reason      string        `json:"reason,omitempty"` // why it is not ready
	Caddy       string        `json:"caddy"`            // version
	Store       string        `json:"store"`
	Calls       int64         `json:"calls_in_flight"`
	Users       int           `json:"users"`
	Credentials int           `json:"credentials"`      // in force
	Models      []string      `json:"models"`           // as callers are shown them
	Restricted  []string      `json:"users_restricted"` // for what their calls left uncollected
	Stats       storage.Stats `json:"store_stats"`
}

func showStatus(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	app, err := caddymodule.Active()
	if err != nil {
		return nil, err
	}
	models, _ := app.Offered()
	version, _ := caddy.Version()
	restricted, _ := rt.Ledger.Restricted(r.Context(), app.Tolerance()) // fails as the probe below does
	status := Status{
		Caddy: version, Store: rt.StoreKey(), Models: append([]string{}, models...),
		Calls: rt.Calls(), Credentials: rt.Directory.Count(), Stats: rt.Store.Stats(),
		Restricted: append([]string{}, restricted...),
	}
	err = errors.Join(rt.Ready(), rt.Probe(r.Context()))
	if users, listErr := rt.Directory.Users(r.Context()); listErr == nil {
		status.Users = len(users)
	}
	if status.Ready = err == nil; err != nil {
		status.Reason = err.Error()
	}
	return status, nil
}

// streamBackup streams a backup. When it fails in the middle the connection is
// cut off, so that the reader knows.
func streamBackup(w http.ResponseWriter, r *http.Request, rt *caddymodule.Runtime) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // a large store takes its time
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := rt.Store.Backup(r.Context(), w); err != nil {
		if !errors.Is(err, context.Canceled) {
			rt.Logger().Error("backup failed", zap.Error(err))
		}
		panic(http.ErrAbortHandler)
	}
}

// Interface guards.
var _ caddy.AdminRouter = (*API)(nil)
