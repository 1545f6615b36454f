package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The paths of the endpoints.
const (
	messagesPath    = "/v1/messages"
	countPath       = "/v1/messages/count_tokens"
	completionsPath = "/v1/completions"
	chatPath        = "/v1/chat/completions"
	responsesPath   = "/v1/responses"
)

// unpaced is a Demo that does not pause.
var unpaced = &Demo{Pace: new(caddy.Duration)}

// nextHandler is the next handler. Its status shows that it was called.
var nextHandler = caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
	w.WriteHeader(http.StatusTeapot)
	return nil
})

// reply is the answer that a client received.
type reply struct {
	*httptest.ResponseRecorder
	err     error // error of the handler
	aborted bool  // the handler aborted
}

// serve calls the handler with a request and returns the answer.
func serve(d *Demo, r *http.Request) (got reply) {
	got.ResponseRecorder = httptest.NewRecorder()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			got.aborted = true
		default:
			panic(p)
		}
	}()
	got.err = d.ServeHTTP(got, r, nextHandler)
	return got
}

// post sends body to a Demo that does not pause.
func post(path, body string) reply {
	return serve(unpaced, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
}

// read decodes the JSON answer of a request that must succeed.
func read[T any](t *testing.T, path, body string) T {
	t.Helper()
	got := post(path, body)
	if got.Code != http.StatusOK || got.err != nil {
		t.Fatalf("POST %s %s: status %d, error %v, body %s", path, body, got.Code, got.err, got.Body)
	}
	return parse[T](t, got.Body.Bytes())
}

func parse[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// event is one server-sent event.
type event struct{ name, data string }

// events splits a stream into its events, and fails if a line is not part of an event.
func events(t *testing.T, stream string) []event {
	t.Helper()
	var all []event
	for text := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		var e event
		for line := range strings.SplitSeq(text, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "event":
				e.name = value
			case "data":
				e.data = value
			default:
				t.Fatalf("line %q of a stream", line)
			}
		}
		all = append(all, e)
	}
	return all
}

func TestOtherPathsGoToTheNextHandler(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/v1/models", "/v1/messages/", "/v1/messages/batches", "/v1/video/generations"} {
		if got := post(path, `{}`); got.Code != http.StatusTeapot {
			t.Errorf("%s: status %d", path, got.Code)
		}
	}
}

func TestPathsAreMatchedByTheirEnd(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","max_tokens":9,"prompt":"hi","messages":[{"role":"user","content":"hi"}]}`
	for _, path := range []string{messagesPath, countPath, completionsPath, chatPath} {
		if got := post("/some/where"+path, body); got.Code != http.StatusOK {
			t.Errorf("%s: status %d: %s", path, got.Code, got.Body)
		}
	}
}

func TestOnlyPOSTIsAccepted(t *testing.T) {
	t.Parallel()
	for _, path := range []string{messagesPath, countPath, completionsPath, chatPath} {
		got := serve(unpaced, httptest.NewRequest(http.MethodGet, path, nil))
		if got.Code != http.StatusMethodNotAllowed || got.Header().Get("Allow") != "POST" {
			t.Errorf("%s: status %d, Allow %q", path, got.Code, got.Header().Get("Allow"))
		}
	}
}

func TestABodyOver32MiBIsRefused(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte(" "), maxBody+1)
	got := serve(unpaced, httptest.NewRequest(http.MethodPost, messagesPath, bytes.NewReader(body)))
	if got.Code != http.StatusRequestEntityTooLarge || !strings.Contains(got.Body.String(), "request_too_large") {
		t.Errorf("status %d: %s", got.Code, got.Body)
	}
}

func TestInvalidRequestsAreRefusedInTheDialect(t *testing.T) {
	t.Parallel()
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct{ path, body, text string }{
		{messagesPath, ``, "JSON"},
		{messagesPath, `{"model":`, "JSON"},
		{messagesPath, `[]`, "JSON"},
		{messagesPath, `{"max_tokens":9,` + user + `}`, "model"},
		{messagesPath, `{"model":"m","max_tokens":9}`, "messages"},
		{messagesPath, `{"model":"m",` + user + `}`, "max_tokens"},
		{messagesPath, `{"model":"m","max_tokens":0,` + user + `}`, "max_tokens"},
		{messagesPath, `{"model":"m","max_tokens":"9",` + user + `}`, "max_tokens"},
		{messagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"tool","content":"hi"}]}`, "messages.0.role"},
		{messagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user"}]}`, "messages.0.content"},
		{messagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":7}]}`, "number"},
		{messagesPath, `{"model":"m","max_tokens":9,"stop_sequences":[""],` + user + `}`, "stop_sequences"},
		{messagesPath, `{"model":"m","max_tokens":9,"tool_choice":{"type":"tool","name":"x"},` + user + `}`, "tool_choice.name"},
		{countPath, `{"model":"m"}`, "messages"},
		{completionsPath, `{"model":"m"`, "JSON"},
		{completionsPath, `{"prompt":"p"}`, "model"},
		{completionsPath, `{"model":"m"}`, "prompt"},
		{completionsPath, `{"model":"m","prompt":[]}`, "prompt"},
		{completionsPath, `{"model":"m","prompt":[1,2]}`, "number"},
		{completionsPath, `{"model":"m","prompt":"p","max_tokens":-1}`, "max_tokens"},
		{completionsPath, `{"model":"m","prompt":"p","n":0}`, "n:"},
		{completionsPath, `{"model":"m","prompt":"p","n":129}`, "n:"},
		{completionsPath, `{"model":"m","prompt":["p","q"],"n":65}`, "n:"},
		{completionsPath, `{"model":"m","prompt":"p","n":3,"best_of":2}`, "best_of"},
		{completionsPath, `{"model":"m","prompt":"p","best_of":2,"stream":true}`, "best_of"},
		{completionsPath, `{"model":"m","prompt":"p","stop":""}`, "stop"},
		{completionsPath, `{"model":"m","echo":true,"n":128,"prompt":"` + strings.Repeat("x", 300_000) + `"}`, "32 MiB"},
		{chatPath, `{"model":"m"}`, "messages"},
		{chatPath, `{` + user + `}`, "model"},
		{chatPath, `{"model":"m","messages":[{"role":"unknown","content":"hi"}]}`, "messages.0.role"},
		{chatPath, `{"model":"m","messages":[{"role":"user"}]}`, "messages.0.content"},
		{chatPath, `{"model":"m","max_tokens":0,` + user + `}`, "max_tokens"},
		{chatPath, `{"model":"m","max_completion_tokens":0,` + user + `}`, "max_completion_tokens"},
		{chatPath, `{"model":"m","n":0,` + user + `}`, "n:"},
		{chatPath, `{"model":"m","n":128,"messages":[{"role":"user","content":"` + strings.Repeat("x", 300_000) + `"}]}`, "32 MiB"},
		{chatPath, `{"model":"m","tool_choice":{"type":"function","function":{"name":"x"}},` + user + `}`, "tool_choice"},
	} {
		got := post(c.path, c.body)
		var answer struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
			t.Errorf("%s %.99s: %v", c.path, c.body, err)
			continue
		}
		if got.Code != http.StatusBadRequest || answer.Error.Type != "invalid_request_error" || !strings.Contains(answer.Error.Message, c.text) {
			t.Errorf("%s %.99s: status %d, %+v, want a message with %q", c.path, c.body, got.Code, answer, c.text)
		}
		if messages := c.path == messagesPath || c.path == countPath; messages != (answer.Type == "error") {
			t.Errorf("%s %.99s: not in the dialect: %s", c.path, c.body, got.Body)
		}
	}
}

func TestPiecesAreDelayedByPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		demo *Demo
		took time.Duration
	}{
		{&Demo{}, 10 * defaultPace},
		{&Demo{Pace: new(caddy.Duration(time.Second))}, 10 * time.Second},
		{unpaced, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			serve(c.demo, httptest.NewRequest(http.MethodPost, chatPath,
				strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"demo:long=10"}]}`)))
			if took := time.Since(begin); took != c.took {
				t.Errorf("pace %v: 10 pieces took %s, want %s", c.demo.pace(), took, c.took)
			}
		})
	}
}

func TestEventsAreFlushedAndADisconnectEndsTheStream(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		unpaced.ServeHTTP(w, r, nextHandler)
	}))
	defer server.Close()
	res, err := http.Post(server.URL+messagesPath, "application/json",
		strings.NewReader(`{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"demo:stall=1h"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	// The stream stalls after its third piece, which must have arrived.
	var seen []byte
	for strings.Count(string(seen), "text_delta") < failAfterPieces {
		buf := make([]byte, 512)
		n, err := res.Body.Read(buf)
		if seen = append(seen, buf[:n]...); err != nil {
			t.Fatalf("%v after %s", err, seen)
		}
	}
	res.Body.Close()
	<-ended
}

func TestADisconnectBeforeTheFirstByteIsA499(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodPost, countPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	got := serve(unpaced, r.WithContext(ctx))
	if failed, ok := errors.AsType[caddyhttp.HandlerError](got.err); !ok || failed.StatusCode != 499 {
		t.Errorf("error %v", got.err)
	}
}

func TestCaddyfile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ input, json, err string }{
		{input: "modelgate_demo", json: `{}`},
		{input: "modelgate_demo {\n pace 20ms\n}", json: `{"pace":20000000}`},
		{input: "modelgate_demo {\n pace 0\n}", json: `{"pace":0}`},
		{input: "modelgate_demo fast", err: "wrong argument count"},
		{input: "modelgate_demo {\n pace\n}", err: "wrong argument count"},
		{input: "modelgate_demo {\n pace 1s 2s\n}", err: "wrong argument count"},
		{input: "modelgate_demo {\n pace soon\n}", err: "pace: "},
		{input: "modelgate_demo {\n pace 1s\n pace 1s\n}", err: "pace is set twice"},
		{input: "modelgate_demo {\n pace 1s {\n pace 2s\n }\n}", err: "{"},
		{input: "modelgate_demo {\n pause 1s\n}", err: `unknown word "pause"`},
	} {
		var d Demo
		err := d.UnmarshalCaddyfile(caddyfile.NewTestDispenser(c.input))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want %q", c.input, err, c.err)
			}
			continue
		}
		if got, _ := json.Marshal(d); err != nil || string(got) != c.json {
			t.Errorf("%q: %s, error %v", c.input, got, err)
		}
	}
}

func TestANegativePaceIsRefused(t *testing.T) {
	t.Parallel()
	if err := (&Demo{Pace: new(caddy.Duration(-1))}).Validate(); err == nil {
		t.Error("a negative pace returned no error")
	}
	if err := unpaced.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTheModuleIsRegistered(t *testing.T) {
	t.Parallel()
	info, err := caddy.GetModule("http.handlers.modelgate_demo")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := info.New().(*Demo); !ok {
		t.Errorf("New returns a %T", info.New())
	}
}

// TestTheDocumentationListsAllSimulationWords compares the comment of Demo with the table.
func TestTheDocumentationListsAllSimulationWords(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "demo.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, comment := range file.Comments {
		for _, row := range regexp.MustCompile("(?m)^`demo:([a-z0-9]+)(?:=N)?` \\| ").FindAllStringSubmatch(comment.Text(), -1) {
			documented[row[1]] = true
		}
	}
	for _, w := range table {
		if !documented[w.name] {
			t.Errorf("demo:%s is not documented", w.name)
		}
		delete(documented, w.name)
	}
	for name := range documented {
		t.Errorf("demo:%s is documented but does not exist", name)
	}
}

// FuzzAnswer checks for any input that the answer is valid JSON or an error, and
// that the handler does not panic.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","max_tokens":9,"system":"s","messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","max_tokens":99,"thinking":{"type":"enabled"},"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"x"}]}]}]}`,
		`{"model":"m","max_tokens":99,"tools":[{"name":"t","input_schema":{"required":["a"],"properties":{"a":{"enum":[1]}}}}],"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","prompt":["a","b"],"n":2,"stop":"x","echo":true}`,
		`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"type":["array"]}}}],"tool_choice":"auto","messages":[{"role":"user","content":"hi"}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, e := range endpoints {
			a, err := e.answer("application/json", body)
			if err != nil {
				if _, ok := errors.AsType[*refusal](err); !ok {
					t.Errorf("%s: %v is not a refusal", e.suffix, err)
				}
				continue
			}
			if a.events == nil && !json.Valid(encode(a.whole)) {
				t.Errorf("%s: invalid JSON", e.suffix)
			}
		}
	})
}
