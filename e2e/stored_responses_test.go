package e2e

import (
	"net/http"
	"net/http/httptest"
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
