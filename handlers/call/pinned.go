package call

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// pinned selects the upstream that has the stored objects of a call, and no other: another vendor, or
// another account, must not see the ids. For a call that names none it is the policy of the operator.
type pinned struct{ reverseproxy.Selector }

// Select implements reverseproxy.Selector.
func (p pinned) Select(pool reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) (chosen *reverseproxy.Upstream) {
	c, ok := caddyhttp.GetVar(r.Context(), callVar).(*call)
	if !ok || c.pin == nil {
		chosen = p.Selector.Select(pool, r, w)
	} else {
		c.misplaced = true
		for _, upstream := range pool {
			if upstream.String() == c.pin.Backend {
				c.misplaced = false
				if upstream.Available() {
					chosen = upstream
				}
			}
		}
	}
	if ok && chosen != nil {
		c.upstream = chosen.String()
	}
	return chosen
}

// pinUpstreams makes the reverse proxies of routes keep to the upstream of stored objects.
func pinUpstreams(routes caddyhttp.RouteList) {
	eachHandler(routes, func(handler caddyhttp.MiddlewareHandler) {
		if h, ok := handler.(*reverseproxy.Handler); ok {
			h.LoadBalancing.SelectionPolicy = pinned{h.LoadBalancing.SelectionPolicy}
		}
	})
}
