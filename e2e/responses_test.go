package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared/constant"
)

// ask returns the parameters of a response to a text.
func ask(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "m-1", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
}

func TestTheOpenAISDKCallsResponses(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()

	whole, err := client.Responses.New(t.Context(), ask("Tell me of the sea."))
	if err != nil {
		t.Fatal(err)
	}
	if text := whole.OutputText(); !strings.Contains(text, "sea") || whole.Status != "completed" || whole.Usage.OutputTokens == 0 {
		t.Errorf("the answer is %s", whole.RawJSON())
	}

	stream := client.Responses.NewStreaming(t.Context(), ask("Tell me of the sea."))
	defer stream.Close()
	var text strings.Builder
	var last responses.ResponseStreamEventUnion
	for stream.Next() {
		last = stream.Current()
		if last.Type == "response.output_text.delta" {
			text.WriteString(last.Delta)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text.String() != whole.OutputText() || last.Type != "response.completed" || last.Response.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("the stream is %q and ends with %s", text.String(), last.RawJSON())
	}
}

// TestTheOpenAISDKSendsTheItemsOfAResponseBack makes the two turns of a tool call without anything that
// the vendor stores.
func TestTheOpenAISDKSendsTheItemsOfAResponseBack(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	params := ask("How warm is it?")
	params.Store = openai.Bool(false)
	params.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	params.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
		Name: "thermometer", Strict: openai.Bool(true),
		Parameters: map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
	}}}
	first, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	call := first.Output[0]
	if arguments := call.Arguments.OfString; call.Type != "function_call" || call.Name != "thermometer" || !json.Valid([]byte(arguments)) {
		t.Fatalf("the answer is %s", first.RawJSON())
	}
	function := call.AsFunctionCall().ToParam()
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage("How warm is it?", responses.EasyInputMessageRoleUser),
		{OfFunctionCall: &function},
		{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
			CallID: openai.String(call.CallID), Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String("21 degrees")},
		}},
	}}
	second, err := client.Responses.New(t.Context(), params)
	if err != nil || !strings.Contains(second.OutputText(), "21 degrees") {
		t.Errorf("the second answer is %v, %v", second, err)
	}
}

func TestTheOpenAISDKReportsWhyAResponseIsRefused(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	for name, c := range map[string]struct {
		change func(*responses.ResponseNewParams)
		param  string
	}{
		"an earlier response": {func(p *responses.ResponseNewParams) { p.PreviousResponseID = openai.String("resp_1") }, "previous_response_id"},
		"in the background":   {func(p *responses.ResponseNewParams) { p.Background = openai.Bool(true) }, "background"},
		"a stored item": {func(p *responses.ResponseNewParams) {
			p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
				{OfItemReference: &responses.ResponseInputItemItemReferenceParam{ID: "msg_1"}},
			}}
		}, "input[0].id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params := ask("Hello")
			c.change(&params)
			_, err := client.Responses.New(t.Context(), params)
			var refused *openai.Error
			if !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Param != c.param {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestTheOpenAISDKMakesEmbeddings(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	client := g.openaiClient()
	for name, input := range map[string]openai.EmbeddingNewParamsInputUnion{
		"a text": {OfString: openai.String("the sea")},
		"texts":  {OfArrayOfStrings: []string{"the sea", "the sea"}},
		"tokens": {OfArrayOfTokenArrays: [][]int64{{1, 2, 3}, {1, 2, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "m-1", Input: input, Dimensions: openai.Int(8)})
			if err != nil {
				t.Fatal(err)
			}
			last := got.Data[len(got.Data)-1]
			if len(last.Embedding) != 8 || !slices.Equal(last.Embedding, got.Data[0].Embedding) || got.Usage.PromptTokens == 0 {
				t.Errorf("the answer is %s", got.RawJSON())
			}
		})
	}
	checked, err := client.Moderations.New(t.Context(), openai.ModerationNewParams{
		Model: "m-1", Input: openai.ModerationNewParamsInputUnion{OfModerationMultiModalArray: []openai.ModerationMultiModalInputUnionParam{
			{OfText: &openai.ModerationTextInputParam{Text: "the sea", Type: constant.ValueOf[constant.Text]()}},
		}},
	})
	if err != nil || len(checked.Results) != 1 || checked.Results[0].Flagged {
		t.Errorf("the moderation is %v, %v", checked, err)
	}
}
