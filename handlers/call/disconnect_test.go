package call_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// thinking adds a price of reasoning to prices.
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

// opening returns an event that opens a content block with members.
func opening(members string) string {
	return "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{" + members + "}}\n\n"
}

// chatChunk returns a chunk of a chat stream whose delta has members.
func chatChunk(members string) string {
	return "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{" + members + "},\"finish_reason\":null}]}\n\n"
}

// disconnect is one way in which a caller disconnects.
type disconnect struct {
	name  string
	proto string // of the connection
	leave func(*net.TCPConn) error
}

var disconnects = []disconnect{
	{"close", "h1", (*net.TCPConn).Close},
	{"reset", "h1", func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }},
	{"half-close", "h1", (*net.TCPConn).CloseWrite},
	{"RST_STREAM", "h2", nil},
}

// overHTTP2 enables HTTP/2 without TLS.
const overHTTP2 = "servers {\n protocols h1 h2 h2c\n}"

// call makes a call. It returns a function that reads the answer up to a text, and one
// that disconnects.
func (d disconnect) call(t *testing.T, g *gatetest.Gate, path, key, model, more string) (read func(until string), leave func()) {
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
	send, cancel := overH2(t, g, new(http.Transport), path, key, body)
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		if resp, err := send(); err == nil {
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

// overH2 prepares a call over HTTP/2 by a transport. It returns functions that send and cancel it.
func overH2(t *testing.T, g *gatetest.Gate, transport *http.Transport, path, key, body string) (send func() (*http.Response, error), cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport.Protocols = new(http.Protocols)
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
	return func() (*http.Response, error) { return transport.RoundTrip(req) }, cancel
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

// awaitDetached waits until the number of detached calls is calls.
func awaitDetached(t *testing.T, calls int64) {
	t.Helper()
	runtime := gatetest.Runtime(t)
	gatetest.Eventually(t, fmt.Sprintf("%d calls are detached", calls), func() (int64, bool) {
		n := runtime.Detached.Held()
		return n, n == calls
	})
}

// interrupted returns a backend that answers in two parts. Between them it closes reached
// and waits until on is closed. It closes gone if the call is cancelled before.
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

// portions returns a backend that sends parts of a body after its head was sent.
func portions(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range parts {
			gatetest.Send(w, part)
		}
	}
}

func TestADetachedCallCompletesAndIsChargedInFull(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Global: overHTTP2, App: thinking, Site: gatetest.Proxied})
	half := len(messageAnswer) / 2
	type detached struct {
		name, path, model, more string
		first, second           http.HandlerFunc
		read                    string
		cost                    money.Amount
	}
	// A content block was opened, but no content was sent.
	opened := func(name, members string) detached {
		return detached{"a stream that has opened " + name, messages, "priced", streamed, gatetest.Stream(messageEvents[0], opening(members)), portions(messageEvents[4:]...), "content_block_start", 25 + 15*10}
	}
	// Content was sent, but it does not show the whole cost.
	requesting := func(name, more string) detached {
		return detached{"a stream with content that requests " + name, messages, "optional", streamed + more, gatetest.Stream(messageEvents[:4]...), portions(messageEvents[4:]...), "Hello", 25 + 15*10}
	}
	chatRequesting := func(name, more string) detached {
		return detached{"a chat stream with content that requests " + name, chat, "optional", streamed + more, gatetest.Stream(chatChunks[:2]...), portions(chatChunks[2], usageChunk, doneChunk), "Hello", 7 + 2*10}
	}
	containing := func(name, members string) detached {
		return detached{"a chat stream that contains " + name, chat, "priced", streamed, gatetest.Stream(chatChunks[1], chatChunk(members)), portions(chatChunks[2], usageChunk, doneChunk), "READ", 7 + 2*10}
	}
	for _, c := range []detached{
		opened("a text", `"type":"text","text":""`),
		opened("a redacted thought", `"type":"redacted_thinking","data":"abcd"`),
		opened("a tool", `"type":"tool_use","id":"a","name":"b","input":{}`),
		{"a chat stream that has named a tool", chat, "priced", streamed, gatetest.Stream(chatChunks[0], chatChunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":""}}]`)), portions(chatChunks[2], usageChunk, doneChunk), "tool_calls", 7 + 2*10},
		requesting("thinking", `,"thinking":{"type":"enabled","budget_tokens":1024}`),
		requesting("effort", `,"reasoning_effort":"low"`),
		requesting("another model", `,"fallbacks":[{"model":"priced-2"}]`),
		requesting("an image to be read", `,"system":[{"type":"image","source":{"type":"url","url":"https://images.example.com/1.png"}}]`),
		requesting("a compaction", `,"context_management":{"edits":[{"type":"compact_20260112"}]}`),
		chatRequesting("effort", `,"reasoning_effort":"low"`),
		chatRequesting("thinking of Qwen", `,"enable_thinking":true`),
		chatRequesting("thinking by the template", `,"chat_template_kwargs":{"enable_thinking":true}`),
		chatRequesting("thinking as a number", `,"enable_thinking":1`),
		chatRequesting("thinking by the template as a number", `,"chat_template_kwargs":{"enable_thinking":1}`),
		chatRequesting("effort by the template", `,"chat_template_kwargs":{"reasoning_effort":"high"}`),
		chatRequesting("effort of Ollama", `,"think":"low"`),
		chatRequesting("thinking of Ollama", `,"think":true`),
		chatRequesting("reasoning of Mistral", `,"prompt_mode":"reasoning"`),
		chatRequesting("delayed reasoning", `,"stream_reasoning":false`),
		chatRequesting("reasoning as true", `,"reasoning":true`),
		chatRequesting("a budget of thinking", `,"thinking_budget":100`),
		chatRequesting("thinking of Gemini", `,"extra_body":{"google":{"thinking_config":{"thinking_budget":100}}}`),
		chatRequesting("hidden reasoning", `,"include_reasoning":false`),
		chatRequesting("hidden reasoning of llama.cpp", `,"reasoning_format":"hidden"`),
		chatRequesting("a prediction", `,"prediction":{"type":"content","content":"x"}`),
		chatRequesting("reasoning", `,"reasoning":{"max_tokens":100}`),
		chatRequesting("thinking", `,"thinking":{"type":"enabled"}`),
		chatRequesting("thinking without a type", `,"thinking":{"budget_tokens":1024}`),
		chatRequesting("thinking as true", `,"thinking":true`),
		chatRequesting("effort as a number", `,"reasoning_effort":50`),
		chatRequesting("speech", `,"modalities":["text","audio"],"audio":{"voice":"alloy","format":"pcm16"}`),
		chatRequesting("an image", `,"modalities":["text","image"]`),
		containing("speech", `"audio":{"data":"READ"}`),
		containing("an image", `"images":[{"image_url":{"url":"data:image/png;base64,READ"}}]`),
		containing("reasoning", `"reasoning_content":"READ"`),
		{
			"a stream with content that requests a search", messages, "optional", streamed + `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":1}]`,
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
		for _, d := range disconnects {
			t.Run(c.name+" by "+d.name, func(t *testing.T) {
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				model := modelName(c.model + " " + t.Name())
				script, reached, on, gone := interrupted(c.first, c.second)
				g.Backend.On(model, script)
				read, leave := d.call(t, g, c.path, key.Secret, model, c.more)
				within(t, gatetest.Timeout, "the call", reached)
				if c.read != "" {
					read(c.read)
				}
				leave()
				awaitDetached(t, 1)
				if w := g.Wallet(t, key.UserID); w.Reserved == 0 {
					t.Error("the reservation was released")
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

func TestADetachedCallKeepsItsSlotAndSurvivesAReload(t *testing.T) {
	config := gatetest.Config{App: prices, Site: gatetest.Proxied}
	g := gatetest.Start(t, config)
	key := g.NewKey(t, map[string]any{"limits": map[string]any{"streams": 1}})
	g.Credit(t, key.UserID, "1.00")
	script, reached, on, gone := interrupted(nil, gatetest.Stream(messageEvents...))
	g.Backend.On("priced", script)
	_, leave := disconnects[0].call(t, g, messages, key.Secret, "priced", streamed)
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

func TestADetachedCallHasTheUsualTimeoutsAndCharges(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n first_byte 1s\n idle 200ms\n}\n" + prices, Site: gatetest.Proxied})
	start := strings.Replace(messageEvents[0], `"input_tokens":25`, `"input_tokens":5000`, 1)
	wait := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		first, second http.HandlerFunc
		ended         string
		cost          string
	}{
		"silent before the head": {nil, wait, "timeout", "0.00"},
		"silent before content":  {gatetest.Stream(messageEvents[0]), wait, "timeout", "0.00"},
		"a reset":                {nil, gatetest.Reset, "upstream_error", "0.00"},
		"a reset in content":     {nil, gatetest.Then(gatetest.Stream(messageEvents[:4]...), gatetest.Reset), "upstream_error", "0.000000055"},
		"silent in content":      {nil, gatetest.Then(gatetest.Stream(messageEvents[:4]...), wait), "timeout", "0.000000055"},
		"more than the balance":  {nil, gatetest.Then(gatetest.Stream(append([]string{start}, messageEvents[1:4]...)...), wait), "money_out", "0.000002"},
	} {
		t.Run(name, func(t *testing.T) {
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "0.000002")
			model := modelName("priced " + name)
			script, reached, on, _ := interrupted(c.first, c.second)
			g.Backend.On(model, script)
			read, leave := disconnects[0].call(t, g, messages, key.Secret, model, streamed)
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

func TestNothingIsWrittenToAHalfClosedConnection(t *testing.T) {
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
	awaitPing(t, g, g.NewKey(t, nil).Secret) // meanwhile the other stream has time for a ping
	close(on)
	rest, _ := io.ReadAll(conn)
	if text := string(rest); strings.Contains(text, "content_block") || strings.HasSuffix(text, "0\r\n\r\n") {
		t.Errorf("after the half-close the caller got %q", text)
	}
	if line := g.CallLineOf(t, "priced"); line.Text("rule") != "finish" || line.Text("usage") != "reported" {
		t.Errorf("logged %v", line)
	}
}

func TestACallerThatStopsReadingPaysForTheWholeAnswer(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Global: "servers {\n timeouts {\n write_idle 100ms\n}\n}", App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	big := strings.Replace(messageAnswer, "Hello there", strings.Repeat("x", 16<<20), 1)
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, big))
	open(t.Context(), t, g, messages, key.Secret, "priced", "") // read nothing
	if line := g.CallLineOf(t, "priced"); line.Text("ended") != "client_gone" || line.Text("rule") != "finish" || line.Text("usage") != "reported" {
		t.Errorf("logged %v", line)
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-9-4*10 {
		t.Errorf("the wallet has %v", w.Balance)
	}
}
