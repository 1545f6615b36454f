package call_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// ruledPrices uses every word of the price configuration. As in prices, an input token
// costs one nano-unit and an output token ten.
const ruledPrices = `
	price ruled* {
		input 0.001
		output 0.01
		cache_read 0.0001
		audio_input 0.1
		audio_output 0.2
		context 10000
		max_output 1000
		above 200 {
			input 0.002
			output 0.02
		}
		tier flex x0.5
		tier priority {
			input 0.003
			output 0.03
		}
		tier fast x6
		geo us x1.1
		call web_search 0.000001
	}
`

// searchEvent is the event that begins a search by the backend.
const searchEvent = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"srvtoolu_1\",\"name\":\"web_search\",\"input\":{}}}\n\n"

// reporting adds members to the usage object of an answer.
func reporting(answer, more string) string {
	return strings.Replace(answer, `"usage":{`, `"usage":{`+more+`,`, 1)
}

// messageStream returns messageEvents with more usage at its start and at its end.
func messageStream(start, end string) []string {
	events := append([]string(nil), messageEvents...)
	if start != "" {
		events[0] = reporting(events[0], start)
	}
	if end != "" {
		events[6] = reporting(events[6], end)
	}
	return events
}

func TestAllReportedUsageIsCharged(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: ruledPrices, Site: gatetest.Proxied})
	const (
		compacted = `"iterations":[{"type":"compaction","input_tokens":180,"output_tokens":7},{"type":"message","input_tokens":9,"output_tokens":4}]`
		searched  = `"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}`
		declined  = `{"type":"message","role":"assistant","content":[],"stop_reason":"refusal","usage":{"input_tokens":9,"output_tokens":4}}`
	)
	plain := func(more string) http.HandlerFunc { return gatetest.JSON(200, reporting(messageAnswer, more)) }
	tiered := func(tier string, chunks ...string) []string {
		for i := range chunks {
			chunks[i] = strings.Replace(chunks[i], `"id":`, `"service_tier":"`+tier+`","id":`, 1)
		}
		return chunks
	}
	for name, c := range map[string]struct {
		path, more string
		script     http.HandlerFunc
		cost       money.Amount
		field, is  string // of the log line
	}{
		"a tier":            {messages, "", plain(`"service_tier":"priority"`), 9*3 + 4*30, "service_tier", "priority"},
		"the standard tier": {messages, "", plain(`"service_tier":"standard","inference_geo":"global"`), 49, "service_tier", ""},
		"a speed":           {messages, "", plain(`"speed":"fast"`), 49 * 6, "speed", "fast"},
		"a region":          {messages, "", plain(`"inference_geo":"us"`), 54, "inference_geo", "us"},  // 53.9
		"both":              {messages, "", plain(`"speed":"fast","inference_geo":"us"`), 324, "", ""}, // 323.4
		"an unknown tier":   {messages, "", plain(`"service_tier":"scale"`), 49 * 6, "service_tier", "scale"},
		"searches":          {messages, "", plain(searched), 49 + 2000, "", ""},
		"too many searches": {
			messages, `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3}]`,
			plain(`"server_tool_use":{"web_search_requests":300}`), 49 + 3000, "usage_cut", "true",
		},
		"searches undeclared": {messages, "", plain(`"server_tool_use":{"web_search_requests":1000000000}`), 49 + 10_000, "usage_cut", "true"},
		"searches shown": {
			messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"content":[`,
				`"content":[`+strings.Repeat(`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}},`, 2), 1)), 49 + 2000, "", "",
		},
		"text with 0 reported tokens": {
			messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"output_tokens":4`, `"output_tokens":0`, 1)), 9 + 4*10, "usage", "estimated",
		},
		"a long prompt":      {messages, "", plain(`"cache_read_input_tokens":300`), 9*2 + 30 + 4*20, "", ""},
		"a compaction":       {messages, "", plain(compacted), 49 + 180 + 70, "", ""},
		"too much":           {messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"input_tokens":9`, `"input_tokens":50000`, 1)), 10000*2 + 4*20, "", ""},
		"declined":           {messages, "", gatetest.JSON(200, declined), 0, "usage", "none"},
		"declined, thought":  {messages, "", gatetest.JSON(200, strings.Replace(declined, "[]", `[{"type":"thinking","thinking":"","signature":"abc"}]`, 1)), 49, "usage", "reported"},
		"declined, redacted": {messages, "", gatetest.JSON(200, strings.Replace(declined, "[]", `[{"type":"redacted_thinking","data":"abc"}]`, 1)), 49, "usage", "reported"},
		"declined, a tool":   {messages, "", gatetest.JSON(200, strings.Replace(declined, "[]", `[{"type":"tool_use","id":"a","name":"b","input":{}}]`, 1)), 49, "usage", "reported"},
		"declined, searched": {messages, "", gatetest.JSON(200, reporting(declined, searched)), 49 + 2000, "usage", "reported"},
		"stream, declined, searched": {messages, streamed, gatetest.Stream(
			messageEvents[0], reporting(strings.Replace(messageEvents[6], "end_turn", "refusal", 1), searched), messageEvents[7]), 25 + 150 + 2000, "usage", "reported"},
		"chat":             {chat, "", gatetest.JSON(200, strings.Replace(chatAnswer, `"id":`, `"service_tier":"flex","id":`, 1)), 25, "service_tier", "flex"}, // 24.5
		"audio":            {chat, "", gatetest.JSON(200, reporting(chatAnswer, `"prompt_tokens_details":{"audio_tokens":3},"completion_tokens_details":{"audio_tokens":2}`)), 6 + 300 + 20 + 400, "", ""},
		"stream, a tier":   {messages, streamed, gatetest.Stream(messageStream(`"service_tier":"priority"`, "")...), 25*3 + 15*30, "service_tier", "priority"},
		"stream, searches": {messages, streamed, gatetest.Stream(messageStream("", searched)...), 25 + 150 + 2000, "", ""},
		"stream, passes":   {messages, streamed, gatetest.Stream(messageStream(`"speed":"fast"`, compacted)...), 6 * (25 + 150 + 180 + 70), "", ""},
		"stream, declined": {messages, streamed, gatetest.Stream(
			messageEvents[0], strings.Replace(messageEvents[6], "end_turn", "refusal", 1), messageEvents[7]), 0, "usage", "none"},
		"stream, refused midway": {messages, streamed, gatetest.Stream(
			append(append([]string(nil), messageEvents[:6]...), strings.Replace(messageEvents[6], "end_turn", "refusal", 1), messageEvents[7])...), 25 + 150, "", ""},
		"chat stream": {chat, streamed, gatetest.Stream(append(tiered("flex", append(append([]string(nil), chatChunks...), usageChunk)...), doneChunk)...), 14, "service_tier", "flex"}, // 13.5
		"a reset": {
			messages, streamed, gatetest.Then(gatetest.Stream(messageStream(`"service_tier":"priority"`, "")[:4]...), gatetest.Reset),
			25*3 + 3*30, "service_tier", "priority",
		},
		"a reset after a search": {
			messages, streamed, gatetest.Then(gatetest.Stream(append([]string{messageEvents[0], searchEvent}, messageEvents[1:4]...)...), gatetest.Reset),
			25 + 6*10 + 1000, "", "", // the name of the tool is 10 bytes, "Hello ü" is 8
		},
		"a reset in us": {
			messages, streamed, gatetest.Then(gatetest.Stream(messageStream(`"speed":"fast","inference_geo":"us"`, "")[:4]...), gatetest.Reset),
			363, "inference_geo", "us", // (25 + 3 × 10) × 6.6
		},
		"chat, a reset": {
			chat, streamed, gatetest.Then(gatetest.Stream(tiered("flex", append([]string(nil), chatChunks[:2]...)...)...), gatetest.Reset),
			(2 + 2*10) / 2, "service_tier", "flex",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := modelName("ruled " + name)
			g.Backend.On(model, c.script)
			got := post(t, g, c.path, key.Secret, model, c.more)
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v\n%s", w.Balance, c.cost, got.Body)
			}
			// The record of the call contains the breakdown of the same cost.
			var shown struct {
				Cost      money.Amount
				Breakdown *struct{ Total money.Amount }
			}
			gatetest.Eventually(t, "the record of the call", func() (body []byte, ok bool) {
				status, body := g.Admin(t, http.MethodGet, "/modelgate/calls/"+got.RequestID(), nil)
				return body, status == http.StatusOK && json.Unmarshal(body, &shown) == nil
			})
			if shown.Cost != c.cost || (shown.Breakdown == nil) != (c.cost == 0) || c.cost > 0 && c.field != "usage_cut" && shown.Breakdown.Total != c.cost {
				t.Errorf("the record is %+v, %+v", shown, shown.Breakdown)
			}
			line := g.CallLine(t, got.RequestID())
			value := line.Text(c.field)
			if cut, ok := line[c.field].(bool); ok {
				value = strconv.FormatBool(cut)
			}
			if line.Text("cost") != c.cost.String() || c.field != "" && value != c.is {
				t.Errorf("logged %v, want a cost of %v, and %s %q", line, c.cost, c.field, c.is)
			}
			g.Verify(t)
		})
	}
}

func TestTheMostExpensivePossibleTierIsReserved(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: ruledPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	// At its normal price the call costs at most about 700 nano-units. The most expensive tier in
	// the most expensive region costs 6.6 times as much.
	g.Credit(t, key.UserID, "0.000001")
	if got := post(t, g, messages, key.Secret, "ruled", ""); got.Status != http.StatusPaymentRequired {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if len(g.Backend.Seen("ruled")) != 0 {
		t.Error("the backend received the call")
	}
	g.Credit(t, key.UserID, "0.000005")
	g.Backend.On("ruled", gatetest.JSON(200, messageAnswer))
	if got := post(t, g, messages, key.Secret, "ruled", ""); got.Status != http.StatusOK {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}

func TestAnOptionWithoutAPriceIsRefused(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: ruledPrices + prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for name, c := range map[string]struct {
		path, more, param string // empty param: the call is accepted
	}{
		"a tier":           {messages, `,"service_tier":"batch"`, "service_tier"},
		"a tier of chat":   {chat, `,"service_tier":"scale"`, "service_tier"},
		"the usual tier":   {messages, `,"service_tier":"standard_only","speed":"standard","inference_geo":"global"`, ""},
		"a listed tier":    {chat, `,"service_tier":"flex"`, ""},
		"a speed":          {messages, `,"speed":"warp"`, "speed"},
		"a listed speed":   {messages, `,"speed":"fast"`, ""},
		"a region":         {messages, `,"inference_geo":"eu"`, "inference_geo"},
		"a listed region":  {messages, `,"inference_geo":"us"`, ""},
		"a tool":           {messages, `,"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`, "tools[0].type"},
		"a listed tool":    {messages, `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]`, ""},
		"a custom tool":    {messages, `,"tools":[{"name":"web_search","input_schema":{}}]`, ""},
		"a search in chat": {chat, `,"web_search_options":{}`, ""},
		"audio":            {chat, `,"modalities":["text","audio"],"audio":{"voice":"a","format":"wav"}`, ""},
		"images":           {chat, `,"modalities":["text","image"]`, "modalities"},
		"an advisor":       {messages, `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"ruled advisor","max_uses":1}]`, ""},
		"a fallback":       {messages, `,"speed":"fast","fallbacks":[{"model":"priced"}]`, "speed"},
		"no output":        {messages, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := modelName("ruled option " + name)
			answer := messageAnswer
			if c.path == chat {
				answer = chatAnswer
			}
			g.Backend.On(model, gatetest.JSON(200, answer))
			got := post(t, g, c.path, key.Secret, model, c.more)
			if c.param == "" {
				if got.Status != http.StatusOK {
					t.Errorf("answered %d %s", got.Status, got.Body)
				}
				return
			}
			line := g.CallLine(t, got.RequestID())
			if got.Status != http.StatusBadRequest || line.Text("code") != "UNPRICED_OPTION" || !strings.Contains(got.Body, c.param) || len(g.Backend.Seen(model)) != 0 {
				t.Errorf("answered %d %s, logged %v", got.Status, got.Body, line)
			}
		})
	}
}

func TestNamedModelsAreChargedAtTheirOwnPrices(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: ruledPrices + prices, Site: gatetest.Proxied})
	const (
		advisor  = `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"priced-sage","max_uses":1}]`
		fallback = `,"fallbacks":[{"model":"priced-2"}]`
	)
	served := strings.Replace(messageAnswer, `"id":`, `"model":"priced-2-20260101","id":`, 1)
	for name, c := range map[string]struct {
		more, answer string
		cost         money.Amount
	}{
		"an advisor": {
			advisor, reporting(messageAnswer, `"iterations":[{"type":"message","input_tokens":9,"output_tokens":4},`+
				`{"type":"advisor_message","model":"priced-sage","input_tokens":300,"output_tokens":5}],"speed":"fast"`), 49*6 + 300 + 50,
		},
		"a fallback":             {fallback, served, 49},
		"a fallback by its pass": {fallback, reporting(messageAnswer, `"iterations":[{"type":"message","input_tokens":9},{"type":"fallback_message","model":"priced-2","input_tokens":9,"output_tokens":4}],"speed":"fast"`), 49},
		"none":                   {fallback, reporting(messageAnswer, `"speed":"fast"`), 49 * 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := modelName("ruled models " + name)
			g.Backend.On(model, gatetest.JSON(200, c.answer))
			got := post(t, g, messages, key.Secret, model, c.more)
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v\n%s", w.Balance, c.cost, got.Body)
			}
			g.Verify(t)
		})
	}
}

func TestTheRefusalOfAudioNamesItsMember(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for param, body := range map[string]string{
		"modalities": bodyFor(chat, "priced", `,"modalities":["text","audio"],"audio":{"voice":"a","format":"wav"}`),
		"audio":      bodyFor(chat, "priced", `,"audio":{"voice":"a","format":"wav"}`),
		"messages":   `{"model":"priced","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}]}]}`,
	} {
		got := g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret), body)
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `"param":"`+param+`"`) || !strings.Contains(got.Body, "`"+param+"`: audio") ||
			!strings.Contains(got.Body, "allowed: text") || !strings.Contains(got.Body, "audio_output") {
			t.Errorf("%s: answered %d %s", param, got.Status, got.Body)
		}
	}
}

func TestTheScopeOfAnAsteriskAllowsEveryModel(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "price llama:* {\nrequest 0.01\n}\nunpriced allow", Site: gatetest.Proxied})
	key, narrow := g.NewKey(t, map[string]any{"models": []string{"*"}}), g.NewKey(t, map[string]any{"models": []string{"llama*"}})
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("llama:8b", gatetest.JSON(200, chatAnswer))
	if got := post(t, g, chat, key.Secret, "llama:8b", ""); got.Status != http.StatusOK {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if got := post(t, g, chat, narrow.Secret, "llama:8b", ""); got.Status != http.StatusForbidden {
		t.Errorf("another pattern: answered %d %s", got.Status, got.Body)
	}
}
