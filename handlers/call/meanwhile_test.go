package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// underWay makes a call whose backend answers after meanwhile has returned.
func underWay(t *testing.T, g *gatetest.Gate, key gatetest.Key, path, model, more string, first, rest http.HandlerFunc, meanwhile func()) gatetest.Answer {
	t.Helper()
	begun, release := make(chan struct{}), make(chan struct{})
	g.Backend.On(model, gatetest.Then(first, func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-release
	}, rest))
	done := make(chan gatetest.Answer, 1)
	go func() { done <- post(t, g, path, key.Secret, model, more) }()
	within(t, gatetest.Timeout, "the call", begun)
	meanwhile()
	close(release)
	return <-done
}

// TestChangesDuringACallDoNotAffectItsCharge changes the configuration, the key, the user and
// the wallet of a running call.
func TestChangesDuringACallDoNotAffectItsCharge(t *testing.T) {
	config := gatetest.Config{App: prices, Site: gatetest.Proxied}
	g := gatetest.Start(t, config)
	nothing := func(http.ResponseWriter, *http.Request) {}
	reload := func(app string) {
		config := config
		config.App = app
		if err := g.Reload(config); err != nil {
			t.Fatal(err)
		}
	}
	for name, meanwhile := range map[string]func(key gatetest.Key){
		"nothing": func(gatetest.Key) {},
		"the key is revoked": func(key gatetest.Key) {
			g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/revoke", nil, nil)
		},
		"the user is disabled": func(key gatetest.Key) {
			g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+key.UserID+"/disable", nil, nil)
		},
		"the wallet is emptied": func(key gatetest.Key) {
			status, body := g.Admin(t, http.MethodPost, "/modelgate/wallets/"+key.UserID+"/debit", map[string]any{"amount": "1.00", "reason": "a test"})
			if status == http.StatusOK {
				t.Errorf("the reserved amount was debited: %s", body)
			}
		},
		"the price is removed":   func(gatetest.Key) { reload("price other {\nrequest 1\n}") },
		"all prices are removed": func(gatetest.Key) { reload("") },
		"the price is doubled":   func(gatetest.Key) { reload(strings.ReplaceAll(prices, "0.0", "0.1")) },
		"models become free":     func(gatetest.Key) { reload("unpriced allow") },
	} {
		for kind, c := range map[string]struct {
			more        string
			first, rest http.HandlerFunc
			cost        money.Amount
		}{
			"whole":         {"", nothing, gatetest.JSON(200, messageAnswer), 49},
			"a stream":      {streamed, nothing, gatetest.Stream(messageEvents...), 175},
			"mid-stream":    {streamed, gatetest.Stream(messageEvents[:4]...), portions(messageEvents[4:]...), 175},
			"lines":         {streamed, gatetest.Body(200, "application/x-ndjson", linesOf(messageEvents[:4]...)), portions(linesOf(messageEvents[4:]...)), 175},
			"a broken one":  {streamed, gatetest.Stream(messageEvents[:4]...), gatetest.Reset, 55},
			"a refused one": {"", nothing, gatetest.JSON(400, `{"type":"error","error":{}}`), 0},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				reload(prices)
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				got := underWay(t, g, key, messages, modelName("priced "+t.Name()), c.more, c.first, c.rest, func() { meanwhile(key) })
				if line := g.CallLine(t, got.RequestID()); line.Text("cost") != c.cost.String() {
					t.Errorf("logged %v, want %v", line, c.cost)
				}
				if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
					t.Errorf("the wallet has %v, want a charge of %v\n%s", w.Balance, c.cost, got.Body)
				}
				g.Verify(t)
			})
		}
	}
}

// TestAFallbackIsChargedAtThePriceOfTheModelThatAnswered includes malformed reports of that model.
func TestAFallbackIsChargedAtThePriceOfTheModelThatAnswered(t *testing.T) {
	const expensive = "price expensive {\ninput 0.01\noutput 0.1\ncontext 10000\nmax_output 1000\n}\n"
	g := gatetest.Start(t, gatetest.Config{App: prices + expensive, Site: gatetest.Proxied})
	answer := func(members string) http.HandlerFunc {
		return gatetest.JSON(200, strings.Replace(messageAnswer, `"id":"msg_1",`, members, 1))
	}
	const figures = `"input_tokens":9,"output_tokens":4`
	for name, c := range map[string]struct {
		more   string
		script http.HandlerFunc
		cost   money.Amount
	}{
		"the first answered":      {`,"fallbacks":[{"model":"expensive"}]`, answer(`"model":"priced",`), 49},
		"the second answered":     {`,"fallbacks":[{"model":"expensive"}]`, answer(`"model":"expensive",`), 490},
		"a dated name":            {`,"fallbacks":[{"model":"expensive"}]`, answer(`"model":"expensive-20260101",`), 490},
		"a name of neither":       {`,"fallbacks":[{"model":"expensive"}]`, answer(`"model":"cheap",`), 490},
		"a name that is a number": {`,"fallbacks":[{"model":"expensive"}]`, answer(`"model":7,`), 490},
		"with a pass":             {`,"fallbacks":[{"model":"expensive"}]`, gatetest.JSON(200, strings.Replace(messageAnswer, figures, figures+`,"iterations":[{"type":"message","input_tokens":9,"output_tokens":0},{"type":"fallback_message","model":"expensive","input_tokens":9,"output_tokens":4}]`, 1)), 490},
		"the same twice":          {`,"fallbacks":[{"model":"expensive"},{"model":"expensive"}]`, answer(`"model":"expensive",`), 490},
		"itself":                  {`,"fallbacks":[{"model":"priced itself"}]`, answer(`"model":"priced itself",`), 49},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := "priced " + name
			g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) { c.script(w, r) })
			if name == "the first answered" {
				g.Backend.On(model, answer(`"model":"`+model+`",`))
			}
			got := post(t, g, messages, key.Secret, model, c.more)
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v\n%s", w.Balance, c.cost, got.Body)
			}
		})
	}
	g.Verify(t)
}

// TestChainedGatewaysChargeMalformedReportsTheSame chains two gateways: the inner one forwards
// the backend's report to the outer one.
func TestChainedGatewaysChargeMalformedReportsTheSame(t *testing.T) {
	route := func(directive, header, prefix string) string {
		return directive + ` {
			pass_up X-Inner X-Inner-Key
			@inner header X-Inner *
			reverse_proxy @inner BACKEND
			reverse_proxy 127.0.0.1:PORT {
				header_up ` + header + ` "` + prefix + `{header.X-Inner-Key}"
				header_up X-Inner 1
			}
		}
		`
	}
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: route("modelgate_messages", "X-Api-Key", "") + route("modelgate_completions", "Authorization", "Bearer ")})
	for name, c := range map[string]struct {
		path, more string
		script     http.HandlerFunc
	}{
		"lines":              {chat, streamed, gatetest.Body(200, "application/x-ndjson", linesOf(append(append([]string(nil), chatChunks...), usageChunk)...))},
		"lines as events":    {messages, streamed, gatetest.Body(200, "text/event-stream", linesOf(messageEvents...))},
		"events as JSON":     {messages, streamed, gatetest.Body(200, "application/json", strings.Join(messageEvents, ""))},
		"a mark":             {messages, "", gatetest.JSON(200, "\ufeff"+messageAnswer)},
		"no report":          {chat, streamed, gatetest.Stream(append(append([]string(nil), chatChunks...), doneChunk)...)},
		"reasoning alone":    {chat, streamed, gatetest.Stream(chatChunks[0], chatChunk(`"reasoning_details":[{"text":"a text that has 30 bytes in it"}]`), chatChunks[2], doneChunk)},
		"too much":           {messages, "", gatetest.JSON(200, strings.Replace(messageAnswer, `"output_tokens":4`, `"output_tokens":4000`, 1))},
		"less than before":   {chat, streamed, gatetest.Stream(append(append([]string(nil), chatChunks...), usageChunk, strings.Replace(usageChunk, `"completion_tokens":2`, `"completion_tokens":1`, 1), doneChunk)...)},
		"broken off":         {messages, streamed, gatetest.Then(gatetest.Stream(messageEvents[:4]...), gatetest.Reset)},
		"broken off in JSON": {messages, "", gatetest.Then(gatetest.JSON(200, messageAnswer[:90]), flush)},
		"an error event":     {messages, streamed, gatetest.Stream(messageEvents[0], "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n")},
		"refused":            {chat, "", gatetest.JSON(429, `{"error":{}}`)},
		"an empty answer":    {chat, "", gatetest.JSON(200, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer, inner := g.NewKey(t, nil), g.NewKey(t, nil)
			for _, key := range []gatetest.Key{outer, inner} {
				g.Credit(t, key.UserID, "1.00")
			}
			model := modelName("priced " + name)
			g.Backend.On(model, c.script)
			got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, outer.Secret)+"X-Inner-Key: "+inner.Secret, bodyFor(c.path, model, c.more))
			out, in := g.WalletAtRest(t, outer.UserID), g.WalletAtRest(t, inner.UserID)
			if out.Balance != in.Balance {
				t.Errorf("the outer one charged %v, the inner one %v\n%s", money.Unit-out.Balance, money.Unit-in.Balance, got.Body)
			}
		})
	}
	g.Verify(t)
}
