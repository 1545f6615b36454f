package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
)

// checkAdmin checks which clients can reach the admin endpoint: each of them can create keys and
// credit wallets. address is the default if the configuration names no address.
func checkAdmin(config any, address string) []Finding {
	if get[bool](config, "admin", "disabled") {
		return nil
	}
	named := get[string](config, "admin", "listen")
	listen := cmp.Or(named, address)
	endpoint, err := caddy.ParseNetworkAddress(listen)
	switch {
	case err != nil || endpoint.IsUnixNetwork():
		return nil
	case named != "" && !starter.IsLoopback(endpoint.Host):
		return []Finding{{
			"error", "admin.listen", fmt.Sprintf("the admin endpoint listens at %s; every client that can connect can create API keys and read the store", listen),
			"listen at localhost:2019 or at a unix socket",
		}}
	case len(pricesOf(config)) > 0 || sells(config):
		return []Finding{{
			"warning", "admin.listen", fmt.Sprintf("the admin endpoint listens at %s; every program on this machine can credit wallets and read the store", listen),
			"listen at a unix socket by this global option: admin unix//run/modelgate/admin.sock|0220 (and CADDY_ADMIN=unix//run/modelgate/admin.sock for the commands). The unit of deploy/systemd already sets CADDY_ADMIN",
		}}
	}
	return nil
}

// checkTrustedProxies searches for servers behind another proxy that would use the proxy's address
// as the address of every caller.
func checkTrustedProxies(config any) (findings []Finding) {
	if base, err := url.Parse(get[string](config, "apps", "modelgate", "base_url")); err != nil || base.Scheme != "https" {
		return nil
	}
	servers := get[map[string]any](config, "apps", "http", "servers")
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		counts := hasHandler(server, append([]string{"modelgate_console", "modelgate_tasks", "modelgate_auth"}, callHandlers...)...)
		if !counts || encrypts(config, server) || at(server, "trusted_proxies") != nil || at(server, "trusted_proxies_unix") == true {
			continue
		}
		findings = append(findings, Finding{
			"warning", "apps.http.servers." + name + ".trusted_proxies",
			"base_url has https but this server does not, so a proxy is in front of it; without trusted_proxies, ip_ranges of keys and limits of log-ins apply to the proxy's address",
			"name the proxy in the global options: servers { trusted_proxies static 10.0.0.0/8 }",
		})
	}
	return findings
}

// encrypts reports whether a server of the configuration uses https. Automatic https applies at
// the https port, and to hosts that do not skip it, unless the server listens only at the http port.
func encrypts(config, server any) bool {
	if policies := get[[]any](server, "tls_connection_policies"); len(policies) > 0 {
		return true
	}
	port := func(name string, standard uint) uint {
		return cmp.Or(uint(get[float64](config, "apps", "http", name)), standard)
	}
	securePort, clearPort := port("https_port", 443), port("http_port", 80)
	listen := get[[]any](server, "listen")
	onlyHTTP := len(listen) > 0
	for _, word := range listen {
		address, err := caddy.ParseNetworkAddress(get[string](word))
		if err != nil || address.IsUnixNetwork() {
			onlyHTTP = false
			continue
		}
		if address.StartPort <= securePort && securePort <= address.EndPort {
			return true
		}
		onlyHTTP = onlyHTTP && address.StartPort == clearPort && address.EndPort == clearPort
	}
	if onlyHTTP {
		return false
	}
	if get[bool](server, "automatic_https", "disable") {
		return false
	}
	skipped := get[[]any](server, "automatic_https", "skip")
	for _, route := range get[[]any](server, "routes") {
		for _, set := range get[[]any](route, "match") {
			if slices.ContainsFunc(get[[]any](set, "host"), func(host any) bool { return !slices.Contains(skipped, host) }) {
				return true
			}
		}
	}
	return false
}
