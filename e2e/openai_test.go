package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// openaiClient returns the vendor's SDK, configured with the gateway's address
// and key. It does not retry unless an option says so.
func (g *gateway) openaiClient(options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(g.url("/v1/")), option.WithHTTPClient(g.client()),
		option.WithAPIKey(g.Key), option.WithMaxRetries(0),
	}, options...)...)
}

func chat(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "m-1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

// gather reads a stream to its end.
func gather(t *testing.T, client openai.Client, params openai.ChatCompletionNewParams) *openai.ChatCompletionAccumulator {
	t.Helper()
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	defer stream.Close()
	whole := new(openai.ChatCompletionAccumulator)
	for stream.Next() {
		if chunk := stream.Current(); !whole.AddChunk(chunk) {
			t.Fatalf("a chunk that does not fit: %s", chunk.RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return whole
}

func TestTheOpenAISDKCallsChatCompletions(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()

	whole, err := client.Chat.Completions.New(t.Context(), chat("Tell me of the sea."))
	if err != nil {
		t.Fatal(err)
	}
	text := whole.Choices[0].Message.Content
	if !strings.Contains(text, "sea") || whole.Choices[0].FinishReason != "stop" || whole.Usage.CompletionTokens == 0 {
		t.Errorf("the answer is %s", whole.RawJSON())
	}

	streamed := gather(t, client, chat("Tell me of the sea."))
	if streamed.Choices[0].Message.Content != text || streamed.Choices[0].FinishReason != "stop" {
		t.Errorf("the accumulated stream is %+v", streamed.ChatCompletion)
	}
	if streamed.Usage.TotalTokens != 0 {
		t.Errorf("the client got usage without a request for it: %+v", streamed.Usage)
	}

	asking := chat("Tell me of the sea.")
	asking.StreamOptions.IncludeUsage = openai.Bool(true)
	if streamed := gather(t, client, asking); streamed.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("the stream reports %+v, the answer %+v", streamed.Usage, whole.Usage)
	}
}

func TestTheOpenAISDKCompletes(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	params := openai.CompletionNewParams{
		Model: "m-1", MaxTokens: openai.Int(64), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Tell me of the sea.")},
	}
	whole, err := client.Completions.New(t.Context(), params)
	if err != nil || !strings.Contains(whole.Choices[0].Text, "sea") {
		t.Fatalf("the answer is %+v (%v)", whole, err)
	}
	stream := client.Completions.NewStreaming(t.Context(), params)
	defer stream.Close()
	var text strings.Builder
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text.WriteString(choice.Text)
		}
	}
	if stream.Err() != nil || text.String() != whole.Choices[0].Text {
		t.Errorf("the accumulated stream is %q (%v), the answer is %q", text.String(), stream.Err(), whole.Choices[0].Text)
	}
}

func TestTheOpenAISDKUsesTools(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	params := chat("What is the weather?")
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather",
		Parameters: openai.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		},
	})}
	whole, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	for how, choice := range map[string]openai.ChatCompletionChoice{"JSON": whole.Choices[0], "stream": gather(t, client, params).Choices[0]} {
		var input struct{ City *string }
		calls := choice.Message.ToolCalls
		if choice.FinishReason != "tool_calls" || len(calls) != 1 || calls[0].Function.Name != "weather" ||
			json.Unmarshal([]byte(calls[0].Function.Arguments), &input) != nil || input.City == nil {
			t.Fatalf("%s: no tool is called: %+v", how, choice)
		}
		next := params
		next.Messages = append(slices.Clone(params.Messages), choice.Message.ToParam(), openai.ToolMessage("It rains cats.", calls[0].ID))
		end, err := client.Chat.Completions.New(t.Context(), next)
		if err != nil || end.Choices[0].FinishReason != "stop" || !strings.Contains(end.Choices[0].Message.Content, "cats") {
			t.Errorf("%s: the answer to the tool result is %+v (%v)", how, end, err)
		}
	}
}

func TestTheOpenAISDKListsModels(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	var listed []string
	pages := client.Models.ListAutoPaging(t.Context())
	for pages.Next() {
		listed = append(listed, pages.Current().ID)
	}
	if pages.Err() != nil || !slices.Equal(listed, []string{"m-1"}) {
		t.Errorf("the models are %q (%v)", listed, pages.Err())
	}
	one, err := client.Models.Get(t.Context(), "m-1")
	if err != nil || one.ID != "m-1" || one.Created == 0 {
		t.Errorf("got %+v (%v)", one, err)
	}
	_, err = client.Models.Get(t.Context(), "m/2")
	checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusNotFound, Type: "invalid_request_error", Code: "MODEL_NOT_FOUND", Param: "model"})
}

func TestTheOpenAISDKReportsEveryRefusal(t *testing.T) {
	t.Parallel()
	g := running(t, site{
		Messages:    demonstration.Messages,
		Completions: "@known modelgate_model m-*\nmodelgate_demo @known {\npace 1ms\n}",
	})
	with := func(change func(*openai.ChatCompletionNewParams)) openai.ChatCompletionNewParams {
		params := chat("Hi")
		change(&params)
		return params
	}
	for _, c := range []struct {
		name   string
		params openai.ChatCompletionNewParams
		option option.RequestOption
		want   openai.Error // status zero: the answer is incomplete, and the SDK must notice it
	}{
		{"a wrong key", chat("Hi"), option.WithAPIKey("sk-" + strings.Repeat("x", 49)), openai.Error{StatusCode: 401, Type: "authentication_error", Code: "UNAUTHORIZED"}},
		{"two keys", chat("Hi"), option.WithHeader("x-api-key", "other"), openai.Error{StatusCode: 400, Type: "invalid_request_error", Code: "INVALID_PARAMETER", Param: "Authorization"}},
		{"an unknown model", with(func(p *openai.ChatCompletionNewParams) { p.Model = "x-1" }), nil, openai.Error{StatusCode: 404, Type: "invalid_request_error", Code: "MODEL_NOT_FOUND", Param: "model"}},
		{"no choices", with(func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(0) }), nil, openai.Error{StatusCode: 400, Type: "invalid_request_error", Code: "INVALID_PARAMETER", Param: "n"}},
		{"a message of no role", chat("Hi"), option.WithJSONSet("messages.0.role", 7), openai.Error{StatusCode: 400, Type: "invalid_request_error", Code: "INVALID_PARAMETER", Param: "messages[0].role"}},
		{"a refusal of the backend's", with(func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(999_999) }), nil, openai.Error{StatusCode: 400, Type: "invalid_request_error", Param: "n"}},
		{"a body too large", chat(strings.Repeat("x", 9<<20)), nil, openai.Error{StatusCode: 413, Type: "invalid_request_error", Code: "PAYLOAD_TOO_LARGE"}},
		{"a backend that refuses the operator's key", chat("demo:401"), nil, openai.Error{StatusCode: 503, Type: "server_error", Code: "UPSTREAM_UNAVAILABLE"}},
		{"a backend that is busy", chat("demo:429"), nil, openai.Error{StatusCode: 429, Type: "rate_limit_error", Code: "rate_limit_exceeded"}},
		{"a backend that fails", chat("demo:500"), nil, openai.Error{StatusCode: 500, Type: "server_error"}},
		{"a backend that is overloaded", chat("demo:529"), nil, openai.Error{StatusCode: 529, Type: "server_error", Code: "overloaded"}},
		{"a page from a proxy", chat("demo:html"), nil, openai.Error{StatusCode: 502, Type: "server_error", Code: "UPSTREAM_UNAVAILABLE"}},
		{"a backend that breaks off", chat("demo:break"), nil, openai.Error{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			options := []option.RequestOption{}
			if c.option != nil {
				options = append(options, c.option)
			}
			client := g.openaiClient(options...)
			answer, err := client.Chat.Completions.New(t.Context(), c.params)
			if c.want.StatusCode == 0 {
				if err == nil {
					t.Errorf("an incomplete answer was accepted: %s", answer.RawJSON())
				}
				return
			}
			checkOpenAIError(t, err, c.want)
		})
	}
}

// checkOpenAIError checks for the SDK's own error with every field.
func checkOpenAIError(t *testing.T, err error, want openai.Error) {
	t.Helper()
	var got *openai.Error
	if !errors.As(err, &got) {
		t.Fatalf("not an error of the API: %v", err)
	}
	if got.StatusCode != want.StatusCode || got.Type != want.Type || got.Code != want.Code || got.Param != want.Param || got.Message == "" {
		t.Errorf("got %d %s, want %d type %s code %s param %s", got.StatusCode, got.RawJSON(), want.StatusCode, want.Type, want.Code, want.Param)
	}
	if id := got.Response.Header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
		t.Errorf("the id of the request is %q", id)
	}
}

func TestTheOpenAISDKReportsAFailedStream(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	for _, word := range []string{"demo:error", "demo:break"} {
		stream := client.Chat.Completions.NewStreaming(t.Context(), chat(word+" demo:long=9"))
		chunks := 0
		for stream.Next() {
			chunks++
		}
		if chunks == 0 || stream.Err() == nil || !strings.Contains(stream.Err().Error(), "error while streaming") {
			t.Errorf("%s: after %d chunks the stream ended with %v", word, chunks, stream.Err())
		}
		stream.Close()
	}
}

func TestTheOpenAISDKRetriesAfterRetryAfter(t *testing.T) {
	t.Parallel()
	b := newBackend(t, inSequence(respond(429, `{"error":{"message":"slow down"}}`, "Retry-After", "1"), respond(200, chatJSON)))
	g := running(t, forwarding(b), b)
	client := g.openaiClient(option.WithMaxRetries(2))
	began := time.Now()
	answer, err := client.Chat.Completions.New(t.Context(), chat("Hi"))
	if err != nil || answer.Choices[0].Message.Content != "Hello." {
		t.Fatalf("got %+v (%v)", answer, err)
	}
	// The SDK's own pause before a first retry is at most half a second.
	if took := time.Since(began); took < time.Second || len(b.requests()) != 2 {
		t.Errorf("%d calls within %s: Retry-After did not arrive", len(b.requests()), took)
	}
}
