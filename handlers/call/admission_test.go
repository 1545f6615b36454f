package call_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// unread sends the headers of a call without its body, and returns the answer: 100 if the
// gateway requests the body.
func unread(t *testing.T, g *gatetest.Gate, path, key, announced string) gatetest.Answer {
	t.Helper()
	conn := g.Dial(t)
	conn.Send(t, headOf(path, key, announced+"\nExpect: 100-continue"))
	return conn.Receive(t, http.MethodPost)
}

func TestACallerWithoutMoneyIsRefusedBeforeTheBodyIsRead(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	withoutMoney := g.NewKey(t, nil)
	withMoney := g.NewKey(t, nil)
	g.Credit(t, withMoney.UserID, "1.00")
	for _, announced := range []string{"Content-Length: 30000000", "Content-Length: 100", "Transfer-Encoding: chunked"} {
		got := unread(t, g, messages, withoutMoney.Secret, announced)
		refusal{402, "billing_error", fault.InsufficientQuota, "there is no money for this request: 0.00 is available", ""}.check(t, messages, got)
		if got = unread(t, g, messages, withMoney.Secret, announced); got.Status != http.StatusContinue {
			t.Errorf("with money: answered %d %s", got.Status, got.Body)
		}
		// Counting tokens costs nothing.
		if got = unread(t, g, countTokens, withoutMoney.Secret, announced); got.Status != http.StatusContinue {
			t.Errorf("counting: answered %d %s", got.Status, got.Body)
		}
	}
	if taken := gatetest.Runtime(t).Bodies.Users.Used(); taken > 9*(17<<10) {
		t.Errorf("%d bytes are reserved for bodies that have not arrived", taken)
	}
}

func TestAUsedUpBudgetIsRefusedBeforeTheBodyIsRead(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "price priced {\n request 1\n}", Site: gatetest.Proxied})
	g.Backend.On("priced", gatetest.JSON(200, messageAnswer))
	key := g.NewKey(t, map[string]any{"limits": map[string]any{"budget": "1"}})
	g.Credit(t, key.UserID, "10")
	if got := post(t, g, messages, key.Secret, "priced", ""); got.Status != http.StatusOK {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, key.UserID)
	got := unread(t, g, messages, key.Secret, "Content-Length: 30000000")
	refusal{402, "billing_error", fault.InsufficientKeyQuota, "the budget of this API key is used up", ""}.check(t, messages, got)
}

func TestFreeModelsNeedNoMoney(t *testing.T) {
	for name, app := range map[string]string{
		"no prices":      "",
		"a price of 0":   prices + "price free {\n input 0\n output 0\n}",
		"unpriced allow": prices + "unpriced allow",
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: app, Site: gatetest.Proxied})
			if got := post(t, g, messages, g.NewKey(t, nil).Secret, "free", ""); got.Status != http.StatusOK {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
		})
	}
}

func TestRateLimitsApplyBeforeTheBodyIsRead(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		limits  map[string]any
		message string
	}{
		"requests": {map[string]any{"requests_per_second": 1}, "the limit of 1 request per second of your key is reached"},
		"tokens":   {map[string]any{"tokens_per_minute": 1000}, "the limit of 1000 tokens per minute of your key is reached"},
	} {
		t.Run(name, func(t *testing.T) {
			key := g.NewKey(t, map[string]any{"limits": c.limits}).Secret
			var got gatetest.Answer
			for range 20 { // the first call is accepted, and one within about a second is refused
				if got = unread(t, g, messages, key, "Content-Length: 30000000"); got.Status != http.StatusContinue {
					break
				}
			}
			refusal{429, "rate_limit_error", fault.RateLimited, c.message, ""}.check(t, messages, got)
			if got.Header.Get("Retry-After") == "" {
				t.Errorf("headers %v", got.Header)
			}
		})
	}
}

// TestChunkedBodiesCountTowardTheTokenLimit sends chunked bodies, whose length is
// only known at their end.
func TestChunkedBodiesCountTowardTheTokenLimit(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, map[string]any{"limits": map[string]any{"tokens_per_minute": 1000}}).Secret
	chunked := func(size int) gatetest.Answer {
		body := bodyFor(messages, "m", `,"x":"`+strings.Repeat("x", size)+`"`)
		conn := g.Dial(t)
		conn.Send(t, headOf(messages, key, "Transfer-Encoding: chunked"))
		conn.Send(t, strconv.FormatInt(int64(len(body)), 16)+"\n"+body+"\n0\n\n")
		return conn.Receive(t, http.MethodPost)
	}
	seen, end := make(chan struct{}), make(chan struct{})
	g.Backend.On("m", func(w http.ResponseWriter, r *http.Request) {
		close(seen)
		<-end
		gatetest.JSON(200, messageAnswer)(w, r)
	})
	answer := make(chan gatetest.Answer)
	go func() { answer <- chunked(2000) }() // about 700 tokens
	<-seen
	refusal{429, "rate_limit_error", fault.RateLimited, "the limit of 1000 tokens per minute of your key is reached", ""}.check(t, messages, chunked(2000))
	close(end)
	if got := <-answer; got.Status != http.StatusOK {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestCountTokensHasItsOwnRateLimit(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n count_tokens_per_minute 2\n}", Site: gatetest.Proxied})
	key, other := g.NewKey(t, nil), g.NewKey(t, nil)
	var second gatetest.Key // of the same user
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": key.UserID}, &second)
	for range 2 {
		if got := post(t, g, countTokens, key.Secret, "m", ""); got.Status != http.StatusOK {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
	}
	got := unread(t, g, countTokens, second.Secret, "Content-Length: 30000000")
	refusal{429, "rate_limit_error", fault.RateLimited, "the limit of 2 counts of tokens per minute of your account is reached", ""}.check(t, countTokens, got)
	if got.Header.Get("Retry-After") != "30" {
		t.Errorf("headers %v", got.Header)
	}
	if got := post(t, g, countTokens, other.Secret, "m", ""); got.Status != http.StatusOK {
		t.Errorf("another user: answered %d %s", got.Status, got.Body)
	}
	if got := post(t, g, messages, key.Secret, "m", ""); got.Status != http.StatusOK {
		t.Errorf("a model call: answered %d %s", got.Status, got.Body)
	}
}
