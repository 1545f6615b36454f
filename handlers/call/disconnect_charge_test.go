package call_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestACallCancelledOnDisconnectIsChargedItsInput(t *testing.T) {
	ordinary := gatetest.Config{Global: overHTTP2, App: thinking, Site: gatetest.Proxied}
	cancelled := ordinary
	cancelled.App = "on_disconnect cancel\n" + thinking
	shortFinish := ordinary
	shortFinish.App = "on_disconnect finish 50ms\n" + thinking
	full := ordinary
	full.App = "limits {\n detached_per_user 1\n}\n" + thinking
	asked := strings.Repeat("word ", 60) // 300 bytes, without the role
	const input = money.Amount(100)
	long := fmt.Sprintf(`,"system":%q`, asked)
	start := strings.Replace(messageEvents[0], `"input_tokens":25`, `"input_tokens":250`, 1)
	for _, c := range []struct {
		name, model, more, rule string
		config                  gatetest.Config
		first                   http.HandlerFunc
		read                    string
		least, most             money.Amount // bounds of the charged input; the estimate includes the other text of the body
		output                  money.Amount
	}{
		{"JSON before the head", "priced", "", "cancel", cancelled, nil, "", input, input + 5, 0},
		{"in the middle of JSON", "priced", "", "cancel", cancelled, gatetest.Then(gatetest.JSON(200, messageAnswer[:70]), portions("")), messageAnswer[:70], input, input + 5, 0},
		{"a stream before the head", "priced", streamed, "cancel", cancelled, nil, "", input, input + 5, 0},
		{"a stream that reported less", "priced", streamed, "cancel", cancelled, gatetest.Stream(messageEvents[0]), "message_start", input, input + 5, 10},
		{"a stream that reported more", "priced", streamed, "cancel", cancelled, gatetest.Stream(start), "message_start", 250, 250, 10},
		{"a stream with content", "priced", streamed, "cancel", ordinary, gatetest.Stream(messageEvents[:4]...), "Hello", input, input + 5, 30},
		{"a stream with content that thinks, where the operator cancels", "optional", streamed + `,"thinking":{"type":"enabled"}`, "cancel", cancelled, gatetest.Stream(messageEvents[:4]...), "Hello", input, input + 5, 30},
		{"a stream with content that does not think", "optional", streamed + `,"thinking":{"type":"disabled"},"reasoning_effort":"none"`, "cancel", ordinary, gatetest.Stream(messageEvents[:4]...), "Hello", input, input + 5, 30},
		{
			"a stream with content that does not think in any dialect", "optional",
			streamed + `,"enable_thinking":0,"think":false,"prompt_mode":null,"include_reasoning":true,"separate_reasoning":true,"stream_reasoning":true,` +
				`"reasoning_format":"none","chat_template_kwargs":{"enable_thinking":false,"thinking":0,"reasoning_effort":"none"}`,
			"cancel", ordinary, gatetest.Stream(messageEvents[:4]...), "Hello", input, 2 * input, 30,
		},
		{"after the time limit, without content", "priced", streamed, "finish_timeout", shortFinish, nil, "", input, input + 5, 0},
		{"after the time limit, with content", "thinking", streamed, "finish_timeout", shortFinish, gatetest.Stream(messageEvents[:4]...), "Hello", input, input + 5, 30},
		{"beyond the detached limit", "priced", streamed, "finish_limit", full, nil, "", input, input + 5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gatetest.Start(t, c.config)
			for _, d := range disconnects {
				t.Run(d.name, func(t *testing.T) {
					key := g.NewKey(t, nil)
					g.Credit(t, key.UserID, "1.00")
					if c.rule == "finish_limit" {
						script, reached, on, _ := interrupted(nil, gatetest.JSON(500, `{"type":"error","error":{}}`))
						g.Backend.On("priced other", script)
						_, leave := disconnects[0].call(t, g, messages, key.Secret, "priced other", "")
						<-reached
						leave()
						awaitDetached(t, 1)
						defer close(on)
					}
					model := modelName(c.model + " " + t.Name())
					script, reached, _, gone := interrupted(c.first, nil)
					g.Backend.On(model, script)
					read, leave := d.call(t, g, messages, key.Secret, model, c.more+long)
					within(t, gatetest.Timeout, "the call", reached)
					if c.read != "" {
						read(c.read)
					}
					leave()
					within(t, soon, "the end of the call to the backend", gone)
					line := g.CallLineOf(t, model)
					if line.Text("ended") != "client_gone" || line.Text("rule") != c.rule || line.Text("usage") != "estimated" {
						t.Errorf("logged %v", line)
					}
					if cost := amount(t, line.Text("cost")); cost < c.least+c.output || cost > c.most+c.output {
						t.Errorf("the call cost %v", cost)
					}
					if why := whyCharged(t, g, line.Text("request_id")); !strings.HasSuffix(why, "the charge is for the larger of the reported and the estimated tokens, for input and for output") {
						t.Errorf("the explanation is %q", why)
					}
				})
			}
		})
	}
}

// whyCharged returns how the gateway explains the charge of a call to operators.
func whyCharged(t *testing.T, g *gatetest.Gate, id string) string {
	t.Helper()
	return gatetest.Eventually(t, "the record of "+id, func() (string, bool) { // is written a moment later
		var shown struct{ Why string }
		status, body := g.Admin(t, http.MethodGet, "/modelgate/calls/"+id, nil)
		known := status == http.StatusOK && json.Unmarshal(body, &shown) == nil
		return shown.Why, known
	})
}

func TestARefusedOrUnsentCallIsFreeAfterADisconnect(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and completes no TLS handshake
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dialed := make(chan struct{})
	go func() {
		if _, err := silent.Accept(); err == nil {
			close(dialed)
		}
	}()
	g := gatetest.Start(t, gatetest.Config{App: "charge_failed_input\n" + prices, Site: `
		modelgate_messages {
			@silent modelgate_model priced-silent
			reverse_proxy @silent https://` + silent.Addr().String() + `
			reverse_proxy BACKEND
		}`})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")

	_, leave := disconnects[0].call(t, g, messages, key.Secret, "priced-silent", "")
	within(t, gatetest.Timeout, "the connection", dialed)
	leave()
	line := g.CallLineOf(t, "priced-silent")
	if line.Text("ended") != "client_gone" || line.Text("usage") != "none" || line.Text("rule") != "unsent" {
		t.Errorf("logged %v", line)
	}
	if why := whyCharged(t, g, line.Text("request_id")); !strings.Contains(why, "before a backend had the whole body") || strings.Contains(why, "on_disconnect") {
		t.Errorf("the explanation is %q", why)
	}
	for name, refusal := range map[string]http.HandlerFunc{
		"a 400":                      gatetest.JSON(400, `{"type":"error","error":{}}`),
		"a 500":                      gatetest.JSON(500, `{"type":"error","error":{}}`),
		"a page":                     gatetest.Body(502, "text/html", "<html>"),
		"a 401":                      gatetest.JSON(401, `{}`),
		"an empty body":              gatetest.Body(200, "application/json", ""),
		"an error event, no content": gatetest.Stream(messageEvents[0], "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			model := modelName("priced " + name)
			script, reached, on, _ := interrupted(nil, refusal)
			g.Backend.On(model, script)
			_, leave := disconnects[0].call(t, g, messages, key.Secret, model, streamed)
			<-reached
			leave()
			awaitDetached(t, 1)
			close(on)
			if line := g.CallLineOf(t, model); line.Text("usage") != "none" || line.Text("cost") != "0.00" || line.Number("status") != 499 {
				t.Errorf("logged %v", line)
			}
			awaitDetached(t, 0)
		})
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit {
		t.Errorf("the wallet has %v", w.Balance)
	}
}

func TestFailedInputIsChargedIfConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		word string
		own  string       // of the price
		want money.Amount // of the input
	}{
		"by default": {"", "", 0}, "off": {"charge_failed_input off\n", "", 0}, "on": {"charge_failed_input on\n", "", 2}, // of "hello"
		"on in the price": {"", "charge_failed_input", 2}, "off in the price": {"charge_failed_input\n", "charge_failed_input off", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: c.word + "limits {\n first_byte 300ms\n idle 300ms\n}\n" + strings.Replace(prices, "input", c.own+"\ninput", 1), Site: `
				modelgate_messages {
					@retried modelgate_model priced-retried-*
					reverse_proxy @retried BACKEND 127.0.0.1:1 {
						lb_policy round_robin
						lb_retries 1
						lb_retry_match {
							method POST
						}
						lb_retry_match {
							expression {rp.status_code}==503
						}
						request_buffers 1MiB
					}
					@unreachable modelgate_model priced-unreachable
					reverse_proxy @unreachable 127.0.0.1:1
					reverse_proxy BACKEND
				}`})
			key := g.NewKey(t, nil)
			for _, f := range []struct {
				model  string
				script http.HandlerFunc
				ended  string
				sent   bool // and not refused
			}{
				{"priced-silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout", true},
				{"priced-stalled", gatetest.Then(gatetest.Stream(messageEvents[0]), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "timeout", true},
				{"priced-reset", gatetest.Reset, "upstream_error", true},
				{"priced-broken", gatetest.Then(gatetest.Stream(messageEvents[0]), gatetest.Reset), "upstream_error", true},
				{"priced-500", gatetest.JSON(500, `{"type":"error","error":{}}`), "upstream_error", false},
				{"priced-page", gatetest.Body(502, "text/html", "<html>"), "upstream_error", false},
				{"priced-event", gatetest.Stream(messageEvents[0], "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"), "upstream_error", false},
				{"priced-unreachable", nil, "upstream_error", false},
				{"priced-retried-reset", gatetest.Reset, "upstream_error", true},
				{"priced-retried-503", gatetest.JSON(503, `{}`), "upstream_error", false},
			} {
				g.Backend.On(f.model, f.script)
				g.Credit(t, key.UserID, "1.00")
				before := g.WalletAtRest(t, key.UserID).Balance
				got := post(t, g, messages, key.Secret, f.model, streamed)
				line := g.CallLine(t, got.RequestID())
				want, rule, basis := money.Amount(0), "", "none"
				if f.sent && c.want > 0 {
					want, rule, basis = c.want, "failed_input", "estimated"
					if strings.HasSuffix(f.model, "stalled") || strings.HasSuffix(f.model, "broken") {
						want = 25 // as it was reported
					}
				}
				if line.Text("ended") != f.ended || line.Text("rule") != rule || line.Text("usage") != basis || line.Text("cost") != want.String() {
					t.Errorf("%s: logged %v, want %v", f.model, line, want)
				}
				if w := g.WalletAtRest(t, key.UserID); w.Balance != before-want {
					t.Errorf("%s cost %v, want %v", f.model, before-w.Balance, want)
				}
			}
			g.Verify(t)
		})
	}
}

func TestChainedGatewaysChargeADisconnectTheSame(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: `
		modelgate_messages {
			pass_up X-Inner X-Inner-Key
			@inner header X-Inner *
			reverse_proxy @inner BACKEND
			reverse_proxy 127.0.0.1:PORT {
				header_up X-Api-Key {header.X-Inner-Key}
				header_up X-Inner 1
			}
		}`})
	for _, c := range []struct {
		name, more    string
		first, second http.HandlerFunc
		read          string
		rule          string
		cost          money.Amount
	}{
		{"JSON", "", nil, gatetest.JSON(200, messageAnswer), "", "finish", 9 + 4*10},
		{"a stream without content", streamed, gatetest.Stream(messageEvents[0]), portions(messageEvents[1:]...), "message_start", "finish", 25 + 15*10},
		{"a stream with content", streamed, gatetest.Stream(messageEvents[:4]...), nil, "Hello", "cancel", 25 + 3*10},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer, inner := g.NewKey(t, nil), g.NewKey(t, nil)
			for _, key := range []gatetest.Key{outer, inner} {
				g.Credit(t, key.UserID, "1.00")
			}
			model := modelName("priced " + c.name)
			script, reached, on, gone := interrupted(c.first, c.second)
			g.Backend.On(model, script)
			body := bodyFor(messages, model, c.more)
			conn := g.Dial(t)
			conn.Send(t, headOf(messages, outer.Secret, "X-Inner-Key: "+inner.Secret+"\nContent-Length: "+itoa(len(body))))
			conn.Send(t, body)
			within(t, gatetest.Timeout, "the call", reached)
			if c.read != "" {
				readUntil(t, conn, c.read)
			}
			conn.Close()
			if c.second != nil {
				awaitDetached(t, 1)
				close(on)
			} else {
				within(t, soon, "the end of the call to the backend", gone)
			}
			for _, key := range []gatetest.Key{outer, inner} {
				gatetest.Eventually(t, "the call is charged", func() (money.Amount, bool) {
					w := g.Wallet(t, key.UserID)
					return w.Balance, w.Reserved == 0 && w.Balance < money.Unit
				})
				if w := g.Wallet(t, key.UserID); w.Balance != money.Unit-c.cost {
					t.Errorf("the wallet has %v, want a charge of %v", w.Balance, c.cost)
				}
			}
			if line := g.CallLineOf(t, model); line.Text("rule") != c.rule && line.Text("rule") != "" {
				t.Errorf("logged %v", line)
			}
			awaitDetached(t, 0)
			g.Verify(t)
		})
	}
}

func TestAnIncompletelySentBodyIsFree(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: "modelgate_messages {\n reverse_proxy " + listener.Addr().String() + "\n}"})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	conn := g.Dial(t)
	body := bodyFor(messages, "priced", fmt.Sprintf(`,"system":%q`, strings.Repeat("x", 24<<20)))
	conn.Send(t, headOf(messages, key.Secret, "Content-Length: "+itoa(len(body))))
	conn.Send(t, body)
	defer (<-accepted).Close()
	conn.Close()
	if line := g.CallLineOf(t, "priced"); line.Text("ended") != "client_gone" || line.Text("usage") != "none" {
		t.Errorf("logged %v", line)
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit {
		t.Errorf("the wallet has %v", w.Balance)
	}
}

func TestADisconnectAfterTheBodyOverHTTP2IsCharged(t *testing.T) {
	// The response header proves that the backend has received the body, even if the transport does not report it.
	script, reached, on, _ := interrupted(gatetest.Stream(messageEvents[0]), portions(messageEvents[1:]...))
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		script(w, r)
	}))
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetUnencryptedHTTP2(true)
	backend.Start()
	defer backend.Close()
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: "modelgate_messages {\n reverse_proxy h2c://" + strings.TrimPrefix(backend.URL, "http://") + "\n}"})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	read, leave := disconnects[0].call(t, g, messages, key.Secret, "priced", streamed)
	<-reached
	read("message_start")
	leave()
	awaitDetached(t, 1)
	close(on)
	if line := g.CallLineOf(t, "priced"); line.Text("rule") != "finish" || line.Text("cost") != money.Amount(25+15*10).String() {
		t.Errorf("logged %v", line)
	}
}
