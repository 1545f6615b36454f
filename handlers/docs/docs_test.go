package docs_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/docs"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestDocumentsAreServed(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_docs\nrespond other"})
	for path, want := range map[string]struct{ contentType, body string }{
		"/openapi.yaml": {"application/yaml", string(docs.OpenAPI)},
		"/llms.txt":     {"text/plain; charset=utf-8", string(docs.LLMs)},
	} {
		got := g.Do(t, http.MethodGet, path, "", "")
		if got.Status != 200 || got.Header.Get("Content-Type") != want.contentType || got.Body != want.body {
			t.Errorf("%s is answered %d %v %.100s", path, got.Status, got.Header, got.Body)
		}
	}
	got := g.Do(t, http.MethodGet, "/openapi.json", "", "")
	var document struct {
		OpenAPI string
		Paths   map[string]any
	}
	if err := json.Unmarshal([]byte(got.Body), &document); err != nil || got.Header.Get("Content-Type") != "application/json" ||
		document.OpenAPI != "3.1.0" || document.Paths["/v1/messages"] == nil {
		t.Errorf("/openapi.json is answered %d %v %.100s: %v", got.Status, got.Header, got.Body, err)
	}
	if got := g.Do(t, http.MethodHead, "/openapi.json", "", ""); got.Status != 200 || got.Body != "" {
		t.Errorf("HEAD is answered %d %.100s", got.Status, got.Body)
	}
	if got := g.Do(t, http.MethodPost, "/openapi.json", "", "{}"); got.Status != 405 || got.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST is answered %d %v", got.Status, got.Header)
	}
	for path, want := range map[string]string{"/": "other", "/page": "other"} {
		if got := g.Do(t, http.MethodGet, path, "", ""); got.Body != want {
			t.Errorf("%s is answered %s, want the answer of the site", path, got.Body)
		}
	}
}

// TestUnhandledRequestsAreNotAnsweredEmpty sends requests that no directive of a site answers.
func TestUnhandledRequestsAreNotAnsweredEmpty(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_health\nmodelgate_docs\nmodelgate_console\n" + gatetest.Proxied})
	for _, c := range []struct {
		method, path, accept string
		status               int
		contentType, text    string
	}{
		{"GET", "/", "*/*", 200, "application/json", `"openapi": "/openapi.json"`},
		{"GET", "/", "", 200, "application/json", `"openai": "/v1"`},
		{"GET", "/", "text/html,application/xhtml+xml,*/*;q=0.8", 200, "text/html; charset=utf-8", `<a href="/openapi.json">`},
		{"POST", "/", "", 405, "application/json", "METHOD_NOT_ALLOWED"},
		{"GET", "/page", "text/html", 404, "application/json", "GET / lists"},
		{"POST", "/page/x?y=z", "", 404, "application/json", "NOT_FOUND"},
		{"GET", "/openapi.json/", "", 404, "application/json", "NOT_FOUND"},
		{"GET", "/OpenAPI.json", "", 404, "application/json", "NOT_FOUND"},
		{"GET", "//", "", 404, "application/json", "NOT_FOUND"},
		{"GET", "/v1/batches", "", 404, "application/json", "NOT_FOUND"},
		{"GET", "/v1/files/a/b.png", "", 404, "application/json", "NOT_FOUND"},
		{"GET", "/api/nothing", "", 404, "application/json", `"success":false`},
	} {
		got := g.Do(t, c.method, c.path, "Accept: "+c.accept, "")
		if got.Status != c.status || got.Header.Get("Content-Type") != c.contentType || strings.Count(got.Body, c.text) != 1 {
			t.Errorf("%s %s (%s) is answered %d %v %s", c.method, c.path, c.accept, got.Status, got.Header, got.Body)
		}
		if strings.Contains(got.Body, "go1.") || strings.Contains(got.Header.Get("Server"), "/") {
			t.Errorf("%s reveals the version: %v %s", c.path, got.Header, got.Body)
		}
	}
}

// TestAnUnknownHostIsAnswered configures a site for one host, and one for all other hosts.
func TestAnUnknownHostIsAnswered(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_docs"})
	text := strings.Replace(g.Caddyfile(gatetest.Config{Site: "modelgate_health\n" + gatetest.Proxied}), "http://:", "http://gate.example:", 1)
	_, port, _ := strings.Cut(g.Address, ":")
	if err := g.ReloadText(text + "\nhttp://:" + port + " {\n\tbind 127.0.0.1\n\tmodelgate_docs\n}\n"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, request string
		status        int
	}{
		{"gate.example", "GET /healthz", 200},
		{"other.example", "GET /healthz", 404},
		{"other.example", "GET /", 200},
		{"other.example", "POST /v1/messages", 404},
		{"127.0.0.1", "GET /llms.txt", 200},
	} {
		wire := g.Dial(t)
		wire.Send(t, c.request+" HTTP/1.1\nHost: "+c.host+"\nContent-Length: 0\n\n")
		method, _, _ := strings.Cut(c.request, " ")
		if got := wire.Receive(t, method); got.Status != c.status || got.Body == "" {
			t.Errorf("%s of %s is answered %d %s", c.request, c.host, got.Status, got.Body)
		}
	}
}
