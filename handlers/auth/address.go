package auth

import (
	"net/http"
	"net/netip"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// Address is that of the caller as Caddy has determined it, with the operator's
// trusted proxies; the zero Addr when there is none.
func Address(r *http.Request) netip.Addr {
	word, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	addr, _ := netip.ParseAddr(word)
	return addr
}

// Network returns the address by which callers without an account are counted. An IPv6
// address counts by its first 64 bits, because one caller has all addresses below
// them. Callers without a known address count as one.
func Network(r *http.Request) string {
	addr := Address(r).Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.String()
	}
	return addr.String()
}

// Device is from where a caller comes. What his browser calls itself is a text
// that anybody chose; it is cut where it is kept.
func Device(r *http.Request) identity.Device {
	return identity.Device{Address: Address(r), Agent: r.UserAgent()}
}
