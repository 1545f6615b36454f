package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestRoutesOfABlockAreTriedInTheOrderOfTheFile(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_messages {
			@exact modelgate_model claude-big
			reverse_proxy @exact BACKEND {
				header_up X-Route exact
			}
			@prefix modelgate_model claude-* gpt-4
			reverse_proxy @prefix BACKEND {
				header_up X-Route prefix
			}
			@dead modelgate_model claude-small
			respond @dead "never reached" 200
			@last modelgate_model last
			handle @last {
				reverse_proxy BACKEND {
					header_up X-Route last
				}
			}
		}`})
	key := g.NewKey(t, nil).Secret
	for model, want := range map[string]string{
		"claude-big": "exact", "claude-small": "prefix", "claude-": "prefix", "claude-bigger": "prefix", "gpt-4": "prefix", "last": "last",
	} {
		post(t, g, messages, key, model, "")
		if seen := g.Backend.Seen(model); len(seen) != 1 || seen[0].Header.Get("X-Route") != want {
			t.Errorf("%s took the route of %v, want %s", model, seen, want)
		}
	}
	for _, model := range []string{"gpt-40", "Claude-big", "lasting", "claude"} {
		got := post(t, g, messages, key, model, "")
		refusal{404, "not_found_error", fault.ModelNotFound, `there is no model "` + model + `" here; GET /v1/models lists the available models`, "model"}.check(t, messages, got)
		wantCall(t, g, got, "refused", "none", 0, 0)
	}
}

func TestAModelWithoutAPriceOrARouteIs404WithoutARecord(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: `
		modelgate_messages {
			@routed modelgate_model unpriced priced-routed
			reverse_proxy @routed BACKEND
		}`})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for model, reason := range map[string]string{"unpriced": "the model has no price for calls", "priced-unrouted": "no route matches this model"} {
		got := post(t, g, messages, key.Secret, model, "")
		refusal{404, "not_found_error", fault.ModelNotFound, `there is no model "` + model + `" here; GET /v1/models lists the available models`, "model"}.check(t, messages, got)
		if line := g.CallLine(t, got.RequestID()); line.Text("error") != reason || line.Text("ended") != "refused" {
			t.Errorf("logged %v", line)
		}
	}
	g.Backend.On("priced-routed", claims(9, 4, ""))
	got := post(t, g, messages, key.Secret, "priced-routed", "")
	g.WalletAtRest(t, key.UserID)
	list := gatetest.Eventually(t, "there is a record", func() (string, bool) {
		_, list := g.Admin(t, http.MethodGet, "/modelgate/calls", nil)
		return string(list), strings.Contains(string(list), got.RequestID())
	})
	if strings.Count(list, `"request_id"`) != 1 {
		t.Errorf("a call that no backend received has a record: %s", list)
	}
	g.Verify(t)
}

func TestAnUnroutedCallIsNeitherPassedOnNorAnsweredEmpty(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_completions {
			@mute modelgate_model mute
			vars @mute nothing done
			@none modelgate_model none
			request_header @none X-Seen yes
			@abort modelgate_model abort
			abort @abort
			@text modelgate_model text
			respond @text "hello"
			@terse modelgate_model terse
			respond @terse 200
		}
		respond "passed on" 418`})
	key := g.NewKey(t, nil).Secret
	for _, model := range []string{"mute", "none", "unknown"} {
		got := post(t, g, chat, key, model, "")
		refusal{404, "not_found_error", fault.ModelNotFound, `there is no model "` + model + `" here; GET /v1/models lists the available models`, "model"}.check(t, chat, got)
	}
	unavailable.check(t, chat, post(t, g, chat, key, "abort", ""))
	if got := post(t, g, chat, key, "text", ""); got.Body != "hello" {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestAHandlerThatWritesNothingIs503(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_messages {
			modelgate_test_mute
		}
		modelgate_completions {
			modelgate_test_mute
		}`})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, chat} {
		got := post(t, g, path, key, "m", "")
		unavailable.check(t, path, got)
		wantCall(t, g, got, "upstream_error", "none", 0, 0)
	}
}

func TestAnErrorDirectiveInABlockIsAnsweredInTheDialect(t *testing.T) {
	var block strings.Builder
	for _, status := range []string{"400", "401", "403", "404", "405", "413", "429", "500", "502", "504"} {
		block.WriteString("@" + status + " modelgate_model m" + status + "\nerror @" + status + " \"of the operator\" " + status + "\n")
	}
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_messages {\n" + block.String() + "\n}\nmodelgate_completions {\n" + block.String() + "\n}"})
	key := g.NewKey(t, nil).Secret
	for model, c := range map[string]struct {
		want  refusal
		ended string
	}{
		"m400": {refusal{400, "invalid_request_error", fault.InvalidParameter, "Bad Request", ""}, "refused"},
		"m401": {refusal{403, "permission_error", fault.Forbidden, "this call is not allowed here", ""}, "refused"},
		"m403": {refusal{403, "permission_error", fault.Forbidden, "this call is not allowed here", ""}, "refused"},
		"m404": {refusal{404, "not_found_error", fault.NotFound, "there is nothing for this call here", ""}, "refused"},
		"m405": {refusal{405, "invalid_request_error", fault.MethodNotAllowed, "Method Not Allowed", ""}, "refused"},
		"m413": {refusal{413, "request_too_large", fault.PayloadTooLarge, "the body is too large for this model", ""}, "refused"},
		"m429": {refusal{429, "rate_limit_error", fault.RateLimited, "too many calls at this time", ""}, "refused"},
		"m500": {unavailable, "upstream_error"},
		"m502": {unavailable, "upstream_error"},
		"m504": {refusal{504, "timeout_error", fault.UpstreamTimeout, "the backend of this model did not answer in time", ""}, "upstream_error"},
	} {
		for _, path := range []string{messages, chat} {
			got := post(t, g, path, key, model, "")
			c.want.check(t, path, got)
			wantCall(t, g, got, c.ended, "none", 0, 0)
		}
	}
}

func TestABodyLimitOfTheOperatorIs413(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "request_body {\n max_size 1KB\n}\n" + gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, chat} {
		conn := g.Dial(t) // if the announced length is too large, Caddy refuses the body itself
		conn.Send(t, headOf(path, key, "Transfer-Encoding: chunked")+"7d0\n"+strings.Repeat("x", 2000)+"\n0\n\n")
		got := conn.Receive(t, http.MethodPost)
		refusal{413, "request_too_large", fault.PayloadTooLarge, "the body is larger than 1000 bytes", ""}.check(t, path, got)
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("%d calls were forwarded", n)
	}
}

func TestASecondAttemptSendsTheWholeBodyAgain(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		modelgate_messages {
			reverse_proxy 127.0.0.1:1 BACKEND {
				lb_policy first
				lb_retries 3
				fail_duration 10s
			}
		}`})
	key := g.NewKey(t, nil).Secret
	got := post(t, g, messages, key, "again", "")
	if seen := g.Backend.Seen("again"); got.Status != http.StatusOK || len(seen) != 1 || string(seen[0].Body) != bodyFor(messages, "again", "") {
		t.Errorf("answered %d, the backend saw %q", got.Status, seen)
	}
}

// TestCallsAreRetriedOnlyAsConfigured checks the documentation of failover. A call is retried
// after a listed status. If the connection breaks before the response header, the call is
// retried only if that is listed.
func TestCallsAreRetriedOnlyAsConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		expression string
		script     http.HandlerFunc
		calls      int // that the backends receive
	}{
		"a status":               {"{rp.status_code} in [429, 503]", gatetest.JSON(503, `{}`), 3},
		"another status":         {"{rp.status_code} in [429, 503]", gatetest.JSON(500, `{}`), 1},
		"a reset":                {"{rp.status_code} in [429, 503]", gatetest.Reset, 1},
		"a reset, listed":        {"{rp.status_code} in [429, 503] || {rp.is_transport_error}", gatetest.Reset, 3},
		"a status or a reset":    {"{rp.status_code} in [429, 503] || {rp.is_transport_error}", gatetest.JSON(503, `{}`), 3},
		"another status, listed": {"{rp.status_code} in [429, 503] || {rp.is_transport_error}", gatetest.JSON(500, `{}`), 1},
		"a reset in the answer":  {"{rp.status_code} in [429, 503] || {rp.is_transport_error}", gatetest.Then(gatetest.JSON(200, `{"content":[`), flush, gatetest.Reset), 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{Site: `
				modelgate_messages {
					reverse_proxy BACKEND BACKEND {
						lb_retries 2
						lb_retry_match {
							expression ` + "`" + c.expression + "`" + `
						}
						request_buffers 33MiB
					}
				}`})
			key := g.NewKey(t, nil).Secret
			g.Backend.On("tried", c.script)
			post(t, g, messages, key, "tried", "")
			if n := len(g.Backend.Seen("tried")); n != c.calls {
				t.Errorf("the backends received %d calls, want %d", n, c.calls)
			}
		})
	}
}

func TestAModelMatcherOutsideOfABlockMatchesNothing(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "@m modelgate_model *\nrespond @m matched\nrespond other"})
	if got := g.Do(t, http.MethodPost, "/anything", "", `{"model":"m"}`); got.Body != "other" {
		t.Errorf("answered %s", got.Body)
	}
}

func TestPlaceholdersInTheAccessLog(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `
		log
		log_append user {http.auth.user.id}
		log_append key {http.modelgate.key_id}
		log_append call {http.modelgate.request_id}
		log_append model {http.modelgate.model}
		log_append ended {http.modelgate.ended}
		log_append input {http.modelgate.usage.input}
		log_append output {http.modelgate.usage.output}
		` + gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Backend.On("placed", gatetest.JSON(http.StatusOK, messageAnswer))
	got := post(t, g, messages, key.Secret, "placed", "")
	line := g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("call") == got.RequestID() })
	for field, want := range map[string]any{"user": key.UserID, "key": key.ID, "model": "placed", "ended": "complete"} {
		if line[field] != want {
			t.Errorf("%s: %v, want %v", field, line[field], want)
		}
	}
	for field, want := range map[string]string{"input": "9", "output": "4"} {
		if value := strings.TrimSpace(toText(line[field])); value != want {
			t.Errorf("%s: %v, want %s", field, line[field], want)
		}
	}

	refused := g.Do(t, http.MethodPost, messages, "Anthropic-Version: 2023-06-01", bodyFor(messages, "placed", ""))
	line = g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("call") == refused.RequestID() })
	if line.Text("ended") != "refused" || line.Number("status") != 401 {
		t.Errorf("logged %v", line)
	}
}
