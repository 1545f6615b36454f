// Package modelgate turns Caddy into a model gateway with accounts: it authenticates the
// caller of each model call, reserves and charges its cost, and forwards it to a backend.
//
// This package imports all modules of the gateway, for xcaddy's --with. It has no types.
// xcaddy.json lists the same modules for tools.
package modelgate

import (
	_ "github.com/caddy-modelgate/modelgate/backends/demo"
	_ "github.com/caddy-modelgate/modelgate/backends/fal"
	_ "github.com/caddy-modelgate/modelgate/backends/generations"
	_ "github.com/caddy-modelgate/modelgate/backends/openai"
	_ "github.com/caddy-modelgate/modelgate/backends/platform"
	_ "github.com/caddy-modelgate/modelgate/backends/replicate"
	_ "github.com/caddy-modelgate/modelgate/backends/vod"
	_ "github.com/caddy-modelgate/modelgate/caddymodule"
	_ "github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	_ "github.com/caddy-modelgate/modelgate/caddymodule/cli"
	_ "github.com/caddy-modelgate/modelgate/caddymodule/redactlog"
	_ "github.com/caddy-modelgate/modelgate/handlers/auth"
	_ "github.com/caddy-modelgate/modelgate/handlers/call"
	_ "github.com/caddy-modelgate/modelgate/handlers/console"
	_ "github.com/caddy-modelgate/modelgate/handlers/demo"
	_ "github.com/caddy-modelgate/modelgate/handlers/docs"
	_ "github.com/caddy-modelgate/modelgate/handlers/health"
	_ "github.com/caddy-modelgate/modelgate/handlers/tasks"
	_ "github.com/caddy-modelgate/modelgate/payments/demo"
	_ "github.com/caddy-modelgate/modelgate/payments/epay"
	_ "github.com/caddy-modelgate/modelgate/payments/stripe"
	_ "github.com/caddy-modelgate/modelgate/storage/badger"
	_ "github.com/caddy-modelgate/modelgate/storage/postgres"
	_ "github.com/caddy-modelgate/modelgate/transport"
)
