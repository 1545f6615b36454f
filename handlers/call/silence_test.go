package call_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// pings are the ping events by path.
var pings = map[string]string{
	messages: "event: ping\ndata: {\"type\": \"ping\"}\n\n",
	chat:     ": ping\n\n",
}

// soon is the time limit of events that must happen immediately.
const soon = time.Second

func within(t *testing.T, d time.Duration, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(d):
		t.Errorf("%s did not happen within %v", what, d)
	}
}

// awaitPing opens a messages stream of its own and waits for a ping on it.
func awaitPing(t *testing.T, g *gatetest.Gate, key string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan struct{})
	model := "silent for " + t.Name()
	g.Backend.On(model, gatetest.Then(gatetest.Stream(), gatetest.Silent(gone)))
	resp := open(ctx, t, g, messages, key, model, streamed)
	if _, err := fullRead(resp, make([]byte, len(pings[messages]))); err != nil {
		t.Fatal(err)
	}
}

func TestASilentStreamGetsPingsBetweenItsEvents(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n ping 20ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for path, ping := range pings {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			event := strings.SplitAfterN(begun(path), "\n\n", 2)[0]
			pinged := make(chan struct{})
			g.Backend.On(path, func(w http.ResponseWriter, _ *http.Request) {
				gatetest.Events(w)
				<-pinged // a ping before any event
				gatetest.Send(w, event)
				<-pinged // a ping after an event
			})
			resp := open(t.Context(), t, g, path, key, path, streamed)
			in := bufio.NewReader(resp.Body)
			next := func() (part string) { // up to an empty line
				for !strings.HasSuffix(part, "\n\n") {
					line, err := in.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					part += line
				}
				return part
			}
			for _, want := range []string{ping, event, ping} {
				got := next()
				for got == ping && want == event { // on a slow machine, another ping may come first
					got = next()
				}
				if got != want {
					t.Fatalf("read %q, want %q", got, want)
				}
				if want == ping {
					pinged <- struct{}{}
				}
			}
		})
	}
}

func TestNoPingsWithinEventsOrOutsideStreams(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n ping 20ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for name, c := range map[string]struct {
		head, before, after string
		status              int
	}{
		"in a line":                {"text/event-stream", "event: mess", "age_stop\ndata: {}\n\n", 200},
		"between lines":            {"text/event-stream", "event: message_stop\n", "data: {}\n\n", 200},
		"in a line end":            {"text/event-stream", "event: message_stop\r\ndata: {}\r", "\n\r\n", 200},
		"JSON":                     {"application/json", `{"usage":`, `{"input_tokens":1,"output_tokens":1}}`, 200},
		"an error":                 {"application/json", `{"error":`, `{"type":"overloaded_error"}}`, 529},
		"a stream that is not 200": {"text/event-stream", "", messageEvents[0], 201},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quiet := make(chan struct{})
			g.Backend.On(name, func(w http.ResponseWriter, _ *http.Request) {
				gatetest.Body(c.status, c.head, "")(w, nil)
				gatetest.Send(w, c.before)
				<-quiet
				gatetest.Send(w, c.after)
				if c.status == 201 {
					gatetest.Send(w, strings.Join(messageEvents[1:], ""))
				}
			})
			resp := open(t.Context(), t, g, messages, key, name, streamed)
			awaitPing(t, g, key)
			close(quiet)
			got, err := io.ReadAll(resp.Body)
			want := c.before + c.after
			if c.status == 201 {
				want = strings.Join(messageEvents, "")
			}
			if err != nil || string(got) != want {
				t.Errorf("read %q (%v), want %q", got, err, want)
			}
		})
	}
}

func TestABackendThatDoesNotBeginInTimeIs504(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n first_byte 100ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, chat} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			g.Backend.On(path, gatetest.Silent(gone))
			got := post(t, g, path, key, path, "")
			refusal{504, "timeout_error", fault.UpstreamTimeout, "the backend of this model did not answer in time", ""}.check(t, path, got)
			within(t, soon, "the end of the call to the backend", gone)
			wantCall(t, g, got, "timeout", "none", 0, 0)
		})
	}
}

func TestASilentStreamEndsWithAnErrorEvent(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n idle 100ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, chat} {
		for name, c := range map[string]struct {
			more, head, sent string
			event            bool // an error event ends the body; otherwise the connection is closed
		}{
			"in a stream":        {streamed, "text/event-stream", begun(path), true},
			"within an event":    {streamed, "text/event-stream", begun(path) + "data: {\"ty", false},
			"in a JSON document": {"", "application/json", `{"id":"x","content":[{"type":"text","text":"Hello`, false},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				gone := make(chan struct{})
				model := path + name
				g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
					gatetest.Body(http.StatusOK, c.head, "")(w, r)
					gatetest.Send(w, c.sent)
					gatetest.Silent(gone)(w, r)
				})
				got := post(t, g, path, key, model, c.more)
				want := c.sent
				if c.event {
					want += errorEvent(path, "timeout_error", "UPSTREAM_TIMEOUT", "the backend of this model did not answer in time", got.RequestID())
				}
				if path == chat && !c.event && c.more != "" {
					want = got.Body // the trimmer may hold back an incomplete event
				}
				if got.Body != want || (got.Err == nil) != c.event {
					t.Errorf("the caller got (%v)\n%q\nwant\n%q", got.Err, got.Body, want)
				}
				within(t, soon, "the end of the call to the backend", gone)
				line := g.CallLine(t, got.RequestID())
				if line.Text("ended") != "timeout" || line.Text("usage") != "estimated" || line.Number("output") == 0 {
					t.Errorf("logged %v", line)
				}
			})
		}
	}
}

func TestADisconnectCancelsTheBackendWithinASecond(t *testing.T) {
	for name, proxy := range map[string]string{
		"plain":                "reverse_proxy BACKEND",
		"flush_interval -1":    "reverse_proxy BACKEND {\n flush_interval -1\n}",
		"within a subroute":    "handle {\n reverse_proxy BACKEND {\n flush_interval -1\n}\n}",
		"flush_interval 10ms":  "reverse_proxy BACKEND {\n flush_interval 10ms\n}",
		"with request_buffers": "reverse_proxy BACKEND {\n request_buffers 1MiB\n}",
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{Site: "modelgate_messages {\n" + proxy + "\n}\nmodelgate_completions {\n" + proxy + "\n}"})
			key := g.NewKey(t, nil).Secret
			for _, path := range []string{messages, chat} {
				for when, script := range map[string]http.HandlerFunc{
					"before the head":       nil,
					"after the head":        gatetest.Stream(),
					"in a stream":           gatetest.Stream(begun(path)),
					"within an event":       gatetest.Stream(begun(path), "data: {"),
					"in the middle of JSON": func(w http.ResponseWriter, r *http.Request) { gatetest.JSON(200, `{"a":`)(w, r); gatetest.Send(w, "") },
				} {
					t.Run(path+" "+when, func(t *testing.T) {
						t.Parallel()
						model := name + path + when
						begins, gone := make(chan struct{}), make(chan struct{})
						g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
							if script != nil {
								script(w, r)
							}
							close(begins)
							gatetest.Silent(gone)(w, r)
						})
						ctx, leave := context.WithCancel(t.Context())
						defer leave()
						if script == nil {
							conn := g.Dial(t)
							body := bodyFor(path, model, streamed)
							conn.Send(t, headOf(path, key, "Content-Length: "+itoa(len(body))))
							conn.Send(t, body)
							<-begins
							conn.Close()
						} else {
							resp := open(ctx, t, g, path, key, model, streamed)
							<-begins
							if when == "in a stream" {
								if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
									t.Error(err)
								}
							}
							leave()
						}
						within(t, soon, "the end of the call to the backend", gone)
						line := g.CallLineOf(t, model)
						if line.Text("ended") != "client_gone" {
							t.Errorf("logged %v", line)
						}
						if paid := strings.HasPrefix(when, "in a stream") || strings.HasPrefix(when, "within") || strings.Contains(when, "JSON"); paid != (line.Text("usage") != "none") {
							t.Errorf("logged %v", line)
						}
					})
				}
			}
		})
	}
}

func TestADisconnectAfterTheLastEventIsComplete(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for path, text := range map[string]string{messages: strings.Join(messageEvents, ""), chat: strings.Join(chatChunks, "") + doneChunk} {
		gone := make(chan struct{})
		g.Backend.On(path, gatetest.Then(gatetest.Stream(text), gatetest.Silent(gone)))
		ctx, leave := context.WithCancel(t.Context())
		resp := open(ctx, t, g, path, key, path, streamed)
		if _, err := fullRead(resp, make([]byte, len(text))); err != nil {
			t.Fatal(err)
		}
		leave()
		within(t, soon, "the end of the call to the backend", gone)
		if line := g.CallLineOf(t, path); line.Text("ended") != "complete" {
			t.Errorf("logged %v", line)
		}
	}
}

func TestACallerThatStopsReadingDoesNotBlockTheBackend(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Global: "servers {\n timeouts {\n write_idle 100ms\n}\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	gone := make(chan struct{})
	event := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + strings.Repeat("x", 100_000) + "\"}}\n\n"
	g.Backend.On("stuck", func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		gatetest.Events(w)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	})
	open(t.Context(), t, g, messages, key, "stuck", streamed) // read nothing
	within(t, gatetest.Timeout, "the end of the call to the backend", gone)
	if line := g.CallLineOf(t, "stuck"); line.Text("ended") != "client_gone" {
		t.Errorf("logged %v", line)
	}
}
