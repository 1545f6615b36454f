package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// TestHiddenReasoningIsChargedAfterADisconnect disconnects the caller at each point of a
// stream of a reasoning model, with and without a usage report.
func TestHiddenReasoningIsChargedAfterADisconnect(t *testing.T) {
	const app = prices + `
		price reasoner* {
			input 0.001
			output 0.01
			reasoning 0.01
			context 10000
			max_output 1000
			on_disconnect finish BOUND
		}
	`
	config := func(bound, cancel string) gatetest.Config {
		text := strings.Replace(app, "BOUND", bound, 1)
		if cancel != "" {
			text = strings.Replace(strings.Replace(text, "finish "+bound, cancel, 1), "0.01", "0.5", -1)
		}
		return gatetest.Config{App: text, Site: gatetest.Proxied}
	}
	points := map[string]struct {
		first []string
		until string
		began bool
		rest  []string
		some  money.Amount // charged for the output that is known without the report
	}{
		"before content": {messageEvents[:1], "message_start", false, messageEvents[1:], 10},
		"in a thought":   {[]string{messageEvents[0], opening(`"type":"redacted_thinking","data":"abc"`)}, "redacted", true, messageEvents[4:], 10},
		"in the text":    {messageEvents[:4], "Hello", true, messageEvents[4:], 30},
	}
	for bound, endings := range map[string]map[string]struct {
		second func(rest []string) http.HandlerFunc
		cost   func(began bool, some money.Amount) money.Amount
		rule   func(began bool) string
	}{
		"1h": {
			"with a report": {
				func(rest []string) http.HandlerFunc { return portions(rest...) },
				func(bool, money.Amount) money.Amount { return 25 + 150 }, func(bool) string { return "finish" },
			},
			"without a report": {
				func([]string) http.HandlerFunc { return portions() },
				func(began bool, some money.Amount) money.Amount {
					if !began {
						return 0
					}
					return 25 + some
				}, func(bool) string { return "" },
			},
			"a reset": {
				func([]string) http.HandlerFunc { return gatetest.Reset },
				func(began bool, some money.Amount) money.Amount {
					if !began {
						return 0
					}
					return 25 + some
				}, func(bool) string { return "" },
			},
		},
		"300ms": {"the bound passes": {nil, func(_ bool, some money.Amount) money.Amount { return 25 + some }, func(bool) string { return "finish_timeout" }}},
	} {
		t.Run(bound, func(t *testing.T) {
			g := gatetest.Start(t, config(bound, ""))
			for ending, e := range endings {
				for point, p := range points {
					for _, reload := range []bool{false, true} {
						name := ending + " " + point
						if reload {
							name += ", after a reload"
						}
						t.Run(name, func(t *testing.T) {
							if err := g.Reload(config(bound, "")); err != nil {
								t.Fatal(err)
							}
							key := g.NewKey(t, nil)
							g.Credit(t, key.UserID, "1.00")
							var second http.HandlerFunc
							if e.second != nil {
								second = e.second(p.rest)
							}
							script, reached, on, gone := interrupted(gatetest.Stream(p.first...), second)
							model := modelName("reasoner " + t.Name())
							g.Backend.On(model, script)
							read, leave := disconnects[0].call(t, g, messages, key.Secret, model, streamed)
							within(t, gatetest.Timeout, "the call", reached)
							read(p.until)
							leave()
							if e.second != nil {
								awaitDetached(t, 1)
							}
							if reload {
								if err := g.Reload(config(bound, "cancel")); err != nil {
									t.Fatal(err)
								}
							}
							if e.second != nil {
								close(on)
							} else {
								within(t, gatetest.Timeout, "the end of the call to the backend", gone)
							}
							line := g.CallLineOf(t, model)
							want := e.cost(p.began, p.some)
							if line.Text("cost") != want.String() || line.Text("rule") != e.rule(p.began) {
								t.Errorf("logged %v, want %v", line, want)
							}
							if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-want {
								t.Errorf("the wallet has %v, want a charge of %v", w.Balance, want)
							}
							g.Verify(t)
						})
					}
				}
			}
		})
	}
}
