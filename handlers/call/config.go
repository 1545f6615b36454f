// Package call serves model calls: it checks a call, reserves its maximum price, runs the
// operator's routes, reads the usage of the answer, and settles. The directives
// modelgate_messages, modelgate_completions and modelgate_openai are tables of routes over the
// same code.
//
// Package modelcall parses the bodies, package forwarding filters the headers, and package
// usage reads the usage of answers. The routes are in routes.go, the reading of bodies in body.go,
// reservations in admission.go and money.go, the end in settle.go, the log line in log_line.go.
package call

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/forwarding"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

// block is the configuration of each directive: a list of models, and the routes to the
// backends. For its own paths, it never calls the next handler.
type block struct {
	// Names of models in the answer of GET /v1/models, in addition to the exact names
	// of modelgate_model matchers.
	Models []string `json:"models,omitempty"`

	// Headers of callers that go to the backends, and headers of backends that go to
	// callers, in addition to those that always do. A name that ends with an asterisk
	// is a prefix.
	PassUp   []string `json:"pass_up,omitempty"`
	PassDown []string `json:"pass_down,omitempty"`

	// Members that a call with a price may have in addition to those that the gateway
	// knows, by their exact names. NAME is a member of the body; tools[].NAME,
	// fallbacks[].NAME and functions[].NAME are members of an element. They are not
	// priced.
	PassMembers []string `json:"pass_members,omitempty"`

	// Whether calls may name objects that the vendor stores; see `state` of the app, which
	// is the default.
	State caddymodule.VendorState `json:"state,omitempty"`

	// The models that are called instead of another one if its call fails.
	Fallbacks []Fallback `json:"fallbacks,omitempty"`

	// The routes to the backends: any handlers, usually reverse_proxy, with any
	// matchers, tried in order. A call without a matching route is answered 404
	// MODEL_NOT_FOUND.
	Routes caddyhttp.RouteList `json:"routes,omitempty"`

	app     *caddymodule.App
	version string // the canonical name of the version header
	table   reply.Table
	routes  []*route // by the index of table; entries of table beyond them are look-ups
	backend caddyhttp.Handler
	logger  *zap.Logger

	upstream    *forwarding.List // headers of callers that pass
	downstream  *forwarding.List // headers of backends that pass
	credentials []string         // names of headers whose values belong to the operator
	passMembers map[string]bool
	affine      bool // a route uses Affinity
}

// errNoRoute is the error of the routes if none of them matches the call.
var errNoRoute = errors.New("no route matches this model")

func (b *block) provision(ctx caddy.Context, routes []*route, table reply.Table) error {
	b.logger = ctx.Logger()
	var err error
	if b.app, err = caddymodule.Of(ctx); err != nil {
		return err
	}
	if err := caddymodule.WatchExit(ctx); err != nil {
		return err
	}
	if err := validateModels(b.Models); err != nil {
		return err
	}
	b.app.Offer(b.Models...)
	b.version = http.CanonicalHeaderKey(b.app.VersionHeader)
	if err := b.compilePassed(); err != nil {
		return err
	}
	if err := b.provisionFallbacks(b.app); err != nil {
		return err
	}

	if err := b.State.Validate(); err != nil {
		return err
	}
	if err := useTransport(b.Routes); err != nil {
		return err
	}
	if err := b.Routes.Provision(ctx); err != nil {
		return err
	}
	b.credentials = credentialsOf(b.Routes)
	b.affine = usesAffinity(b.Routes)
	b.backend = b.Routes.Compile(caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		return errNoRoute
	}))

	owned := b.vendorState() == caddymodule.StateOwn
	for i, spec := range routes {
		if spec.object != nil && !owned {
			continue
		}
		b.table = append(b.table, table[i])
		own := *spec
		own.metrics = b.app.Metrics().Route(own.name)
		b.routes = append(b.routes, &own)
	}
	b.table = append(b.table, table[len(routes):]...)
	if b.routes[len(b.routes)-1].object != nil {
		pinUpstreams(b.Routes)
		b.app.PollBackground(b.poll)
	}
	return nil
}

// compilePassed compiles the headers and members that the operator lets pass.
func (b *block) compilePassed() (err error) {
	if b.passMembers, err = modelcall.PassMembers(b.PassMembers); err != nil {
		return err
	}
	if b.upstream, err = forwarding.Upstream.With(b.PassUp...); err != nil {
		return fmt.Errorf("pass_up: %w", err)
	}
	if b.version != "" {
		b.upstream.Allow(b.version)
	}
	if b.downstream, err = forwarding.Downstream.With(b.PassDown...); err != nil {
		return fmt.Errorf("pass_down: %w", err)
	}
	return nil
}

// validateModels returns an error if a name is not an exact model name.
func validateModels(names []string) error {
	for _, name := range names {
		p, err := catalog.ParsePattern(name)
		if err != nil {
			return err
		}
		if !p.Exact() {
			return fmt.Errorf("models: %q is a pattern: only exact names are allowed", name)
		}
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler for all directives.
func (b *block) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	i, f := b.table.Find(r)
	if i < 0 {
		reply.AddServedPaths(r, b.table)
		return reply.Pass(w, r, next, b.app.VersionHeader)
	}
	if f != nil && isWebSocket(r) { // on 426, Codex sends the same request by POST at once
		f = fault.New(fault.UpgradeRequired, "WebSockets are not served here: send the request by POST")
	}
	if i >= len(b.routes) {
		b.lookUp(w, r, f, requestid.New())
		return nil
	}
	return newCall(b, b.routes[i]).serve(w, r, f)
}

// isWebSocket reports whether r asks for a WebSocket (RFC 6455, section 4.1).
func isWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// lookUp answers GET /v1/models and GET /v1/usage. They are not metered, and only
// the access log records them.
func (b *block) lookUp(w http.ResponseWriter, r *http.Request, f *fault.Fault, requestID string) {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if f == nil {
		var runtime *caddymodule.Runtime
		var leave func()
		if runtime, leave, f = b.app.Enter(r.Context()); f == nil {
			defer leave()
			var p *identity.Principal
			if p, f = auth.Authenticate(r, runtime.Directory); f == nil {
				auth.Name(repl, p)
				if r.URL.Path == usagePath {
					f = b.serveUsage(w, r, runtime, p, requestID)
				} else {
					f = b.serveModels(w, r, p, requestID)
				}
			}
		}
	}
	if repl != nil {
		repl.Set("http.modelgate.request_id", requestID)
	}
	if f != nil {
		reply.DialectOf(r, b.app.VersionHeader).RefuseUnread(w, r, f, requestID)
	}
}
