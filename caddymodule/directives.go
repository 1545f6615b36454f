package caddymodule

import "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

// The order of our directives in a site. Each registers its own parser; the
// order of all stands here, because the doors must come before anything that
// answers and after what only prepares (header, request_header, encode).
//
// modelgate_auth comes last: the directives before it demand their credential
// themselves, what comes behind it has none of its own.
var directives = []string{
	"modelgate_health",
	"modelgate_messages",
	"modelgate_completions",
	"modelgate_console",
	"modelgate_auth",
	"modelgate_demo",
}

func init() {
	for _, name := range directives[:len(directives)-1] {
		httpcaddyfile.RegisterDirectiveOrder(name, httpcaddyfile.Before, "invoke")
	}
	// The demonstration backend answers, as reverse_proxy does.
	httpcaddyfile.RegisterDirectiveOrder("modelgate_demo", httpcaddyfile.Before, "reverse_proxy")
}
