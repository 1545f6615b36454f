package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// demonstration is a site whose calls are answered by the demo handler.
var demonstration = site{
	Messages:    "modelgate_demo {\npace 1ms\n}",
	Completions: "modelgate_demo {\npace 1ms\n}",
}

// anthropicClient returns the vendor's SDK, configured with the gateway's
// address and key. It does not retry unless an option says so.
func (g *gateway) anthropicClient(options ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithoutEnvironmentDefaults(), option.WithBaseURL(g.url("/")), option.WithHTTPClient(g.client()),
		option.WithAPIKey(g.Key), option.WithMaxRetries(0),
	}, options...)...)
}

func message(text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "m-1", MaxTokens: 4096,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

var weather = anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
	Properties: map[string]any{"city": map[string]any{"type": "string"}},
	Required:   []string{"city"},
}, "weather")

func TestTheAnthropicSDKCallsMessages(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	ctx := t.Context()

	for name, client := range map[string]anthropic.Client{
		"x-api-key": g.anthropicClient(),
		"Bearer": anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(g.url("/")), option.WithHTTPClient(g.client()),
			option.WithAuthToken(g.Key), option.WithMaxRetries(0)),
	} {
		t.Run(name, func(t *testing.T) {
			whole, err := client.Messages.New(ctx, message("Tell me of the sea."))
			if err != nil {
				t.Fatal(err)
			}
			if len(whole.Content) != 1 || !strings.Contains(whole.Content[0].Text, "sea") || whole.StopReason != anthropic.StopReasonEndTurn {
				t.Errorf("the answer is %s", whole.RawJSON())
			}
			streamed := accumulate(t, client, message("Tell me of the sea."))
			if streamed.Content[0].Text != whole.Content[0].Text || streamed.Usage.OutputTokens != whole.Usage.OutputTokens ||
				streamed.Usage.InputTokens != whole.Usage.InputTokens || whole.Usage.OutputTokens == 0 || streamed.StopReason != whole.StopReason {
				t.Errorf("the accumulated stream is\n%+v, the message is\n%+v", streamed, whole)
			}

			count, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: "m-1", Messages: message("Tell me of the sea.").Messages})
			if err != nil || count.InputTokens != whole.Usage.InputTokens {
				t.Errorf("counted %+v, used %d (%v)", count, whole.Usage.InputTokens, err)
			}
		})
	}
}

// accumulate reads a stream to its end.
func accumulate(t *testing.T, client anthropic.Client, params anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	stream := client.Messages.NewStreaming(t.Context(), params)
	defer stream.Close()
	var whole anthropic.Message
	for stream.Next() {
		if err := whole.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return &whole
}

func TestTheAnthropicSDKUsesTools(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.anthropicClient()
	params := message("What is the weather?")
	params.Tools = []anthropic.ToolUnionParam{weather}
	whole, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	for how, m := range map[string]*anthropic.Message{"JSON": whole, "stream": accumulate(t, client, params)} {
		var input struct{ City *string }
		i := slices.IndexFunc(m.Content, func(b anthropic.ContentBlockUnion) bool { return b.Type == "tool_use" })
		if m.StopReason != anthropic.StopReasonToolUse || i < 0 || json.Unmarshal(m.Content[i].Input, &input) != nil || input.City == nil {
			t.Fatalf("%s: no tool is called: %+v", how, m)
		}
		next := params
		next.Messages = append(slices.Clone(params.Messages), m.ToParam(),
			anthropic.NewUserMessage(anthropic.NewToolResultBlock(m.Content[i].ID, "It rains cats.", false)))
		end, err := client.Messages.New(t.Context(), next)
		if err != nil || end.StopReason != anthropic.StopReasonEndTurn || !strings.Contains(end.Content[0].Text, "cats") {
			t.Errorf("%s: the answer to the tool result is %+v (%v)", how, end, err)
		}
	}
}

func TestTheAnthropicSDKListsModels(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.anthropicClient()
	var listed []string
	pages := client.Models.ListAutoPaging(t.Context(), anthropic.ModelListParams{})
	for pages.Next() {
		listed = append(listed, pages.Current().ID)
	}
	if pages.Err() != nil || !slices.Equal(listed, []string{"m-1"}) {
		t.Errorf("the models are %q (%v)", listed, pages.Err())
	}
	one, err := client.Models.Get(t.Context(), "m-1", anthropic.ModelGetParams{})
	if err != nil || one.ID != "m-1" || one.CreatedAt.IsZero() {
		t.Errorf("got %+v (%v)", one, err)
	}
	_, err = client.Models.Get(t.Context(), "m/2", anthropic.ModelGetParams{})
	checkAnthropicError(t, err, http.StatusNotFound, "not_found_error")
}

func TestTheAnthropicSDKReportsEveryRefusal(t *testing.T) {
	t.Parallel()
	g := running(t, site{
		Messages:    "@known modelgate_model m-*\nmodelgate_demo @known {\npace 1ms\n}",
		Completions: demonstration.Completions,
	})
	with := func(change func(*anthropic.MessageNewParams)) anthropic.MessageNewParams {
		params := message("Hi")
		change(&params)
		return params
	}
	for _, c := range []struct {
		name   string
		params anthropic.MessageNewParams
		option option.RequestOption
		status int
		kind   string
	}{
		{"a wrong key", message("Hi"), option.WithAPIKey("sk-" + strings.Repeat("x", 49)), 401, "authentication_error"},
		{"two keys", message("Hi"), option.WithAuthToken("other"), 400, "invalid_request_error"},
		{"an unknown model", with(func(p *anthropic.MessageNewParams) { p.Model = "x-1" }), nil, 404, "not_found_error"},
		{"no tokens", with(func(p *anthropic.MessageNewParams) { p.MaxTokens = 0 }), nil, 400, "invalid_request_error"},
		{"no version", message("Hi"), option.WithHeaderDel("anthropic-version"), 400, "invalid_request_error"},
		{"a body too large", message(strings.Repeat("x", 33<<20)), nil, 413, "request_too_large"},
		{"a backend that refuses the operator's key", message("demo:401"), nil, 503, "overloaded_error"},
		{"a backend that is busy", message("demo:429"), nil, 429, "rate_limit_error"},
		{"a backend that fails", message("demo:500"), nil, 500, "api_error"},
		{"a backend that is overloaded", message("demo:529"), nil, 529, "overloaded_error"},
		{"a page from a proxy", message("demo:html"), nil, 502, "api_error"},
		{"a backend that breaks off", message("demo:break"), nil, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			options := []option.RequestOption{}
			if c.option != nil {
				options = append(options, c.option)
			}
			client := g.anthropicClient(options...)
			m, err := client.Messages.New(t.Context(), c.params)
			if c.status == 0 {
				if err == nil {
					t.Errorf("an incomplete answer was accepted: %s", m.RawJSON())
				}
				return
			}
			checkAnthropicError(t, err, c.status, c.kind)
		})
	}
}

// checkAnthropicError checks for the SDK's own error with its type and request
// id.
func checkAnthropicError(t *testing.T, err error, status int, kind string) {
	t.Helper()
	var refused *anthropic.Error
	if !errors.As(err, &refused) {
		t.Fatalf("not an error of the API: %v", err)
	}
	if refused.StatusCode != status || string(refused.Type()) != kind || refused.RequestID == "" {
		t.Errorf("got %d %s, request %q, want %d %s: %s", refused.StatusCode, refused.Type(), refused.RequestID, status, kind, refused.RawJSON())
	}
}

func TestTheAnthropicSDKReportsAFailedStream(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	for _, word := range []string{"demo:error", "demo:break"} {
		client := g.anthropicClient()
		stream := client.Messages.NewStreaming(t.Context(), message(word+" demo:long=9"))
		events := 0
		for stream.Next() {
			events++
		}
		var refused *anthropic.Error
		if events == 0 || !errors.As(stream.Err(), &refused) || !strings.Contains(refused.RawJSON(), `"type":"error"`) {
			t.Errorf("%s: after %d events the stream ended with %v", word, events, stream.Err())
		}
		stream.Close()
	}
}

func TestTheAnthropicSDKRetriesAfterRetryAfter(t *testing.T) {
	t.Parallel()
	b := newBackend(t, inSequence(
		respond(429, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, "Retry-After", "1"),
		respond(200, messageJSON),
	))
	g := running(t, forwarding(b), b)
	client := g.anthropicClient(option.WithMaxRetries(2))
	began := time.Now()
	m, err := client.Messages.New(t.Context(), message("Hi"))
	if err != nil || m.Content[0].Text != "Hello." {
		t.Fatalf("got %+v (%v)", m, err)
	}
	// The SDK's own pause before a first retry is at most half a second.
	if took := time.Since(began); took < time.Second || len(b.requests()) != 2 {
		t.Errorf("%d calls within %s: Retry-After did not arrive", len(b.requests()), took)
	}
}

func TestTheAnthropicSDKBetaReachesTheBackend(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)
	client := g.anthropicClient()
	_, err := client.Beta.Messages.New(context.WithoutCancel(t.Context()), anthropic.BetaMessageNewParams{
		Model: "m-1", MaxTokens: 16, Betas: []anthropic.AnthropicBeta{"new-thing-2026-01-01", "other-thing-2026-02-02"},
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("Hi"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := b.next()
	betas := strings.Join(got.Header.Values("Anthropic-Beta"), ",")
	if got.URI != "/v1/messages?beta=true" || !strings.Contains(betas, "new-thing-2026-01-01") || !strings.Contains(betas, "other-thing-2026-02-02") {
		t.Errorf("the backend got %s with the betas %q", got.URI, betas)
	}
}
