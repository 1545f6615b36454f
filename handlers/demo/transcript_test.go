package demo

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

// replacements removes the parts of answers that differ between runs.
var replacements = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`"(msg_|toolu_|cmpl-|chatcmpl-|call_)[A-Z2-7]{26}"`), `"${1}ID"`},
	{regexp.MustCompile(`"created":[1-9][0-9]{9},`), `"created":0,`},
}

// TestTranscripts compares answers with the files in testdata, byte by byte.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, path, body string }{
		{"messages.json", messagesPath, messagesBody(`"hello there"`, ``)},
		{"messages.sse", messagesPath, messagesBody(`"hello there"`, `,"stream":true`)},
		{"messages_tool.json", messagesPath, messagesBody(`"hello there"`, `,"thinking":{"type":"enabled"}`+weather)},
		{"messages_tool.sse", messagesPath, messagesBody(`"hello there"`, `,"stream":true,"thinking":{"type":"enabled"}`+weather)},
		{"completions.json", completionsPath, `{"model":"m","prompt":"hello there","n":2}`},
		{"completions.sse", completionsPath, `{"model":"m","prompt":"hello there","n":2,"stream":true,"stream_options":{"include_usage":true}}`},
		{"chat.json", chatPath, `{"model":"m","messages":[{"role":"user","content":"hello there"}]}`},
		{"chat.sse", chatPath, `{"model":"m","messages":[{"role":"user","content":"hello there"}],"stream":true}`},
		{"chat_tool.json", chatPath, `{"model":"m","messages":[{"role":"user","content":"hello there"}],` + chatWeather + `}`},
		{"chat_tool.sse", chatPath, `{"model":"m","messages":[{"role":"user","content":"hello there"}],"stream":true,"stream_options":{"include_usage":true},` + chatWeather + `}`},
	} {
		reply := post(c.path, c.body)
		if kind := map[string]string{".json": "application/json", ".sse": "text/event-stream; charset=utf-8"}[filepath.Ext(c.file)]; reply.Header().Get("Content-Type") != kind {
			t.Errorf("%s: Content-Type %q", c.file, reply.Header().Get("Content-Type"))
		}
		got := reply.Body.Bytes()
		for _, r := range replacements {
			got = r.pattern.ReplaceAll(got, []byte(r.by))
		}
		file := filepath.Join("testdata", c.file)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.file, got, want)
		}
	}
}
