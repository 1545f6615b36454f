package call_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// prices make amounts easy to compute: an input token costs one nano-unit, an output
// token ten, and a cached token a tenth.
const prices = `
	price priced* {
		input 0.001
		output 0.01
		cache_read 0.0001
		context 10000
		max_output 1000
	}
`

func amount(t testing.TB, text string) money.Amount {
	t.Helper()
	a, err := money.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCallsAreChargedToTheNanoUnit(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		path, more string
		script     http.HandlerFunc
		cost       money.Amount
	}{
		"a whole answer": {messages, "", gatetest.JSON(200, messageAnswer), 9 + 4*10},
		"a stream":       {messages, streamed, gatetest.Stream(messageEvents...), 25 + 15*10},
		"a chat stream":  {chat, streamed, gatetest.Stream(append(chatChunks, usageChunk, doneChunk)...), 7 + 2*10},
		"cached input": {
			messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"input_tokens":9`, `"input_tokens":9,"cache_read_input_tokens":31`, 1)),
			9 + 4 + 4*10, // 3.1 nano-units for cached tokens, rounded up once
		},
		"no report, by estimate": {completions, "", gatetest.JSON(200, `{"choices":[{"text":"twelve bytes","finish_reason":"stop"}]}`), 2 + 4*10},
		"refused by the backend": {messages, "", gatetest.JSON(400, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`), 0},
		"failed before it began": {messages, streamed, gatetest.Stream(messageEvents[0], "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"), 0},
		"broken off by the backend": {
			messages, streamed, gatetest.Then(gatetest.Stream(messageEvents[:4]...), gatetest.Reset),
			25 + 3*10, // "Hello ü" is 8 bytes, more than the one token that was reported
		},
		"an empty body":    {messages, "", gatetest.Body(200, "application/json", ""), 0},
		"counting is free": {countTokens, "", gatetest.JSON(200, `{"input_tokens":14}`), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := modelName("priced " + name)
			g.Backend.On(model, c.script)
			got := post(t, g, c.path, key.Secret, model, c.more)
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v\n%s", w.Balance, c.cost, got.Body)
			}
			if line := g.CallLine(t, got.RequestID()); c.path != countTokens && line.Text("cost") != c.cost.String() {
				t.Errorf("logged the cost %q, want %v", line.Text("cost"), c.cost)
			}
			g.Verify(t)
		})
	}
}

func TestADisconnectedCallerPaysForDeliveredContent(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	gone := make(chan struct{})
	g.Backend.On("priced", gatetest.Then(gatetest.Stream(messageEvents[:4]...), gatetest.Silent(gone)))
	ctx, leave := context.WithCancel(t.Context())
	resp := open(ctx, t, g, messages, key.Secret, "priced", streamed)
	buffer := make([]byte, len(begun(messages)))
	for read := 0; read < len(buffer); {
		n, err := resp.Body.Read(buffer[read:])
		if err != nil {
			t.Fatal(err)
		}
		read += n
	}
	leave()
	<-gone
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-25-30 {
		t.Errorf("the wallet has %v", w.Balance)
	}
}

func TestDisconnectingBeforeTheUsageReportIsNotCheaper(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	for name, more := range map[string]string{
		"asked by the gateway":  streamed,
		"refused by the caller": streamed + `,"stream_options":{"include_usage":false}`,
		"asked by the caller":   streamed + `,"stream_options":{"include_usage":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			left := make(chan struct{})
			model := modelName("priced " + name)
			g.Backend.On(model, gatetest.Then(
				gatetest.Stream(chatChunks...),
				func(http.ResponseWriter, *http.Request) { <-left },
				func(w http.ResponseWriter, _ *http.Request) {
					gatetest.Send(w, strings.Replace(usageChunk, `"completion_tokens":2`, `"completion_tokens":50`, 1))
					gatetest.Send(w, doneChunk)
				},
			))
			ctx, leave := context.WithCancel(t.Context())
			resp := open(ctx, t, g, chat, key.Secret, model, more)
			if _, err := fullRead(resp, make([]byte, len(strings.Join(chatChunks, "")))); err != nil {
				t.Fatal(err)
			}
			leave()
			close(left)
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-7-50*10 {
				t.Errorf("the wallet has %v", w.Balance)
			}
			g.Verify(t)
		})
	}
}

func TestInsufficientFundsNameTheAffordableMaxTokens(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		path, credit, kind string
		scope              map[string]any
		code               string
	}{
		"messages":        {messages, "0.000000100", "billing_error", nil, "INSUFFICIENT_QUOTA"},
		"chat":            {chat, "0.000000100", "insufficient_quota", nil, "INSUFFICIENT_QUOTA"},
		"a key's budget":  {messages, "1.00", "billing_error", map[string]any{"limits": map[string]any{"budget": "0.000000100", "reset": "day"}}, "INSUFFICIENT_KEY_QUOTA"},
		"nothing at all":  {messages, "", "billing_error", nil, "INSUFFICIENT_QUOTA"},
		"a chat's budget": {chat, "1.00", "insufficient_quota", map[string]any{"limits": map[string]any{"budget": "0.000000100", "reset": "never"}}, "INSUFFICIENT_KEY_QUOTA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, c.scope)
			if c.credit != "" {
				g.Credit(t, key.UserID, c.credit)
			}
			model := modelName("priced " + name)
			got := post(t, g, c.path, key.Secret, model, "")
			var answer struct {
				Error struct {
					Type, Code, Message string
				}
			}
			if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || got.Status != http.StatusPaymentRequired || answer.Error.Type != c.kind {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			if len(g.Backend.Seen(model)) != 0 {
				t.Error("the backend received the call")
			}
			if line := g.CallLine(t, got.RequestID()); line.Text("code") != c.code {
				t.Errorf("the code is %s", line.Text("code"))
			}
			if c.credit == "" {
				return
			}
			var most int
			_, after, _ := strings.Cut(answer.Error.Message, "max_tokens of at most ")
			if _, err := fmt.Sscanf(after, "%d would fit", &most); err != nil {
				t.Fatalf("the message is only %q", answer.Error.Message)
			}
			g.Backend.On(model, gatetest.JSON(200, messageAnswer))
			ask := func(tokens int) int {
				body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, model, tokens)
				return g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body).Status
			}
			if status := ask(most + 5); status != http.StatusPaymentRequired {
				t.Errorf("with 5 tokens more than proposed: answered %d", status)
			}
			if status := ask(most); status != http.StatusOK {
				t.Errorf("with the proposed max_tokens: answered %d", status)
			}
		})
	}
}

func TestParallelCallsCannotOverspendAWallet(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	// The call uses its whole reservation: all tokens of the body, and max_tokens of output.
	body := fmt.Sprintf(`{"model":"priced","max_tokens":50,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("word ", 40))
	tokens := (len(body) + 2) / 3
	each := money.Amount(tokens + 50*10)
	release := make(chan struct{})
	g.Backend.On("priced", func(w http.ResponseWriter, r *http.Request) {
		<-release // all calls that can be paid run at the same time
		gatetest.JSON(200, fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":%d,"output_tokens":50}}`, tokens))(w, r)
	})
	g.Credit(t, key.UserID, (each * 15 / 2).String())
	var served, refused atomic.Int64
	var calls sync.WaitGroup
	for range 64 {
		calls.Go(func() {
			switch got := g.Do(t, http.MethodPost, messages, headersFor(messages, key.Secret), body); got.Status {
			case http.StatusOK:
				served.Add(1)
			case http.StatusPaymentRequired:
				if refused.Add(1) == 64-7 {
					close(release)
				}
			default:
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
		})
	}
	calls.Wait()
	w := g.WalletAtRest(t, key.UserID)
	if served.Load() != 7 || refused.Load() != 57 || w.Balance != each*15/2-7*each {
		t.Errorf("%d were served, %d refused, %v is left", served.Load(), refused.Load(), w.Balance)
	}
	g.Verify(t)
}

func TestUnpricedModelsAreRefusedUnlessAllowed(t *testing.T) {
	const video = "price video-* {\n second 0.10\n}\n"
	for name, c := range map[string]struct {
		app    string
		model  string
		status int
	}{
		"no price for this model":    {prices, "other", 404},
		"only a price of seconds":    {prices + video, "video-x", 404},
		"unpriced models allowed":    {prices + "unpriced allow", "other", 200},
		"no prices at all: no money": {"", "other", 200},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: c.app, Site: gatetest.Proxied})
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			g.Backend.On(c.model, gatetest.JSON(200, messageAnswer))
			got := post(t, g, messages, key.Secret, c.model, "")
			if got.Status != c.status {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
			if seen := len(g.Backend.Seen(c.model)); seen != map[int]int{200: 1, 404: 0}[c.status] {
				t.Errorf("the backend received %d calls", seen)
			}
		})
	}
}

func TestAReloadDoesNotChangeThePriceOfRunningCalls(t *testing.T) {
	config := gatetest.Config{App: prices, Site: gatetest.Proxied}
	g := gatetest.Start(t, config)
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	begun, release := make(chan struct{}), make(chan struct{})
	g.Backend.On("priced", func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-release
		gatetest.JSON(200, messageAnswer)(w, r)
	})
	done := make(chan gatetest.Answer, 1)
	go func() { done <- post(t, g, messages, key.Secret, "priced", "") }()
	<-begun
	config.App = strings.ReplaceAll(prices, "0.01", "0.05")
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	close(release)
	<-done
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-49 {
		t.Errorf("the wallet has %v", w.Balance)
	}
	g.Backend.On("priced", gatetest.JSON(200, messageAnswer))
	post(t, g, messages, key.Secret, "priced", "")
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-49-9-4*50 {
		t.Errorf("after a call at the new price the wallet has %v", w.Balance)
	}
}

func TestExcessiveUsageReportsAreCut(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	claim := func(input, output int) http.HandlerFunc {
		return gatetest.JSON(200, fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":%d,"output_tokens":%d}}`, input, output))
	}
	for name, c := range map[string]struct {
		input, output int
		credit        string
		cost          money.Amount
		lost          string
	}{
		"more output than was asked for": {9, 500, "1.00", 9 + 64*10, "0.00000436"},
		"more input than the model has":  {90_000, 4, "1.00", 10_000 + 40, "0.00008"},
		"more input than the body":       {5_000, 4, "1.00", 5_000 + 40, ""},
		"more than the balance":          {5_000, 4, "0.000002", 2_000, "0.00000304"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, c.credit)
			model := modelName("priced " + name)
			g.Backend.On(model, claim(c.input, c.output))
			got := post(t, g, messages, key.Secret, model, "")
			if w := g.WalletAtRest(t, key.UserID); w.Balance != amount(t, c.credit)-c.cost {
				t.Errorf("the wallet has %v of %s, the call should have cost %v", w.Balance, c.credit, c.cost)
			}
			if line := g.CallLine(t, got.RequestID()); line.Text("uncollected") != c.lost {
				t.Errorf("logged as uncollected: %q, want %q", line.Text("uncollected"), c.lost)
			}
			g.Verify(t)
		})
	}
}

func TestAStreamWithoutFundsEndsWithAnErrorEvent(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "0.000002")
	gone := make(chan struct{})
	start := strings.Replace(messageEvents[0], `"input_tokens":25`, `"input_tokens":5000`, 1)
	g.Backend.On("priced", gatetest.Then(gatetest.Stream(append([]string{start}, messageEvents[1:4]...)...), gatetest.Silent(gone)))
	got := post(t, g, messages, key.Secret, "priced", streamed)
	<-gone
	// How much text arrives before the end depends on the timing of the events. The
	// first text always arrives.
	delivered, ended := strings.CutSuffix(got.Body, errorEvent(messages, "billing_error", "",
		"the rest of this answer may cost up to 0.000004968, and 0.000001328 is available", got.RequestID()))
	least := start + messageEvents[1] + messageEvents[2]
	if !ended || !strings.HasPrefix(delivered, least) || !strings.HasPrefix(least+messageEvents[3], delivered) {
		t.Errorf("the caller got %q", got.Body)
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != 0 {
		t.Errorf("the wallet has %v", w.Balance)
	}
	if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "money_out" || line.Text("cost") != "0.000002" {
		t.Errorf("logged as %v", line)
	}
	g.Verify(t)
}

func TestRateLimitedAnswersHaveRetryAfter(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		path   string
		limits map[string]any
		header string
	}{
		"requests a second, messages": {messages, map[string]any{"requests_per_second": 1}, "Anthropic-Ratelimit-Requests-Limit"},
		"requests a second, chat":     {chat, map[string]any{"requests_per_second": 1}, "X-Ratelimit-Limit-Requests"},
		"tokens a minute":             {messages, map[string]any{"tokens_per_minute": 1}, "Anthropic-Ratelimit-Tokens-Limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, map[string]any{"limits": c.limits})
			model := "rate " + name
			g.Backend.On(model, gatetest.JSON(200, messageAnswer))
			first, second := post(t, g, c.path, key.Secret, model, ""), post(t, g, c.path, key.Secret, model, "")
			for second.Status == http.StatusOK { // on a slow machine, a second may have passed
				second = post(t, g, c.path, key.Secret, model, "")
			}
			if first.Status != http.StatusOK {
				t.Errorf("the first was answered %d", first.Status)
			}
			if second.Status != http.StatusTooManyRequests || second.Header.Get("Retry-After") == "" ||
				second.Header.Get("Retry-After-Ms") == "" || second.Header.Get(c.header) != "1" || !strings.Contains(second.Body, "rate_limit_error") {
				t.Errorf("the second was answered %d %q %s", second.Status, second.Header, second.Body)
			}
		})
	}
}

func TestConcurrentStreamsAreLimited(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, map[string]any{"limits": map[string]any{"streams": 1}})
	release := make(chan struct{})
	g.Backend.On("held", gatetest.Then(gatetest.Stream(messageEvents[0]), func(http.ResponseWriter, *http.Request) { <-release }, gatetest.Stream(messageEvents[1:]...)))
	g.Backend.On("free", gatetest.Stream(messageEvents...))
	held := open(t.Context(), t, g, messages, key.Secret, "held", streamed)
	if got := post(t, g, messages, key.Secret, "free", streamed); got.Status != http.StatusTooManyRequests {
		t.Errorf("a second stream was answered %d", got.Status)
	}
	if got := post(t, g, messages, key.Secret, "free", ""); got.Status != http.StatusOK {
		t.Errorf("a call without a stream was answered %d", got.Status)
	}
	close(release)
	buffer := make([]byte, 64<<10)
	for err := error(nil); err == nil; _, err = held.Body.Read(buffer) {
	}
	g.CallLine(t, held.Header.Get("X-Request-Id"))
	if got := post(t, g, messages, key.Secret, "free", streamed); got.Status != http.StatusOK {
		t.Errorf("after the end of the first, a stream was answered %d", got.Status)
	}
}

func TestTheUsageRouteShowsTheLimitsAndUsageOfAKey(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, map[string]any{"limits": map[string]any{"budget": "0.5", "reset": "month", "streams": 3}})
	other := g.NewKey(t, nil)
	for _, k := range []gatetest.Key{key, other} {
		g.Credit(t, k.UserID, "1.00")
		g.Backend.On("priced", gatetest.JSON(200, messageAnswer))
		post(t, g, messages, k.Secret, "priced", "")
		g.WalletAtRest(t, k.UserID)
	}
	got := g.Do(t, http.MethodGet, "/v1/usage", "Authorization: Bearer "+key.Secret, "")
	var answer struct {
		KeyID  string `json:"key_id"`
		Budget struct {
			Limit, Used, Remaining, Reset string
			ResetsAt                      int64 `json:"resets_at"`
		}
		Rates map[string]*int64
		Today struct {
			Calls  int
			Tokens struct{ Input, Output int }
			Cost   string
		}
	}
	if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || got.Status != http.StatusOK {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	if answer.KeyID != key.ID || answer.Budget.Used != "0.000000049" || answer.Budget.Remaining != "0.499999951" || answer.Budget.ResetsAt == 0 ||
		*answer.Rates["streams"] != 3 || answer.Rates["tokens_per_minute"] != nil ||
		answer.Today.Calls != 1 || answer.Today.Tokens.Input != 9 || answer.Today.Cost != "0.000000049" {
		t.Errorf("answered %s", got.Body)
	}
}
