package e2e

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

// backgroundVendor runs responses in the background. Each writes some text, and then nothing until it is
// cancelled. It reports no usage and shows no text of a cancelled one.
type backgroundVendor struct {
	mu        sync.Mutex
	made      int
	cancelled map[string]chan struct{} // by id; closed when it is
}

const (
	backgroundWords = 300
	backgroundWord  = "word "
)

func (v *backgroundVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	show := func(id, status string) {
		fmt.Fprintf(w, `{"id":%q,"object":"response","status":%q,"background":true,"model":"m-1","output":[]}`, id, status)
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1/responses"), "/")
	if rest == "" {
		v.mu.Lock()
		v.made++
		id := fmt.Sprintf("resp_background%d", v.made)
		v.cancelled[id] = make(chan struct{})
		v.mu.Unlock()
		show(id, "queued")
		return
	}
	id, cancel := strings.CutSuffix(rest, "/cancel")
	v.mu.Lock()
	cancelled := v.cancelled[id]
	v.mu.Unlock()
	if cancel {
		close(cancelled)
	}
	if r.URL.Query().Get("stream") != "true" {
		select {
		case <-cancelled:
			show(id, "cancelled")
		default:
			show(id, "in_progress")
		}
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for range backgroundWords {
		fmt.Fprint(w, event("response.output_text.delta", fmt.Sprintf(`{"type":"response.output_text.delta","delta":%q}`, backgroundWord)))
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-cancelled:
	case <-r.Context().Done():
	}
}

// TestTextOfABackgroundResponseIsChargedWhereverItIsRead cancels two responses after their text was read:
// one at the gateway that polls it, one at another. Both cost the same.
func TestTextOfABackgroundResponseIsChargedWhereverItIsRead(t *testing.T) {
	t.Parallel()
	v := &backgroundVendor{cancelled: map[string]chan struct{}{}}
	vendor := httptest.NewServer(v)
	t.Cleanup(vendor.Close)
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	s := site{
		Log:         "INFO",
		Storage:     fmt.Sprintf("storage postgres %q\nsecret %x", postgrestest.Start(t).Database(), secret),
		Money:       "price m-1 {\ninput 1000\noutput 1000\ncontext 1000\nmax_output 1000\n}",
		Messages:    "modelgate_demo",
		Completions: "state own\nreverse_proxy " + strings.TrimPrefix(vendor.URL, "http://") + " {\nflush_interval -1\n}",
	}
	var nodes []*gateway
	for range 2 {
		g := newGateway(t, s)
		g.start()
		g.awaitReady(http.StatusOK, "")
		nodes = append(nodes, g)
	}
	ada := nodes[0].newGatewayUser("ada")
	ada.credit("100")
	nodes[1].awaitKey(ada.key)
	bearer := []string{"Authorization", "Bearer " + ada.key}
	for i, reader := range nodes {
		id := fmt.Sprintf("resp_background%d", i+1)
		if a := nodes[0].call("/v1/responses", `{"model":"m-1","input":"Hi","background":true}`, bearer...); a.Status != http.StatusOK || !strings.Contains(a.Body, id) {
			t.Fatalf("the submission: %d %s %v", a.Status, a.Body, a.Err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, reader.url("/v1/responses/"+id+"?stream=true"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(bearer[0], bearer[1])
		transport := newTransport(http1)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		for lines := bufio.NewScanner(resp.Body); read < backgroundWords && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data:") {
				read++
			}
		}
		_ = resp.Body.Close() // the caller has what it wants
		transport.CloseIdleConnections()
		if a := reader.call("/v1/responses/"+id+"/cancel", "", bearer...); a.Status != http.StatusOK {
			t.Fatalf("the cancellation: %d %s %v", a.Status, a.Body, a.Err)
		}
		nodes[0].awaitCalls("ada", i+1)
	}
	calls := ada.calls()
	if len(calls) != 2 || calls[0].Cost != calls[1].Cost || calls[0].Cost < unit/10 {
		t.Errorf("the two responses are recorded as %+v; want equal costs that cover the text", calls)
	}
	nodes[1].verify()
}
