// Package tasks serves generation tasks: submissions and queries below /v1/platform and
// /v1/video/generations, the files of their results, and the notices of generation services about
// changed jobs. [Tasks] is the directive modelgate_tasks.
//
// The package reads and writes HTTP. The app decides what is allowed and what it costs. The
// engine of package task runs the tasks. The table in routes.go declares each route and
// its checks; request.go applies it.
package tasks

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func init() {
	caddy.RegisterModule(Tasks{})
	caddymodule.RegisterDirective("modelgate_tasks", func() caddymodule.Directive { return new(Tasks) })
}

// Tasks serves generations to callers with an API key, below /v1/platform and at
// /v1/video/generations. Below /v1/files it serves their files to every caller who
// has the link. Below /v1/notices it takes the notices of generation services. It
// passes every other path to the next handler.
//
// The app configures the models and their backends.
//
// Placeholder | Description
// ------------|-------------
// `{http.auth.user.id}` | The id of the user whose key was used
// `{http.modelgate.key_id}` | The id of the key
// `{http.modelgate.request_id}` | The id of the request, as in X-Request-Id
// `{http.modelgate.model}` | The model of the submission
// `{http.modelgate.task_id}` | The id of the task that the submission created, or of the task in the path
type Tasks struct {
	app    *caddymodule.App
	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Tasks) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_tasks", New: func() caddy.Module { return new(Tasks) }}
}

// Provision finds the app and watches for the exit of the process.
func (t *Tasks) Provision(ctx caddy.Context) (err error) {
	t.logger = ctx.Logger()
	if t.app, err = caddymodule.Of(ctx); err != nil {
		return err
	}
	return caddymodule.WatchExit(ctx)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (t *Tasks) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	i, wrongMethod := table.Find(r)
	if i < 0 {
		return reply.Pass(w, r, next, t.app.VersionHeader)
	}
	(&request{tasks: t, route: &routes[i], id: requestid.New(), w: w, r: r}).run(wrongMethod)
	return nil
}

// UnmarshalCaddyfile reads
//
//	modelgate_tasks [<matcher>]
func (t *Tasks) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return caddymodule.NoOptions(d)
}

var _ caddy.Provisioner = (*Tasks)(nil)
