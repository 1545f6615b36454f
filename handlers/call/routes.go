package call

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/caddymodule/metrics"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
)

// route is one path on which model calls come in.
type route struct {
	name      string // in metrics and log lines
	path      string
	dialect   dialect.Dialect   // of errors, and of answers
	schema    *modelcall.Schema // of the body
	limit     int64             // of a body, in bytes
	versioned bool              // demands the version header
	free      bool              // passes through without being metered

	metrics *metrics.Route
}

// The routes of the two directives.
var (
	messagesRoutes = []*route{
		{
			name: "messages", path: "/v1/messages", dialect: dialect.Anthropic,
			schema: modelcall.Messages, limit: 32 << 20, versioned: true,
		},
		{
			name: "count_tokens", path: "/v1/messages/count_tokens", dialect: dialect.Anthropic,
			schema: modelcall.CountTokens, limit: 32 << 20, versioned: true, free: true,
		},
	}
	completionsRoutes = []*route{
		{
			name: "completions", path: "/v1/completions", dialect: dialect.OpenAI,
			schema: modelcall.Completions, limit: 8 << 20,
		},
		{
			name: "chat", path: "/v1/chat/completions", dialect: dialect.OpenAI,
			schema: modelcall.Chat, limit: 8 << 20,
		},
	}
)

// The routes of the two directives in the registry: those above, by the same index, and
// the look-ups that both directives serve.
var (
	lookUps = reply.Register(
		reply.Route{Method: http.MethodGet, Path: modelsPath, Credential: reply.APIKey},
		reply.Route{Method: http.MethodGet, Path: modelsPath + "/{id...}", Credential: reply.APIKey},
		reply.Route{Method: http.MethodGet, Path: usagePath, Credential: reply.APIKey},
	)
	messagesTable    = declare(messagesRoutes)
	completionsTable = declare(completionsRoutes)
)

func declare(routes []*route) (table reply.Table) {
	for _, rt := range routes {
		table = append(table, reply.Register(reply.Route{
			Method: http.MethodPost, Path: rt.path, Dialect: rt.dialect, Credential: reply.APIKey, MaxBody: rt.limit,
		})...)
	}
	return append(table, lookUps...)
}
