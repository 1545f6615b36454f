package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// usedTokens is the usage of one call to answerCalls; see messageJSON.
var usedTokens = tokens{Input: 7, Output: 3}

// paying starts a gateway with a key whose user has an amount of money.
func paying(t *testing.T, b *backend, amount string) (*gateway, *gatewayUser) {
	t.Helper()
	g := running(t, priced(b, ""), b)
	c := g.newGatewayUser("payer")
	g.Key = c.key
	if amount != "" {
		c.credit(amount)
	}
	return g, c
}

func TestTheSDKsReportInsufficientMoney(t *testing.T) {
	t.Parallel()
	for name, amount := range map[string]string{"too little": "0.000000001", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, answerCalls)
			g, c := paying(t, b, amount)

			// The SDKs would retry if they treated the error as temporary.
			claude := g.anthropicClient(anthropicoption.WithMaxRetries(2))
			_, err := claude.Messages.New(t.Context(), message("Hi"))
			checkAnthropicError(t, err, http.StatusPaymentRequired, "billing_error")
			stream := claude.Messages.NewStreaming(t.Context(), message("Hi"))
			for stream.Next() {
				t.Errorf("an unpaid stream has the event %s", stream.Current().RawJSON())
			}
			checkAnthropicError(t, stream.Err(), http.StatusPaymentRequired, "billing_error")

			gpt := g.openaiClient(openaioption.WithMaxRetries(2))
			_, err = gpt.Chat.Completions.New(t.Context(), chat("Hi"))
			checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusPaymentRequired, Type: "insufficient_quota", Code: "INSUFFICIENT_QUOTA"})
			_, err = gpt.Completions.New(t.Context(), openai.CompletionNewParams{
				Model: "m-1", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Hi")},
			})
			checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusPaymentRequired, Type: "insufficient_quota", Code: "INSUFFICIENT_QUOTA"})

			if n := len(b.requests()); n > 0 {
				t.Errorf("the backend got %d unpaid calls", n)
			}
			if n := len(g.process.callLines(4)); n != 4 {
				t.Errorf("%d calls are logged, want 4", n)
			}
			if calls := c.calls(); len(calls) > 0 {
				t.Errorf("refused calls are in the ledger: %+v", calls)
			}
		})
	}
}

func TestTheSDKsReportTheRateLimitAndRetry(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g, _ := paying(t, b, "1.00")
	slow := func() string {
		var key issued
		g.post("/modelgate/keys", map[string]any{"user": "payer", "limits": map[string]any{"requests_per_second": 1}}, &key)
		return key.Secret
	}

	// On a slow machine, two calls may fall into two seconds. Then a third call
	// is refused.
	var err error
	claude := g.anthropicClient(anthropicoption.WithAPIKey(slow()))
	for err == nil {
		_, err = claude.Messages.New(t.Context(), message("Hi"))
	}
	checkAnthropicError(t, err, http.StatusTooManyRequests, "rate_limit_error")
	var limited *anthropic.Error
	if errors.As(err, &limited) && limited.Response.Header.Get("Retry-After") == "" {
		t.Error("the answer has no Retry-After")
	}
	gpt := g.openaiClient(openaioption.WithAPIKey(slow()))
	for err = nil; err == nil; {
		_, err = gpt.Chat.Completions.New(t.Context(), chat("Hi"))
	}
	checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "RATE_LIMITED"})

	retrying := g.openaiClient(openaioption.WithAPIKey(slow()), openaioption.WithMaxRetries(2))
	for range 3 {
		if _, err := retrying.Chat.Completions.New(t.Context(), chat("Hi")); err != nil {
			t.Errorf("a client that waits for Retry-After is refused: %v", err)
		}
	}
	g.walletAtRest("payer")
	g.verify()
}

func TestACallThatAnSDKRetriesIsChargedOnce(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		if a.Header.Get("X-Stainless-Retry-Count") == "0" {
			respond(http.StatusInternalServerError, `{"type":"error","error":{"type":"api_error","message":"at first it fails"}}`, "Retry-After-Ms", "1")(s, a)
			return
		}
		answerCalls(s, a)
	})
	g, c := paying(t, b, "1.00")
	claude := g.anthropicClient(anthropicoption.WithMaxRetries(2))
	if _, err := claude.Messages.New(t.Context(), message("Hi")); err != nil {
		t.Error(err)
	}
	if m := accumulate(t, claude, message("Hi")); m.Usage.OutputTokens != usedTokens.Output {
		t.Errorf("the stream is %+v", m)
	}
	gpt := g.openaiClient(openaioption.WithMaxRetries(2))
	if _, err := gpt.Chat.Completions.New(t.Context(), chat("Hi")); err != nil {
		t.Error(err)
	}

	g.awaitCalls("payer", 6)
	w, once := g.walletAtRest("payer"), prices["m-1"].of(usedTokens)
	if w.Balance != unit-3*once {
		t.Errorf("the balance is %v after three calls of %v", w.Balance, once)
	}
	charged, free := 0, 0
	for _, call := range c.calls() {
		switch {
		case call.Cost == once && call.Ended == "complete" && call.Tokens == usedTokens:
			charged++
		case call.Cost == 0 && call.Ended == "upstream_error" && call.Usage == "none":
			free++
		default:
			t.Errorf("an unexpected call: %+v", call)
		}
	}
	if charged != 3 || free != 3 || len(b.requests()) != 6 {
		t.Errorf("%d calls are charged, %d are not, the backend got %d", charged, free, len(b.requests()))
	}
	g.verify()
}

func TestAKeyReadsItsUsageThroughTheSDKs(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g, _ := paying(t, b, "1.00")
	var key issued
	g.post("/modelgate/keys", map[string]any{"user": "payer", "limits": map[string]any{"budget": "0.50", "reset": "month", "streams": 3}}, &key)
	g.Key = key.Secret
	claude, gpt := g.anthropicClient(), g.openaiClient()
	if _, err := claude.Messages.New(t.Context(), message("Hi")); err != nil {
		t.Fatal(err)
	}
	g.walletAtRest("payer")

	once := prices["m-1"].of(usedTokens)
	type reported struct {
		KeyID  string `json:"key_id"`
		Budget struct {
			Limit, Used, Remaining nano
			Reset                  string
			ResetsAt               int64 `json:"resets_at"`
		}
		Rates struct {
			Streams *int
			Minute  *int `json:"tokens_per_minute"`
		}
		Today, Month used
	}
	for name, get := range map[string]func(*reported) error{
		"anthropic": func(answer *reported) error { return claude.Get(t.Context(), "v1/usage", nil, answer) },
		"openai":    func(answer *reported) error { return gpt.Get(t.Context(), "usage", nil, answer) },
	} {
		var u reported
		if err := get(&u); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if u.KeyID != key.ID || u.Budget.Limit != unit/2 || u.Budget.Used != once || u.Budget.Remaining != unit/2-once || u.Budget.Reset != "month" ||
			u.Budget.ResetsAt <= time.Now().Unix() || u.Rates.Streams == nil || *u.Rates.Streams != 3 || u.Rates.Minute != nil ||
			u.Month.Calls != 1 || u.Month.Cost != once || u.Month.Tokens != usedTokens {
			t.Errorf("%s: got %+v", name, u)
		}
	}
	wrong := g.openaiClient(openaioption.WithAPIKey("sk-" + strings.Repeat("x", 49)))
	err := wrong.Get(t.Context(), "usage", nil, new(reported))
	checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusUnauthorized, Type: "authentication_error", Code: "UNAUTHORIZED"})
}
