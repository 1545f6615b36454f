package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vendorAndFallback returns the configuration of docs/guide/production.md with a local fallback for
// a model of a vendor. It replaces the addresses and the model by those of the test.
func vendorAndFallback(t *testing.T, vendor, fallback string) site {
	t.Helper()
	guide, err := os.ReadFile("../docs/guide/production.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "### From a vendor to a local model")
	_, block, _ := strings.Cut(section, "```caddyfile\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.NewReplacer(
		"/run/modelgate/openai.sock", filepath.Join(t.TempDir(), "openai.sock"),
		"10.0.0.5:8000", fallback, "https://api.openai.com", vendor, "OPENAI_API_KEY", "OPERATOR_KEY", "gpt-4.1", "m-1",
	).Replace(block)
	_, completions, begins := strings.Cut(block, "modelgate_openai {\n")
	completions, vendors, ends := strings.Cut(completions, "\n\t}\n}\n")
	if !begins || !ends {
		t.Fatalf("the configuration is not in the guide:\n%s", block)
	}
	return site{Messages: completions, Completions: completions, Sites: vendors}
}

func TestALocalFallbackTakesOver(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	for name, refuse := range map[string]script{
		"busy":       respond(http.StatusTooManyRequests, `{"error":{}}`),
		"overloaded": respond(http.StatusServiceUnavailable, `{"error":{}}`),
		"gone":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fallback, address := newBackend(t, answerCalls), unreachable(t)
			if refuse != nil {
				address = newBackend(t, refuse).address()
			}
			g := running(t, vendorAndFallback(t, address, fallback.address()), fallback)
			for _, body := range []string{callBodies[path], streamBodies[path], largeBodies[path]} {
				if a := g.call(path, body, g.bearer()...); a.Status != http.StatusOK || a.Err != nil {
					t.Errorf("%d bytes: %d %.200s %v", len(body), a.Status, a.Body, a.Err)
					continue
				}
				got := fallback.next()
				if string(got.Body) != body {
					t.Errorf("the fallback got %d of %d bytes", len(got.Body), len(body))
				}
				if key := got.Header.Get("Authorization") + got.Header.Get("X-Api-Key"); key != "" {
					t.Errorf("the fallback got the credential %q", key)
				}
			}
			other := strings.Replace(callBodies[path], "m-1", "m-2", 1)
			if a := g.call(path, other, g.bearer()...); a.Status < 400 || len(fallback.requests()) != 3 {
				t.Errorf("a model without a fallback gets %d; the fallback got %d calls", a.Status, len(fallback.requests()))
			}
		})
	}
}

func TestTheVendorIsPreferredToTheFallback(t *testing.T) {
	t.Parallel()
	vendor, fallback := newBackend(t, answerCalls), newBackend(t, answerCalls)
	g := running(t, vendorAndFallback(t, vendor.address(), fallback.address()), vendor, fallback)
	for _, bodies := range []map[string]string{callBodies, streamBodies, largeBodies} {
		const path = "/v1/chat/completions"
		if a := g.call(path, bodies[path], g.bearer()...); a.Status != http.StatusOK || a.Err != nil {
			t.Errorf("%d bytes: %d %.200s %v", len(bodies[path]), a.Status, a.Body, a.Err)
		}
		got := vendor.next()
		if want := "Bearer " + g.operatorKey; string(got.Body) != bodies[path] || got.Header.Get("Authorization") != want {
			t.Errorf("the vendor got %d of %d bytes with the credential %q", len(got.Body), len(bodies[path]), got.Header.Get("Authorization"))
		}
	}
	if n := len(fallback.requests()); n != 0 {
		t.Errorf("the fallback got %d calls", n)
	}
}
