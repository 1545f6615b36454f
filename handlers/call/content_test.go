package call_test

import (
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestABrokenStreamIsChargedOnlyAfterContent(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	const chatInput = 2 // "hello"
	delta := func(members string) string {
		return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{" + members + "}}\n\n"
	}
	for name, c := range map[string]struct {
		path   string
		events []string
		cost   money.Amount
	}{
		"a start":                     {messages, messageEvents[:1], 0},
		"an empty text":               {messages, messageEvents[:3], 0},
		"an empty text, spaced":       {messages, []string{messageEvents[0], opening(`"text": "", "type": "text"`)}, 0},
		"an empty thought":            {messages, []string{messageEvents[0], opening(`"type":"thinking","thinking":"","signature":""`)}, 0},
		"empty blocks and deltas":     {messages, []string{messageEvents[0], messageEvents[1], delta(`"type":"text_delta","text":""`), messageEvents[5], messageEvents[1]}, 0},
		"a text that opens non-empty": {messages, []string{messageEvents[0], opening(`"type":"text","text":"Hello"`)}, 25 + 2*10},
		"a sealed thought":            {messages, []string{messageEvents[0], opening(`"type":"thinking","thinking":"","signature":""`), delta(`"type":"signature_delta","signature":"abc"`)}, 25 + 10},
		"a redacted thought":          {messages, []string{messageEvents[0], opening(`"type":"redacted_thinking","data":"abc"`)}, 25 + 10},
		"a tool":                      {messages, []string{messageEvents[0], opening(`"type":"tool_use","id":"a","name":"b","input":{}`)}, 25 + 10},
		"a server tool":               {messages, []string{messageEvents[0], opening(`"type":"server_tool_use","id":"a","name":"b","input":{}`)}, 25 + 10},
		"chat: a role":                {chat, chatChunks[:1], 0},
		"chat: empty content":         {chat, []string{chatChunk(`"role":"assistant"`), chatChunk(`"content":""`), chatChunk(`"content":null,"reasoning_content":""`)}, 0},
		"chat: content":               {chat, chatChunks[:2], chatInput + 2*10},
		"chat: a tool":                {chat, []string{chatChunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":""}}]`)}, chatInput + 10},
		"an empty completion":         {completions, []string{"data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":null}]}\n\n"}, 0},
	} {
		for ending, end := range map[string]http.HandlerFunc{"by a reset": gatetest.Reset, "by its end": portions()} {
			t.Run(name+" "+ending, func(t *testing.T) {
				t.Parallel()
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				model := modelName("priced " + t.Name())
				g.Backend.On(model, gatetest.Then(gatetest.Stream(c.events...), end))
				got := post(t, g, c.path, key.Secret, model, streamed)
				if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "upstream_error" || (line.Text("usage") == "none") != (c.cost == 0) {
					t.Errorf("logged %v", line)
				}
				if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
					t.Errorf("the wallet has %v, want a charge of %v", w.Balance, c.cost)
				}
			})
		}
	}
	g.Verify(t)
}
