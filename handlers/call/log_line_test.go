package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// reported is a call with its answer, its cost at prices, and the basis of the charge.
type reported struct {
	path, more string
	script     http.HandlerFunc
	cost       money.Amount
	basis      string
}

// charges makes each call and checks its charge.
func charges(t *testing.T, g *gatetest.Gate, calls map[string]reported) {
	t.Helper()
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := modelName("priced " + t.Name())
			g.Backend.On(model, c.script)
			got := post(t, g, c.path, key.Secret, model, c.more)
			if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "complete" || line.Text("usage") != c.basis {
				t.Errorf("logged %v, want %s", line, c.basis)
			}
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v\n%s", w.Balance, c.cost, got.Body)
			}
		})
	}
}

func TestReportedNumbersMayBeFloatsOrStrings(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	calls := make(map[string]reported)
	for number, tokens := range map[string]money.Amount{
		"20": 20, "20.0": 20, "2e1": 20, "2E+1": 20, "200e-1": 20, "0.2e2": 20, `"20"`: 20, "19.5": 20, "19.0000001": 20, "1e300": 64, "0.0": 4,
	} {
		calls["messages "+number] = reported{
			messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"output_tokens":4`, `"output_tokens":`+number, 1)), 9 + 10*tokens,
			map[bool]string{true: "estimated", false: "reported"}[number == "0.0"], // a report of 0 tokens for a text of 11 bytes is replaced
		}
		if number != "1e300" {
			calls["a chat stream "+number] = reported{
				chat, streamed, gatetest.Stream(append(chatChunks, strings.Replace(usageChunk, `"completion_tokens":2`, `"completion_tokens":`+number, 1), doneChunk)...),
				7 + 10*map[bool]money.Amount{true: 2, false: tokens}[number == "0.0"], map[bool]string{true: "estimated", false: "reported"}[number == "0.0"],
			}
		}
	}
	for _, number := range []string{"-20", "null", "true", `"20.0"`, `" 20"`, `"many"`, `""`, "[20]", "{}"} {
		calls["invalid "+number] = reported{messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"output_tokens":4`, `"output_tokens":`+number, 1)), 9 + 10*4, "estimated"}
	}
	charges(t, g, calls)
}

// TestEscapesInTheNamesOfAnAnswerHideNothing has answers whose text is 12 bytes, of which a report counts 20
// tokens.
func TestEscapesInTheNamesOfAnAnswerHideNothing(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	escape := strings.NewReplacer(`"usage"`, `"\u0075sage"`, `"choices"`, `"ch\u006Fices"`, `"message"`, `"mess\u0061ge"`, `"content"`, `"conten\u0074"`, `"finish_reason"`, `"finish\u005freason"`,
		`"prompt_tokens"`, `"prompt_token\u0073"`, `"completion_tokens"`, `"\u0063ompletion_tokens"`, `"delta"`, `"delt\u0061"`, `"type":"text"`, `"typ\u0065":"t\u0065xt"`, `"text":`, `"t\u0065xt":`,
		`"input_tokens"`, `"\u0069nput_tokens"`, `"output_tokens"`, `"outpu\u0074_tokens"`, `message_start"`, `message_st\u0061rt"`, `message_stop"`, `message\u005fstop"`).Replace
	const choice = `{"choices":[{"index":0,"message":{"content":"Hello there!"},"finish_reason":"stop"}]`
	const chunk = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello there!\"},\"finish_reason\":\"stop\"}]}\n\n"
	report := strings.Replace(usageChunk, `"completion_tokens":2`, `"completion_tokens":20`, 1)
	charges(t, g, map[string]reported{
		"messages":                {messages, "", gatetest.JSON(200, escape(messageAnswer)), 9 + 40, "reported"},
		"a messages stream":       {messages, streamed, gatetest.Stream(escape(strings.Join(messageEvents, ""))), 25 + 150, "reported"},
		"chat":                    {chat, "", gatetest.JSON(200, escape(choice+`,"usage":{"prompt_tokens":7,"completion_tokens":20}}`)), 7 + 200, "reported"},
		"a chat stream":           {chat, streamed, gatetest.Stream(escape(chunk), escape(report), doneChunk), 7 + 200, "reported"},
		"chat without a report":   {chat, "", gatetest.JSON(200, escape(choice+"}")), 2 + 40, "estimated"},
		"stream without a report": {chat, streamed, gatetest.Stream(escape(chunk), doneChunk), 2 + 40, "estimated"},
	})
}

func TestReasoningReportedOnlyInTheTotalIsCharged(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	calls := make(map[string]reported)
	for name, c := range map[string]struct {
		numbers string
		tokens  money.Amount
	}{
		"no reasoning":                     {`"completion_tokens":2,"total_tokens":9`, 2},
		"reasoning included":               {`"completion_tokens":20,"total_tokens":27,"completion_tokens_details":{"reasoning_tokens":10}`, 20},
		"reasoning included, wrong total":  {`"completion_tokens":20,"total_tokens":28,"completion_tokens_details":{"reasoning_tokens":10}`, 20},
		"reasoning added":                  {`"completion_tokens":2,"total_tokens":29,"completion_tokens_details":{"reasoning_tokens":20}`, 22},
		"reasoning added to a longer text": {`"completion_tokens":20,"total_tokens":37,"completion_tokens_details":{"reasoning_tokens":10}`, 30},
		"reasoning added, after the total": {`"total_tokens":29,"completion_tokens_details":{"reasoning_tokens":20},"completion_tokens":2`, 22},
		"reasoning only in the total":      {`"completion_tokens":2,"total_tokens":29`, 22},
		"a total above the limit":          {`"completion_tokens":2,"total_tokens":9e300`, 1000},
		"a negative total":                 {`"completion_tokens":2,"total_tokens":-1`, 2},
		"a total below its parts":          {`"completion_tokens":2,"total_tokens":5`, 2},
	} {
		report := strings.Replace(usageChunk, `"completion_tokens":2,"total_tokens":9`, c.numbers, 1)
		calls[name] = reported{chat, streamed, gatetest.Stream(append(chatChunks, report, doneChunk)...), 7 + 10*c.tokens, "reported"}
	}
	charges(t, g, calls)
}

func TestUnreadableAnswersAreEstimatedByTheirBytes(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	encoded := func(encoding, contentType string, length int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			gatetest.Body(http.StatusOK, contentType, strings.Repeat("\x1b", length))(w, r)
		}
	}
	const asked = 2 // input tokens of the question
	charges(t, g, map[string]reported{
		"an unknown encoding":             {chat, "", encoded("br", "application/json", 100), asked + 10*34, "estimated"},
		"an unknown encoding of a stream": {messages, streamed, encoded("br", "text/event-stream", 100), asked + 10*34, "estimated"},
		"not gzip":                        {chat, "", encoded("gzip", "application/json", 100), asked + 10*34, "estimated"},
		"more than max_output":            {chat, "", encoded("br", "application/json", 9000), asked + 10*1000, "estimated"},
		"nothing":                         {chat, "", encoded("br", "application/json", 0), 0, "none"},
	})
}

func TestALowerReportDoesNotReduceTheCharge(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	chunk := func(usage string) string {
		return strings.Replace(chatChunk(""), `"choices"`, `"usage":{`+usage+`},"choices"`, 1)
	}
	stream := func(first string, reports ...string) http.HandlerFunc {
		events := append([]string{strings.Replace(messageEvents[0], `"input_tokens":25,"output_tokens":1`, first, 1)}, messageEvents[1:6]...)
		for _, report := range reports {
			events = append(events, strings.Replace(messageEvents[6], `"output_tokens":15`, report, 1))
		}
		return gatetest.Stream(append(events, messageEvents[7])...)
	}
	charges(t, g, map[string]reported{
		"less input":                    {messages, streamed, stream(`"input_tokens":25,"output_tokens":1`, `"input_tokens":0,"output_tokens":15`), 25 + 150, "reported"},
		"less output":                   {messages, streamed, stream(`"input_tokens":25`, `"output_tokens":15`, `"output_tokens":3`), 25 + 150, "reported"},
		"less from the cache":           {messages, streamed, stream(`"input_tokens":25,"cache_read_input_tokens":100`, `"input_tokens":20,"cache_read_input_tokens":0,"output_tokens":15`), 25 + 10 + 150, "reported"},
		"more":                          {messages, streamed, stream(`"input_tokens":25`, `"input_tokens":40,"output_tokens":3`, `"output_tokens":15`), 40 + 150, "reported"},
		"the same amount from a cache":  {messages, streamed, stream(`"input_tokens":100`, `"input_tokens":0,"cache_read_input_tokens":100,"output_tokens":15`), 10 + 150, "reported"},
		"chat chunks":                   {chat, streamed, gatetest.Stream(append(chatChunks, chunk(`"prompt_tokens":7,"completion_tokens":9`), chunk(`"prompt_tokens":3,"completion_tokens":2`), doneChunk)...), 7 + 90, "reported"},
		"chat, cache in the last chunk": {chat, streamed, gatetest.Stream(append(chatChunks, chunk(`"prompt_tokens":100,"completion_tokens":2`), chunk(`"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens":2`), doneChunk)...), 40 + 6 + 20, "reported"},
	})
}

func TestOutputReportedBeforeTheContentIsIgnored(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	early := func(n int) string {
		return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d}}\n\n", n)
	}
	together := strings.Replace(chatChunks[1], `"choices"`, `"usage":{"prompt_tokens":7,"completion_tokens":1},"choices"`, 1)
	tool := []string{
		messageEvents[0], opening(`"type":"tool_use","id":"a","name":"get_weather","input":{}`), messageEvents[5],
		strings.Replace(messageEvents[6], `"output_tokens":15`, `"output_tokens":0`, 1), messageEvents[7],
	}
	charges(t, g, map[string]reported{
		"none":                   {chat, streamed, gatetest.Stream(early(0), chatChunks[1], chatChunks[2], doneChunk), 7 + 20, "estimated"},
		"less":                   {chat, streamed, gatetest.Stream(early(1), chatChunks[1], chatChunks[2], doneChunk), 7 + 20, "estimated"},
		"more":                   {chat, streamed, gatetest.Stream(early(9), chatChunks[1], chatChunks[2], doneChunk), 7 + 90, "estimated"},
		"in the chunk":           {chat, streamed, gatetest.Stream(together, chatChunks[2], doneChunk), 7 + 10, "reported"},
		"at the end":             {chat, streamed, gatetest.Stream(early(0), chatChunks[1], chatChunks[2], usageChunk, doneChunk), 7 + 20, "reported"},
		"a tool without a count": {messages, streamed, gatetest.Stream(tool...), 25 + 4*10, "estimated"},
		"a tool in chat": {
			chat, streamed, gatetest.Stream(early(0), chatChunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"get_weather","arguments":"{}"}}]`), chatChunks[2], doneChunk),
			7 + 5*10, "estimated",
		},
		"a tool in JSON": {
			messages, "", gatetest.JSON(200, `{"type":"message","content":[{"type":"tool_use","id":"a","name":"get_weather","input":{}}],"usage":{"input_tokens":9,"output_tokens":0}}`),
			9 + 4*10, "estimated",
		},
	})
}

func TestAStreamWithAnotherMediaTypeIsReadAsAStream(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	chatStream := strings.Join(chatChunks, "") + usageChunk + doneChunk
	trimmed := strings.Join(chatChunks, "") + doneChunk
	as := func(media string, seed uint64, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			for _, portion := range cuts(text, seed) {
				gatetest.Send(w, portion)
			}
		}
	}
	messagesStream := strings.Join(messageEvents, "")
	for _, media := range []string{"application/json", "text/plain; charset=utf-8", "application/octet-stream"} {
		for name, c := range map[string]struct {
			path, more string
			script     http.HandlerFunc
			body       string
			cost       money.Amount
		}{
			"messages":               {messages, streamed, as(media, 1, messagesStream), messagesStream, 25 + 150},
			"messages cut otherwise": {messages, streamed, as(media, 7, messagesStream), messagesStream, 25 + 150},
			"with its length":        {messages, streamed, gatetest.Body(200, media, messagesStream), messagesStream, 25 + 150},
			"not requested":          {messages, "", as(media, 2, messagesStream), messagesStream, 25 + 150},
			"chat":                   {chat, streamed, as(media, 3, chatStream), trimmed, 7 + 20},
			"chat after lines":       {chat, streamed, as(media, 4, "\n\n: waiting\n\n"+chatStream), "\n\n: waiting\n\n" + trimmed, 7 + 20},
			"chat with its length":   {chat, streamed, gatetest.Body(200, media, chatStream), chatStream, 7 + 20},
			"JSON":                   {chat, streamed, as("application/json", 5, chatAnswer), chatAnswer, 9 + 40},
			"JSON after lines":       {chat, streamed, as("application/json", 6, "\n\n \n"+chatAnswer), "\n\n \n" + chatAnswer, 9 + 40},
		} {
			t.Run(name+" as "+media, func(t *testing.T) {
				t.Parallel()
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				model := modelName("priced " + t.Name())
				g.Backend.On(model, c.script)
				got := post(t, g, c.path, key.Secret, model, c.more)
				if got.Body != c.body || got.Err != nil {
					t.Errorf("the caller got (%v)\n%q, want\n%q", got.Err, got.Body, c.body)
				}
				if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "complete" || line.Text("usage") != "reported" {
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

func TestABrokenStreamWithAnotherMediaTypeIsIncomplete(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for name, c := range map[string]struct {
		events []string
		cost   string
	}{"before content": {messageEvents[:1], "0.00"}, "in content": {messageEvents[:4], "0.000000055"}} {
		model := "priced " + name
		g.Backend.On(model, gatetest.Then(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/plain") }, portions(c.events...)))
		got := post(t, g, messages, key.Secret, model, streamed)
		if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "upstream_error" || line.Text("cost") != c.cost {
			t.Errorf("%s: logged %v, want %s", name, line, c.cost)
		}
		if want := strings.Join(c.events, "") + errorEvent(messages, "overloaded_error", "", incomplete, got.RequestID()); got.Body != want {
			t.Errorf("%s: the caller got\n%s", name, got.Body)
		}
	}
}
