package call_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// formFallbacks starts a gateway whose models of forms have fallbacks that cost more.
func formFallbacks(t *testing.T) (*gatetest.Gate, gatetest.Key) {
	t.Helper()
	g := gatetest.Start(t, gatetest.Config{App: unitPrices + `
		price dear* {
			per minute 0.6
			on_disconnect cancel
		}
		price gold* {
			image 1
		}
		alias golden gold
	`, Site: fallbackSite("fallback whisper* dear on 503 broken\nfallback paint* tts golden on 429", "reverse_proxy BACKEND")})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1000.00")
	return g, key
}

func TestAFormFallsBackWithOnlyItsModelChanged(t *testing.T) {
	g, key := formFallbacks(t)
	sound := wav(8000 * 60)
	transcript := `{"text":"x","duration":60.0}`
	forms := []func(model string) string{
		func(model string) string {
			return formOf("model="+model, "file@"+sound, "response_format=verbose_json")
		},
		func(model string) string {
			return formOf("language=de", "file@"+sound, "prompt=whisper-1", "model="+model)
		},
	}
	for _, path := range []string{transcriptions, translations} {
		for _, form := range forms {
			for name, script := range map[string]http.HandlerFunc{"503": status(503), "broken": gatetest.Reset} {
				g.Backend.On("whisper-1", script)
				g.Backend.On("dear", gatetest.JSON(200, transcript))
				before := len(g.Backend.Seen("dear"))
				got := sendForm(t, g, path, key.Secret, form("whisper-1"))
				if got.Status != 200 || got.Body != transcript {
					t.Fatalf("answered %d %s", got.Status, got.Body)
				}
				seen := g.Backend.Seen("dear")[before:]
				if len(seen) != 1 || string(seen[0].Body) != form("dear") || !strings.Contains(seen[0].Header.Get("Content-Type"), boundary) {
					t.Errorf("the fallback was called %d times, or with another form", len(seen))
				}
				line := wantMedia(t, g, got, strings.TrimPrefix(path, "/v1/audio/"), "complete", "reported", "0.60")
				if line.Text("fallback") != "whisper-1 "+name || line.Text("model") != "dear" || line.Text("asked_model") != "whisper-1" {
					t.Errorf("logged %v", line)
				}
			}
		}
	}

	// The first of the two fallbacks has no price for images; the other one is an alias.
	form := func(model string) string { return formOf("prompt=p", "image@png", "n=2", "model="+model) }
	g.Backend.On("paint-1", status(429))
	g.Backend.On("gold", gatetest.JSON(200, `{"data":[{"url":"u"},{"url":"v"}]}`))
	got := sendForm(t, g, edits, key.Secret, form("paint-1"))
	wantMedia(t, g, got, "image_edits", "complete", "reported", "2.00")
	if seen := g.Backend.Seen("gold"); len(seen) != 1 || string(seen[0].Body) != form("gold") {
		t.Errorf("the fallback received %v", seen)
	}
	g.Backend.On("paint-1", status(503)) // is not named
	if got := sendForm(t, g, edits, key.Secret, form("paint-1")); got.Status != 503 || len(g.Backend.Seen("gold")) != 1 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}

func TestAFormThatBreaksOffIsChargedAtTheModelThatServed(t *testing.T) {
	g, key := formFallbacks(t)
	form := formOf("model=whisper-1", "file@"+wav(8000*30))
	begins := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		gatetest.Send(w, `{"text":"`)
	}
	g.Backend.On("whisper-1", status(503))
	for name, c := range map[string]struct {
		script http.HandlerFunc
		ended  string
		cost   string
	}{
		"broken before its answer": {gatetest.Reset, "upstream_error", "0.00"},
		"refused":                  {status(400), "refused", "0.00"},
		"broken within its answer": {gatetest.Then(begins, gatetest.Reset), "upstream_error", "0.30"},
	} {
		g.Backend.On("dear", c.script)
		var line gatetest.Line
		if c.cost == "0.00" {
			line = g.CallLine(t, sendForm(t, g, transcriptions, key.Secret, form).RequestID())
		} else {
			resp := g.Open(t.Context(), t, http.MethodPost, transcriptions,
				"Content-Type: multipart/form-data; boundary="+boundary+"\nAuthorization: Bearer "+key.Secret+"\n", form)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			line = g.CallLine(t, resp.Header.Get("X-Request-Id"))
		}
		if line.Text("model") != "dear" || line.Text("ended") != c.ended || line.Text("cost") != c.cost {
			t.Errorf("%s: logged %v", name, line)
		}
	}

	// The caller disconnects while the fallback answers.
	gone := make(chan struct{})
	g.Backend.On("dear", func(w http.ResponseWriter, r *http.Request) {
		begins(w, r)
		<-r.Context().Done()
		close(gone)
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp := g.Open(ctx, t, http.MethodPost, transcriptions,
		"Content-Type: multipart/form-data; boundary="+boundary+"\nAuthorization: Bearer "+key.Secret+"\n", form)
	leave()
	resp.Body.Close()
	<-gone
	if line := g.CallLine(t, resp.Header.Get("X-Request-Id")); line.Text("ended") != "client_gone" || line.Text("model") != "dear" || line.Text("cost") != "0.30" {
		t.Errorf("logged %v", line)
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}

func TestTheReservationOfAFormCoversItsFallback(t *testing.T) {
	g, _ := formFallbacks(t)
	poor := g.NewKey(t, nil)
	g.Credit(t, poor.UserID, "0.59") // whisper costs 0.006, dear 0.60
	g.Backend.On("whisper-1", gatetest.JSON(200, `{"text":"x"}`))
	form := formOf("model=whisper-1", "file@"+wav(8000*60))
	if got := sendForm(t, g, transcriptions, poor.Secret, form); got.Status != 402 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	g.Credit(t, poor.UserID, "0.01")
	wantMedia(t, g, sendForm(t, g, transcriptions, poor.Secret, form), "transcriptions", "complete", "reported", "0.006")
	g.WalletAtRest(t, poor.UserID)
	g.Verify(t)
}
