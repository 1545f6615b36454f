package usage

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// sayHi is the data of a chunk that delivers two bytes.
const sayHi = `{"choices":[{"index":0,"delta":{"content":"hi"}}]}`

func TestEventsAreParsedByTheStandard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stream string
		text         int64
		boundary     bool
	}{
		{"LF", "data: " + sayHi + "\n\n", 2, true},
		{"CR", "data: " + sayHi + "\r\r", 2, true},
		{"CRLF", "data: " + sayHi + "\r\n\r\n", 2, true},
		{"mixed", "data: " + sayHi + "\r\n\ndata: " + sayHi + "\n\r\n", 4, true},
		{"no space", "data:" + sayHi + "\n\n", 2, true},
		{"two spaces", "data:  " + sayHi + "\n\n", 2, true},
		{"byte order mark", "\ufeffdata: " + sayHi + "\n\n", 2, true},
		{"byte order mark later", "\n\ufeffdata: " + sayHi + "\n\n", 0, true},
		{"incomplete byte order mark", "\xef\xbbdata: " + sayHi + "\n\n", 0, true},
		{"only a byte order mark", "\ufeff", 0, true},
		{"part of a byte order mark", "\xef\xbb", 0, false},
		{"comment", ": data: " + sayHi + "\n\n", 0, true},
		{"comment inside", "data: {\"choices\":\n:no\ndata: [{\"text\":\"hi\"}]}\n\n", 2, true},
		{"several data lines", "data: {\"choices\":\ndata\ndata: [{\"text\":\ndata:\"hi\"}]}\n\n", 2, true},
		{"other fields", "id: 7\nretry: 10\ndata: " + sayHi + "\n\n", 2, true},
		{"name with an upper-case letter", "Data: " + sayHi + "\n\n", 0, true},
		{"space before the name", " data: " + sayHi + "\n\n", 0, true},
		{"longer name", "data2: " + sayHi + "\n\n", 0, true},
		{"long name", strings.Repeat("data", 1000) + ": " + sayHi + "\n\n", 0, true},
		{"no blank line", "data: " + sayHi + "\n", 2, false},
		{"no line end", "data: " + sayHi, 2, false},
		{"after an event that is not JSON", "data: {\"choices\":[{]\n\ndata: " + sayHi + "\n\n", 2, true},
		{"after an incomplete event", "data: {\"choices\":[{\"text\":\"\n\ndata: " + sayHi + "\n\n", 2, true},
		{"after an incomplete escape", "data: {\"choices\":[{\"text\":\"\\u00\n\ndata: " + sayHi + "\n\n", 2, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			body := []byte(test.stream)
			for _, parts := range [][][]byte{{body}, slices.Collect(slices.Chunk(body, 1))} {
				got := read(Completion, true, "", parts...)
				if got.TextBytes != test.text || got.Boundary != test.boundary || got.Began != (test.text > 0) {
					t.Errorf("%d parts: text %d, boundary %v, began %v; want %d, %v",
						len(parts), got.TextBytes, got.Boundary, got.Began, test.text, test.boundary)
				}
			}
		})
	}
}

func TestALineEndSeparatesDataLines(t *testing.T) {
	t.Parallel()
	got := read(Message, true, "", []byte("data: {\"usage\":{\"output_tokens\":1\ndata: 2}}\n\n"))
	if got.Tokens.Output != 1 {
		t.Errorf("output %d, want 1: the number ends with its line", got.Tokens.Output)
	}
}

func TestErrorsAndTheEndAreFoundByTheEventType(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stream           string
		failed, finished bool
	}{
		{"event: error\ndata: {}\n\n", true, false},
		{"data: {}\nevent: error\n\n", true, false},
		{"event:error\ndata: {}\n\n", true, false},
		{"event: errors\ndata: {}\n\n", false, false},
		{"data: {\"type\":\"error\"}\n\n", true, false},
		{"data: {\"delta\":{\"type\":\"error\"}}\n\n", false, false},
		{"event: message_stop\ndata: {}\n\n", false, true},
		{"data: {\"type\": \"message_stop\"}\n\n", false, true},
		{"data: message_stop\n\n", false, false},
		{"data: [DONE]\n\n", false, false},
	}
	for _, test := range tests {
		got := read(Message, true, "", []byte(test.stream))
		if got.Failed != test.failed || got.Finished != test.finished {
			t.Errorf("%q: failed %v, finished %v; want %v, %v", test.stream, got.Failed, got.Finished, test.failed, test.finished)
		}
	}
}

func TestTheEndOfACompletionsStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stream   string
		finished bool
	}{
		{"data: [DONE]\n\n", true},
		{"data:[DONE]", true},
		{"data: [DONE", false},
		{"data: \"[DONE]\"\n\n", false},
		{"event: message_stop\ndata: {}\n\n", false},
		{`data: {"choices":[{"index":0,"finish_reason":"stop"}]}`, true},
		{`data: {"choices":[{"index":0,"finish_reason":""}]}`, false},
		{`data: {"choices":[{"finish_reason":"stop"}]}`, true},
		{`data: {"choices":[{"index":0},{"index":1,"finish_reason":"stop"}]}`, false},
		{`data: {"choices":[{"index":64},{"index":0,"finish_reason":"stop"}]}`, false},
		{`data: {"choices":[{"index":1,"finish_reason":"stop"},{"delta":{}}]}`, false},
		{`data: {"choices":[{"index":127,"finish_reason":"stop"}]}`, true},
		{`data: {"choices":[{"index":128,"finish_reason":"stop"}]}`, false},
		{`data: {"choices":[]}`, false},
	}
	for _, test := range tests {
		if got := read(Completion, true, "", []byte(test.stream)); got.Finished != test.finished {
			t.Errorf("%q: finished %v, want %v", test.stream, got.Finished, test.finished)
		}
	}
}

func TestTextIsCountedInUTF8(t *testing.T) {
	t.Parallel()
	for escaped, want := range map[string]int64{
		``: 0, `a`: 1, `\n\t\"\\\/`: 5, `\u0041`: 1, `\u00e9`: 2, `é`: 2, `\u20AC`: 3, `\ud83d\ude00`: 4, `😀`: 4, `\u12"`: 0, `\u`: 0,
		`0123456789abcdef\"0123456789`: 27,
	} {
		got := read(Completion, true, "", []byte(`data: {"choices":[{"text":"`+escaped+`"}]}`))
		if got.TextBytes != want {
			t.Errorf("%s: %d bytes, want %d", escaped, got.TextBytes, want)
		}
	}
}

func TestBeganAlsoCountsContentWithoutText(t *testing.T) {
	t.Parallel()
	for delta, began := range map[string]bool{
		`{"role":"assistant","content":""}`:                            false,
		`{"tool_calls":[{"function":{"name":"f","arguments":""}}]}`:    true,
		`{"audio":{"id":"a","data":"UklGRg=="}}`:                       true,
		`{"images":[{"image_url":{"url":"data:image/png;base64,A"}}]}`: true,
		`{"reasoning_content":"x"}`:                                    true,
	} {
		got := read(Completion, true, "", []byte(`data: {"choices":[{"delta":`+delta+`}]}`+"\n\n"))
		if got.Began != began {
			t.Errorf("%s: began %v", delta, got.Began)
		}
	}
}

func TestALongLineIsReadCompletely(t *testing.T) {
	t.Parallel()
	line := func(length int) []byte {
		head, tail := `data: {"type":"content_block_delta","delta":{"text":"`, `"}}`
		return []byte(head + strings.Repeat("x", length-len(head)-len(tail)) + tail + "\n\n")
	}
	after := []byte("event: message_delta\ndata: {\"usage\":{\"output_tokens\":7}}\n\n")
	for _, length := range []int{MaxLine, MaxLine + 1, MaxLine * 3 / 2} {
		body := line(length)
		r := New(Message, true, "")
		for p := range slices.Chunk(body, 32<<10) {
			r.Write(p)
		}
		r.Write(after)
		r.Close()
		want := int64(bytes.Count(body, []byte{'x'}) - bytes.Count([]byte(`"text"`), []byte{'x'}))
		tokens, _, _ := r.Tokens()
		if r.TextBytes() != want || tokens.Output != 7 || r.TooLong() != (length > MaxLine) {
			t.Errorf("line of %d: text %d of %d, output %d, too long %v", length, r.TextBytes(), want, tokens.Output, r.TooLong())
		}
	}
}

func TestDeepNestingIsSkipped(t *testing.T) {
	t.Parallel()
	const depth = 100_000
	body := `{"content":` + strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth) +
		`,"x":` + strings.Repeat(`{"x":`, depth) + `1` + strings.Repeat(`}`, depth) +
		`,"usage":{"input_tokens":1,"output_tokens":2}}`
	got := read(Message, false, "", []byte(body))
	if !got.Finished || got.Tokens != (Tokens{Input: 1, Output: 2}) {
		t.Errorf("wrong results: %+v", got)
	}
}

func TestAReaderIsSmall(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(Reader{}); size > 1536 { // a size class of the runtime
		t.Errorf("a Reader needs %d bytes", size)
	}
}
