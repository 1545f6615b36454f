package usage

import (
	"io"
	"strings"
	"testing"
)

// benchmarkWrites measures writes of text to one Reader.
func benchmarkWrites(b *testing.B, r *Reader, text string) {
	p := []byte(text)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		r.Write(p)
	}
}

const (
	messagesDelta = "event: content_block_delta\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" the answer is forty-two, or so"}}` + "\n\n"
	chatDelta = `data: {"id":"chatcmpl-B9MBs8Cj","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1",` +
		`"choices":[{"index":0,"delta":{"content":" Hello"},"finish_reason":null}],"usage":null}` + "\n\n"
)

func BenchmarkMessagesDelta(b *testing.B) {
	benchmarkWrites(b, New(Message, true, ""), messagesDelta)
}

func BenchmarkChatDelta(b *testing.B) {
	benchmarkWrites(b, New(Completion, true, ""), chatDelta)
}

func BenchmarkChatDeltaTrimmed(b *testing.B) {
	t := NewTrimmer(New(Completion, true, ""), io.Discard)
	p := []byte(chatDelta)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		t.Write(p)
	}
}

func BenchmarkJSONAnswer(b *testing.B) {
	p := []byte(`{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-sonnet-4-5",` +
		`"content":[{"type":"text","text":"` + strings.Repeat(`It was the best of times, it was the worst of times.\n`, 12) +
		`"},{"type":"tool_use","id":"toolu_01A09q90qw90lq917835lq9","name":"get_weather","input":{"location":"San Francisco, CA"}}],` +
		`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":2095,"output_tokens":503,"cache_read_input_tokens":10}}`)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		r := New(Message, false, "")
		r.Write(p)
		r.Close()
	}
}
