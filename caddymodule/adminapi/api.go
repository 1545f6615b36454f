// Package adminapi has the operations of operators and administrators: what they can read and do.
// It serves them to operators below /modelgate/ of Caddy's admin endpoint; package console serves
// most of them to administrators.
//
// [API] is the Caddy module. The operations are in one table, each with a small handler that
// gets a call: the request and the [caddymodule.Runtime] that serves it. The exported
// types are the JSON bodies of answers, which package cli decodes and prints. [Verify]
// checks a whole store.
package adminapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
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

// Routes implements caddy.AdminRouter with one prefix.
func (API) Routes() []caddy.AdminRoute {
	mux := http.NewServeMux()
	for i := range operations {
		o := &operations[i]
		mux.HandleFunc(o.method+" /modelgate/"+o.path, o.serve)
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

// serve answers a request of the operator, with the runtime of the running configuration.
func (o *Operation) serve(w http.ResponseWriter, r *http.Request) {
	app, err := caddymodule.Active()
	if err != nil {
		writeFault(w, err)
		return
	}
	open := app.InForce
	if o.early {
		open = app.Runtime
	}
	runtime, release, err := open(r.Context())
	if err != nil {
		writeFault(w, fault.New(fault.StoreUnavailable, "%v", err))
		return
	}
	defer release()
	var body []byte
	if r.Method == http.MethodPost {
		if body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody)); err != nil {
			writeFault(w, fault.New(fault.PayloadTooLarge, "the body is larger than 64 KiB"))
			return
		}
	}
	answer, err := o.Run(runtime, app, r, nil, body)
	if err != nil {
		writeFault(w, err)
		return
	}
	if write, ok := answer.(Stream); ok {
		write(w)
		return
	}
	writeAnswer(w, http.StatusOK, answer)
}

// maxBody is the greatest size of a body, in bytes.
const maxBody = 64 << 10

func writeAnswer(w http.ResponseWriter, status int, v any) {
	body, err := dialect.JSON(v)
	if err != nil {
		panic("admin: " + err.Error()) // our own types cannot fail to marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) //nolint:gosec // our own JSON, with nosniff
}

// Error is a fault in JSON.
type Error struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Param   string     `json:"param,omitempty"`
}

func writeFault(w http.ResponseWriter, err error) {
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok {
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
	Ready       bool              `json:"ready"`
	Reason      string            `json:"reason,omitempty"` // why it is not ready
	Version     string            `json:"version"`          // of the running program
	Commit      string            `json:"commit,omitempty"`
	Caddy       string            `json:"caddy"` // version
	Store       string            `json:"store"`
	Calls       int64             `json:"calls_in_flight"`
	Users       int               `json:"users"`                            // at most maxCounted
	MoreUsers   bool              `json:"users_more,omitempty"`             // there are more
	Credentials int               `json:"credentials"`                      // in force
	Models      []string          `json:"models"`                           // that callers can list
	Restricted  []string          `json:"users_restricted"`                 // because of uncollected costs
	Names       map[string]string `json:"users_restricted_names,omitempty"` // of these users, by id
	LastBackup  int64             `json:"last_backup"`                      // Unix seconds; 0: none
	Nodes       []Node            `json:"nodes,omitempty"`                  // of a shared store
	Stats       storage.Stats     `json:"store_stats"`
}

// maxCounted is the maximum number of users that are counted for the status.
const maxCounted = 10_000

func showStatus(c *call) (any, error) {
	models, _ := c.app.Offered()
	build := caddymodule.ReadBuild()
	restricted, _ := c.Ledger.Restricted(c.ctx(), c.app.Tolerance()) // if this fails, the probe below fails too
	status := Status{
		Version: build.Version, Commit: build.Commit, Caddy: build.Caddy, Store: c.StoreKey(), Models: append([]string{}, models...),
		Calls: c.Calls(), Credentials: c.Directory.Count(), Stats: c.Store.Stats(),
		Restricted: append([]string{}, restricted...),
	}
	status.Names, _ = c.Directory.Names(c.ctx(), slices.Values(restricted))
	status.LastBackup, _ = c.LastBackup(c.ctx())              // if this fails, the probe below fails too
	users, _ := c.Directory.CountUsers(c.ctx(), maxCounted+1) // if this fails, the probe below fails too
	status.Users, status.MoreUsers = min(users, maxCounted), users > maxCounted
	status.Nodes, _ = nodesOf(c) // if this fails, the probe below fails too
	err := errors.Join(c.Ready(), c.Probe(c.ctx()))
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
func (c *call) streamed(what, contentType string, write func(io.Writer) error) Stream {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if strings.HasPrefix(contentType, "text/csv") {
			w.Header().Set("Content-Disposition", `attachment; filename="`+path.Base(c.r.URL.Path)+`.csv"`)
		}
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
