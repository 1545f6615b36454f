package usage

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// trim returns what a Trimmer writes for a stream in the given parts.
func trim(t testing.TB, parts ...[]byte) string {
	t.Helper()
	var out bytes.Buffer
	trimmer := NewTrimmer(New(Completion, true, ""), &out)
	for _, p := range parts {
		scratch := slices.Clone(p)
		if n, err := trimmer.Write(scratch); n != len(p) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		clear(scratch)
	}
	if err := trimmer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const (
	contentChunk = `data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}`
	nullChunk    = `data: {"choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}`
	usageChunk   = `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`
)

func TestOnlyTheUsageChunkIsRemoved(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"before [DONE]", contentChunk + "\n\n" + usageChunk + "\n\ndata: [DONE]\n\n", contentChunk + "\n\ndata: [DONE]\n\n"},
		{"with CRLF", contentChunk + "\r\n\r\n" + usageChunk + "\r\n\r\ndata: [DONE]\r\n\r\n", contentChunk + "\r\n\r\ndata: [DONE]\r\n\r\n"},
		{"with CR", contentChunk + "\r\r" + usageChunk + "\r\rdata: [DONE]\r\r", contentChunk + "\r\rdata: [DONE]\r\r"},
		{"with white space", "data: { \"choices\" : [ ] , \"usage\" : { } }\n\n", ""},
		{"over two data lines", "data: {\"choices\":[],\ndata: \"usage\":{}}\n\n: next\n\n", ": next\n\n"},
		{"two usage chunks", usageChunk + "\n\n" + usageChunk + "\n\ndata: 1\n\n", "data: 1\n\n"},
		{"without its blank line", usageChunk + "\n", usageChunk + "\n"},
		{"incomplete", contentChunk + "\n\n" + usageChunk[:30], contentChunk + "\n\n" + usageChunk[:30]},
		{"null", nullChunk + "\n\n" + nullChunk + "\n\n" + usageChunk + "\n\n" + nullChunk + "\r\n\r\n", contentChunk + "\n\n" + contentChunk + "\n\n" + contentChunk + "\r\n\r\n"},
		{"null first", "data: {\"usage\":null,\"choices\":[]}\n\n", "data: {\"choices\":[]}\n\n"},
		{"null between", "data: {\"id\":1,\"usage\":null,\"choices\":[]}\n\n", "data: {\"id\":1,\"choices\":[]}\n\n"},
		{"null, spaced", "data: {\"id\" : 1 , \"usage\" :\tnull , \"choices\":[] }\n\n", "data: {\"id\" : 1  , \"choices\":[] }\n\n"},
		{"null and the same text in a string", `data: {"choices":[{"delta":{"content":"say \"usage\":null, usage"},"x":"usage"}],"usage":null}` + "\n\n",
			`data: {"choices":[{"delta":{"content":"say \"usage\":null, usage"},"x":"usage"}]}` + "\n\n"},
		{"null on a separate data line", "data: {\"choices\":[]\ndata: ,\"usage\":null}\n\n", "data: {\"choices\":[]\ndata: }\n\n"},
		{"extra blank lines", "\n\n" + usageChunk + "\n\n\n\n", "\n\n\n\n"},
	}
	for _, kept := range []string{
		`data: {"usage":null}`,
		`data: {"choices":[{"usage":null}],"usage":null}`,
		`data: {"choices":[{"usage":null}]}`,
		`data: {"choices":[],"x":{"usage":null}}`,
		`data: [{"id":1,"usage":null}]`,
		`data: {"choices":[],"usage":0}`,
		`data: {"choices":[],"usage":"null"}`,
		`data: {"choices":[],"usage":null`,
		"data: {\"choices\":[],\"usage\":\ndata: null}",
		"data: {\"choices\":[],\ndata: \"usage\":null}",
		`: {"choices":[],"usage":null}`,
		`data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`,
		`data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}`,
		`data: {"choices":[{}],"usage":{}}`,
		`data: {"choices":[[]],"usage":{}}`,
		`data: {"usage":{"prompt_tokens":1}}`,
		`data: {"choices":null,"usage":{"prompt_tokens":1}}`,
		`data: {"choices":[],"usage":[]}`,
		`data: {"choices":[],"x_groq":{"usage":{"prompt_tokens":1}}}`,
		`data: {"choices":[],"usage":{},"error":{"message":"late"}}`,
		`data: [{"choices":[],"usage":{}}]`,
		`data: {"x":{"choices":[],"usage":{}}}`,
		`data: {"choices":[],"usage":{}`,
		`data: {"choices":[],"usage":{}} x`,
		"event: error\ndata: {\"choices\":[],\"usage\":{}}",
		`: {"choices":[],"usage":{}}`,
	} {
		tests = append(tests, struct{ name, in, want string }{kept, kept + "\n\n", kept + "\n\n"})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := []byte(test.in)
			if got := trim(t, in); got != test.want {
				t.Errorf("at once: %q, want %q", got, test.want)
			}
			for i := range in {
				if got := trim(t, in[:i], in[i:]); got != test.want {
					t.Errorf("split at %d: %q, want %q", i, got, test.want)
				}
			}
			if got := trim(t, slices.Collect(slices.Chunk(in, 1))...); got != test.want {
				t.Errorf("byte by byte: %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheReaderReadsTheRemovedChunk(t *testing.T) {
	t.Parallel()
	body := readAnswer(t, "chat_text.sse")
	want := read(Completion, true, "", body)
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		r := New(Completion, true, "")
		var out bytes.Buffer
		trimmer := NewTrimmer(r, &out)
		for _, p := range randomParts(body, random) {
			trimmer.Write(p)
		}
		trimmer.Close()
		r.Close()
		if got := findingsOf(r); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if bytes.Contains(out.Bytes(), []byte("reasoning_tokens")) || !bytes.HasSuffix(out.Bytes(), []byte("[DONE]\n\n")) {
			t.Fatalf("written: %s", out.Bytes())
		}
	}
}

func TestALongEventIsNotBuffered(t *testing.T) {
	t.Parallel()
	// A usage chunk can have any length, because white space may follow it.
	chunk := func(length int) []byte {
		return []byte(usageChunk + strings.Repeat(" ", length-len(usageChunk)-2) + "\n\n")
	}
	for _, length := range []int{maxBuffered, maxBuffered + 1, 5 * maxBuffered} {
		in := append(chunk(length), "data: [DONE]\n\n"...)
		want := string(in)
		if length <= maxBuffered {
			want = "data: [DONE]\n\n"
		}
		for _, size := range []int{len(in), 4096, 1000} {
			if got := trim(t, slices.Collect(slices.Chunk(in, size))...); got != want {
				t.Errorf("an event of %d in parts of %d: %d bytes passed, want %d", length, size, len(got), len(want))
			}
		}
	}

	long := strings.Replace(nullChunk, "hi", strings.Repeat("x", maxBuffered), 1) + "\n\n"
	if got := trim(t, []byte(long)); got != long {
		t.Errorf("an event of %d: %d bytes passed", len(long), len(got))
	}

	var out bytes.Buffer
	trimmer := NewTrimmer(New(Completion, true, ""), &out)
	for range 10 {
		trimmer.Write(bytes.Repeat([]byte{'x'}, maxBuffered/2))
		if cap(trimmer.buffer) > 2*maxBuffered {
			t.Errorf("%d bytes are buffered", cap(trimmer.buffer))
		}
	}
	if out.Len() != 5*maxBuffered {
		t.Errorf("%d bytes of %d were written before the event ended", out.Len(), 5*maxBuffered)
	}
}

// writes counts calls of Write, and fails from call number fail on.
type writes struct {
	calls, fail int
}

func (w *writes) Write(p []byte) (int, error) {
	w.calls++
	if w.fail > 0 && w.calls >= w.fail {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestCompleteEventsAreWrittenAtOnce(t *testing.T) {
	t.Parallel()
	var w writes
	NewTrimmer(New(Completion, true, ""), &w).Write([]byte(strings.Repeat(contentChunk+"\n\n", 20)))
	if w.calls != 1 {
		t.Errorf("%d writes", w.calls)
	}
}

func TestTheReaderContinuesAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	r := New(Completion, true, "")
	trimmer := NewTrimmer(r, &writes{fail: 1})
	_, err := trimmer.Write([]byte(contentChunk + "\n\n" + usageChunk + "\n\n" + contentChunk + "\n\n"))
	if !errors.Is(err, io.ErrClosedPipe) || !errors.Is(trimmer.Close(), io.ErrClosedPipe) {
		t.Errorf("Write returned %v, want io.ErrClosedPipe", err)
	}
	if tokens, _, _ := r.Tokens(); tokens.Output != 2 || r.TextBytes() != 4 {
		t.Errorf("read %+v and %d bytes of text", tokens, r.TextBytes())
	}
}

func TestOtherAnswersAreWrittenUnchanged(t *testing.T) {
	t.Parallel()
	for in, readers := range map[string][]*Reader{
		usageChunk + "\n\n":                  {New(Completion, true, "br"), New(Completion, true, "gzip")},
		"\n\n " + usageChunk[len("data: "):]: {New(Completion, false, "")},
		"dat":                                {New(Completion, false, "")},
		"retry later":                        {New(Completion, false, "")},
		"\r\n\n":                             {New(Completion, false, "")},
		"<html>" + usageChunk + "\n\n" + "</html>": {New(Completion, false, "")},
	} {
		for _, r := range readers {
			var out bytes.Buffer
			trimmer := NewTrimmer(r, &out)
			for i := range in {
				trimmer.Write([]byte(in[i : i+1]))
			}
			trimmer.Close()
			r.Close()
			if out.String() != in || r.Stream() != (strings.HasPrefix(in, "data")) && in != "dat" {
				t.Errorf("%q passed of %q, which is a stream: %v", out.String(), in, r.Stream())
			}
		}
	}
}

func TestAStreamIsDetectedByItsBeginning(t *testing.T) {
	t.Parallel()
	chunk := contentChunk + "\n\n"
	for prefix, want := range map[string]string{
		"": "", "\n": "\n", "\r\n\r\n": "\r\n\r\n", ": waiting\n\n": ": waiting\n\n", "id: 1\n": "id: 1\n", "retry: 9\n\n": "retry: 9\n\n", "event: x\n": "event: x\n",
		usageChunk + "\n\n": "", "\n" + usageChunk + "\n\n": "",
	} {
		in := prefix + chunk + usageChunk + "\n\n"
		for _, size := range []int{len(in), 1, 2, 5} {
			var out bytes.Buffer
			r := New(Completion, false, "")
			trimmer := NewTrimmer(r, &out)
			for p := range slices.Chunk([]byte(in), size) {
				trimmer.Write(p)
			}
			trimmer.Close()
			r.Close()
			if tokens, _, _ := r.Tokens(); out.String() != want+chunk && out.String() != "\n"+want+chunk || !r.Stream() || tokens.Output != 2 {
				t.Errorf("%q by %d: %q passed, output %d", prefix, size, out.String(), tokens.Output)
			}
		}
	}
}

// The test measures the memory in use while the line passes. All parts are written from one
// buffer, so that nothing else grows with the line.
func TestALongLineIsNotStored(t *testing.T) {
	head := []byte(`data: {"choices":[{"index":0,"delta":{"content":"`)
	tail := []byte("\"}}]}\n\n" + usageChunk + "\n\n")
	part := bytes.Repeat([]byte{'x'}, 32<<10)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			trimmer := NewTrimmer(New(Completion, true, ""), io.Discard)
			trimmer.Write(head)
			for n := len(head); n < MaxLine-len(part); n += len(part) {
				trimmer.Write(part)
			}
			trimmer.Write(tail)
			trimmer.Close()
		}
	}).AllocedBytesPerOp()
	if allocated > 3*maxBuffered {
		t.Errorf("a line of 16 MiB allocates %d bytes", allocated)
	}
}
