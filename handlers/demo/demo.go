// Package demo is a mock backend for trying and testing the gateway. It answers
// like a model, in the dialects of both vendors, and simulates failures on
// request.
//
// [Demo] is the Caddy module. request.go reads a request, text.go, tools.go and
// schema.go generate the text, messages.go and completion.go build the answer, and wire.go
// sends it. words.go has the words of a prompt that simulate failures.
package demo

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(Demo{})
	httpcaddyfile.RegisterHandlerDirective("modelgate_demo", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		d := new(Demo)
		return d, d.UnmarshalCaddyfile(h.Dispenser)
	})
}

const (
	// maxBody is the maximum size in bytes of a request, and approximately of an
	// answer: the gateway's limit for a messages body
	// (docs/reference/http.md#bodies).
	maxBody = 32 << 20

	// defaultPace makes the events of a stream visible without a long wait.
	defaultPace = 15 * time.Millisecond
)

// Demo is an HTTP handler that answers like a model, without one. It serves
// POST on every path that ends in one of these, as JSON or as a stream:
//
//   - `/v1/messages`, `/v1/messages/count_tokens`
//   - `/v1/completions`, `/v1/chat/completions`
//   - `/v1/responses`, `/v1/responses/input_tokens`, `/v1/responses/compact`
//   - `/v1/embeddings`, `/v1/moderations`, `/v1/rerank`, `/v2/rerank`
//   - `/v1/images/generations`, `/v1/images/edits`
//   - `/v1/audio/speech`, `/v1/audio/transcriptions`, `/v1/audio/translations`
//
// It keeps responses and conversations in memory, until a reload, and serves `/v1/responses/{id}`,
// `/v1/conversations` and the paths below. A response with `background` runs as long as its stream
// would. It passes all other paths to the next handler. It needs no key. It can be used in the block of `modelgate_messages`,
// `modelgate_completions` or `modelgate_openai` instead of `reverse_proxy`, or in
// a separate site as a backend.
//
// The answer repeats the last user text, or the prompt. A token is a piece of
// three to eight characters, and each piece is one event of a stream. Usage
// counts the pieces of all text in the request, including system and tools, but
// not images. The handler supports the limits on tokens, stop sequences, `n`,
// `best_of`, `echo`, arrays of prompts and `stream_options.include_usage`. If
// the request has tools and its last message is not a tool result, the answer
// is a tool call. It calls the requested tool, by default the first one, with
// arguments for the required properties of its schema. If these exceed the
// limit on tokens, the answer is text. If the request asks for JSON, the text is
// an object with the required properties of its schema. Thinking, if enabled,
// precedes the answer. Text up to a `cache_control` counts as written to the
// cache. Pictures and sounds are tiny, and the transcript of a recording is the
// prompt.
//
// These words, anywhere in the last user text or the prompt, simulate failures of
// backends; several can be combined:
//
// Word | Effect
// -----|-------
// `demo:401` | 401, as when a vendor refuses the operator's key
// `demo:429` | 429 with `Retry-After: 1`
// `demo:500` | 500, an internal error of the vendor
// `demo:529` | 529, the vendor is overloaded
// `demo:html` | 502 with a page of HTML, as from a proxy
// `demo:empty` | 200 without a body
// `demo:slow` | the first byte is sent after 3 s; `demo:slow=500ms` after 500 ms
// `demo:stall` | a stream pauses for 60 s after its third piece, then continues; `demo:stall=20s` for 20 s
// `demo:break` | the connection breaks in the middle of the answer
// `demo:error` | a stream ends with an error event after its third piece; without a stream 529
// `demo:nousage` | no usage is reported
// `demo:cached` | the input counts as read from the cache: on messages the text up to the last `cache_control`, elsewhere the whole prompt
// `demo:long=N` | the answer is N pieces long, at most 65536
// `demo:gzip` | a JSON answer is compressed with gzip, even without `Accept-Encoding`
//
// Durations are at most 1 h. The answer to an invalid value is 400. Other words
// are ordinary text.
type Demo struct {
	// Pace is the pause after each piece of a stream. Default: 15 ms; 0 streams
	// without a pause.
	Pace *caddy.Duration `json:"pace,omitempty"`

	vault *vault // nil: nothing is stored
}

// CaddyModule returns the Caddy module information.
func (Demo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_demo", New: func() caddy.Module { return new(Demo) }}
}

// Validate returns an error for a negative pace.
func (d *Demo) Validate() error {
	if d.Pace != nil && *d.Pace < 0 {
		return fmt.Errorf("pace must not be negative: %s", time.Duration(*d.Pace))
	}
	return nil
}

// endpoint is a path that the handler serves.
type endpoint struct {
	suffix  string // the end of the path
	dialect *dialect
	roles   []string // allowed roles of messages; nil: the body has a prompt
	compose func(*request, simulation) (*answer, error)
	prepare func(*request) error // converts the endpoint's own members to the common ones; nil: it has none
	vault   *vault               // nil: nothing is stored
}

var (
	messagesRoles = []string{"system", "user", "assistant"}
	chatRoles     = []string{"system", "developer", "user", "assistant", "tool", "function"}

	endpoints = []endpoint{
		{"/v1/messages", messagesDialect, messagesRoles, answerMessages, nil, nil},
		{"/v1/messages/count_tokens", messagesDialect, messagesRoles, answerCountTokens, nil, nil},
		{"/v1/completions", completionsDialect, nil, answerCompletions, nil, nil},
		{"/v1/chat/completions", completionsDialect, chatRoles, answerChat, nil, nil},
		{"/v1/responses", responsesDialect, chatRoles, answerResponses, (*request).readItems, nil},
		{"/v1/responses/input_tokens", responsesDialect, chatRoles, answerInputTokens, (*request).readItems, nil},
		{"/v1/responses/compact", responsesDialect, chatRoles, answerCompact, (*request).readItems, nil},
		{"/v1/embeddings", completionsDialect, nil, answerEmbeddings, (*request).readTexts, nil},
		{"/v1/moderations", completionsDialect, nil, answerModerations, (*request).readTexts, nil},
		{"/v1/rerank", completionsDialect, nil, answerRerank, (*request).readDocuments, nil},
		{"/v2/rerank", completionsDialect, nil, answerRerank, (*request).readDocuments, nil},
		{"/v1/images/generations", completionsDialect, nil, answerImages, nil, nil},
		{"/v1/images/edits", completionsDialect, nil, answerEdits, nil, nil},
		{"/v1/audio/speech", completionsDialect, nil, answerSpeech, (*request).readSpeech, nil},
		{"/v1/audio/transcriptions", completionsDialect, nil, answerTranscription, (*request).readRecording, nil},
		{"/v1/audio/translations", completionsDialect, nil, answerTranslation, (*request).readRecording, nil},
	}
)

// ServeHTTP implements caddyhttp.MiddlewareHandler. It returns an error with
// status 499 if the client disconnects before the first byte.
func (d *Demo) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	for _, e := range endpoints {
		if !strings.HasSuffix(r.URL.Path, e.suffix) {
			continue
		}
		e.vault = d.vault
		s := &sender{ctx: r.Context(), w: w, dialect: e.dialect, pace: d.pace()}
		a, err := e.read(w, r)
		if refused, ok := errors.AsType[*refusal](err); ok {
			s.refuse(refused)
			return nil
		}
		if err != nil {
			return disconnected(err)
		}
		return s.answer(a)
	}
	if d.vault != nil {
		if served, err := d.vault.serve(&sender{ctx: r.Context(), w: w, dialect: responsesDialect, pace: d.pace()}, r); served {
			return err
		}
	}
	return next.ServeHTTP(w, r)
}

// Provision creates the memory for responses and conversations.
func (d *Demo) Provision(caddy.Context) error {
	d.vault = newVault(d.pace())
	return nil
}

// read reads the body of the request and decides on an answer.
func (e endpoint) read(w http.ResponseWriter, r *http.Request) (*answer, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &refusal{status: http.StatusMethodNotAllowed, message: "This path accepts only POST."}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, &refusal{status: http.StatusRequestEntityTooLarge, message: "The body is larger than 32 MiB."}
	}
	if err != nil {
		return nil, err
	}
	// From now on a call of the gateway counts as delivered to its backend.
	if call, ok := caddyhttp.GetVar(r.Context(), "modelgate.call").(interface{ Delivered() }); ok {
		call.Delivered()
	}
	return e.answer(r.Header.Get("Content-Type"), body)
}

func (d *Demo) pace() time.Duration {
	if d.Pace == nil {
		return defaultPace
	}
	return time.Duration(*d.Pace)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	modelgate_demo {
//		pace <duration>
//	}
func (d *Demo) UnmarshalCaddyfile(c *caddyfile.Dispenser) error {
	c.Next() // the directive's name
	if c.NextArg() {
		return c.ArgErr()
	}
	for c.NextBlock(0) {
		switch c.Val() {
		case "pace":
			if d.Pace != nil {
				return c.Err("pace is set twice")
			}
			var text string
			if !c.AllArgs(&text) {
				return c.ArgErr()
			}
			pace, err := caddy.ParseDuration(text)
			if err != nil {
				return c.Errf("pace: %v", err)
			}
			d.Pace = new(caddy.Duration(pace))
		default:
			return c.Errf("unknown word %q; allowed: pace", c.Val())
		}
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Demo)(nil)
	_ caddy.Validator             = (*Demo)(nil)
	_ caddyhttp.MiddlewareHandler = (*Demo)(nil)
	_ caddyfile.Unmarshaler       = (*Demo)(nil)
)
