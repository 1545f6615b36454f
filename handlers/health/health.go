// Package health answers whether the process runs and whether it can take calls. [Health] is
// the directive modelgate_health.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func init() {
	caddy.RegisterModule(Health{})
	caddymodule.RegisterDirective("modelgate_health", func() caddymodule.Directive { return new(Health) })
}

// Health serves GET /healthz, GET /readyz and GET /readyz/tasks. The first answers 200
// while the process runs, the second when model calls can be taken, the third when
// generation tasks can be taken. Otherwise they answer 503 with a reason, which is one
// of these words:
//
//   - `store`: the store failed, is almost full or is still being opened;
//   - `draining`: the process is about to end;
//   - `configuration`: the currency or the master keys of the store changed, and
//     the change could not be applied;
//   - `joining`: the other gateways of the store have ended this one, and it joins them again;
//   - `backends`, only of /readyz/tasks: no backend of generation tasks can be used,
//     because there is none, it is drained, or its service takes no tasks.
//
// Model calls continue while tasks cannot be taken, so backends do not count for /readyz.
// The backends of model calls do not count either, because the health checks of
// reverse_proxy choose among them. Also, every gateway would be unready at the same
// time.
//
// These answers need no credential, so only the log has the details, once for each
// change.
type Health struct {
	app    *caddymodule.App
	logger *zap.Logger
	last   *lastLogged
}

// lastLogged has the last logged reason by path; no reason: ready.
type lastLogged struct {
	sync.Mutex
	details map[string]string
}

// The reasons.
const (
	storeFails   = "store"
	draining     = "draining"
	notInForce   = "configuration"
	joining      = "joining"
	noneIsUsable = "backends"
)

// CaddyModule returns the Caddy module information.
func (Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_health", New: func() caddy.Module { return new(Health) }}
}

// Provision finds the app.
func (h *Health) Provision(ctx caddy.Context) (err error) {
	h.logger, h.last = ctx.Logger(), &lastLogged{details: make(map[string]string)}
	h.app, err = caddymodule.Of(ctx)
	return err
}

var routes = reply.Register(
	reply.Route{Method: http.MethodGet, Path: "/healthz", Credential: reply.Public},
	reply.Route{Method: http.MethodGet, Path: "/readyz", Credential: reply.Public},
	reply.Route{Method: http.MethodGet, Path: tasksPath, Credential: reply.Public},
)

const tasksPath = "/readyz/tasks"

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	i, f := routes.Find(r)
	switch {
	case i < 0:
		return reply.Pass(w, r, next, h.app.VersionHeader)
	case f != nil:
		dialect.OpenAI.RefuseUnread(w, r, f, requestid.New())
	case routes[i].Path == "/healthz":
		answer(w, http.StatusOK, state{Status: "ok"})
	default:
		reason, err := h.ready(r.Context(), routes[i].Path == tasksPath)
		if r.Context().Err() == nil { // otherwise the caller has disconnected, and the result is unknown
			h.logChange(routes[i].Path, reason, err)
		}
		if err != nil {
			answer(w, http.StatusServiceUnavailable, state{"unavailable", []string{reason}})
		} else {
			answer(w, http.StatusOK, state{Status: "ready"})
		}
	}
	return nil
}

// ready returns why calls or tasks cannot be taken, as a word and in detail. The error is nil if
// they can.
func (h *Health) ready(ctx context.Context, tasks bool) (reason string, err error) {
	runtime, release, err := h.app.InForce(ctx)
	switch {
	case errors.Is(err, caddymodule.ErrNotLive):
		return notInForce, err
	case errors.Is(err, caddymodule.ErrJoining):
		return joining, err
	case err != nil:
		return storeFails, err
	}
	defer release()
	switch err := runtime.Ready(); {
	case errors.Is(err, caddymodule.ErrDraining):
		return draining, err
	case err != nil:
		return storeFails, err
	}
	if err := runtime.Probe(ctx); err != nil {
		return storeFails, err
	}
	if tasks {
		return noneIsUsable, h.app.Unusable(ctx, runtime)
	}
	return "", nil
}

// logChange logs that a path is no longer ready, with the reason, or is ready again.
func (h *Health) logChange(path, reason string, err error) {
	details := ""
	if err != nil {
		details = err.Error()
	}
	h.last.Lock()
	defer h.last.Unlock()
	switch {
	case details == h.last.details[path]:
		return
	case err != nil:
		h.logger.Warn("not ready", zap.String("path", path), zap.String("reason", reason), zap.Error(err))
	default:
		h.logger.Info("ready again", zap.String("path", path))
	}
	h.last.details[path] = details
}

type state struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

func answer(w http.ResponseWriter, status int, s state) {
	body, _ := json.Marshal(s)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// UnmarshalCaddyfile reads
//
//	modelgate_health [<matcher>]
func (h *Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return caddymodule.NoOptions(d)
}

var _ caddy.Provisioner = (*Health)(nil)
