package auth

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestTheCallersAddressIsCaddysClientIP(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]netip.Addr{
		"192.0.2.7":   netip.MustParseAddr("192.0.2.7"),
		"2001:db8::7": netip.MustParseAddr("2001:db8::7"),
		"@":           {}, // a socket in the file system
		"":            {},
		nil:           {},
		7:             {},
	} {
		r := caddyhttp.PrepareRequest(httptest.NewRequest(http.MethodGet, "/", nil), caddy.NewReplacer(), nil, nil)
		r.RemoteAddr = "198.51.100.1:1000"
		r.Header.Set("X-Forwarded-For", "198.51.100.2")
		r.Header.Set("User-Agent", "browser/1.0")
		if value != nil {
			caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, value)
		}
		if device := Device(r); device.Address != want || device.Agent != "browser/1.0" {
			t.Errorf("%v: %+v, want %v", value, device, want)
		}
	}
}
