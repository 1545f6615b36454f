package e2e

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/responses"

	"github.com/caddy-modelgate/modelgate/handlers/demo"
)

// storing starts a gateway with `state own`, in front of a vendor that stores responses and outlives the
// gateway.
func storing(t *testing.T) *gateway {
	t.Helper()
	d := &demo.Demo{Pace: new(caddy.Duration)}
	if err := d.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = d.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusNotFound)
			return nil
		}))
	}))
	t.Cleanup(vendor.Close)
	g := running(t, site{
		Money:       "price m-1 {\ninput 1000\noutput 1000\ncontext 1000\nmax_output 1000\n}",
		Messages:    "modelgate_demo",
		Completions: "state own\nreverse_proxy " + strings.TrimPrefix(vendor.URL, "http://"),
	})
	g.post("/modelgate/wallets/ada/credit", map[string]any{"amount": "100.00", "reason": "a test"}, nil)
	return g
}

func TestTheOpenAISDKContinuesStoredResponses(t *testing.T) {
	t.Parallel()
	g := storing(t)
	client := g.openaiClient()
	first, err := client.Responses.New(t.Context(), ask("Tell me of the sea."))
	if err != nil {
		t.Fatal(err)
	}
	params := ask("And of the sky?")
	params.PreviousResponseID = openai.String(first.ID)
	second, err := client.Responses.New(t.Context(), params)
	if err != nil || second.PreviousResponseID != first.ID || second.Usage.InputTokens <= first.Usage.InputTokens {
		t.Fatalf("the second turn is %v, %v", second, err)
	}
	if got, err := client.Responses.Get(t.Context(), second.ID, responses.ResponseGetParams{}); err != nil || got.OutputText() != second.OutputText() {
		t.Errorf("Get returns %v, %v", got, err)
	}
	items, err := client.Responses.InputItems.List(t.Context(), second.ID, responses.InputItemListParams{})
	if err != nil || len(items.Data) != 1 {
		t.Errorf("the input items are %v, %v", items, err)
	}

	conversation, err := client.Conversations.New(t.Context(), conversations.ConversationNewParams{})
	if err != nil {
		t.Fatal(err)
	}
	turn := ask("Tell me of the sea.")
	turn.Conversation = responses.ResponseNewParamsConversationUnion{OfString: openai.String(conversation.ID)}
	if _, err := client.Responses.New(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	list, err := client.Conversations.Items.List(t.Context(), conversation.ID, conversations.ItemListParams{})
	if err != nil || len(list.Data) != 2 {
		t.Errorf("the conversation has %v, %v", list, err)
	}
	if _, err := client.Conversations.Delete(t.Context(), conversation.ID); err != nil {
		t.Error(err)
	}
	if err := client.Responses.Delete(t.Context(), second.ID); err != nil {
		t.Error(err)
	}
	if _, err := client.Responses.Get(t.Context(), second.ID, responses.ResponseGetParams{}); err == nil {
		t.Error("a deleted response is returned")
	}
	g.walletAtRest("ada")
	g.verify()
}

// TestTheOpenAISDKPagesThroughTheItemsOfAConversation calls a tool in a conversation and reads all items, one
// for each page.
func TestTheOpenAISDKPagesThroughTheItemsOfAConversation(t *testing.T) {
	t.Parallel()
	client := storing(t).openaiClient()
	conversation, err := client.Conversations.New(t.Context(), conversations.ConversationNewParams{})
	if err != nil {
		t.Fatal(err)
	}
	params := ask("How warm is it?")
	params.Conversation = responses.ResponseNewParamsConversationUnion{OfString: openai.String(conversation.ID)}
	params.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "thermometer", Strict: openai.Bool(true), Parameters: map[string]any{}}}}
	first, err := client.Responses.New(t.Context(), params)
	if err != nil || first.Output[0].Type != "function_call" {
		t.Fatalf("the first turn is %v, %v", first, err)
	}
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage("Now answer.", responses.EasyInputMessageRoleUser),
		{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
			CallID: openai.String(first.Output[0].CallID), Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String("21 degrees")},
		}},
	}}
	second, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	all := client.Conversations.Items.ListAutoPaging(t.Context(), conversation.ID, conversations.ItemListParams{Limit: openai.Int(1)})
	for all.Next() {
		switch item := all.Current().AsAny().(type) {
		case conversations.Message:
			got = append(got, string(item.Role)+" "+item.Content[0].Type+" "+item.Content[0].Text)
		case responses.ResponseFunctionToolCallItem:
			got = append(got, item.Name+" "+item.ID+" "+item.CallID)
		case responses.ResponseFunctionToolCallOutputItem:
			got = append(got, item.CallID+" "+item.Output.OfString)
		}
	}
	call := first.Output[0].AsFunctionCall()
	want := []string{
		"assistant output_text " + second.OutputText(), call.CallID + " 21 degrees", "user input_text Now answer.",
		"thermometer " + call.ID + " " + call.CallID, "user input_text How warm is it?",
	}
	if all.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("the items are %q, %v, want %q", got, all.Err(), want)
	}
	kinds := ""
	input := client.Responses.InputItems.ListAutoPaging(t.Context(), second.ID, responses.InputItemListParams{Limit: openai.Int(1), Order: responses.InputItemListParamsOrderAsc})
	for input.Next() {
		kinds += input.Current().Type + " "
	}
	if input.Err() != nil || kinds != "message function_call_output " {
		t.Errorf("the input is %q, %v", kinds, input.Err())
	}
}

// TestAKillSettlesABackgroundResponseOnce kills the gateway between the submission and the end of a
// background response.
func TestAKillSettlesABackgroundResponseOnce(t *testing.T) {
	t.Parallel()
	g := storing(t)
	client := g.openaiClient()
	if _, err := client.Responses.New(t.Context(), ask("Tell me of the sea, demo:slow=3s.")); err != nil {
		t.Fatal(err)
	}
	before := g.walletAtRest("ada")
	price := nano(100_000_000_000) - before.Balance

	params := ask("Tell me of the sea, demo:slow=3s.")
	params.Background = openai.Bool(true)
	submitted, err := client.Responses.New(t.Context(), params)
	if err != nil || submitted.Status != "queued" {
		t.Fatalf("the answer is %v, %v", submitted, err)
	}
	g.kill9()
	if w := g.wallet("ada"); w.Reserved == 0 || w.Balance != before.Balance {
		t.Errorf("after the kill the wallet is %+v", w)
	}
	if w := g.walletAtRest("ada"); before.Balance-w.Balance != price {
		t.Errorf("%v was charged, want %v", before.Balance-w.Balance, price)
	}
	client = g.openaiClient() // the address is the same, the connections are not
	if got, err := client.Responses.Get(t.Context(), submitted.ID, responses.ResponseGetParams{}); err != nil || got.Status != "completed" {
		t.Errorf("Get returns %v, %v", got, err)
	}
	g.verify()
	g.kill9()
	if w := g.walletAtRest("ada"); before.Balance-w.Balance != price {
		t.Errorf("after another kill %v was charged, want %v", before.Balance-w.Balance, price)
	}
	if calls := total(g.report("ada")).Calls; calls != 2 {
		t.Errorf("%d calls are counted", calls)
	}
	g.verify()
}
