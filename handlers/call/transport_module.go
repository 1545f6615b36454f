package call

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-modelgate/modelgate/transport"
)

func init() {
	caddy.RegisterModule(callTransport{})
}

// CaddyModule returns the Caddy module information. The module is for useTransport only.
func (callTransport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.modelgate_call",
		New: func() caddy.Module { return new(callTransport) },
	}
}

// Provision loads the transport that sends.
func (t *callTransport) Provision(ctx caddy.Context) error {
	module, err := ctx.LoadModule(t, "TransportRaw")
	if err != nil {
		return err
	}
	switch sender := module.(type) {
	case *reverseproxy.HTTPTransport:
		t.HTTPTransport, t.sender = sender, sender
	case *transport.Transport:
		t.HTTPTransport, t.sender = &sender.HTTPTransport, sender
	default:
		return fmt.Errorf("calls cannot be sent by a %T", module)
	}
	if own := t.HTTPTransport.Transport; own.MaxIdleConnsPerHost == caddyIdleConnections {
		own.MaxIdleConnsPerHost = idleConnections
	}
	return nil
}

// Cleanup does nothing, because Caddy cleans up the transport that Provision loaded.
func (*callTransport) Cleanup() error { return nil }

// The maximum number of idle connections to a backend: Caddy's default, and that of the
// gateway. A model answers slowly, so many calls run at the same time. Beyond this number each
// call would close its connection, and the next one would open another. That is a twelfth of
// the cost of a call (measured with 64 concurrent calls). Another number of the operator is kept.
const (
	caddyIdleConnections = 32
	idleConnections      = 1024
)

// useTransport makes the reverse proxies in routes send by callTransport. It changes their
// configuration, before Caddy provisions them and starts their health checks, which use the
// transport as well.
func useTransport(routes caddyhttp.RouteList) error {
	for _, r := range routes {
		for i, raw := range r.HandlersRaw {
			decoder := json.NewDecoder(bytes.NewReader(raw))
			decoder.UseNumber()
			var config any
			if err := decoder.Decode(&config); err != nil {
				return err
			}
			wrapTransports(config)
			wrapped, err := json.Marshal(config)
			if err != nil {
				return err
			}
			r.HandlersRaw[i] = wrapped
		}
	}
	return nil
}

// wrapTransports changes the transports of all reverse proxies in config.
func wrapTransports(config any) {
	switch config := config.(type) {
	case []any:
		for _, element := range config {
			wrapTransports(element)
		}
	case map[string]any:
		for _, value := range config {
			wrapTransports(value)
		}
		if config["handler"] != "reverse_proxy" {
			return
		}
		inner, ok := config["transport"].(map[string]any)
		if !ok {
			inner = map[string]any{"protocol": "http"}
		}
		if protocol := inner["protocol"]; protocol != "http" && protocol != "modelgate" {
			return // such as fastcgi
		}
		balancing, _ := config["load_balancing"].(map[string]any)
		config["transport"] = map[string]any{
			"protocol":  "modelgate_call",
			"transport": inner,
			"matched":   balancing["retry_match"] != nil,
		}
	}
}

// Interface guards.
var (
	_ caddy.Provisioner                                = (*callTransport)(nil)
	_ caddy.CleanerUpper                               = (*callTransport)(nil)
	_ http.RoundTripper                                = (*callTransport)(nil)
	_ reverseproxy.TLSTransport                        = (*callTransport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*callTransport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*callTransport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*callTransport)(nil)
)
