package call_test

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(heads{})
	httpcaddyfile.RegisterHandlerDirective("modelgate_test_heads", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return heads{}, nil
	})
}

// headWritten receives a value after each head that the routes behind heads have written.
var headWritten = make(chan struct{}, 1)

// heads is a handler that tells a test when the routes behind it have written the head of an answer.
type heads struct{}

func (heads) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_test_heads", New: func() caddy.Module { return new(heads) }}
}

func (heads) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(headWriter{caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}, r)
}

type headWriter struct {
	caddyhttp.ResponseWriterWrapper
}

func (w headWriter) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	headWritten <- struct{}{}
}
