package call_test

import (
	"context"
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

// thinking is a price of reasoning beside the prices.
const thinking = prices + `
	price thinking* {
		input 0.001
		output 0.01
		reasoning 0.01
		context 10000
		max_output 1000
	}
	price optional* {
		input 0.001
		output 0.01
		audio_output 0.01
		image_output 0.01
		context 10000
		max_output 1000
		call web_search 0.000001
	}
`

// opening is an event that opens a content block with members.
func opening(members string) string {
	return "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{" + members + "}}\n\n"
}

// chatChunk is a chunk of a chat stream with a delta of members.
func chatChunk(members string) string {
	return "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{" + members + "},\"finish_reason\":null}]}\n\n"
}

// departure is a way in which callers disconnect.
type departure struct {
	name  string
	proto string // of the connection
	leave func(*net.TCPConn) error
}

var departures = []departure{
	{"close", "h1", (*net.TCPConn).Close},
	{"reset", "h1", func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }},
	{"half-close", "h1", (*net.TCPConn).CloseWrite},
	{"RST_STREAM", "h2", nil},
}

// overHTTP2 has sites speak HTTP/2 without TLS, too.
const overHTTP2 = "servers {\n protocols h1 h2 h2c\n}"

// call makes a call and returns how to read what comes up to a text, and how to
// disconnect.
func (d departure) call(t *testing.T, g *gatetest.Gate, path, key, model, more string) (read func(until string), leave func()) {
	t.Helper()
	body := bodyFor(path, model, more)
	if d.proto == "h1" {
		conn := g.Dial(t)
		conn.Send(t, headOf(path, key, "Content-Length: "+itoa(len(body))))
		conn.Send(t, body)
		return func(until string) { readUntil(t, conn, until) }, func() {
			if err := d.leave(conn.Conn.(*net.TCPConn)); err != nil {
				t.Error(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(headersFor(path, key)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		req.Header.Set(name, value)
	}
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		if resp, err := transport.RoundTrip(req); err == nil {
			answered <- resp
		}
	}()
	return func(until string) {
		resp := <-answered
		if resp == nil {
			t.Fatal("there was no answer")
		}
		t.Cleanup(func() { resp.Body.Close() })
		readUntil(t, resp.Body, until)
	}, cancel
}

func readUntil(t *testing.T, r io.Reader, until string) {
	t.Helper()
	var got []byte
	for part := make([]byte, 4096); !strings.Contains(string(got), until); {
		n, err := r.Read(part)
		if got = append(got, part[:n]...); err != nil {
			t.Fatalf("reading up to %q: %v after %q", until, err, got)
		}
	}
}

// awaitDetached waits until so many calls run on without their callers.
func awaitDetached(t *testing.T, calls int64) {
	t.Helper()
	runtime := gatetest.Runtime(t)
	gatetest.Eventually(t, fmt.Sprintf("%d calls run on without their callers", calls), func() (int64, bool) {
		n := runtime.Detached.Held()
		return n, n == calls
	})
}

// interrupted is a backend in two parts: between them it closes reached, and waits
// until on is closed. It closes gone if the call is cancelled before.
func interrupted(first, second http.HandlerFunc) (script http.HandlerFunc, reached, on, gone chan struct{}) {
	reached, on, gone = make(chan struct{}), make(chan struct{}), make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		if first != nil {
			first(w, r)
		}
		close(reached)
		select {
		case <-r.Context().Done():
			close(gone)
		case <-on:
			second(w, r)
		}
	}, reached, on, gone
}

// portions sends parts of a body whose head has gone.
func portions(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range parts {
			gatetest.Send(w, part)
		}
	}
}

func TestACallWhoseCallerDisconnectsRunsOnAndIsChargedAsComplete(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Global: overHTTP2, App: thinking, Site: gatetest.Proxied})
	half := len(messageAnswer) / 2
	type runsOn struct {
		name, path, model, more string
		first, second           http.HandlerFunc
		read                    string
		cost                    money.Amount
	}
	// Content was announced, but none of it shown.
	opened := func(name, members string) runsOn {
		return runsOn{"a stream that has opened " + name, messages, "priced", streamed, gatetest.Stream(messageEvents[0], opening(members)), portions(messageEvents[4:]...), "content_block_start", 25 + 15*10}
	}
	// Content was shown, but it does not show the whole cost.
	asking := func(name, more string) runsOn {
		return runsOn{"a stream with content that asks for " + name, messages, "optional", streamed + more, gatetest.Stream(messageEvents[:4]...), portions(messageEvents[4:]...), "Hello", 25 + 15*10}
	}
	chatAsking := func(name, more string) runsOn {
		return runsOn{"a chat stream with content that asks for " + name, chat, "optional", streamed + more, gatetest.Stream(chatChunks[:2]...), portions(chatChunks[2], usageChunk, doneChunk), "Hello", 7 + 2*10}
	}
	bringing := func(name, members string) runsOn {
		return runsOn{"a chat stream with content that brings " + name, chat, "priced", streamed, gatetest.Stream(chatChunks[1], chatChunk(members)), portions(chatChunks[2], usageChunk, doneChunk), "READ", 7 + 2*10}
	}
	for _, c := range []runsOn{
		opened("a text", `"type":"text","text":""`),
		opened("a redacted thought", `"type":"redacted_thinking","data":"abcd"`),
		opened("a tool", `"type":"tool_use","id":"a","name":"b","input":{}`),
		{"a chat stream that has named a tool", chat, "priced", streamed, gatetest.Stream(chatChunks[0], chatChunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":""}}]`)), portions(chatChunks[2], usageChunk, doneChunk), "tool_calls", 7 + 2*10},
		asking("thinking", `,"thinking":{"type":"enabled","budget_tokens":1024}`),
		asking("effort", `,"reasoning_effort":"low"`),
		asking("another model", `,"fallbacks":[{"model":"priced-2"}]`),
		asking("a look at an image", `,"system":[{"type":"image","source":{"type":"url","url":"https://images.example.com/1.png"}}]`),
		asking("a compaction", `,"context_management":{"edits":[{"type":"compact_20260112"}]}`),
		chatAsking("effort", `,"reasoning_effort":"low"`),
		chatAsking("reasoning", `,"reasoning":{"max_tokens":100}`),
		chatAsking("thinking", `,"thinking":{"type":"enabled"}`),
		chatAsking("speech", `,"modalities":["text","audio"],"audio":{"voice":"alloy","format":"pcm16"}`),
		chatAsking("an image", `,"modalities":["text","image"]`),
		bringing("speech", `"audio":{"data":"READ"}`),
		bringing("an image", `"images":[{"image_url":{"url":"data:image/png;base64,READ"}}]`),
		bringing("reasoning", `"reasoning_content":"READ"`),
		{
			"a stream with content that asks for a search", messages, "optional", streamed + `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":1}]`,
			gatetest.Stream(messageEvents[:4]...), portions(append([]string{messageEvents[4], messageEvents[5]}, messageStream("", `"server_tool_use":{"web_search_requests":1}`)[6:]...)...), "Hello", 25 + 15*10 + 1000,
		},
		{
			"a stream with content that has thought", messages, "priced", streamed,
			gatetest.Stream(append([]string{messageEvents[0], opening(`"type":"thinking","thinking":"","signature":""`)}, messageEvents[1:4]...)...), portions(messageEvents[4:]...), "Hello", 25 + 15*10,
		},
		{"JSON before the head", messages, "priced", "", nil, gatetest.JSON(200, messageAnswer), "", 9 + 4*10},
		{"in the middle of JSON", messages, "priced", "", gatetest.Then(gatetest.JSON(200, messageAnswer[:half]), portions("")), portions(messageAnswer[half:]), messageAnswer[:half], 9 + 4*10},
		{"a chat as JSON", chat, "priced", "", nil, gatetest.JSON(200, chatAnswer), "", 9 + 4*10},
		{"a stream before the head", messages, "priced", streamed, nil, gatetest.Stream(messageEvents...), "", 25 + 15*10},
		{"a stream before content", messages, "priced", streamed, gatetest.Stream(messageEvents[0]), portions(messageEvents[1:]...), "message_start", 25 + 15*10},
		{"a chat stream before content", chat, "priced", streamed, gatetest.Stream(chatChunks[0]), portions(append(chatChunks[1:], usageChunk, doneChunk)...), "assistant", 7 + 2*10},
		{"a stream with content and a price of reasoning", messages, "thinking", streamed, gatetest.Stream(messageEvents[:4]...), portions(messageEvents[4:]...), "Hello", 25 + 15*10},
		{"a chat stream with content and a price of reasoning", chat, "thinking", streamed, gatetest.Stream(chatChunks[:2]...), portions(chatChunks[2], usageChunk, doneChunk), "Hello", 7 + 2*10},
	} {
		for _, d := range departures {
			t.Run(c.name+" by "+d.name, func(t *testing.T) {
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				model := modelName(c.model + " " + t.Name())
				script, reached, on, gone := interrupted(c.first, c.second)
				g.Backend.On(model, script)
				read, leave := d.call(t, g, c.path, key.Secret, model, c.more)
				within(t, gatetest.Patience, "the call", reached)
				if c.read != "" {
					read(c.read)
				}
				leave()
				awaitDetached(t, 1)
				if w := g.Wallet(t, key.UserID); w.Reserved == 0 {
					t.Error("nothing is reserved any more")
				}
				close(on)
				line := g.CallLineOf(t, model)
				if line.Text("ended") != "client_gone" || line.Text("rule") != "finish" || line.Text("usage") != "reported" || line.Text("cost") != c.cost.String() {
					t.Errorf("logged %v, want a cost of %v", line, c.cost)
				}
				if want := map[bool]float64{true: 499, false: 200}[c.read == ""]; line.Number("status") != want {
					t.Errorf("the status is %v, want %v", line.Number("status"), want)
				}
				if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
					t.Errorf("the wallet has %v", w.Balance)
				}
				awaitDetached(t, 0)
				select {
				case <-gone:
					t.Error("the backend was cancelled")
				default:
				}
				g.Verify(t)
			})
		}
	}
}

func TestACallThatIsCancelledWithItsCallerIsChargedAtLeastItsInput(t *testing.T) {
	ordinary := gatetest.Config{Global: overHTTP2, App: thinking, Site: gatetest.Proxied}
	cancelled := ordinary
	cancelled.App = "on_disconnect cancel\n" + thinking
	brief := ordinary
	brief.App = "on_disconnect finish 50ms\n" + thinking
	full := ordinary
	full.App = "limits {\n detached_per_user 1\n}\n" + thinking
	asked := strings.Repeat("word ", 60) // 300 bytes, beside the role
	const input = money.Amount(100)
	long := fmt.Sprintf(`,"system":%q`, asked)
	start := strings.Replace(messageEvents[0], `"input_tokens":25`, `"input_tokens":250`, 1)
	for _, c := range []struct {
		name, model, more, rule string
		config                  gatetest.Config
		first                   http.HandlerFunc
		read                    string
		least, most             money.Amount // of the input; the estimate counts the words around, too
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
		{"after its time without content", "priced", streamed, "finish_timeout", brief, nil, "", input, input + 5, 0},
		{"after its time with content", "thinking", streamed, "finish_timeout", brief, gatetest.Stream(messageEvents[:4]...), "Hello", input, input + 5, 30},
		{"beyond the limit", "priced", streamed, "finish_limit", full, nil, "", input, input + 5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gatetest.Start(t, c.config)
			for _, d := range departures {
				t.Run(d.name, func(t *testing.T) {
					key := g.NewKey(t, nil)
					g.Credit(t, key.UserID, "1.00")
					if c.rule == "finish_limit" {
						script, reached, on, _ := interrupted(nil, gatetest.JSON(500, `{"type":"error","error":{}}`))
						g.Backend.On("priced other", script)
						_, leave := departures[0].call(t, g, messages, key.Secret, "priced other", "")
						<-reached
						leave()
						awaitDetached(t, 1)
						defer close(on)
					}
					model := modelName(c.model + " " + t.Name())
					script, reached, _, gone := interrupted(c.first, nil)
					g.Backend.On(model, script)
					read, leave := d.call(t, g, messages, key.Secret, model, c.more+long)
					within(t, gatetest.Patience, "the call", reached)
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
						t.Errorf("it cost %v", cost)
					}
				})
			}
		})
	}
}

func TestWhatABackendRefusesOrNeverHadIsFreeForACallerWhoDisconnects(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and never shakes hands
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

	_, leave := departures[0].call(t, g, messages, key.Secret, "priced-silent", "")
	within(t, gatetest.Patience, "the connection", dialed)
	leave()
	if line := g.CallLineOf(t, "priced-silent"); line.Text("ended") != "client_gone" || line.Text("usage") != "none" {
		t.Errorf("logged %v", line)
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
			_, leave := departures[0].call(t, g, messages, key.Secret, model, streamed)
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

func TestAFailureBeforeContentIsChargedItsInputIfTheOperatorSaysSo(t *testing.T) {
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
					t.Errorf("%s has cost %v, want %v", f.model, before-w.Balance, want)
				}
			}
			g.Verify(t)
		})
	}
}

func TestADetachedCallKeepsItsPlaceAndSurvivesAReload(t *testing.T) {
	config := gatetest.Config{App: prices, Site: gatetest.Proxied}
	g := gatetest.Start(t, config)
	key := g.NewKey(t, map[string]any{"limits": map[string]any{"streams": 1}})
	g.Credit(t, key.UserID, "1.00")
	script, reached, on, gone := interrupted(nil, gatetest.Stream(messageEvents...))
	g.Backend.On("priced", script)
	_, leave := departures[0].call(t, g, messages, key.Secret, "priced", streamed)
	<-reached
	leave()
	awaitDetached(t, 1)
	g.Backend.On("priced other", gatetest.Stream(messageEvents...))
	if got := post(t, g, messages, key.Secret, "priced other", streamed); got.Status != http.StatusTooManyRequests {
		t.Errorf("a second stream was answered %d", got.Status)
	}
	config.App = strings.ReplaceAll(prices, "0.01", "0.05") + "on_disconnect cancel"
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	close(on)
	g.CallLineOf(t, "priced")
	select {
	case <-gone:
		t.Error("the backend was cancelled")
	default:
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-25-15*10 {
		t.Errorf("the wallet has %v", w.Balance)
	}
	if got := post(t, g, messages, key.Secret, "priced other", streamed); got.Status != http.StatusOK {
		t.Errorf("after the end a stream was answered %d", got.Status)
	}
	g.Verify(t)
}

func TestADetachedCallIsTimedAndPaidAsOthersAre(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n first_byte 1s\n idle 200ms\n}\n" + prices, Site: gatetest.Proxied})
	start := strings.Replace(messageEvents[0], `"input_tokens":25`, `"input_tokens":5000`, 1)
	wait := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		first, second http.HandlerFunc
		ended         string
		cost          string
	}{
		"silent before the head":  {nil, wait, "timeout", "0.00"},
		"silent before content":   {gatetest.Stream(messageEvents[0]), wait, "timeout", "0.00"},
		"broken off":              {nil, gatetest.Reset, "upstream_error", "0.00"},
		"broken off in content":   {nil, gatetest.Then(gatetest.Stream(messageEvents[:4]...), gatetest.Reset), "upstream_error", "0.000000055"},
		"silent in content":       {nil, gatetest.Then(gatetest.Stream(messageEvents[:4]...), wait), "timeout", "0.000000055"},
		"more than there is left": {nil, gatetest.Then(gatetest.Stream(append([]string{start}, messageEvents[1:4]...)...), wait), "money_out", "0.000002"},
	} {
		t.Run(name, func(t *testing.T) {
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "0.000002")
			model := modelName("priced " + name)
			script, reached, on, _ := interrupted(c.first, c.second)
			g.Backend.On(model, script)
			read, leave := departures[0].call(t, g, messages, key.Secret, model, streamed)
			<-reached
			if c.first != nil {
				read("message_start")
			}
			leave()
			awaitDetached(t, 1)
			close(on)
			if line := g.CallLineOf(t, model); line.Text("ended") != c.ended || line.Text("cost") != c.cost {
				t.Errorf("logged %v, want %s, %s", line, c.ended, c.cost)
			}
			g.WalletAtRest(t, key.UserID)
			awaitDetached(t, 0)
			g.Verify(t)
		})
	}
}

func TestNothingIsWrittenToACallerWhoHasClosedHalfOfTheConnection(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n ping 20ms\n}\n" + prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	script, reached, on, _ := interrupted(gatetest.Stream(messageEvents[0]), portions(messageEvents[1:]...))
	g.Backend.On("priced", script)
	conn := g.Dial(t)
	body := bodyFor(messages, "priced", streamed)
	conn.Send(t, headOf(messages, key.Secret, "Content-Length: "+itoa(len(body))))
	conn.Send(t, body)
	<-reached
	readUntil(t, conn, "event: ping\n") // after the first event
	if err := conn.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	awaitDetached(t, 1)
	awaitPing(t, g, g.NewKey(t, nil).Secret) // time enough for others
	close(on)
	rest, _ := io.ReadAll(conn)
	if text := string(rest); strings.Contains(text, "content_block") || strings.HasSuffix(text, "0\r\n\r\n") {
		t.Errorf("after that came %q", text)
	}
	if line := g.CallLineOf(t, "priced"); line.Text("rule") != "finish" || line.Text("usage") != "reported" {
		t.Errorf("logged %v", line)
	}
}

func TestACallerWhoTakesNoMoreOfAnAnswerPaysForAllOfIt(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Global: "servers {\n timeouts {\n write_idle 100ms\n}\n}", App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	big := strings.Replace(messageAnswer, "Hello there", strings.Repeat("x", 16<<20), 1)
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, big))
	open(t.Context(), t, g, messages, key.Secret, "priced", "") // and read nothing
	if line := g.CallLineOf(t, "priced"); line.Text("ended") != "client_gone" || line.Text("rule") != "finish" || line.Text("usage") != "reported" {
		t.Errorf("logged %v", line)
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-9-4*10 {
		t.Errorf("the wallet has %v", w.Balance)
	}
}

func TestTwoGatewaysInARowChargeACallerWhoDisconnectsTheSame(t *testing.T) {
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
			within(t, gatetest.Patience, "the call", reached)
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
					t.Errorf("the wallet has %v, the call should have cost %v", w.Balance, c.cost)
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

func TestABodyThatNoBackendHasTakenWholeIsFree(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // reads nothing of what it is sent
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

func TestABackendOverHTTP2HasTheBodyOfACallerWhoDisconnects(t *testing.T) {
	// The head of the answer shows that the body is there, whenever the transport says so.
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
	read, leave := departures[0].call(t, g, messages, key.Secret, "priced", streamed)
	<-reached
	read("message_start")
	leave()
	awaitDetached(t, 1)
	close(on)
	if line := g.CallLineOf(t, "priced"); line.Text("rule") != "finish" || line.Text("cost") != money.Amount(25+15*10).String() {
		t.Errorf("logged %v", line)
	}
}
