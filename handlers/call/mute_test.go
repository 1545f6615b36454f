package call_test

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(mute{})
	httpcaddyfile.RegisterHandlerDirective("modelgate_test_mute", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return mute{}, nil
	})
}

// mute is a third-party handler that flushes without writing anything, and does not call
// the next handler.
type mute struct{}

func (mute) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_test_mute", New: func() caddy.Module { return new(mute) }}
}

func (mute) ServeHTTP(w http.ResponseWriter, _ *http.Request, _ caddyhttp.Handler) error {
	_ = http.NewResponseController(w).Flush()
	return nil
}
