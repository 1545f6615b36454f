package auth

import (
	"net/http"
	"net/netip"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// Address returns the address of the client that Caddy has determined with the operator's
// trusted proxies. It returns the zero Addr if there is none.
func Address(r *http.Request) netip.Addr {
	word, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	addr, _ := netip.ParseAddr(word)
	return addr
}

// Network returns the address by which unauthenticated callers are counted. An IPv6 address
// counts by its first 64 bits, because one caller has all addresses of that prefix. All callers
// without a known address count as one.
func Network(r *http.Request) string {
	addr := Address(r).Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.String()
	}
	return addr.String()
}

// Device returns the address and the User-Agent of a request. The User-Agent is untrusted text,
// which is truncated when it is stored.
func Device(r *http.Request) identity.Device {
	return identity.Device{Address: Address(r), Agent: r.UserAgent()}
}
