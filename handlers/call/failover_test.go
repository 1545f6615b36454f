package call_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestASecondTrySendsTheWholeBody fails the first upstream in each way after which reverse_proxy
// tries again. No request_buffers is set.
func TestASecondTrySendsTheWholeBody(t *testing.T) {
	var mu sync.Mutex
	var failures, early int
	received := ""
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		failures++
		isEarly := early > 0
		mu.Unlock()
		if !isEarly {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(503)
	}))
	defer failing.Close()
	socket := filepath.Join(t.TempDir(), "up.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	good := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		received = string(body)
		if err != nil || r.TransferEncoding != nil {
			received = fmt.Sprint(err, r.TransferEncoding)
		}
		gatetest.JSON(200, messageAnswer)(w, r)
	})}
	go good.Serve(listener) //nolint:errcheck // ends by Close
	defer good.Close()

	site := func(first, transport string) string {
		return `modelgate_messages {
			reverse_proxy ` + first + ` unix/` + socket + ` {
				transport ` + transport + `
				lb_policy round_robin
				lb_retries 1
				lb_retry_match {
					expression ` + "`{rp.status_code} == 503`" + `
				}
			}
		}`
	}
	address := strings.TrimPrefix(failing.URL, "http://")
	g := gatetest.Start(t, gatetest.Config{Site: site(address, "modelgate")})
	key := g.NewKey(t, nil)
	for _, transport := range []string{"modelgate", "http"} {
		for name, first := range map[string]string{"late": address, "early": address, "dial": refusedAddress(t)} {
			if err := g.Reload(gatetest.Config{Site: site(first, transport)}); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			early, failures = strings.Count(name, "early"), 0
			mu.Unlock()
			for i, size := range []int{1 << 10, 1 << 10, 20 << 10, 20 << 10, 300 << 10, 300 << 10, 8 << 20, 8 << 20} {
				body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`, i+1, strings.Repeat("x", size))
				got := g.Do(t, "POST", "/v1/messages", "x-api-key: "+key.Secret+"\nanthropic-version: 2023-06-01\ncontent-type: application/json", body)
				mu.Lock()
				if got.Status != 200 || received != body {
					t.Errorf("%s %s %d: answered %d %s; received %d bytes of %d", transport, name, size, got.Status, got.Body, len(received), len(body))
				}
				received = ""
				mu.Unlock()
			}
			mu.Lock()
			if (failures == 0) != (name == "dial") {
				t.Errorf("%s %s: %d failures", transport, name, failures)
			}
			mu.Unlock()
		}
	}
}

// TestABodyOfAnotherHandlerIsSent puts another body, or another method, between the gate and the
// proxy.
func TestABodyOfAnotherHandlerIsSent(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: `modelgate_messages {
		request_body {
			set "{\"model\":\"m\",\"max_tokens\":1,\"mine\":1}"
		}
		reverse_proxy BACKEND {
			transport modelgate
		}
	}`})
	key := g.NewKey(t, nil)
	g.Backend.On("m", gatetest.JSON(200, messageAnswer))
	post(t, g, messages, key.Secret, "m", "")
	seen := g.Backend.Seen("m")
	if len(seen) != 1 || string(seen[0].Body) != `{"model":"m","max_tokens":1,"mine":1}` {
		t.Errorf("received %v", seen)
	}
	if err := g.Reload(gatetest.Config{Site: `modelgate_messages {
		reverse_proxy BACKEND {
			transport modelgate
			method GET
		}
	}`}); err != nil {
		t.Fatal(err)
	}
	g.Backend.On("", gatetest.JSON(200, messageAnswer))
	post(t, g, messages, key.Secret, "m", "")
	if seen := g.Backend.Seen(""); len(seen) != 1 || len(seen[0].Body) > 0 || seen[0].Method != "GET" {
		t.Errorf("received %v", seen)
	}
}

// TestAReloadLetsStreamsEnd reloads the configuration while an answer passes through a transport,
// whose idle connections are then closed.
func TestAReloadLetsStreamsEnd(t *testing.T) {
	config := gatetest.Config{Site: `modelgate_messages {
		reverse_proxy BACKEND {
			transport modelgate
			fail_duration 5s
			health_uri /health
			health_interval 10ms
		}
	}`}
	more := make(chan struct{})
	g := gatetest.Start(t, config)
	key := g.NewKey(t, nil)
	g.Backend.On("idle", gatetest.JSON(200, messageAnswer))
	g.Backend.On("stream", func(w http.ResponseWriter, _ *http.Request) {
		gatetest.Events(w)
		gatetest.Send(w, "event: ping\ndata: {\"type\":\"ping\"}\n\n")
		<-more
		gatetest.Send(w, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	})
	if got := post(t, g, messages, key.Secret, "idle", ""); got.Status != 200 {
		t.Fatal(got)
	}
	resp := g.Open(t.Context(), t, "POST", "/v1/messages", "x-api-key: "+key.Secret+"\nanthropic-version: 2023-06-01\ncontent-type: application/json",
		`{"model":"stream","max_tokens":1,"stream":true,"messages":[{"role":"user","content":"x"}]}`)
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	close(more)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "message_stop") {
		t.Errorf("%q %v", rest, err)
	}
	if got := post(t, g, messages, key.Secret, "idle", ""); got.Status != 200 {
		t.Error(got)
	}
}
