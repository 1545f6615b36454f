package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestACodeContainerIsChargedOnceInACall has answers whose tokens cost 49 nano-units.
func TestACodeContainerIsChargedOnceInACall(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied, App: `
		price running* {
			input 0.001
			output 0.01
			context 10000
			max_output 1000
			call code_interpreter 0.03 max 4
		}`})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1000.00")
	const (
		one    = `{"id":"ci_1","type":"code_interpreter_call","code":"1","container_id":"cntr_1"},`
		two    = `{"id":"ci_2","type":"code_interpreter_call","code":"1","container_id":"cntr_2"},`
		hidden = `{"id":"ci_3","type":"code_interpreter_call","code":"1"},`
		last   = `{"type":"message","content":[{"type":"output_text","text":"x"}]}`
		usage  = `"usage":{"input_tokens":9,"output_tokens":4}`
	)
	for name, c := range map[string]struct{ items, cost string }{
		"declared and not used": {"", "0.000000049"},
		"one container":         {one + one + one, "0.030000049"},
		"two containers":        {one + two + one, "0.060000049"},
		"no container is shown": {hidden + hidden + hidden, "0.090000049"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, stream := range []string{"false", "true"} {
				model := "running-" + strings.ReplaceAll(name, " ", "-") + stream
				answer := `"status":"completed","output":[` + c.items + last + `],` + usage
				if stream == "true" {
					var events []string
					for item := range strings.SplitSeq(c.items, "},") {
						if item != "" {
							events = append(events, responseEvent("response.output_item.done", `"item":`+item+`}`))
						}
					}
					g.Backend.On(model, gatetest.Stream(append(events, responseEvent("response.completed", `"response":{`+answer+`}`))...))
				} else {
					g.Backend.On(model, gatetest.JSON(http.StatusOK, `{`+answer+`}`))
				}
				got := respond(t, g, responses, key.Secret, `{"model":"`+model+`","input":"x","stream":`+stream+`,"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`)
				if cost := g.CallLine(t, got.RequestID()).Text("cost"); got.Status != http.StatusOK || cost != c.cost {
					t.Errorf("stream %s: %d %s, charged %s, want %s", stream, got.Status, got.Body, cost, c.cost)
				}
			}
		})
	}
	g.Verify(t)
}
