package call_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// leaveCall sends a request, waits for reached, reads the answer up to a text, and disconnects.
func leaveCall(t *testing.T, g *gatetest.Gate, path, contentType, key, body string, reached <-chan struct{}, until string) {
	t.Helper()
	conn := g.Dial(t)
	conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: g\nContent-Type: %s\nAuthorization: Bearer %s\nContent-Length: %d\n\n", path, contentType, key, len(body)))
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	within(t, gatetest.Timeout, "the call", reached)
	if until != "" {
		readUntil(t, conn, until)
	}
	// The backend may have the body before the gateway knows that it has sent it. Another request gives
	// the gateway the time to learn it.
	g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+key+"\n", "")
	conn.Close()
}

// flushed returns a script that sends its answer at once, or nil.
func flushed(script http.HandlerFunc) http.HandlerFunc {
	if script == nil {
		return nil
	}
	return gatetest.Then(script, portions(""))
}

// TestAnAbandonedCallIsChargedItsUnits abandons a call with each price that is not of tokens, before the
// answer and in its middle.
func TestAnAbandonedCallIsChargedItsUnits(t *testing.T) {
	const form = "multipart/form-data; boundary=" + boundary
	const asJSON = "application/json"
	partial := "data: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"QUJD\"}\n\n"
	image := "data: {\"type\":\"image_generation.completed\",\"b64_json\":\"QUJD\"}\n\n"
	recording := wav(20_000) // 3 seconds
	hundred := strings.Repeat(`"a",`, 250)
	for _, c := range []struct {
		name, path, contentType, body string
		first                         http.HandlerFunc
		until                         string // in the answer
		rest                          string // of the answer, if the call runs on
		cancelled, finished           string // what it costs
	}{
		{"images", images, asJSON, `{"model":"paint","prompt":"x","n":3,"size":"1024x1792"}`, nil, "", `{"data":[{"url":"u"},{"url":"v"}]}`, "0.18", "0.12"},
		{"images in JSON", images, asJSON, `{"model":"paint","prompt":"x","n":3}`, gatetest.JSON(200, `{"data":[{"url":"u"},`), "url", `{"url":"v"}]}`, "0.12", "0.08"},
		{"a stream of images", images, asJSON, `{"model":"paint","prompt":"x","n":2,"stream":true}`, gatetest.Stream(": wait\n\n"), "wait", image + image, "0.08", "0.08"},
		{"partial images", images, asJSON, `{"model":"paint","prompt":"x","n":2,"stream":true}`, gatetest.Stream(partial), "QUJD", image + "data: [DONE]\n\n", "0.08", "0.04"},
		{"an image of two", images, asJSON, `{"model":"paint","prompt":"x","n":2,"stream":true}`, gatetest.Stream(image), "QUJD", "data: [DONE]\n\n", "0.08", "0.04"},
		{"an edit", edits, form, formOf("model=paint", "prompt=x", "n=2", "image@png"), nil, "", `{"data":[{"url":"u"}]}`, "0.08", "0.04"},
		{"speech", speech, asJSON, `{"model":"tts","input":"12345678","voice":"v"}`, nil, "", "ID3", "0.00012", "0.00012"},
		{"speech in the middle", speech, asJSON, `{"model":"tts","input":"12345678","voice":"v"}`, gatetest.Body(200, "audio/mpeg", "ID3"), "ID3", "ID3", "0.00012", "0.00012"},
		{"a recording", transcriptions, form, formOf("model=whisper", "file@"+strings.Repeat("x", 37_500)), nil, "", `{"text":"x","usage":{"seconds":12}}`, "0.001", "0.0012"},
		{"a WAV file", transcriptions, form, formOf("model=whisper", "file@"+recording, "response_format=srt"), nil, "", "1", "0.0003", "0.0003"},
		{"a transcript in the middle", transcriptions, form, formOf("model=whisper", "file@"+recording), gatetest.JSON(200, `{"text":"x`), "text", `","usage":{"seconds":2}}`, "0.0003", "0.0002"},
		{"a request", transcriptions, form, formOf("model=flat", "file@x"), nil, "", "{}", "0.25", "0.25"},
		{"documents", "/v2/rerank", asJSON, `{"model":"flat","query":"q","documents":[` + strings.TrimSuffix(hundred, ",") + `]}`, nil, "", `{"results":[],"meta":{"billed_units":{"search_units":2}}}`, "0.75", "0.50"},
	} {
		for _, word := range []string{"cancel", "finish 1m"} {
			t.Run(c.name+", "+word, func(t *testing.T) {
				g := gatetest.Start(t, gatetest.Config{App: "on_disconnect " + word + unitPrices, Site: gatetest.Proxied})
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "10.00")
				model := "paint"
				for _, name := range []string{"tts", "whisper", "flat"} {
					if strings.Contains(c.body, name) {
						model = name
					}
				}
				script, reached, on, gone := interrupted(flushed(c.first), func(w http.ResponseWriter, _ *http.Request) {
					if strings.HasPrefix(c.rest, "{") && c.first == nil {
						w.Header().Set("Content-Type", asJSON)
					}
					_, _ = io.WriteString(w, c.rest)
				})
				g.Backend.On(model, script)
				leaveCall(t, g, c.path, c.contentType, key.Secret, c.body, reached, c.until)
				want := c.cancelled
				if word == "cancel" {
					within(t, soon, "the end of the call to the backend", gone)
				} else {
					want = c.finished
					awaitDetached(t, 1)
					close(on)
				}
				line := g.CallLineOf(t, model)
				if line.Text("ended") != "client_gone" || line.Text("cost") != want {
					t.Errorf("%s: want a cost of %s: the log line is %v", word, want, line)
				}
				if spent := 10*money.Unit - g.WalletAtRest(t, key.UserID).Balance; spent != amount(t, want) {
					t.Errorf("%s: the wallet paid %v, want %s", word, spent, want)
				}
				g.Verify(t)
			})
		}
	}
}
