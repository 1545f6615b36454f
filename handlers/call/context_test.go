package call_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// claims returns a messages answer that reports these tokens, with the usage members of more.
func claims(input, output int, more string) http.HandlerFunc {
	return gatetest.JSON(200, reporting(fmt.Sprintf(
		`{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":%d,"output_tokens":%d}}`, input, output), `"x":0`+more))
}

func TestAPromptLongerThanTheContextIsChargedInFull(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	long := strings.Repeat("word ", 12_000)
	for name, c := range map[string]struct {
		path, body string
		answer     http.HandlerFunc
		input      money.Amount // charged
	}{
		"messages":   {messages, `"max_tokens":15,"messages":[{"role":"user","content":"` + long + `"}]`, claims(18_000, 1, ""), 18_000},
		"a document": {messages, `"max_tokens":15,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + long + `"}}]}]`, claims(18_000, 1, ""), 18_000},
		"a stream":   {messages, `"max_tokens":15,"stream":true,"messages":[{"role":"user","content":"` + long + `"}]`, gatetest.Stream(messageStream("", `"input_tokens":18000`)...), 18_000},
		"chat":       {chat, `"max_tokens":15,"messages":[{"role":"user","content":"` + long + `"}]`, gatetest.JSON(200, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":18000,"completion_tokens":1}}`), 18_000},
		"a prompt":   {completions, `"max_tokens":15,"prompt":"` + long + `"`, gatetest.JSON(200, `{"choices":[{"text":"x"}],"usage":{"prompt_tokens":18000,"completion_tokens":1}}`), 18_000},
		"cached":     {messages, `"max_tokens":15,"messages":[{"role":"user","content":"` + long + `"}]`, claims(2_000, 1, `,"cache_read_input_tokens":10000,"cache_creation_input_tokens":6000`), 2_000 + 1_000 + 6_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := "priced " + name
			body := fmt.Sprintf(`{"model":%q,%s}`, model, c.body)
			g.Backend.On(model, c.answer)
			reserved := money.Amount((len(body)+2)/3 + 15*10)
			almostFunded := g.NewKey(t, nil)
			g.Credit(t, almostFunded.UserID, (reserved - 1).String())
			if got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, almostFunded.Secret), body); got.Status != http.StatusPaymentRequired {
				t.Errorf("with less than is reserved: answered %d %s", got.Status, got.Body)
			}
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, reserved.String())
			got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret)+"Anthropic-Beta: context-1m-2025-08-07\n", body)
			line := g.CallLine(t, got.RequestID())
			if line["usage_cut"] != nil || line.Text("uncollected") != "" || got.Status != http.StatusOK {
				t.Errorf("answered %d, logged %v", got.Status, line)
			}
			if charged := amount(t, line.Text("cost")); charged < c.input+10 || charged > c.input+15*10 {
				t.Errorf("charged %v, want %v and the output", charged, c.input)
			}
			g.WalletAtRest(t, key.UserID)
			g.Verify(t)
		})
	}
}

func TestAPromptOfMoreTokensThanTheContextIsRefused(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices + "unpriced allow", Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	tokens := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1, ", n), ", ") + "]" }
	for name, c := range map[string]struct {
		prompt, param string // empty param: the call is accepted
		tokens        int
	}{
		"as many as fit":         {tokens(10_000), "", 0},
		"one more":               {tokens(10_001), "prompt", 10_001},
		"each fits":              {"[" + tokens(9_000) + ", " + tokens(9_000) + "]", "", 0},
		"one does not":           {"[" + tokens(1) + ",[],\n" + tokens(10_002) + "]", "prompt[2]", 10_002},
		"only the last does not": {"[" + tokens(10_000) + "," + tokens(10_000) + "," + tokens(10_001) + "]", "prompt[2]", 10_001},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := "priced " + name
			g.Backend.On(model, gatetest.JSON(200, `{"choices":[{"text":"x"}],"usage":{"prompt_tokens":10000,"completion_tokens":1}}`))
			ask := func(model string) gatetest.Answer {
				return g.Do(t, http.MethodPost, completions, headersFor(completions, key.Secret), fmt.Sprintf(`{"model":%q,"max_tokens":10,"prompt":%s}`, model, c.prompt))
			}
			got := ask(model)
			if c.param == "" {
				if line := g.CallLine(t, got.RequestID()); got.Status != http.StatusOK || line.Text("cost") != (money.Amount(10_010)).String() {
					t.Errorf("answered %d %s", got.Status, got.Body)
				}
				return
			}
			var refused struct {
				Error struct{ Code, Param, Message string }
			}
			if err := json.Unmarshal([]byte(got.Body), &refused); err != nil {
				t.Fatal(err)
			}
			if got.Status != http.StatusBadRequest || refused.Error.Code != "INVALID_PARAMETER" || refused.Error.Param != c.param ||
				!strings.Contains(refused.Error.Message, fmt.Sprint(c.tokens)) || !strings.Contains(refused.Error.Message, "10000") {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
			if len(g.Backend.Seen(model)) != 0 {
				t.Error("the backend received the call")
			}
			free := "free " + name
			g.Backend.On(free, gatetest.JSON(200, `{"choices":[{"text":"x"}]}`))
			if got := ask(free); got.Status != http.StatusOK {
				t.Errorf("a model without a price: answered %d %s", got.Status, got.Body)
			}
		})
	}
}

// scale makes prices so high that a few thousand tokens cost more than may stay uncollected
// per user.
const scale = 100_000

// scaled multiplies each price of a configuration by scale.
func scaled(config string) string {
	return regexp.MustCompile(` \d+\.\d+`).ReplaceAllStringFunc(config, func(price string) string {
		amount, err := money.Parse(price[1:])
		if err != nil {
			panic(err)
		}
		return " " + (amount * scale).String()
	})
}

func TestUsageBeyondTheBoundsIsUncollected(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: scaled(ruledPrices + prices + `
		price written* {
			input 0.001
			cache_write 0.002
			cache_write_1h 0.004
			output 0.01
			context 10000
			max_output 1000
		}
	`), Site: gatetest.Proxied})
	const (
		searches = `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3}]`
		advisor  = `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"priced-sage","max_uses":1}]`
	)
	pass := `{"type":"advisor_message","model":"priced-sage","input_tokens":300,"output_tokens":5}`
	for name, c := range map[string]struct {
		model, more string
		answer      http.HandlerFunc
		cost, lost  money.Amount
	}{
		"nothing":                  {"priced", "", claims(9, 4, ""), 49, 0},
		"input":                    {"priced", "", claims(30_000, 4, ""), 10_040, 20_000},
		"output above max_tokens":  {"priced", "", claims(9, 500, ""), 649, 4_360},
		"both":                     {"priced", "", claims(30_000, 500, ""), 10_640, 24_360},
		"cached input":             {"priced", "", claims(0, 4, `,"cache_read_input_tokens":30000`), 1_040, 2_000},
		"input written to a cache": {"written", "", claims(0, 4, `,"cache_creation_input_tokens":30000,"cache_creation":{"ephemeral_1h_input_tokens":30000}`), 40_040, 80_000},
		"the most expensive kinds": {"written", "", claims(9_000, 4, `,"cache_creation_input_tokens":3000`), 9_000 + 2_000 + 40, 4_000},
		"searches":                 {"ruled", searches, claims(9, 4, `,"server_tool_use":{"web_search_requests":5}`), 49 + 3_000, 2_000},
		"searches undeclared":      {"ruled", "", claims(9, 4, `,"server_tool_use":{"web_search_requests":12}`), 49 + 10_000, 2_000},
		"an advisor":               {"ruled", advisor, claims(9, 4, `,"iterations":[{"type":"message","input_tokens":9,"output_tokens":4},`+pass+","+pass+","+pass+`]`), 49 + 350, 700},
		"beyond a threshold":       {"ruled", "", claims(30_000, 4, ""), 20_000 + 80, 40_000},
		"a huge number":            {"priced", "", claims(9, 1<<53, ""), 649, 10 * (10_000 + 640)}, // at most ten times the bound
		"a stream": {
			"priced", streamed, gatetest.Stream(messageStream("", `"input_tokens":30000`)...), 10_000 + 150, 20_000,
		},
		"a stream that broke off": {
			"priced", streamed, gatetest.Then(gatetest.Stream(append([]string{strings.Replace(messageEvents[0], `"input_tokens":25`, `"input_tokens":30000`, 1)}, messageEvents[1:4]...)...), gatetest.Reset),
			10_000 + 30, 20_000 - 20, // the delivered text is charged, which is more than the one token that was reported
		},
		"an estimate": { // an estimate that is cut does not count as a report
			"priced", "", gatetest.JSON(200, `{"type":"message","content":[{"type":"text","text":"`+strings.Repeat("x", 3000)+`"}]}`), 2 + 640, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cost, c.lost = c.cost*scale, c.lost*scale
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1000.00")
			model := c.model + " " + name
			g.Backend.On(model, c.answer)
			got := post(t, g, messages, key.Secret, model, c.more)
			line := g.CallLine(t, got.RequestID())
			want := ""
			if c.lost > 0 {
				want = c.lost.String()
			}
			if line.Text("cost") != c.cost.String() || line.Text("uncollected") != want || (line["usage_cut"] == true) != (c.lost > 0 || name == "an estimate") {
				t.Errorf("logged %v, want %v, and %v uncollected", line, c.cost, c.lost)
			}
			if w := g.WalletAtRest(t, key.UserID); w.Balance != 1000*money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v", w.Balance, c.cost)
			}
			_, status := g.Admin(t, http.MethodGet, "/modelgate/usage?user="+key.UserID, nil)
			if (c.lost > 0) != strings.Contains(string(status), `"uncollected":"`+c.lost.String()+`"`) {
				t.Errorf("the usage record is %s, want %v uncollected", status, c.lost)
			}
			_, status = g.Admin(t, http.MethodGet, "/modelgate/status", nil)
			post(t, g, messages, key.Secret, model, c.more) // restricted, if an amount was uncollected
			if _, status = g.Admin(t, http.MethodGet, "/modelgate/status", nil); strings.Contains(string(status), key.UserID) != (c.lost > 0) {
				t.Errorf("the status is %s", status)
			}
			g.WalletAtRest(t, key.UserID)
			g.Verify(t)
		})
	}
}

func TestManyCompactionsAreChargedWithinTheReservation(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	passes := `,"iterations":[` + strings.Repeat(`{"type":"compaction","input_tokens":9000,"output_tokens":60},`, 5) + `{"type":"message","input_tokens":9,"output_tokens":4}]`
	for name, c := range map[string]struct {
		more     string
		reserved money.Amount
	}{
		"requested":   {`,"context_management":{"edits":[{"type":"compact_20260112"}]}`, 2*10_000 + 2*640},
		"unrequested": {``, 10_000 + 640}, // the reported input grows the reservation
	} {
		for _, stream := range []string{"", streamed} {
			t.Run(name+stream[:min(len(stream), 1)], func(t *testing.T) {
				t.Parallel()
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				model := "priced compact " + itoa(len(name)+len(stream))
				g.Backend.On(model, claims(9, 4, passes))
				if stream != "" {
					g.Backend.On(model, gatetest.Stream(messageStream("", `"input_tokens":9,"x":0`+passes)...))
				}
				got := post(t, g, messages, key.Secret, model, stream+c.more)
				if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.reserved {
					t.Errorf("the wallet has %v, want a charge of %v, which is its bound", w.Balance, c.reserved)
				}
				if line := g.CallLine(t, got.RequestID()); line["usage_cut"] != true || line.Text("uncollected") == "" {
					t.Errorf("logged %v", line)
				}
				g.Verify(t)
			})
		}
	}
}
