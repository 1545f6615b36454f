package call_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestABackendReadsTheBodyAsItWasChecked(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for name, contentType := range map[string]string{
		"none": "", "a form": "application/x-www-form-urlencoded", "parts": "multipart/form-data; boundary=x",
		"another charset": "application/json; charset=utf-7", "two": "application/json\nContent-Type: text/plain",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := "X-Api-Key: " + key + "\nAnthropic-Version: 2023-06-01"
			if contentType != "" {
				headers += "\nContent-Type: " + contentType
			}
			g.Backend.On(name, gatetest.JSON(http.StatusOK, messageAnswer))
			if got := g.Do(t, http.MethodPost, messages, headers, bodyFor(messages, name, "")); got.Status != http.StatusOK {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			for _, seen := range g.Backend.Seen(name) {
				if types := seen.Header["Content-Type"]; len(types) != 1 || types[0] != "application/json" {
					t.Errorf("the backend read %q", types)
				}
			}
		})
	}
}

func TestPingsDoNotTruncateAStreamWithAContentLength(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n ping 50ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	first := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n"
	last := "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	pinged := make(chan struct{})
	g.Backend.On("announced", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(first+last)))
		gatetest.Send(w, first)
		<-pinged
		gatetest.Send(w, last)
	})
	headers := "X-Api-Key: " + key + "\nAnthropic-Version: 2023-06-01"
	resp := g.Open(t.Context(), t, http.MethodPost, messages, headers, bodyFor(messages, "announced", streamed))
	var got strings.Builder
	for chunk := make([]byte, 512); !strings.Contains(got.String(), "event: ping\n"); {
		n, err := resp.Body.Read(chunk)
		if got.Write(chunk[:n]); err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
	}
	close(pinged)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(got.String()+string(rest), last) {
		t.Errorf("the caller got %q and %q (%v)", got.String(), rest, err)
	}
}
