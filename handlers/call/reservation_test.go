package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// mediaPrices is a price with a context of 200,000 tokens. An input token costs one nano-unit.
const mediaPrices = `
	price media* {
		input 0.001
		output 0.01
		audio_input 0.001
		context 200000
		max_output 1000
	}
`

// parts returns a valid body with one message that has the parts in list.
func parts(model, list string) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":10,"messages":[{"role":"user","content":[%s]}]}`, model, list)
}

// reserves checks the amount that a body reserves. The call is served with exactly that
// amount in the wallet, and refused with 10⁻⁹ less.
func reserves(t *testing.T, g *gatetest.Gate, path, model, body string, most money.Amount) {
	t.Helper()
	g.Backend.On(model, gatetest.JSON(200, `{"usage":{"input_tokens":1,"output_tokens":0,"prompt_tokens":1,"completion_tokens":0}}`))
	for _, c := range []struct {
		has    money.Amount
		status int
	}{{most - 1, http.StatusPaymentRequired}, {most, http.StatusOK}} {
		key := g.NewKey(t, nil)
		g.Credit(t, key.UserID, c.has.String())
		if got := g.Do(t, http.MethodPost, path, headersFor(path, key.Secret), body); got.Status != c.status {
			t.Errorf("with %v: answered %d, want %d: %s", c.has, got.Status, c.status, got.Body)
		}
	}
}

func TestAnUnboundedBodyReservesTheWholeContext(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices + "state shared", Site: gatetest.Proxied})
	third := func(body string, without int) money.Amount { return money.Amount((len(body) - without + 2) / 3) }
	const output = 10 * 10
	pixels := strings.Repeat("A", 3000)
	for name, c := range map[string]struct {
		path, list string
		input      func(body string) money.Amount
	}{
		"text":            {messages, `{"type":"text","text":"x"}`, func(b string) money.Amount { return third(b, 0) }},
		"a link":          {messages, `{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}`, nil},
		"a file":          {messages, `{"type":"document","source":{"type":"file","file_id":"file_1"}}`, nil},
		"a link in chat":  {chat, `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`, nil},
		"a file in chat":  {chat, `{"type":"file","file":{"file_id":"file-1"}}`, nil},
		"an unknown part": {chat, `{"type":"hologram","x":1}`, nil},
		"a PDF":           {messages, `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}`, nil},
		"an inline image": {
			messages, `{"type":"image","source":{"data":"` + pixels + `","type":"base64","media_type":"image/png"}}`,
			func(b string) money.Amount { return third(b, 3002) + 50_000 },
		},
		"two images in chat": {
			chat, strings.Repeat(`{"type":"image_url","image_url":{"url":"data:image/png;base64,`+pixels+`"}},`, 2) + `{"type":"text","text":"x"}`,
			func(b string) money.Amount { return third(b, 2*3024) + 100_000 },
		},
		"inline audio": {
			chat, `{"type":"input_audio","input_audio":{"data":"` + pixels + `","format":"wav"}}`,
			func(b string) money.Amount { return third(b, 3002) + 3002/16 + 1 },
		},
		"a text document": {
			messages, `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + pixels + `"}}`,
			func(b string) money.Amount { return third(b, 0) },
		},
		"a link in a tool's result": {
			messages, `{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := modelName("media " + name)
			body := parts(model, c.list)
			input := money.Amount(200_000)
			if c.input != nil {
				input = c.input(body)
			}
			reserves(t, g, c.path, model, body, input+output)
		})
	}
}

func TestMediaOutsideTheContentReserveTheSame(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	third := func(body string, without int) money.Amount { return money.Amount((len(body) - without + 2) / 3) }
	pixels := strings.Repeat("A", 3000)
	whole := func(string) money.Amount { return 200_000 }
	for name, c := range map[string]struct {
		member string
		input  func(body string) money.Amount
	}{
		"links":                   {`"images":["https://example.com/a.png"]`, whole},
		"images":                  {`"images":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]`, whole},
		"images in Base64":        {`"images":["` + pixels + `"]`, whole},
		"no images":               {`"images":[]`, func(b string) money.Amount { return third(b, 0) }},
		"a null":                  {`"images":null,"file":null`, func(b string) money.Amount { return third(b, 0) }},
		"a link":                  {`"image_url":{"url":"https://example.com/a.png"}`, whole},
		"a link as a string":      {`"image":"https://example.com/a.png"`, whole},
		"an inline image":         {`"image_url":{"url":"data:image/png;base64,` + pixels + `"}`, func(b string) money.Amount { return third(b, 3024) + 50_000 }},
		"a video":                 {`"Video_URL":"https://example.com/a.mp4"`, whole},
		"a file":                  {`"file":{"file_data":"data:application/pdf;base64,AAAA"}`, whole},
		"files":                   {`"files":[{"url":"https://example.com/a.pdf"}]`, whole},
		"a link to audio":         {`"audio":{"url":"https://example.com/a.mp3"}`, whole},
		"inline audio":            {`"audio":{"data":"` + pixels + `"}`, func(b string) money.Amount { return third(b, 3002) + 3002/16 + 1 }},
		"the arguments of a tool": {`"tool_calls":[{"function":{"name":"f","arguments":"https://example.com/a.png"}}]`, func(b string) money.Amount { return third(b, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := modelName("media " + name)
			body := fmt.Sprintf(`{"model":%q,"max_tokens":10,"messages":[{"role":"user","content":"x",%s}]}`, model, c.member)
			reserves(t, g, chat, model, body, c.input(body)+10*10)
		})
	}
}

// TestCallsWithLinksCannotSpendBeyondTheBalance reproduces a past fault. It makes 12 concurrent
// calls of 2 KB with 50 links to images each, with 0.05 in the wallet.
func TestCallsWithLinksCannotSpendBeyondTheBalance(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: `
		price costly* {
			input 3
			output 15
			context 200000
			max_output 8000
		}
	`, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "0.05")
	g.Backend.On("costly", gatetest.JSON(200, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":150000,"completion_tokens":1}}`))
	body := parts("costly", strings.TrimSuffix(strings.Repeat(`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},`, 50), ","))
	var refused atomic.Int64
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			if got := g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret), body); got.Status == http.StatusPaymentRequired {
				refused.Add(1)
			}
		})
	}
	calls.Wait()
	if w := g.WalletAtRest(t, key.UserID); refused.Load() != 12 || w.Balance != amount(t, "0.05") || len(g.Backend.Seen("costly")) != 0 {
		t.Errorf("%d of 12 were refused, %v is left, the backend received %d calls", refused.Load(), w.Balance, len(g.Backend.Seen("costly")))
	}
	g.Verify(t)
}

func TestPromptsAsTokensCountEachNumberOnce(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		prompt          string
		tokens, prompts int
	}{
		"one":  {"[" + strings.TrimSuffix(strings.Repeat("1,", 999), ",") + "]", 999, 1},
		"two":  {"[[1, 2],[3]]", 3, 2},
		"text": {`["a","b"]`, 3, 2}, // nine bytes
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := modelName("media tokens " + name)
			body := fmt.Sprintf(`{"model":%q,"max_tokens":10,"prompt":%s}`, model, c.prompt)
			rest := (len(body) - len(c.prompt) + 2) / 3
			if name == "text" {
				rest = (len(body)+2)/3 - 3
			}
			reserves(t, g, completions, model, body, money.Amount(rest+c.tokens+100*c.prompts))
			if seen := g.Backend.Seen(model); len(seen) != 1 || string(seen[0].Body) != body {
				t.Errorf("the backend saw %v", seen)
			}
		})
	}
	t.Run("estimated", func(t *testing.T) {
		key := g.NewKey(t, nil)
		g.Credit(t, key.UserID, "1.00")
		g.Backend.On("media estimated", gatetest.JSON(200, `{"choices":[{"text":"twelve bytes","finish_reason":"stop"}]}`))
		body := `{"model":"media estimated","max_tokens":10,"prompt":[[1,2],[3]]}`
		g.Do(t, http.MethodPost, completions, headersFor(completions, key.Secret), body)
		if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-3-4*10 {
			t.Errorf("the wallet has %v", w.Balance)
		}
	})
}

func TestMaxTokensOfZeroReservesAllOutput(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	body := `{"model":"media warm","max_tokens":0,"messages":[{"role":"user","content":"hello"}]}`
	reserves(t, g, messages, "media warm", body, money.Amount((len(body)+2)/3+1000*10))
}

func TestAUserBeyondTheToleranceCallsOneAtATime(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "price media* {\ninput 1\noutput 10\ncontext 200000\nmax_output 1000\n}", Site: gatetest.Proxied})
	key, other := g.NewKey(t, nil), g.NewKey(t, nil)
	g.Credit(t, key.UserID, "0.001")
	g.Credit(t, other.UserID, "0.001")
	claim := `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":%d,"output_tokens":1}}`
	g.Backend.On("media greedy", gatetest.JSON(200, fmt.Sprintf(claim, 150_000)))
	g.Backend.On("media modest", gatetest.JSON(200, fmt.Sprintf(claim, 10)))
	post(t, g, messages, key.Secret, "media greedy", "") // costs 0.15, and 0.001 is available
	g.WalletAtRest(t, key.UserID)

	g.Credit(t, key.UserID, "0.1")
	if got := post(t, g, messages, key.Secret, "media modest", ""); got.Status != http.StatusPaymentRequired ||
		!strings.Contains(got.Body, "it reserves the whole context, because earlier calls") {
		t.Errorf("with less than the context costs: answered %d %s", got.Status, got.Body)
	}
	if got := post(t, g, messages, other.Secret, "media modest", ""); got.Status != http.StatusOK {
		t.Errorf("another user: answered %d %s", got.Status, got.Body)
	}
	if _, status := g.Admin(t, http.MethodGet, "/modelgate/status", nil); !strings.Contains(string(status), `"users_restricted":["`+key.UserID+`"]`) {
		t.Errorf("the status is %s", status)
	}

	g.Credit(t, key.UserID, "1.00")
	release := make(chan struct{})
	reached := make(chan struct{})
	g.Backend.On("media held", func(w http.ResponseWriter, r *http.Request) {
		close(reached)
		<-release
		gatetest.JSON(200, fmt.Sprintf(claim, 10))(w, r)
	})
	done := make(chan gatetest.Answer, 1)
	go func() { done <- post(t, g, messages, key.Secret, "media held", "") }()
	<-reached
	if got := post(t, g, messages, key.Secret, "media modest", ""); got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("a second, parallel call: answered %d %s", got.Status, got.Body)
	}
	close(release)
	if got := <-done; got.Status != http.StatusOK {
		t.Errorf("the first call: answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, key.UserID)
	if got := post(t, g, messages, key.Secret, "media modest", ""); got.Status != http.StatusOK {
		t.Errorf("after the first call: answered %d %s", got.Status, got.Body)
	}
	g.Verify(t)
}

func TestMembersThatRaiseTheOutputReserveIt(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		path, more string
		output     int // reserved, and the maximum that is charged
	}{
		"none":                          {chat, ``, 10},
		"null":                          {chat, `,"n_predict":null`, 10},
		"n_predict":                     {chat, `,"n_predict":5000`, 1000},
		"escaped":                       {chat, `,"n\u005fpredict":5000`, 1000},
		"num_predict":                   {completions, `,"num_predict":-1`, 1000},
		"max_new_tokens":                {completions, `,"max_new_tokens":5000`, 1000},
		"max_output_tokens":             {messages, `,"max_output_tokens":"5000"`, 1000},
		"max_generated_tokens":          {chat, `,"max_generated_tokens":5000`, 1000},
		"max_tokens_to_sample":          {messages, `,"max_tokens_to_sample":5000`, 1000},
		"max_length":                    {chat, `,"max_length":5000`, 1000},
		"min_tokens":                    {chat, `,"min_tokens":5000`, 1000},
		"thinking_budget":               {chat, `,"thinking_budget":5000`, 1000},
		"thinking budget of vLLM":       {chat, `,"thinking_token_budget":5000`, 1000},
		"thinking budget of Gemini":     {chat, `,"extra_body":{"google":{"thinking_config":{"thinking_budget":5000}}}`, 1000},
		"reasoning":                     {chat, `,"reasoning":{"max_tokens":5000}`, 1000},
		"reasoning by effort":           {chat, `,"reasoning":{"effort":"low"}`, 10},
		"a member of the other dialect": {messages, `,"max_completion_tokens":5000`, 1000},
		"in extra_body":                 {chat, `,"extra_body":{"n_predict":5000}`, 1000},
		"not at the top level":          {chat, `,"metadata":{"n_predict":5000}`, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := modelName("media output " + name)
			body := strings.Replace(bodyFor(c.path, model, c.more), `"max_tokens":64`, `"max_tokens":10`, 1)
			if !strings.Contains(body, `"max_tokens":`) {
				body = strings.Replace(body, `{`, `{"max_tokens":10,`, 1)
			}
			reserves(t, g, c.path, model, body, money.Amount((len(body)+2)/3+c.output*10))

			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			g.Backend.On(model, gatetest.JSON(200, `{"content":[{"type":"text","text":"x"}],"choices":[{"text":"x","message":{"content":"x"}}],`+
				`"usage":{"input_tokens":1,"output_tokens":5000,"prompt_tokens":1,"completion_tokens":5000}}`))
			g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body)
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-money.Amount(1+c.output*10) {
				t.Errorf("the wallet has %v, want %d tokens of output charged", w.Balance, c.output)
			}
		})
	}
}

func TestARefusalNamesTheMemberThatBoundsTheOutput(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "0.000001")
	for _, c := range []struct{ path, body, member string }{
		{responses, `"input":"x"`, "max_output_tokens"},
		{responses, `"input":"x","max_output_tokens":1000`, "max_output_tokens"},
		{chat, `"messages":[{"role":"user","content":"x"}]`, "max_tokens"},
		{chat, `"messages":[{"role":"user","content":"x"}],"max_completion_tokens":1000`, "max_completion_tokens"},
		{messages, `"messages":[{"role":"user","content":"x"}],"max_tokens":1000`, "max_tokens"},
	} {
		got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), `{"model":"media costly",`+c.body+`}`)
		if got.Status != http.StatusPaymentRequired || !strings.Contains(got.Body, "; a "+c.member+" of at most ") {
			t.Errorf("%s %s: answered %d %s", c.path, c.body, got.Status, got.Body)
		}
	}
}

func TestAnUnboundedMaxTokensIsNotProposed(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "0.000001")
	for more, proposed := range map[string]bool{``: true, `,"n_predict":5000`: false} {
		got := post(t, g, completions, key.Secret, "media costly", `,"max_tokens":1000`+more)
		if got.Status != http.StatusPaymentRequired || strings.Contains(got.Body, "would fit") != proposed {
			t.Errorf("%s: answered %d %s", more, got.Status, got.Body)
		}
	}
}
