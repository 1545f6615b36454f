package usage

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// formats are those of [FuzzReader], by number.
var formats = []*Format{Completion, Response, Message, InputOnly, Images, Transcript, Speech}

func numberOf(f *Format) uint8 { return uint8(slices.Index(formats, f)) }

// FuzzReader checks that the results do not depend on how the bytes are split, and that every
// figure is in bounds. It also checks that the end of a JSON object or array is found.
func FuzzReader(f *testing.F) {
	for _, a := range answers {
		f.Add(readAnswer(f, a.file), numberOf(formatOf(a.file)), isStream(a.file), uint64(1))
	}
	f.Add([]byte("\xef\xbb\xbfdata: {\"choices\":[{\"text\":\"\\ud83d\\ude00\"}]}\r\n\r\n"), numberOf(Completion), true, uint64(2))
	f.Add([]byte(`{"usage":{"input_tokens":1e300,"output_tokens":-0}} `), numberOf(Message), false, uint64(3))
	for _, stream := range []string{
		"event: response.output_item.done\rdata: {\"item\":{\"type\":\"file_search_call\"}}\r\rdata: {\"type\":\"response.failed\",\"response\":{\"usage\":null}}\r\r",
		"data: {\"response\":{\"output\":[{\"content\":[{\"text\":\"x\"}],\"type\":\"message\"},{\"type\":\"web_search_call\",\"action\":{\"type\":\"search\"}}]},\n" +
			"data: \"type\":\"response.completed\"}\n\ndata: {\"type\":\"response.incomplete\",\"response\":{\"usage\":{\"input_tokens\":1e999}}}\n\n",
		"data: {\"type\":\"response.completed\",\"response\":{\"tool_usage\":{\"web_search\":{\"num_requests\":-1}},\"output\":{\"type\":\"x_call\",\"name\":[[\"y\"]]}}}",
	} {
		f.Add([]byte(stream), numberOf(Response), true, uint64(4))
	}
	f.Fuzz(func(t *testing.T, body []byte, number uint8, stream bool, seed uint64) {
		d := formats[int(number)%len(formats)]
		want := read(d, stream, "", body)
		random := rand.New(rand.NewPCG(seed, 0))
		if parts := read(d, stream, "", randomParts(body, random)...); parts != want {
			t.Errorf("in parts: %+v\nat once: %+v", parts, want)
		}
		if report := reportOf(t, d, stream, string(body)); len(report.Tools) > 3*maxTools || len(report.Passes) > maxPasses {
			t.Errorf("too much is stored: %+v", report)
		}
		tokens := want.Tokens
		for _, n := range []int64{tokens.Input, tokens.Output, tokens.CacheRead, tokens.CacheWrite5m, tokens.CacheWrite1h, tokens.Reasoning} {
			if n < 0 || n > maxFigure {
				t.Errorf("out of bounds: %+v", tokens)
			}
		}
		if want.TextBytes < 0 || want.TextBytes > int64(len(body)) {
			t.Errorf("%d bytes of text in an answer of %d", want.TextBytes, len(body))
		}
		bracket := bytes.IndexAny(bytes.TrimSpace(body), "{[") == 0
		if !stream && bracket && json.Valid(body) && !want.Finished {
			t.Error("the end of a valid text was not found")
		}
	})
}

// FuzzTrimmer checks that exactly the usage-only events are removed, however the bytes are
// split, and that the Reader reads all of them.
func FuzzTrimmer(f *testing.F) {
	for _, a := range answers {
		if isStream(a.file) {
			f.Add(readAnswer(f, a.file), uint64(1))
		}
	}
	f.Add([]byte(usageChunk+"\r\n\r\n"+contentChunk+"\r\r\n"+usageChunk+"\n\n"), uint64(2))
	f.Add([]byte(nullChunk+"\n\n"+nullChunk+"\r\r"), uint64(4))
	f.Add([]byte("\xef\xbb\xbf"+usageChunk+"\r\r\ndata: {\"choices\":[],\ndata: \"usage\":{}}\n\n"), uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		want := withoutUsage(body)
		random := rand.New(rand.NewPCG(seed, 0))
		for _, parts := range [][][]byte{{body}, randomParts(body, random)} {
			if got := trim(t, parts...); got != want {
				t.Errorf("in %d parts:\n got %q\nwant %q", len(parts), got, want)
			}
		}
	})
}

// event matches an event with its blank line, or an incomplete one at the end.
var event = regexp.MustCompile(`(?s)^(?:[^\r\n]+(?:\r\n|\r|\n))*(?:\r\n|\r|\n)|^.+`)

// withoutUsage returns what the Trimmer must write for a complete stream. It uses encoding/json.
func withoutUsage(body []byte) string {
	if text := bytes.TrimPrefix(body, []byte(byteOrderMark)); len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		return string(body) // it is JSON and not a stream
	}
	var kept strings.Builder
	for first := true; len(body) > 0; first = false {
		e := event.Find(body)
		body = body[len(e):]
		if !usageOnly(e, first) {
			kept.Write(withoutNull(e, first))
		}
	}
	return kept.String()
}

// nullMember matches the member that the Trimmer removes, with its comma.
var nullMember = regexp.MustCompile(`,[ \t]*"usage"[ \t]*:[ \t]*null|"usage"[ \t]*:[ \t]*null[ \t]*,?`)

// withoutNull returns an event without its one "usage":null, if the Reader has read one at
// the top level.
func withoutNull(e []byte, first bool) []byte {
	r := New(Completion, true, "")
	if !first {
		r.Write([]byte{'\n'})
	}
	if _, ended := r.events.next(e); !ended || !r.events.lastNull {
		return e
	}
	found := nullMember.FindAllIndex(e, -1)
	if len(found) != 1 || !bytes.Contains(e[found[0][0]:found[0][1]], []byte{','}) {
		return e
	}
	return append(bytes.Clone(e[:found[0][0]]), e[found[0][1]:]...)
}

// usageOnly reports whether an event only contains usage. If the data is not JSON, or JSON
// that parsers read differently, it returns the result of the Reader: then only the framing
// is compared.
func usageOnly(e []byte, first bool) bool {
	r := New(Completion, true, "")
	if !first {
		r.Write([]byte{'\n'}) // after this a byte order mark has no meaning
	}
	_, ended := r.events.next(e)
	if !ended {
		return false
	}

	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(e))
	if first {
		text = strings.TrimPrefix(text, byteOrderMark)
	}
	var data []string
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "data":
			data = append(data, value)
		case name == "event" && value == "error":
			return false
		}
	}
	members, plain := membersOf([]byte(strings.Join(data, "\n")))
	if !plain {
		return r.events.lastUsage
	}
	choices, usage, fault, kind := members["choices"], members["usage"], members["error"], members["type"]
	empty := strings.HasPrefix(choices, "[") && strings.TrimSpace(choices[1:]) == "]"
	failed := strings.HasPrefix(fault, "{") || strings.HasPrefix(fault, "[") || len(fault) > 2 && fault[0] == '"' || kind == `"error"`
	return empty && strings.HasPrefix(usage, "{") && !failed
}

// membersOf returns the members of a JSON object in the original bytes, and whether all
// parsers agree on them. They agree if there is no repeated name, no escapes outside of
// values, and no array as the type.
func membersOf(data []byte) (members map[string]string, plain bool) {
	if !json.Valid(data) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, _ := dec.Token(); open != json.Delim('{') {
		return nil, true // valid, and not an object
	}
	members = make(map[string]string)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		key := name.(string)
		if _, repeated := members[key]; repeated || !bytes.Contains(data, []byte(`"`+key+`"`)) {
			return nil, false
		}
		members[key] = string(value)
	}
	return members, !strings.HasPrefix(members["type"], "[")
}
