package wire_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// answering returns a client of a service that answers every request by calling
// write.
func answering(t *testing.T, write func(w io.Writer)) *wire.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		write(w)
	}))
	t.Cleanup(server.Close)
	return client(t, server.URL)
}

// TestAnAnswerMayRepeatTheRequest simulates services that repeat the whole
// request in \u escapes, in the answers to the submission and to every poll.
func TestAnAnswerMayRepeatTheRequest(t *testing.T) {
	t.Parallel()
	for name, repeats := range map[string]string{
		"a prompt":       strings.Repeat("\u00e9", 360_000),
		"angle brackets": strings.Repeat("<", 1<<20),
		"quotes":         strings.Repeat(`"\`, 1<<19),
	} {
		repeats = "a" + repeats
		repeated := "a" + escaped(repeats[1:])
		c := answering(t, func(w io.Writer) {
			_, _ = io.WriteString(w, `{"input":{"prompt":"`+repeated+`","images":["`+repeated+`"]},"id":"job_1"}`)
		})
		for _, op := range []wire.Operation{wire.Submitting, wire.Polling, wire.Cancelling, wire.Checking} {
			body, _ := json.Marshal(repeats)
			var decoded struct {
				ID    string `json:"id"`
				Input struct {
					Prompt string   `json:"prompt"`
					Images []string `json:"images"`
				} `json:"input"`
			}
			answer, err := c.Do(t.Context(), wire.Call{Operation: op, URL: c.Base, Body: body})
			if err == nil {
				err = c.Decode(op, answer, &decoded)
			}
			if err != nil || decoded.ID != "job_1" || len(answer.Body) > 200_000 {
				t.Errorf("%s, operation %d: %+.80v of %d bytes, %v", name, op, decoded.ID, len(answer.Body), err)
			}
			if !strings.HasPrefix(repeats, decoded.Input.Prompt) || len(decoded.Input.Images) != 1 || wire.Link(decoded.Input.Prompt) != "" {
				t.Errorf("%s: the %d bytes of the prompt in the answer differ from the request", name, len(decoded.Input.Prompt))
			}
		}
	}
}

// escaped returns text as the inside of a JSON string, with each character written
// as \u.
func escaped(text string) string {
	var s strings.Builder
	for _, c := range text {
		fmt.Fprintf(&s, `\u%04x`, c)
	}
	return s.String()
}

// TestAnAnswerMayRepeatTheRequestInShortStrings repeats a request that consists of
// many short strings, which are not cut.
func TestAnAnswerMayRepeatTheRequestInShortStrings(t *testing.T) {
	t.Parallel()
	parts := `[` + strings.Repeat(`"<",`, 1<<20) + `"<"]`
	c := answering(t, func(w io.Writer) {
		_, _ = io.WriteString(w, `{"input":`+strings.ReplaceAll(parts, "<", `\u003c`)+`,"id":"job_1"}`)
	})
	call := wire.Call{Operation: wire.Submitting, URL: c.Base, Body: []byte(parts)}
	if answer, err := c.Do(t.Context(), call); err != nil || !json.Valid(answer.Body) {
		t.Errorf("%d bytes: %v", len(answer.Body), err)
	}
	call.Body = nil
	if answer, err := c.Do(t.Context(), call); err == nil {
		t.Errorf("an answer of %d bytes to a short request is accepted", len(answer.Body))
	}
}

func TestAnEndlessAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for op, kind := range map[wire.Operation]backends.Kind{wire.Submitting: backends.Unconfirmed, wire.Polling: backends.Busy} {
		c := answering(t, func(w io.Writer) {
			_, _ = io.WriteString(w, `{"id":"job_1","input":"`)
			for chunk := strings.Repeat("x", 1<<20); ; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		})
		_, err := c.Do(t.Context(), wire.Call{Operation: op, URL: c.Base})
		if e, ok := err.(*backends.Error); !ok || e.Kind != kind || !strings.Contains(e.Detail, "longer than") {
			t.Errorf("operation %d: %v", op, err)
		}
	}
}

func TestShortStringsAreNotCut(t *testing.T) {
	t.Parallel()
	link := "https://x.example/" + strings.Repeat("a", 8192-18)
	for _, text := range []string{
		`{}`, `[]`, `"\"\\\u0022\n"`, `{"a\"b":"\\","c":["\\\"",1e3,null,"é"]}`, `"\ud83d\ude00"`, "\xff\"\xff", `{"half":"\`, "", "text",
		`{"url":"` + link + `"}`, `{"url":"` + escaped(link) + `"}`,
	} {
		c := answering(t, func(w io.Writer) { _, _ = io.Copy(w, iotest.OneByteReader(strings.NewReader(text))) })
		if answer, err := c.Do(t.Context(), wire.Call{URL: c.Base}); err != nil || string(answer.Body) != text {
			t.Errorf("%.80q is read as %.80q, %v", text, answer.Body, err)
		}
	}
}

func TestResultsAreLimited(t *testing.T) {
	t.Parallel()
	links := make([]string, 20_000)
	for i := range links {
		links[i] = fmt.Sprintf("https://x.example/%d", i)
	}
	got := client(t, "https://x.example").Success("done", backends.VideoFile, links...)
	if got.State != backends.Succeeded || len(got.Results) != 100 || got.Results[99].URL != links[99] {
		t.Errorf("%s with %d results", got.State, len(got.Results))
	}
}
