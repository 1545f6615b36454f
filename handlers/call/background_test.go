package call_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// runner is a vendor with one background response, which runs until it is told to end. It reports no
// usage of a response that was cancelled or has failed.
type runner struct {
	*httptest.Server
	begun  chan struct{} // closed when the submission has arrived
	admit  chan struct{} // the submission is answered when it is closed
	once   sync.Once     // closes ended
	answer sync.Once     // closes admit
	ended  chan struct{}
	mu     sync.Mutex
	status string
}

const (
	runnerText = "0123456789" // of each delta
	runnerID   = `"id":"resp_runner","object":"response"`
)

func newRunner(t *testing.T) *runner {
	t.Helper()
	v := &runner{begun: make(chan struct{}), admit: make(chan struct{}), ended: make(chan struct{}), status: "in_progress"}
	v.Server = httptest.NewServer(http.HandlerFunc(v.serve))
	t.Cleanup(func() {
		v.end("cancelled")
		v.answerNow()
		v.CloseClientConnections()
		v.Close()
	})
	return v
}

// end ends the response and its streams.
func (v *runner) end(status string) {
	v.once.Do(func() {
		v.mu.Lock()
		v.status = status
		v.mu.Unlock()
		close(v.ended)
	})
}

// answerNow lets the submission be answered.
func (v *runner) answerNow() { v.answer.Do(func() { close(v.admit) }) }

// body returns the response as it is now.
func (v *runner) body() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	usage, failure := "null", "null"
	switch v.status {
	case "completed":
		usage = `{"input_tokens":7,"output_tokens":3}`
	case "failed":
		failure = `{"code":"server_error","message":"x"}`
	}
	return fmt.Sprintf(`{%s,"status":%q,"output":[],"usage":%s,"error":%s}`, runnerID, v.status, usage, failure)
}

func (v *runner) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		v.end("cancelled")
	case r.Method == http.MethodPost:
		close(v.begun)
		<-v.admit
		if r.Header.Get("X-Stream") != "" {
			v.stream(w, 0)
			return
		}
	case r.URL.Query().Get("stream") == "true":
		from := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("starting_after"), &from)
		v.stream(w, from)
		return
	}
	gatetest.JSON(http.StatusOK, v.body())(w, r)
}

// stream sends the events of the response: it begins with 1, and each of 2 to 31 has a text.
func (v *runner) stream(w http.ResponseWriter, after int) {
	gatetest.Events(w)
	if after == 0 {
		gatetest.Send(w, "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":1,\"response\":{"+runnerID+",\"status\":\"in_progress\"}}\n\n")
	}
	for n := max(after+1, 2); n <= 31; n++ {
		gatetest.Send(w, fmt.Sprintf("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":%d,\"delta\":%q}\n\n", n, runnerText))
	}
	<-v.ended
}

// runnerGate is a gateway in front of v. Submissions with "stream" are marked for it.
func runnerGate(t *testing.T, v *runner, app string) (*gatetest.Gate, gatetest.Key) {
	t.Helper()
	config := ownConfig(v.URL)
	config.App += app
	config.Site = strings.Replace(config.Site, "reverse_proxy", "pass_up X-Stream\nreverse_proxy", 1)
	g := gatetest.Start(t, config)
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	return g, key
}

// readEvents opens a request, reads its answer until it has the event with this number, and closes it.
func readEvents(t *testing.T, g *gatetest.Gate, method, path, headers, body string, number int) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp := g.Open(ctx, t, method, path, headers, body)
	readUntil(t, resp.Body, fmt.Sprintf("\"sequence_number\":%d,\"delta\":\"0123456789\"}", number))
	leave()
	resp.Body.Close()
}

func TestABackgroundResponseThatIsEndedEarlyIsChargedWhatWasRead(t *testing.T) {
	const submission = `{"model":"priced","input":"one two three four","background":true`
	path := responses + "/resp_runner"
	for _, c := range []struct {
		name   string
		read   func(*testing.T, *gatetest.Gate, string)
		status string
		cost   string
	}{
		{"nothing was read", nil, "cancelled", "0.000000006"},
		{"nothing was read of a failure", nil, "failed", "0.00"},
		{"a stream", func(t *testing.T, g *gatetest.Gate, headers string) {
			readEvents(t, g, "GET", path+"?stream=true", headers, "", 31)
		}, "cancelled", "0.000001006"},
		{"a stream of a failure", func(t *testing.T, g *gatetest.Gate, headers string) {
			readEvents(t, g, "GET", path+"?stream=true", headers, "", 31)
		}, "failed", "0.000001006"},
		{"a stream twice", func(t *testing.T, g *gatetest.Gate, headers string) {
			readEvents(t, g, "GET", path+"?stream=true", headers, "", 31)
			readEvents(t, g, "GET", path+"?stream=true", headers, "", 31)
		}, "cancelled", "0.000001006"},
		{"the end of a stream", func(t *testing.T, g *gatetest.Gate, headers string) {
			readEvents(t, g, "GET", path+"?stream=true&starting_after=16", headers, "", 31)
		}, "cancelled", "0.000000506"},
		{"a stream in parts that overlap", func(t *testing.T, g *gatetest.Gate, headers string) {
			readEvents(t, g, "GET", path+"?stream=true", headers, "", 20)
			readEvents(t, g, "GET", path+"?stream=true&starting_after=16", headers, "", 24)
			readEvents(t, g, "GET", path+"?stream=true&starting_after=24", headers, "", 31)
			readEvents(t, g, "GET", path+"?stream=true&starting_after=3", headers, "", 31)
			readEvents(t, g, "GET", path+"?stream=true&starting_after=0", headers, "", 31)
		}, "cancelled", "0.000001006"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newRunner(t)
			v.answerNow()
			g, key := runnerGate(t, v, "")
			headers := headersFor(responses, key.Secret)
			if got := respond(t, g, responses, key.Secret, submission+"}"); got.Status != http.StatusOK {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			if c.read != nil {
				c.read(t, g, headers)
			}
			if c.status == "failed" {
				v.end("failed")
			} else if got := g.Do(t, "POST", path+"/cancel", headers, ""); got.Status != http.StatusOK {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			wantSettled(t, g, key, c.cost)
		})
	}
	t.Run("the stream of the submission", func(t *testing.T) {
		v := newRunner(t)
		v.answerNow()
		g, key := runnerGate(t, v, "")
		headers := headersFor(responses, key.Secret)
		readEvents(t, g, "POST", responses, headers+"\nX-Stream: 1", submission+`,"stream":true}`, 31)
		if got := g.Do(t, "POST", path+"/cancel", headers, ""); got.Status != http.StatusOK {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
		wantSettled(t, g, key, "0.000001006")
	})
}

// wantSettled checks what the background response of a user has cost.
func wantSettled(t *testing.T, g *gatetest.Gate, key gatetest.Key, cost string) {
	t.Helper()
	settled(t, g, key)
	line := g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("user_id") == key.UserID && l.Text("background") == "settled"
	})
	if line.Text("cost") != cost {
		t.Errorf("want a cost of %s: the log line is %v", cost, line)
	}
}

func TestABackgroundResponseIsChargedIfItsCallerLeavesBeforeItsID(t *testing.T) {
	for _, app := range []string{"", "on_disconnect cancel\n", "limits {\n detached_per_user 1\n detached 1\n}\n"} {
		t.Run(app, func(t *testing.T) {
			v := newRunner(t)
			g, key := runnerGate(t, v, app)
			if strings.HasPrefix(app, "limits") {
				gatetest.Runtime(t).Detached.TryAcquire(key.UserID, 1, 1)
				defer gatetest.Runtime(t).Detached.Release(key.UserID)
			}
			before := gatetest.Runtime(t).Detached.Held()
			wire := g.Dial(t)
			body := `{"model":"priced","input":"one two three four","background":true}`
			wire.Send(t, "POST "+responses+" HTTP/1.1\nHost: x\n"+headersFor(responses, key.Secret)+fmt.Sprintf("Content-Length: %d\n\n", len(body))+body)
			<-v.begun
			wire.Close()
			gatetest.Eventually(t, "the call continues without its caller", func() (string, bool) {
				return "", gatetest.Runtime(t).Detached.Held() == before+1
			})
			v.end("completed")
			v.answerNow()
			wantSettled(t, g, key, "0.000000037")
		})
	}
}

// repeater is a vendor that answers each submission with the same response, as for a repeated
// Idempotency-Key. Streams send 30 bytes of text and wait for their end. The response completes when
// complete is closed.
func repeater(t *testing.T) (v *httptest.Server, complete chan struct{}) {
	complete = make(chan struct{})
	state := func() string {
		select {
		case <-complete:
			return "{" + runnerID + `,"status":"completed","output":[],"usage":{"input_tokens":7,"output_tokens":30}}`
		default:
			return "{" + runnerID + `,"status":"in_progress","output":[],"usage":null}`
		}
	}
	v = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Stream") == "" {
			gatetest.JSON(http.StatusOK, state())(w, r)
			return
		}
		gatetest.Events(w)
		gatetest.Send(w, "data: {\"type\":\"response.created\",\"response\":"+state()+"}\n\n")
		gatetest.Send(w, "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"0123456789\"}\n\n")
		select {
		case <-complete:
			gatetest.Send(w, "data: {\"type\":\"response.completed\",\"response\":"+state()+"}\n\n")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(v.Close)
	return v, complete
}

func TestARepeatedBackgroundResponseIsNotChargedTwice(t *testing.T) {
	const submission = `{"model":"priced","input":"one two three four"`
	const inBackground, inStream = `,"background":true`, `,"stream":true`
	for name, c := range map[string]struct {
		first string // what the first request adds; the caller leaves its stream in the middle
		done  bool   // the response completes before the repetition
		cost  string
	}{
		"of a background response":               {inBackground, false, "0.000000307"},
		"of a background response, later":        {inBackground, true, "0.000000307"},
		"of a stream in the background":          {inBackground + inStream, false, "0.000000307"},
		"of a stream in the background, at last": {inBackground + inStream, true, "0.000000307"},
		"of a call that was cancelled":           {inStream, false, "0.000000353"}, // 46, and 307 for another call: its response was forgotten
	} {
		t.Run(name, func(t *testing.T) {
			v, complete := repeater(t)
			config := ownConfig(v.URL)
			config.App += "on_disconnect cancel\n"
			config.Site = strings.Replace(config.Site, "reverse_proxy", "pass_up X-Stream\nreverse_proxy", 1)
			g := gatetest.Start(t, config)
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			headers := headersFor(responses, key.Secret) + "Idempotency-Key: one\n"
			if strings.Contains(c.first, inStream) {
				readEvents(t, g, "POST", responses, headers+"X-Stream: 1\n", submission+c.first+"}", 1)
			} else if got := g.Do(t, "POST", responses, headers, submission+c.first+"}"); got.Status != http.StatusOK {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			if c.first == inStream {
				g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("user_id") == key.UserID && l.Text("cost") == "0.000000046" })
			}
			if c.done {
				close(complete)
				wantBalance(t, g, key, c.cost)
			}
			for range 2 {
				got := g.Do(t, "POST", responses, headers, submission+inBackground+"}")
				if got.Status != http.StatusOK || !strings.Contains(got.Body, runnerID) {
					t.Fatalf("the repetition is answered %d %s", got.Status, got.Body)
				}
			}
			if !c.done {
				close(complete)
			}
			wantBalance(t, g, key, c.cost)
			if got := g.Do(t, "POST", responses, headers+"X-Stream: 1\n", submission+inBackground+inStream+"}"); !strings.Contains(got.Body, "response.completed") {
				t.Fatalf("the last repetition is answered %d %s", got.Status, got.Body)
			}
			wantBalance(t, g, key, c.cost)
		})
	}
}

// wantBalance checks what is left of the unit that a user had, once nothing is reserved.
func wantBalance(t *testing.T, g *gatetest.Gate, key gatetest.Key, cost string) {
	t.Helper()
	if got := settled(t, g, key); got != (money.Unit - amount(t, cost)).String() {
		t.Errorf("the wallet has %s, want a charge of %s", got, cost)
	}
}
