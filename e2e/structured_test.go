package e2e

import (
	"encoding/json"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// TestTheSDKsGetAnswersThatFitTheirSchemas asks both SDKs for an object, whole and streamed.
func TestTheSDKsGetAnswersThatFitTheirSchemas(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	schema := map[string]any{
		"type": "object", "required": []string{"city"}, "additionalProperties": false,
		"properties": map[string]any{"city": map[string]any{"type": "string"}},
	}
	check := func(way, text string, err error) {
		t.Helper()
		var fitting struct {
			City *string `json:"city"`
		}
		if err != nil || json.Unmarshal([]byte(text), &fitting) != nil || fitting.City == nil {
			t.Errorf("%s: %q, %v", way, text, err)
		}
	}

	client := g.openaiClient()
	chatting := chat("Where is the sea?")
	chatting.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "place", Schema: schema, Strict: openai.Bool(true)},
	}}
	if whole, err := client.Chat.Completions.New(t.Context(), chatting); err != nil {
		t.Error(err)
	} else {
		check("chat", whole.Choices[0].Message.Content, nil)
	}
	check("a stream of chat", gather(t, client, chatting).Choices[0].Message.Content, nil)

	asking := ask("Where is the sea?")
	asking.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("place", schema)
	if whole, err := client.Responses.New(t.Context(), asking); err != nil {
		t.Error(err)
	} else {
		check("responses", whole.OutputText(), nil)
	}
	text, events := "", client.Responses.NewStreaming(t.Context(), asking)
	defer events.Close()
	for events.Next() {
		text += events.Current().Delta
	}
	check("a stream of responses", text, events.Err())

	messages := message("Where is the sea?")
	messages.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: schema}
	vendor := g.anthropicClient()
	if whole, err := vendor.Messages.New(t.Context(), messages); err != nil {
		t.Error(err)
	} else {
		check("messages", whole.Content[0].Text, nil)
	}
	stream := vendor.Messages.NewStreaming(t.Context(), messages)
	defer stream.Close()
	var gathered anthropic.Message
	for stream.Next() {
		if err := gathered.Accumulate(stream.Current()); err != nil {
			t.Error(err)
		}
	}
	check("a stream of messages", gathered.Content[0].Text, stream.Err())
}
