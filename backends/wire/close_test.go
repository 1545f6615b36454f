package wire_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// TestAClosedClientFinishesCallsAndAcceptsNewOnes covers a change of the
// configuration: Caddy cleans up the old adapters while calls are running.
func TestAClosedClientFinishesCallsAndAcceptsNewOnes(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-answer
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	client := wire.Connect(wire.Client{Service: "the test", Base: server.URL, Authorize: func(*http.Request, []byte) {}})
	ended := make(chan error, 2)
	for _, op := range []wire.Operation{wire.Submitting, wire.Polling} {
		go func() {
			_, err := client.Do(t.Context(), wire.Call{Operation: op, URL: server.URL + "/x"})
			ended <- err
		}()
		<-arrived
	}
	client.Close()
	close(answer)
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a call that was running when the client was closed: %v", err)
		}
	}
	for _, op := range []wire.Operation{wire.Submitting, wire.Polling} {
		if _, err := client.Do(t.Context(), wire.Call{Operation: op, URL: server.URL + "/x"}); err != nil {
			t.Errorf("a call after the client was closed: %v", err)
		}
		<-arrived
	}
}
