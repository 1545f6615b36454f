package call

import (
	"net/http"
	"slices"

	"github.com/caddy-modelgate/modelgate/caddymodule/metrics"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// route declares one route of model calls. [reply.Route] has what the registry needs. Its
// dialect is that of errors and of pings.
type route struct {
	reply.Route

	name      string            // in metrics and log lines
	schema    *modelcall.Schema // of a body as JSON; nil: only a form is allowed
	form      *modelcall.Schema // of a body as a form; nil: only JSON is allowed
	answer    *usage.Format     // how the usage and the end of an answer are read
	versioned bool              // requires the version header
	free      bool              // is neither priced nor metered
	object    *objectRoute      // nil: the route makes model calls

	metrics *metrics.Route
}

// The routes of the three directives. modelgate_openai also has those of modelgate_completions.
var (
	messagesRoutes = []*route{
		{Route: post("/v1/messages", dialect.Anthropic, 32<<20), name: "messages", schema: modelcall.Messages, answer: usage.Message, versioned: true},
		{
			Route: post("/v1/messages/count_tokens", dialect.Anthropic, 32<<20),
			name:  "count_tokens", schema: modelcall.CountTokens, answer: usage.Message, versioned: true, free: true,
		},
	}
	completionsRoutes = []*route{
		{Route: post("/v1/completions", dialect.OpenAI, 8<<20), name: "completions", schema: modelcall.Completions, answer: usage.Completion},
		{Route: post("/v1/chat/completions", dialect.OpenAI, 8<<20), name: "chat", schema: modelcall.Chat, answer: usage.Completion},
	}
	openAIRoutes = append([]*route{
		{Route: post(responsesPath, dialect.Responses, 32<<20), name: "responses", schema: modelcall.Responses, answer: usage.Response},
		{Route: post(responsesPath+"/input_tokens", dialect.Responses, 32<<20), name: "input_tokens", schema: modelcall.Responses, answer: usage.Response, free: true},
		{Route: post(responsesPath+"/compact", dialect.Responses, 32<<20), name: "compact", schema: modelcall.Responses, answer: usage.Response},
		{Route: post("/v1/embeddings", dialect.OpenAI, 8<<20), name: "embeddings", schema: modelcall.Embeddings, answer: usage.InputOnly},
		{Route: post("/v1/moderations", dialect.OpenAI, 8<<20), name: "moderations", schema: modelcall.Moderations, answer: usage.InputOnly},
		{Route: post("/v1/rerank", dialect.OpenAI, 8<<20), name: "rerank", schema: modelcall.Rerank, answer: usage.InputOnly},
		{Route: post("/v2/rerank", dialect.OpenAI, 8<<20), name: "rerank", schema: modelcall.Rerank, answer: usage.InputOnly},
	}, slices.Concat(mediaRoutes, objectRoutes)...)
)

const responsesPath = "/v1/responses"

func post(path string, d dialect.Dialect, maxBody int64) reply.Route {
	return reply.Route{Method: http.MethodPost, Path: path, Dialect: d, Credential: reply.APIKey, MaxBody: maxBody}
}

// The routes of the directives in the registry: those above, by the same index, and the look-ups
// that all directives serve.
var (
	lookUps = reply.Register(
		reply.Route{Method: http.MethodGet, Path: modelsPath, Credential: reply.APIKey},
		reply.Route{Method: http.MethodGet, Path: modelsPath + "/{id...}", Credential: reply.APIKey},
		reply.Route{Method: http.MethodGet, Path: usagePath, Credential: reply.APIKey},
	)
	completionsDeclared = declare(completionsRoutes)

	messagesTable    = slices.Concat(declare(messagesRoutes), lookUps)
	completionsTable = slices.Concat(completionsDeclared, lookUps)
	openAITable      = slices.Concat(completionsDeclared, declare(openAIRoutes), lookUps)
)

// declare registers routes, and returns their table.
func declare(routes []*route) (table reply.Table) {
	for _, rt := range routes {
		table = append(table, reply.Register(rt.Route)...)
	}
	return table
}
