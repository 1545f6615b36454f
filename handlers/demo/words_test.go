package demo

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// paths are the paths that answer with text, as JSON and as a stream.
var paths = []string{messagesPath, completionsPath, chatPath}

// bodyWith returns a request to any path with this user text.
func bodyWith(text string, stream bool) string {
	options := ""
	if stream {
		options = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return fmt.Sprintf(`{"model":"m","max_tokens":9999,"prompt":%q,"messages":[{"role":"user","content":%q}]%s}`, text, text, options)
}

// streamedPieces returns the number of pieces in a stream.
func streamedPieces(stream string) int {
	return strings.Count(stream, `"type":"text_delta"`) + strings.Count(stream, `"delta":{"content":"`) + strings.Count(stream, `"choices":[{"text":"`) -
		strings.Count(stream, `"choices":[{"text":""`)
}

func TestWordsSimulateErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word                        string
		status                      int
		messages, completions, code string
	}{
		{"demo:401", 401, "authentication_error", "authentication_error", `"invalid_api_key"`},
		{"demo:429", 429, "rate_limit_error", "rate_limit_error", `"rate_limit_exceeded"`},
		{"demo:500", 500, "api_error", "server_error", `null`},
		{"demo:529", 529, "overloaded_error", "server_error", `"overloaded"`},
	} {
		for _, path := range append(paths, countPath) {
			for _, stream := range []bool{false, true} {
				got := post(path, bodyWith("Please "+c.word+".", stream))
				want := fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%s}}`, kinds[c.status].message, c.completions, c.code)
				if strings.HasPrefix(path, messagesPath) {
					want = fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":%q}`,
						c.messages, kinds[c.status].message, got.Header().Get("Request-Id"))
				}
				if got.Code != c.status || got.Body.String() != want {
					t.Errorf("%s %s: status %d, %s\nwant %s", path, c.word, got.Code, got.Body, want)
				}
				if found := got.Header().Get("Retry-After") == "1"; found != (c.status == 429) {
					t.Errorf("%s %s: Retry-After %q", path, c.word, got.Header().Get("Retry-After"))
				}
			}
		}
	}
}

func TestHTMLIsABadGatewayPage(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		got := post(path, bodyWith("demo:html", true))
		if got.Code != http.StatusBadGateway || !strings.HasPrefix(got.Header().Get("Content-Type"), "text/html") || !strings.HasPrefix(got.Body.String(), "<html>") {
			t.Errorf("%s: status %d: %s", path, got.Code, got.Body)
		}
	}
}

func TestEmptyIs200WithoutABody(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		for _, stream := range []bool{false, true} {
			if got := post(path, bodyWith("demo:empty", stream)); got.Code != http.StatusOK || got.Body.Len() != 0 {
				t.Errorf("%s: status %d: %s", path, got.Code, got.Body)
			}
		}
	}
}

func TestSlowAndStallDelayTheAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		stream bool
		took   time.Duration
	}{
		{"demo:slow", false, 3 * time.Second},
		{"demo:slow=500ms", false, 500 * time.Millisecond},
		{"demo:slow=1.5s.", true, 1500 * time.Millisecond},
		{"demo:slow=2s demo:429", true, 2 * time.Second},
		{"demo:stall", true, time.Minute},
		{"demo:stall=20s", true, 20 * time.Second},
		{"demo:stall=20s", false, 0},
		{"demo:slow=1s demo:stall=1s", true, 2 * time.Second},
	} {
		for _, path := range paths {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				got := post(path, bodyWith(c.text, c.stream))
				if took := time.Since(begin); took != c.took || got.aborted {
					t.Errorf("%s %s: took %s, aborted %t", path, c.text, took, got.aborted)
				}
			})
		}
	}
}

func TestADisconnectEndsTheHandler(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			begin := time.Now()
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(bodyWith("demo:stall", true)))
			got := serve(unpaced, r.WithContext(ctx))
			if took := time.Since(begin); took != 5*time.Second {
				t.Errorf("%s: the handler ended after %s, the client disconnected after 5s", path, took)
			}
			if n := streamedPieces(got.Body.String()); n != failAfterPieces || !got.aborted {
				t.Errorf("%s: aborted %t after %d pieces: %s", path, got.aborted, n, got.Body)
			}
		})
	}
}

func TestBreakDropsTheConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		unpaced.ServeHTTP(w, r, nextHandler)
	}))
	defer server.Close()
	for _, path := range paths {
		for _, stream := range []bool{false, true} {
			res, err := http.Post(server.URL+path, "application/json", strings.NewReader(bodyWith("demo:break", stream)))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(body) == 0 {
				t.Errorf("%s: read %q, error %v", path, body, err)
			}
			if stream && streamedPieces(string(body)) != failAfterPieces {
				t.Errorf("%s: the stream ended after %s", path, body)
			}
			if !stream && res.ContentLength != 2*int64(len(body)) && res.ContentLength != 2*int64(len(body))+1 {
				t.Errorf("%s: %d bytes of %d", path, len(body), res.ContentLength)
			}
		}
	}
}

func TestErrorEndsAStreamByAnErrorEvent(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		got := post(path, bodyWith("demo:error", true))
		all := events(t, got.Body.String())
		last := all[len(all)-1]
		want := event{"", `{"error":{"message":"The engine is overloaded. Try again later.","type":"server_error","param":null,"code":"overloaded"}}`}
		if path == messagesPath {
			want = event{"error", fmt.Sprintf(`{"type":"error","error":{"type":"overloaded_error","message":"The engine is overloaded. Try again later."},"request_id":%q}`,
				got.Header().Get("Request-Id"))}
		}
		if last != want || streamedPieces(got.Body.String()) != failAfterPieces || got.aborted {
			t.Errorf("%s: %s", path, got.Body)
		}
	}
}

func TestErrorWithoutAStreamIsOverloaded(t *testing.T) {
	t.Parallel()
	for _, path := range append(paths, countPath) {
		if got := post(path, bodyWith("demo:error", false)); got.Code != statusOverloaded || !strings.Contains(got.Body.String(), "overloaded") {
			t.Errorf("%s: status %d: %s", path, got.Code, got.Body)
		}
	}
}

func TestAShortStreamFailsAfterItsLastPiece(t *testing.T) {
	t.Parallel()
	got := post(messagesPath, `{"model":"m","max_tokens":2,"stream":true,"messages":[{"role":"user","content":"demo:error"}]}`)
	if all := events(t, got.Body.String()); all[len(all)-1].name != "error" || streamedPieces(got.Body.String()) != 2 {
		t.Errorf("%s", got.Body)
	}
}

func TestNoUsageReportsNoUsage(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		for _, stream := range []bool{false, true} {
			if got := post(path, bodyWith("hi", stream)).Body.String(); !strings.Contains(got, "_tokens") {
				t.Errorf("%s: no usage without the word: %s", path, got)
			}
			if got := post(path, bodyWith("demo:nousage", stream)).Body.String(); strings.Contains(got, "_tokens") {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
}

func TestLongSetsTheNumberOfPieces(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		for _, n := range []int{1, 2, 500} {
			got := post(path, bodyWith(fmt.Sprintf("demo:long=%d", n), true))
			if streamedPieces(got.Body.String()) != n {
				t.Errorf("%s: %d pieces, want %d", path, streamedPieces(got.Body.String()), n)
			}
		}
	}
}

func TestGzipCompressesAJSONAnswer(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		got := post(path, bodyWith("demo:gzip", false))
		if got.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %v", path, got.Header())
		}
		z, err := gzip.NewReader(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if answer := parse[map[string]any](t, body); answer["model"] != "m" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestCachedCountsInputAsRead(t *testing.T) {
	t.Parallel()
	for _, path := range []string{completionsPath, chatPath} {
		for text, cached := range map[string]bool{"demo:cached": true, "hello": false} {
			got := read[completed](t, path, bodyWith(text, false))
			want := 0
			if cached {
				want = tokens(text)
			}
			if got.Usage.Prompt != tokens(text) || got.Usage.PromptDetails.Cached != want {
				t.Errorf("%s %s: %+v", path, text, got)
			}
		}
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"demo:slow=soon", "demo:slow=-1s", "demo:slow=0s", "demo:stall=61m", "demo:long", "demo:long=0", "demo:long=65537", "demo:long=many",
		"demo:429=1", "demo:html=yes",
	} {
		for _, path := range append(paths, countPath) {
			word, _, _ := strings.Cut(text, "=")
			if got := post(path, bodyWith(text, false)); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), word+" (") {
				t.Errorf("%s %s: status %d: %s", path, text, got.Code, got.Body)
			}
		}
	}
}

func TestUnknownWordsAreText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"demo:nothing", "demo: 500", "Demo:500", "mydemo:500", "demo:5000"} {
		for _, path := range paths {
			if got := post(path, bodyWith(text, false)); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "You said: "+text) {
				t.Errorf("%s %s: status %d: %s", path, text, got.Code, got.Body)
			}
		}
	}
}

func TestOnlyTheLastUserTextSimulatesFailures(t *testing.T) {
	t.Parallel()
	const turns = `{"model":"m","max_tokens":99,"messages":[
		{"role":"user","content":"demo:500"},{"role":"assistant","content":"demo:429"},{"role":"user","content":[{"type":"text","text":"hello"}]}]}`
	for _, path := range []string{messagesPath, chatPath} {
		if got := post(path, turns); got.Code != http.StatusOK {
			t.Errorf("%s: status %d: %s", path, got.Code, got.Body)
		}
	}
}
