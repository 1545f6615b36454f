package gatetest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Backend simulates the services that models run on. It answers a request with
// the script of its model, and records all requests.
type Backend struct {
	// Address is host:port.
	Address string

	mu      sync.Mutex
	scripts map[string]http.HandlerFunc
	seen    map[string][]Seen
}

// Seen is a request that the backend received.
type Seen struct {
	Method string
	URI    string // exactly as sent
	Header http.Header
	Body   []byte
}

func newBackend(t testing.TB) *Backend {
	t.Helper()
	b := &Backend{scripts: make(map[string]http.HandlerFunc), seen: make(map[string][]Seen)}
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(func() {
		server.CloseClientConnections() // connections that a failed test has left open
		server.Close()
	})
	b.Address = strings.TrimPrefix(server.URL, "http://")
	return b
}

// On sets the script for a model. The body of the request has been read
// already.
func (b *Backend) On(model string, script http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scripts[model] = script
}

// Seen returns the requests for a model, in order.
func (b *Backend) Seen(model string) []Seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Seen(nil), b.seen[model]...)
}

// Total returns the number of all requests.
func (b *Backend) Total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, requests := range b.seen {
		n += len(requests)
	}
	return n
}

func (b *Backend) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var named struct {
		Model string `json:"model"`
	}
	if json.Unmarshal(body, &named) != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		named.Model = r.FormValue("model")
	}

	b.mu.Lock()
	b.seen[named.Model] = append(b.seen[named.Model], Seen{r.Method, r.RequestURI, r.Header.Clone(), body})
	script := b.scripts[named.Model]
	b.mu.Unlock()
	if script == nil {
		script = JSON(http.StatusOK, `{}`)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	script(w, r)
}

// JSON returns a script that answers with a JSON text.
func JSON(status int, body string) http.HandlerFunc { return Body(status, "application/json", body) }

// Body returns a script that answers with a body of any type.
func Body(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// Stream returns a script that answers with an event stream and flushes each
// portion.
func Stream(portions ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		Events(w)
		for _, portion := range portions {
			Send(w, portion)
		}
	}
}

// Then returns a script that runs the scripts one after another.
func Then(scripts ...http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, script := range scripts {
			script(w, r)
		}
	}
}

// Events sends the header of an event stream.
func Events(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	Send(w, "")
}

// Send sends a portion of a body and flushes it.
func Send(w http.ResponseWriter, portion string) {
	io.WriteString(w, portion)
	_ = http.NewResponseController(w).Flush()
}

// Reset closes the connection, as a crashing backend does.
func Reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// Silent returns a script that waits until the request is cancelled, and then
// closes gone.
func Silent(gone chan<- struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	}
}
