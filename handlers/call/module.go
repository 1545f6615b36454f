package call

import (
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

func init() {
	caddy.RegisterModule(Messages{})
	caddy.RegisterModule(Completions{})
	caddy.RegisterModule(OpenAI{})
	httpcaddyfile.RegisterHandlerDirective("modelgate_messages", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		m := new(Messages)
		return m, m.unmarshal(h)
	})
	httpcaddyfile.RegisterHandlerDirective("modelgate_completions", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		c := new(Completions)
		return c, c.unmarshal(h)
	})
	httpcaddyfile.RegisterHandlerDirective("modelgate_openai", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		o := new(OpenAI)
		return o, o.unmarshal(h)
	})
}

// Messages serves POST /v1/messages, POST /v1/messages/count_tokens and
// GET /v1/models, to callers with an API key, and lets every other path pass.
//
// It sets these placeholders, the last ones when the call has ended:
//
// Placeholder | Description
// ------------|-------------
// `{http.auth.user.id}` | The id of the user whose key was used
// `{http.modelgate.key_id}` | The id of the key
// `{http.modelgate.request_id}` | The id of the request, as in X-Request-Id
// `{http.modelgate.model}` | The model as the caller named it
// `{http.modelgate.user_slot.*}` | The slot of the user among so many, from 0, for keys of a vendor: `user_slot.3` is 0, 1 or 2
// `{http.modelgate.ended}` | How the call ended: complete, client_gone, timeout, upstream_error, money_out or refused
// `{http.modelgate.rule}` | The rule that decided the charge, if the caller disconnected or the call failed before content; see docs/reference/calls.md
// `{http.modelgate.usage}` | The basis of the tokens: reported, estimated or none
// `{http.modelgate.usage.*}` | The billed tokens, by kind: input, output, cache_read, cache_write_5m, cache_write_1h, reasoning; each token counts in one kind
// `{http.modelgate.cost}` | The amount that was charged, as a decimal number in the configured currency
// `{http.modelgate.first_byte}` | Seconds until the first byte of the answer arrived; 0 if none arrived
// `{http.modelgate.duration}` | Duration of the call in seconds
type Messages struct {
	block
}

// CaddyModule returns the Caddy module information.
func (Messages) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_messages", New: func() caddy.Module { return new(Messages) }}
}

// Provision compiles the routes.
func (m *Messages) Provision(ctx caddy.Context) error {
	return m.provision(ctx, messagesRoutes, messagesTable)
}

// Completions serves POST /v1/completions, POST /v1/chat/completions and
// GET /v1/models, to callers with an API key, and lets every other path pass.
// It sets the placeholders that Messages does.
type Completions struct {
	block
}

// CaddyModule returns the Caddy module information.
func (Completions) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_completions", New: func() caddy.Module { return new(Completions) }}
}

// Provision compiles the routes.
func (c *Completions) Provision(ctx caddy.Context) error {
	return c.provision(ctx, completionsRoutes, completionsTable)
}

// OpenAI serves the paths of Completions, and in addition POST /v1/responses,
// /v1/responses/input_tokens, /v1/responses/compact, /v1/embeddings, /v1/moderations,
// /v1/rerank, /v2/rerank, /v1/images/generations, /v1/images/edits, /v1/audio/speech,
// /v1/audio/transcriptions and /v1/audio/translations. With `state own` it
// also serves /v1/responses/{id}, /v1/conversations and the paths below them. It sets the placeholders
// that Messages sets.
type OpenAI struct {
	block
}

// CaddyModule returns the Caddy module information.
func (OpenAI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_openai", New: func() caddy.Module { return new(OpenAI) }}
}

// Provision compiles the routes.
func (o *OpenAI) Provision(ctx caddy.Context) error {
	return o.provision(ctx, slices.Concat(completionsRoutes, openAIRoutes), openAITable)
}

// unmarshal reads
//
//	modelgate_messages|modelgate_completions|modelgate_openai {
//		models <name>...
//		pass_up <header>...
//		pass_down <header>...
//		pass_member <name>...
//		state off|own|shared
//		fallback <pattern> <model>... on <failure>...
//		<directives>
//	}
//
// The directives become routes in the order of the file, as in Caddy's route
// directive.
func (b *block) unmarshal(h httpcaddyfile.Helper) error {
	h.Next() // the directive's name
	if h.NextArg() {
		return h.ArgErr()
	}
	var inner []caddyfile.Token
	name := h.Token()
	for nesting := h.Nesting(); h.NextBlock(nesting); {
		switch h.Val() {
		case "models":
		case "pass_up", "pass_down", "pass_member":
			list := map[string]*[]string{"pass_up": &b.PassUp, "pass_down": &b.PassDown, "pass_member": &b.PassMembers}[h.Val()]
			names := h.RemainingArgs()
			if len(names) == 0 {
				return h.ArgErr()
			}
			*list = append(*list, names...)
			continue
		case "state":
			if b.State != "" {
				return h.Err("state is given twice")
			}
			var word string
			if !h.AllArgs(&word) {
				return h.ArgErr()
			}
			b.State = caddymodule.VendorState(word)
			if err := b.State.Validate(); err != nil {
				return h.WrapErr(err)
			}
			continue
		case "fallback":
			if err := b.unmarshalFallback(h); err != nil {
				return err
			}
			continue
		default:
			inner = append(inner, h.NextSegment()...)
			continue
		}
		if b.Models != nil {
			return h.Err("models is given twice")
		}
		if b.Models = h.RemainingArgs(); len(b.Models) == 0 {
			return h.ArgErr()
		}
		if err := validateModels(b.Models); err != nil {
			return h.WrapErr(err)
		}
	}
	if err := b.compilePassed(); err != nil {
		return h.WrapErr(err)
	}
	if len(inner) == 0 {
		beginning := caddyfile.NewDispenser([]caddyfile.Token{name})
		beginning.Next()
		return beginning.Err("the block has no directive that sends calls to a backend, such as reverse_proxy")
	}
	routes, err := parseInOrder(h, name, inner)
	b.Routes = routes
	return err
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Messages)(nil)
	_ caddyhttp.MiddlewareHandler = (*Messages)(nil)
	_ caddy.Provisioner           = (*Completions)(nil)
	_ caddyhttp.MiddlewareHandler = (*Completions)(nil)
	_ caddy.Provisioner           = (*OpenAI)(nil)
	_ caddyhttp.MiddlewareHandler = (*OpenAI)(nil)
)
