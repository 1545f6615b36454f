package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vendorAndSpare returns the site of docs/guide/production.md with a local spare for a model
// of a vendor. It has the addresses and the model of the test.
func vendorAndSpare(t *testing.T, vendor, spare string) site {
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
		"10.0.0.5:8000", spare, "https://api.openai.com", vendor, "OPENAI_API_KEY", "OPERATOR_KEY", "gpt-4.1", "m-1",
	).Replace(block)
	_, completions, begins := strings.Cut(block, "modelgate_completions {\n")
	completions, vendors, ends := strings.Cut(completions, "\n\t}\n}\n")
	if !begins || !ends {
		t.Fatalf("the configuration is not in the guide:\n%s", block)
	}
	return site{Messages: completions, Completions: completions, Sites: vendors}
}

func TestALocalSpareTakesOver(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	for name, refuse := range map[string]script{
		"busy":       respond(http.StatusTooManyRequests, `{"error":{}}`),
		"overloaded": respond(http.StatusServiceUnavailable, `{"error":{}}`),
		"gone":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spare, address := newBackend(t, answerCalls), unreachable(t)
			if refuse != nil {
				address = newBackend(t, refuse).address()
			}
			g := running(t, vendorAndSpare(t, address, spare.address()), spare)
			for _, body := range []string{callBodies[path], streamBodies[path], largeBodies[path]} {
				if a := g.call(path, body, g.bearer()...); a.Status != http.StatusOK || a.Err != nil {
					t.Errorf("%d bytes: %d %.200s %v", len(body), a.Status, a.Body, a.Err)
					continue
				}
				got := spare.next()
				if string(got.Body) != body {
					t.Errorf("the spare got %d of %d bytes", len(got.Body), len(body))
				}
				if key := got.Header.Get("Authorization") + got.Header.Get("X-Api-Key"); key != "" {
					t.Errorf("the spare got the credential %q", key)
				}
			}
			other := strings.Replace(callBodies[path], "m-1", "m-2", 1)
			if a := g.call(path, other, g.bearer()...); a.Status < 400 || len(spare.requests()) != 3 {
				t.Errorf("a model without a spare gets %d; the spare got %d calls", a.Status, len(spare.requests()))
			}
		})
	}
}

func TestTheVendorIsPreferredToTheSpare(t *testing.T) {
	t.Parallel()
	vendor, spare := newBackend(t, answerCalls), newBackend(t, answerCalls)
	g := running(t, vendorAndSpare(t, vendor.address(), spare.address()), vendor, spare)
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
	if n := len(spare.requests()); n != 0 {
		t.Errorf("the spare got %d calls", n)
	}
}
