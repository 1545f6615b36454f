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

// A call that speaks uses seven tokens and makes three; see messageJSON.
var spoken = tokens{Input: 7, Output: 3}

// paying starts a gateway whose key belongs to a user with an amount of money.
func paying(t *testing.T, b *backend, amount string) (*gateway, *customer) {
	t.Helper()
	g := running(t, priced(b, ""), b)
	c := g.newCustomer("payer")
	g.Key = c.key
	if amount != "" {
		c.credit(amount)
	}
	return g, c
}

func TestTheSDKsReadThatTheMoneyDoesNotSuffice(t *testing.T) {
	t.Parallel()
	for name, amount := range map[string]string{"too little": "0.000000001", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, speaks)
			g, c := paying(t, b, amount)

			// They would try again if they took it for something that passes.
			claude := g.anthropicClient(anthropicoption.WithMaxRetries(2))
			_, err := claude.Messages.New(t.Context(), message("Hi"))
			checkAnthropicError(t, err, http.StatusPaymentRequired, "billing_error")
			stream := claude.Messages.NewStreaming(t.Context(), message("Hi"))
			for stream.Next() {
				t.Errorf("an unpaid stream says %s", stream.Current().RawJSON())
			}
			checkAnthropicError(t, stream.Err(), http.StatusPaymentRequired, "billing_error")

			gpt := g.openaiClient(openaioption.WithMaxRetries(2))
			_, err = gpt.Chat.Completions.New(t.Context(), chat("Hi"))
			checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusPaymentRequired, Type: "insufficient_quota", Code: "INSUFFICIENT_QUOTA"})
			_, err = gpt.Completions.New(t.Context(), openai.CompletionNewParams{
				Model: "m-1", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Hi")},
			})
			checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusPaymentRequired, Type: "insufficient_quota", Code: "INSUFFICIENT_QUOTA"})

			if n := len(b.asked()); n > 0 {
				t.Errorf("the backend was asked %d times for what nobody pays", n)
			}
			if n := len(g.process.callLines(4)); n != 4 {
				t.Errorf("%d calls came for the 4 that were made", n)
			}
			if calls := c.calls(); len(calls) > 0 {
				t.Errorf("refused calls are in the ledger: %+v", calls)
			}
		})
	}
}

func TestTheSDKsReadThatAKeyIsTooFastAndTryAgainInTime(t *testing.T) {
	t.Parallel()
	b := newBackend(t, speaks)
	g, _ := paying(t, b, "1.00")
	slow := func() string {
		var key issued
		g.post("/modelgate/keys", map[string]any{"user": "payer", "limits": map[string]any{"requests_per_second": 1}}, &key)
		return key.Secret
	}

	// Two calls within a second may lie in two of them on a slow machine: then
	// a third is refused.
	var err error
	claude := g.anthropicClient(anthropicoption.WithAPIKey(slow()))
	for err == nil {
		_, err = claude.Messages.New(t.Context(), message("Hi"))
	}
	checkAnthropicError(t, err, http.StatusTooManyRequests, "rate_limit_error")
	var limited *anthropic.Error
	if errors.As(err, &limited) && limited.Response.Header.Get("Retry-After") == "" {
		t.Error("nobody says when to try again")
	}
	gpt := g.openaiClient(openaioption.WithAPIKey(slow()))
	for err = nil; err == nil; {
		_, err = gpt.Chat.Completions.New(t.Context(), chat("Hi"))
	}
	checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "RATE_LIMITED"})

	patient := g.openaiClient(openaioption.WithAPIKey(slow()), openaioption.WithMaxRetries(2))
	for range 3 {
		if _, err := patient.Chat.Completions.New(t.Context(), chat("Hi")); err != nil {
			t.Errorf("a caller who waits for Retry-After is refused: %v", err)
		}
	}
	g.walletAtRest("payer")
	g.verify()
}

func TestWhatAnSDKTriesAgainIsChargedOnce(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(s *stage, a *ask) {
		if a.Header.Get("X-Stainless-Retry-Count") == "0" {
			answers(http.StatusInternalServerError, `{"type":"error","error":{"type":"api_error","message":"at first it fails"}}`, "Retry-After-Ms", "1")(s, a)
			return
		}
		speaks(s, a)
	})
	g, c := paying(t, b, "1.00")
	claude := g.anthropicClient(anthropicoption.WithMaxRetries(2))
	if _, err := claude.Messages.New(t.Context(), message("Hi")); err != nil {
		t.Error(err)
	}
	if m := accumulate(t, claude, message("Hi")); m.Usage.OutputTokens != spoken.Output {
		t.Errorf("the stream is %+v", m)
	}
	gpt := g.openaiClient(openaioption.WithMaxRetries(2))
	if _, err := gpt.Chat.Completions.New(t.Context(), chat("Hi")); err != nil {
		t.Error(err)
	}

	g.awaitCalls("payer", 6)
	w, once := g.walletAtRest("payer"), prices["m-1"].of(spoken)
	if w.Balance != unit-3*once {
		t.Errorf("of 1.00 %v are left after three calls of %v", w.Balance, once)
	}
	charged, free := 0, 0
	for _, call := range c.calls() {
		switch {
		case call.Cost == once && call.Ended == "complete" && call.Tokens == spoken:
			charged++
		case call.Cost == 0 && call.Ended == "upstream_error" && call.Usage == "none":
			free++
		default:
			t.Errorf("there is a call %+v", call)
		}
	}
	if charged != 3 || free != 3 || len(b.asked()) != 6 {
		t.Errorf("%d calls are charged, %d are not, and the backend was asked %d times", charged, free, len(b.asked()))
	}
	g.verify()
}

func TestAKeyAsksWhatItHasUsedThroughTheSDKs(t *testing.T) {
	t.Parallel()
	b := newBackend(t, speaks)
	g, _ := paying(t, b, "1.00")
	var key issued
	g.post("/modelgate/keys", map[string]any{"user": "payer", "limits": map[string]any{"budget": "0.50", "reset": "month", "streams": 3}}, &key)
	g.Key = key.Secret
	claude, gpt := g.anthropicClient(), g.openaiClient()
	if _, err := claude.Messages.New(t.Context(), message("Hi")); err != nil {
		t.Fatal(err)
	}
	g.walletAtRest("payer")

	once := prices["m-1"].of(spoken)
	type told struct {
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
	for name, get := range map[string]func(*told) error{
		"anthropic": func(answer *told) error { return claude.Get(t.Context(), "v1/usage", nil, answer) },
		"openai":    func(answer *told) error { return gpt.Get(t.Context(), "usage", nil, answer) },
	} {
		var u told
		if err := get(&u); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if u.KeyID != key.ID || u.Budget.Limit != unit/2 || u.Budget.Used != once || u.Budget.Remaining != unit/2-once || u.Budget.Reset != "month" ||
			u.Budget.ResetsAt <= time.Now().Unix() || u.Rates.Streams == nil || *u.Rates.Streams != 3 || u.Rates.Minute != nil ||
			u.Month.Calls != 1 || u.Month.Cost != once || u.Month.Tokens != spoken {
			t.Errorf("%s: told %+v", name, u)
		}
	}
	wrong := g.openaiClient(openaioption.WithAPIKey("sk-" + strings.Repeat("x", 49)))
	err := wrong.Get(t.Context(), "usage", nil, new(told))
	checkOpenAIError(t, err, openai.Error{StatusCode: http.StatusUnauthorized, Type: "authentication_error", Code: "UNAUTHORIZED"})
}
