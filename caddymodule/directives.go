package caddymodule

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The order of the gateway's directives in a site. Each registers its own parser. The order
// of all is here: they come before any directive that answers, and after those that only
// prepare (header, request_header, encode).
//
// modelgate_docs comes after the directives that serve calls, so it does not slow them down.
// modelgate_stepup and modelgate_auth come last: the directives before them check their
// own credentials, those after them check none.
var directives = []string{
	"modelgate_health",
	"modelgate_messages",
	"modelgate_completions",
	"modelgate_openai",
	"modelgate_tasks",
	"modelgate_console",
	"modelgate_docs",
	"modelgate_stepup",
	"modelgate_auth",
}

func init() {
	for _, name := range directives {
		httpcaddyfile.RegisterDirectiveOrder(name, httpcaddyfile.Before, "invoke")
	}
	// The demonstration backend answers, as reverse_proxy does.
	httpcaddyfile.RegisterDirectiveOrder("modelgate_demo", httpcaddyfile.Before, "reverse_proxy")
}

// Directive is a handler that a site of a Caddyfile configures.
type Directive interface {
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// RegisterDirective registers the parser of a directive. create returns a handler without options.
func RegisterDirective(name string, create func() Directive) {
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := create()
		return handler, handler.UnmarshalCaddyfile(h.Dispenser)
	})
}

// NoOptions reads a directive that has neither arguments nor a block.
func NoOptions(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() || d.NextBlock(0) {
		return d.ArgErr()
	}
	return nil
}
