package usage

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// findings are all results of a Reader.
type findings struct {
	Tokens                            Tokens
	Input, Output                     bool
	TextBytes                         int64
	Began, Finished, Failed, Boundary bool
	TooLong, Unreadable               bool
}

func findingsOf(r *Reader) (f findings) {
	f.Tokens, f.Input, f.Output = r.Tokens()
	f.TextBytes = r.TextBytes()
	f.Began, f.Finished, f.Failed, f.Boundary = r.Began(), r.Finished(), r.Failed(), r.AtBoundary()
	f.TooLong, f.Unreadable = r.TooLong(), r.Unreadable()
	return f
}

// read returns the results of a Reader for an answer in the given parts.
func read(d *Format, stream bool, encoding string, parts ...[]byte) findings {
	r := New(d, stream, encoding)
	for _, p := range parts {
		scratch := slices.Clone(p)
		r.Write(scratch)
		clear(scratch) // the Reader must not retain it
	}
	r.Close()
	return findingsOf(r)
}

// answers are the files of testdata/answers with their results. Text is the delivered text
// with the names of tools.
var answers = []struct {
	file string
	text string
	want findings
}{
	{"messages_text.sse", "Grüße,\nshe said \"usage\": €5 😀", findings{
		Tokens: Tokens{Input: 12, Output: 27, CacheRead: 20480, CacheWrite5m: 1100, CacheWrite1h: 400},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"messages_thinking_tools.sse", `27 * 453 = 12231get_weather{"location": "San Francisco, CA"}`, findings{
		Tokens: Tokens{Input: 480, Output: 59, CacheRead: 7, Reasoning: 30},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"messages_error.sse", "", findings{
		Tokens: Tokens{Input: 25, Output: 1},
		Input:  true, Failed: true, Boundary: true}},
	{"messages_translated.sse", "Well, yes", findings{
		Tokens: Tokens{Input: 31, Output: 9},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"messages_broken_off.sse", "Half a sen", findings{
		Tokens: Tokens{Input: 25, Output: 1},
		Input:  true, Began: true}},
	{"messages_tools.json", `Which city?I'll look — one moment.get_weather"location": "Köln", "usage": {"output_tokens": 99999}`, findings{
		Tokens: Tokens{Input: 2095, Output: 503, CacheRead: 11, CacheWrite5m: 300},
		Input:  true, Output: true, Began: true, Finished: true}},
	{"messages_error.json", "", findings{Failed: true, Finished: true}},
	{"chat_text.sse", "Hello!", findings{
		Tokens: Tokens{Input: 86, Output: 108, CacheRead: 1920, Reasoning: 192},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"chat_tools_choices.sse", `Hmget_weather{"c":1}No.`, findings{
		Tokens: Tokens{Input: 6, Output: 22, CacheRead: 64},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"chat_usage_in_every_chunk.sse", "abc", findings{
		Tokens: Tokens{Input: 7, Output: 3},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"chat_error_midway.sse", "Once", findings{Began: true, Failed: true, Boundary: true}},
	{"chat_behind_messages.sse", "ok", findings{
		Tokens: Tokens{Input: 40, Output: 6, CacheRead: 100, CacheWrite5m: 5},
		Input:  true, Output: true, Began: true, Finished: true}},
	{"completions_text.sse", "This is", findings{Began: true, Boundary: true}},
	{"chat_reasoning.json", "The imageLook.f{}py1\t2Aye", findings{
		Tokens: Tokens{Input: 100, Output: 6, CacheRead: 1000, CacheWrite5m: 17, Reasoning: 40},
		Input:  true, Output: true, Began: true, Finished: true}},
	{"responses_tools.sse", `Hm.Grüße 😀get_weather{"c":1}`, findings{
		Tokens: Tokens{Input: 30, Output: 29, CacheRead: 40, CacheWrite5m: 5, Reasoning: 96},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"responses_incomplete.sse", "Half a", findings{
		Tokens: Tokens{Input: 9, Output: 16},
		Input:  true, Output: true, Began: true, Finished: true, Boundary: true}},
	{"responses_failed.sse", "Once", findings{Began: true, Failed: true, Boundary: true}},
	{"responses.json", `Grüße 😀get_weather{"c":1}Hm.`, findings{
		Tokens: Tokens{Input: 30, Output: 29, CacheRead: 40, CacheWrite5m: 5, Reasoning: 96},
		Input:  true, Output: true, Began: true, Finished: true}},
	{"completions.json", "\n\nThis is indeed a test", findings{Began: true, Finished: true}},
}

// formatOf and isStream depend on the name of the file.
func formatOf(file string) *Format {
	if strings.HasPrefix(file, "messages") {
		return Message
	}
	if strings.HasPrefix(file, "responses") {
		return Response
	}
	return Completion
}

func isStream(file string) bool { return strings.HasSuffix(file, ".sse") }

func readAnswer(t testing.TB, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "answers", file))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestTheResultsDoNotDependOnTheParts(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		t.Run(a.file, func(t *testing.T) {
			t.Parallel()
			body, d, stream := readAnswer(t, a.file), formatOf(a.file), isStream(a.file)
			want := a.want
			want.TextBytes = int64(len(a.text))

			if got := read(d, stream, "", body); got != want {
				t.Fatalf("at once:\n got %+v\nwant %+v", got, want)
			}
			if got := read(d, stream, "", slices.Collect(slices.Chunk(body, 1))...); got != want {
				t.Fatalf("byte by byte:\n got %+v\nwant %+v", got, want)
			}
			for i := range body {
				if got := read(d, stream, "", body[:i], body[i:]); got != want {
					t.Fatalf("split at %d:\n got %+v\nwant %+v", i, got, want)
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range 100 {
				if got := read(d, stream, "", randomParts(body, random)...); got != want {
					t.Fatalf("in random parts:\n got %+v\nwant %+v", got, want)
				}
			}
		})
	}
}

// randomParts returns p in parts of random lengths, some of them empty.
func randomParts(p []byte, random *rand.Rand) (parts [][]byte) {
	for len(p) > 0 {
		n := min(random.IntN(60), len(p))
		parts = append(parts, p[:n])
		p = p[n:]
	}
	return parts
}

func TestEveryAnswerFileIsTested(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(filepath.Join("testdata", "answers"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(answers) {
		t.Errorf("%d files, %d tested", len(files), len(answers))
	}
}

func TestTheResultsFollowTheStream(t *testing.T) {
	t.Parallel()
	r := New(Message, true, "")
	defer r.Close()
	steps := []struct {
		bytes                     string
		began, finished, boundary bool
		output                    int64
	}{
		{"", false, false, true, 0},
		{`data: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}` + "\n", false, false, false, 1},
		{"\n", false, false, true, 1},
		{": keep alive\n\n", false, false, true, 1},
		{`data: {"type":"content_block_start","content_block":{"type":"tool_use"`, true, false, false, 1},
		{"}}\r\n\r\n", true, false, true, 1},
		{"event: message_delta\rdata: {\"usage\":{\"output_tokens\":30}}\r\r", true, false, true, 30},
		{"event: message_delta\ndata: {\"usage\":{\"output_tokens\":40}}\n\n", true, false, true, 40},
		{"event: message_stop\n", true, true, false, 40},
		{"\n", true, true, true, 40},
	}
	for i, s := range steps {
		r.Write([]byte(s.bytes))
		tokens, _, _ := r.Tokens()
		if r.Began() != s.began || r.Finished() != s.finished || r.AtBoundary() != s.boundary || tokens.Output != s.output {
			t.Errorf("after step %d: began %v, finished %v, boundary %v, output %d; want %+v",
				i, r.Began(), r.Finished(), r.AtBoundary(), tokens.Output, s)
		}
	}
}

func TestTheEndOfAJSONAnswer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		body            string
		began, finished bool
	}{
		{"", false, false},
		{" \n ", false, false},
		{`{"a":1`, true, false},
		{`{"a":1}`, true, true},
		{` {"a":[{}, "}"]} ` + "\n", true, true},
		{`{"a":1} x`, true, false},
		{`{"a":1}}`, true, false},
		{`{"choices":[}`, true, false},
		{`<html>502</html>`, true, false},
		{`{"error":null,"content":""}`, true, true},
		{`{"error":{"message":"no"}}`, false, true},
		{`[{"error":{"code":429}}]`, false, true},
		{`{"error":"no such model"}`, false, true},
		{`{"type":"error"}`, false, true},
	}
	for _, test := range tests {
		for _, d := range []*Format{Message, Completion} {
			got := read(d, false, "", []byte(test.body))
			if got.Began != test.began || got.Finished != test.finished {
				t.Errorf("%s: began %v, finished %v; want %v, %v", test.body, got.Began, got.Finished, test.began, test.finished)
			}
			if got.Boundary {
				t.Errorf("%s: Boundary is set for an answer that is not a stream", test.body)
			}
		}
	}
}

func TestEstimateRoundsUp(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int64{0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 6: 2, 7: 3, 1<<63 - 1: (1<<63-1)/3 + 1} {
		if got := Estimate(n); got != want {
			t.Errorf("Estimate(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestTheReaderDoesNotAllocate(t *testing.T) {
	r := New(Message, true, "")
	defer r.Close()
	body := readAnswer(t, "messages_thinking_tools.sse")
	if n := testing.AllocsPerRun(100, func() { r.Write(body) }); n != 0 {
		t.Errorf("%v allocations per stream, want none", n)
	}
}

func TestShownNeedsMoreThanTheStartOfContent(t *testing.T) {
	t.Parallel()
	block := func(members string) string {
		return `data: {"type":"content_block_start","index":0,"content_block":{` + members + "}}\n\n"
	}
	reply := func(members string) string { return `data: {"choices":[{"index":0,"delta":{` + members + "}}]}\n\n" }
	delta := func(members string) string {
		return `data: {"type":"content_block_delta","index":0,"delta":{` + members + "}}\n\n"
	}
	for name, c := range map[string]struct {
		format               *Format
		body                 string
		began, shown, unseen bool
	}{
		"a start":                             {Message, `data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n", false, false, false},
		"an empty block":                      {Message, block(`"type":"text","text":""`), false, false, false},
		"a thought without text or signature": {Message, block(`"type":"thinking","thinking":"","signature":""`), false, false, true},
		"a text":                              {Message, block(`"type":"text","text":""`) + delta(`"type":"text_delta","text":"a"`), true, true, false},
		"a thought that is only signed":       {Message, block(`"type":"thinking","thinking":"","signature":""`) + delta(`"type":"signature_delta","signature":"abc"`), true, false, true},
		"a thought":                           {Message, block(`"type":"thinking","thinking":""`) + delta(`"type":"thinking_delta","thinking":"a"`), true, true, true},
		"a redacted thought":                  {Message, block(`"type":"redacted_thinking","data":"abcd"`), true, false, true},
		"a tool":                              {Message, block(`"type":"tool_use","id":"a","name":"b","input":{}`), true, false, false},
		"a tool's arguments":                  {Message, block(`"type":"tool_use","id":"a","name":"b","input":{}`) + delta(`"type":"input_json_delta","partial_json":"{"`), true, true, false},
		"a tool of the backend":               {Message, block(`"type":"server_tool_use","id":"a","name":"web_search","input":{}`), true, false, true},
		"a role":                              {Completion, reply(`"role":"assistant","content":""`), false, false, false},
		"a function":                          {Completion, reply(`"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":""}}]`), true, false, false},
		"a function's arguments":              {Completion, reply(`"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":"{}"}}]`), true, true, false},
		"reasoning":                           {Completion, reply(`"reasoning_content":"a"`), true, true, true},
		"speech":                              {Completion, reply(`"audio":{"data":"QUJD"}`), true, true, true},
		"an image":                            {Completion, reply(`"images":[{"image_url":{"url":"data:image/png;base64,QUJD"}}]`), true, true, true},
	} {
		r := New(c.format, true, "")
		r.Write([]byte(c.body))
		if r.Began() != c.began || r.Shown() != c.shown || r.CostsUnseen() != c.unseen {
			t.Errorf("%s: began %v, shown %v, unseen %v", name, r.Began(), r.Shown(), r.CostsUnseen())
		}
		r.Close()
	}
	r := New(Message, true, "br")
	r.Write([]byte("anything"))
	if !r.Shown() {
		t.Error("Shown is false for an unreadable answer")
	}
	r.Close()
}
