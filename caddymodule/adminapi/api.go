// Package adminapi serves the operator's routes below /modelgate/ of Caddy's admin
// endpoint.
//
// [API] is the Caddy module. Its routes are in one table, each with a small handler that
// gets a call: the request and the [caddymodule.Runtime] that serves it. The exported
// types are the JSON bodies of answers, which package cli decodes and prints. [Verify]
// checks a whole store.
package adminapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(API{})
}

// API serves the operator's routes below /modelgate/ of Caddy's admin endpoint. The
// commands of `caddy modelgate` send requests to them.
type API struct{}

// CaddyModule returns the Caddy module information.
func (API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.modelgate", New: func() caddy.Module { return new(API) }}
}

// Operator is the actor of changes by the admin endpoint in the audit log.
const Operator = "operator"

// call is one request, with the runtime and the app of the configuration that serves it.
type call struct {
	*caddymodule.Runtime

	app *caddymodule.App
	r   *http.Request
	q   *query.Query // for routes that change nothing
}

func (c *call) ctx() context.Context    { return c.r.Context() }
func (c *call) path(name string) string { return c.r.PathValue(name) }

// handler serves a request; the answer is sent as JSON, unless it is a [stream].
type handler func(*call) (any, error)

// stream writes an answer that is not JSON.
type stream func(http.ResponseWriter)

// taking returns a handler that decodes the body of the request.
func taking[T any](handle func(*call, T) (any, error)) handler {
	return func(c *call) (any, error) {
		var in T
		body, err := io.ReadAll(http.MaxBytesReader(nil, c.r.Body, 64<<10))
		if err != nil {
			return nil, fault.New(fault.PayloadTooLarge, "the body is larger than 64 KiB")
		}
		if f := strictjson.Decode(body, &in); f != nil {
			return nil, f
		}
		return handle(c, in)
	}
}

// Routes implements caddy.AdminRouter with one prefix.
func (API) Routes() []caddy.AdminRoute {
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route.pattern, route.serve)
	}
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

// serve answers a request by the route, with the runtime of the running configuration.
func (route route) serve(w http.ResponseWriter, r *http.Request) {
	app, err := caddymodule.Active()
	if err != nil {
		writeFault(w, err)
		return
	}
	open := app.InForce
	if route.early {
		open = app.Runtime
	}
	runtime, release, err := open(r.Context())
	if err != nil {
		writeFault(w, fault.New(fault.StoreUnavailable, "%v", err))
		return
	}
	defer release()
	c := &call{runtime, app, r, query.Of(r)}
	var answer any
	if c.q.Fault == nil {
		answer, err = route.handle(c)
	}
	if c.q.Fault != nil { // of a parameter that the handler has read
		err = c.q.Fault
	}
	if err != nil {
		writeFault(w, err)
		return
	}
	if write, ok := answer.(stream); ok {
		write(w)
		return
	}
	writeAnswer(w, http.StatusOK, answer)
}

func writeAnswer(w http.ResponseWriter, status int, v any) {
	body, err := dialect.JSON(v)
	if err != nil {
		panic("admin: " + err.Error()) // our own types cannot fail to marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// Error is a fault in JSON.
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

// Status is the state of a running gateway.
type Status struct {
	Ready       bool          `json:"ready"`
	Reason      string        `json:"reason,omitempty"` // why it is not ready
	Version     string        `json:"version"`          // of the running program
	Commit      string        `json:"commit,omitempty"`
	Caddy       string        `json:"caddy"` // version
	Store       string        `json:"store"`
	Calls       int64         `json:"calls_in_flight"`
	Users       int           `json:"users"`
	Credentials int           `json:"credentials"`      // in force
	Models      []string      `json:"models"`           // that callers can list
	Restricted  []string      `json:"users_restricted"` // because of uncollected costs
	LastBackup  int64         `json:"last_backup"`      // Unix seconds; 0: none
	Stats       storage.Stats `json:"store_stats"`
}

func showStatus(c *call) (any, error) {
	models, _ := c.app.Offered()
	build := caddymodule.ReadBuild()
	restricted, _ := c.Ledger.Restricted(c.ctx(), c.app.Tolerance()) // if this fails, the probe below fails too
	status := Status{
		Version: build.Version, Commit: build.Commit, Caddy: build.Caddy, Store: c.StoreKey(), Models: append([]string{}, models...),
		Calls: c.Calls(), Credentials: c.Directory.Count(), Stats: c.Store.Stats(),
		Restricted: append([]string{}, restricted...),
	}
	status.LastBackup, _ = c.LastBackup(c.ctx()) // if this fails, the probe below fails too
	err := errors.Join(c.Ready(), c.Probe(c.ctx()))
	if users, listErr := c.Directory.Users(c.ctx()); listErr == nil {
		status.Users = len(users)
	}
	if status.Ready = err == nil; err != nil {
		status.Reason = err.Error()
	}
	return status, nil
}

func streamBackup(c *call) (any, error) {
	return c.streamed("backup", "application/octet-stream", func(w io.Writer) error { return c.Store.Backup(c.ctx(), w) }), nil
}

// streamed returns an answer of any size. If writing fails in the middle, the gateway closes the
// connection, so that the client detects that the answer is incomplete.
func (c *call) streamed(what, contentType string, write func(io.Writer) error) stream {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if err := write(deadlineWriter{w, http.NewResponseController(w)}); err != nil {
			if !errors.Is(err, context.Canceled) {
				c.Logger().Error(what+" failed", zap.Error(err))
			}
			panic(http.ErrAbortHandler)
		}
	}
}

// writeTimeout is how long a client may take for one write of a streamed answer. The whole answer
// has no time limit, because a store can be large.
const writeTimeout = time.Minute

// deadlineWriter gives each write a deadline of its own, so that a client that stops reading does
// not keep the store open.
type deadlineWriter struct {
	io.Writer
	control *http.ResponseController
}

func (w deadlineWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.Writer.Write(p)
}

// Interface guards.
var _ caddy.AdminRouter = (*API)(nil)
