package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// messageRead is a decoded message.
type messageRead struct {
	Content []struct {
		Type, Text, Thinking, Signature, ID, Name string
		Input                                     json.RawMessage
	}
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        struct {
		Input        int `json:"input_tokens"`
		CacheWritten int `json:"cache_creation_input_tokens"`
		CacheRead    int `json:"cache_read_input_tokens"`
		CacheKinds   struct {
			Ephemeral5m int `json:"ephemeral_5m_input_tokens"`
			Ephemeral1h int `json:"ephemeral_1h_input_tokens"`
		} `json:"cache_creation"`
		Output        int `json:"output_tokens"`
		OutputDetails struct {
			Thinking int `json:"thinking_tokens"`
		} `json:"output_tokens_details"`
	}
}

// text returns the text of the only block.
func (m messageRead) text(t *testing.T) string {
	t.Helper()
	if len(m.Content) != 1 || m.Content[0].Type != "text" {
		t.Fatalf("content %+v", m.Content)
	}
	return m.Content[0].Text
}

// messagesBody returns a messages request with max_tokens 999, a user message with this
// JSON content, and further fields.
func messagesBody(content, fields string) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":999,"messages":[{"role":"user","content":%s}]%s}`, content, fields)
}

func TestMessagesRepeatTheLastUserText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ messages, text string }{
		{`{"role":"user","content":"hi <you> & \"me\""}`, `You said: hi <you> & "me"`},
		{`{"role":"user","content":""}`, "You said nothing."},
		{`{"role":"user","content":[]}`, "You said nothing."},
		{`{"role":"user","content":[{"type":"image","source":{}},{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "You said: a\nb"},
		{`{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}`, "You said: c"},
		{`{"role":"user","content":"a"},{"role":"assistant","content":"prefill"}`, "You said: a"},
		{`{"role":"user","content":"a"},{"role":"user","content":[{"type":"tool_result","content":"42"},{"type":"tool_result","content":[{"type":"text","text":"43"},{"type":"image"}]}]}`,
			"The tool answered: 42\n43"},
	} {
		got := read[messageRead](t, messagesPath, `{"model":"m","max_tokens":999,"messages":[`+c.messages+`]}`)
		if text := got.text(t); text != c.text || got.StopReason != "end_turn" || got.StopSequence != nil {
			t.Errorf("%s: %+v", c.messages, got)
		}
	}
}

func TestMessagesStopAtMaxTokens(t *testing.T) {
	t.Parallel()
	got := read[messageRead](t, messagesPath, `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hello there"}]}`)
	if got.text(t) != "You said: hello" || got.StopReason != "max_tokens" || got.Usage.Output != 3 {
		t.Errorf("%+v", got)
	}
}

func TestMessagesStopAtAStopSequence(t *testing.T) {
	t.Parallel()
	got := read[messageRead](t, messagesPath, messagesBody(`"one two three"`, `,"stop_sequences":["three"," two"]`))
	if got.text(t) != "You said: one" || got.StopReason != "stop_sequence" || *got.StopSequence != " two" {
		t.Errorf("%+v", got)
	}
	got = read[messageRead](t, messagesPath, messagesBody(`"hi"`, `,"stop_sequences":["You"]`))
	if len(got.Content) != 0 || got.StopReason != "stop_sequence" || got.Usage.Output != 1 {
		t.Errorf("stopped at once: %+v", got)
	}
}

const weather = `,"tools":[
	{"type":"web_search_20250305","name":"web_search"},
	{"name":"weather","description":"Tells the weather.","input_schema":{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}},
	{"name":"clock","input_schema":{"type":"object"}}]`

func TestMessagesCallATool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fields, name, input string }{
		{weather, "weather", `{"city":"example"}`},
		{weather + `,"tool_choice":{"type":"any"}`, "weather", `{"city":"example"}`},
		{weather + `,"tool_choice":{"type":"tool","name":"clock"}`, "clock", `{}`},
	} {
		got := read[messageRead](t, messagesPath, messagesBody(`"hi"`, c.fields))
		if len(got.Content) != 1 || got.StopReason != "tool_use" {
			t.Fatalf("%s: %+v", c.fields, got)
		}
		block := got.Content[0]
		if block.Type != "tool_use" || block.Name != c.name || string(block.Input) != c.input || !strings.HasPrefix(block.ID, "toolu_") {
			t.Errorf("%s: %+v", c.fields, block)
		}
		if got.Usage.Output != tokens(c.input) {
			t.Errorf("%d output tokens", got.Usage.Output)
		}
	}
}

func TestMessagesAnswerWithTextInsteadOfATool(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"tool_choice none": messagesBody(`"hi"`, weather+`,"tool_choice":{"type":"none"}`),
		"a result":         messagesBody(`[{"type":"tool_result","tool_use_id":"x","content":"rain"}]`, weather),
		"no client tool":   messagesBody(`"hi"`, `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`),
		"too few tokens":   `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"hi"}]` + weather + `}`,
	} {
		got := read[messageRead](t, messagesPath, body)
		if got.text(t) == "" || got.StopReason == "tool_use" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMessagesThinkFirst(t *testing.T) {
	t.Parallel()
	for fields, then := range map[string]string{
		`,"thinking":{"type":"enabled","budget_tokens":1024}`: "text",
		`,"thinking":{"type":"adaptive"}` + weather:           "tool_use",
	} {
		got := read[messageRead](t, messagesPath, messagesBody(`"hi"`, fields))
		if len(got.Content) != 2 || got.Content[1].Type != then {
			t.Fatalf("%s: %+v", fields, got)
		}
		thought := got.Content[0]
		if thought.Type != "thinking" || thought.Thinking == "" || thought.Signature == "" || got.Usage.OutputDetails.Thinking != tokens(thought.Thinking) {
			t.Errorf("%s: %+v", fields, got)
		}
	}
	if got := read[messageRead](t, messagesPath, messagesBody(`"hi"`, `,"thinking":{"type":"disabled"}`)); got.text(t) == "" {
		t.Errorf("disabled: %+v", got)
	}
	short := read[messageRead](t, messagesPath, `{"model":"m","max_tokens":3,"thinking":{"type":"enabled"},"messages":[{"role":"user","content":"hi"}]}`)
	if len(short.Content) != 1 || short.Content[0].Type != "thinking" || short.StopReason != "max_tokens" || short.Usage.Output != 3 {
		t.Errorf("max_tokens ends the thinking: %+v", short)
	}
}

func TestMessagesCountTheirTokens(t *testing.T) {
	t.Parallel()
	// Each of these texts has as many pieces as groups of three letters.
	for _, c := range []struct {
		name, body                       string
		fresh, written5m, written1h, hit int
	}{
		{"text alone", messagesBody(`"aaa bbb"`, ``), 2, 0, 0, 0},
		{"system and message", messagesBody(`"aaa bbb"`, `,"system":"ccc"`), 3, 0, 0, 0},
		{"images do not count", messagesBody(`[{"type":"image","source":{"data":"aaaa"}},{"type":"text","text":"aaa"}]`, ``), 1, 0, 0, 0},
		{"cached system", messagesBody(`"aaa bbb"`, `,"system":[{"type":"text","text":"ccc","cache_control":{"type":"ephemeral"}}]`), 2, 1, 0, 0},
		{"one hour, then five minutes", messagesBody(`[{"type":"text","text":"aaa bbb","cache_control":{"type":"ephemeral","ttl":"5m"}},{"type":"text","text":"ddd"}]`,
			`,"system":[{"type":"text","text":"ccc","cache_control":{"type":"ephemeral","ttl":"1h"}}]`), 1, 2, 1, 0},
		{"all cached", messagesBody(`"aaa bbb"`, `,"cache_control":{"type":"ephemeral"}`), 0, 2, 0, 0},
		{"cached tools", messagesBody(`"aaa"`, `,"tool_choice":{"type":"none"},"tools":[{"name":"nnn","description":"ddd","input_schema":{},"cache_control":{"type":"ephemeral"}}]`), 1, 3, 0, 0},
		{"read from the cache", messagesBody(`"demo:cached"`, `,"system":[{"type":"text","text":"ccc","cache_control":{"type":"ephemeral"}}]`), 2, 0, 0, 1},
		{"nothing to read", messagesBody(`"demo:cached"`, ``), 2, 0, 0, 0},
	} {
		u := read[messageRead](t, messagesPath, c.body).Usage
		if u.Input != c.fresh || u.CacheKinds.Ephemeral5m != c.written5m || u.CacheKinds.Ephemeral1h != c.written1h ||
			u.CacheWritten != c.written5m+c.written1h || u.CacheRead != c.hit {
			t.Errorf("%s: %+v", c.name, u)
		}
		counted := read[struct {
			InputTokens int `json:"input_tokens"`
		}](t, countPath, c.body).InputTokens
		if counted != c.fresh+c.written5m+c.written1h+c.hit {
			t.Errorf("%s: count_tokens returns %d", c.name, counted)
		}
	}
}

// TestMessagesStreamsMatchTheJSONAnswer compares the content of a stream with the JSON
// answer to the same request.
func TestMessagesStreamsMatchTheJSONAnswer(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		messagesBody(`"hello there"`, ``),
		messagesBody(`"hello there"`, `,"stop_sequences":["there"]`),
		messagesBody(`"hello there"`, `,"stop_sequences":["You"]`),
		messagesBody(`"hello there"`, `,"thinking":{"type":"enabled"}`),
		messagesBody(`"hello there"`, `,"thinking":{"type":"enabled"}`+weather),
		messagesBody(`"demo:cached"`, `,"system":[{"type":"text","text":"ccc","cache_control":{"type":"ephemeral"}}]`),
	} {
		whole := read[messageRead](t, messagesPath, body)
		streamed := assemble(t, post(messagesPath, strings.Replace(body, `{`, `{"stream":true,`, 1)).Body.String())
		for i := range whole.Content { // ids are always new
			if i < len(streamed.Content) {
				whole.Content[i].ID, streamed.Content[i].ID = "", ""
			}
		}
		want, _ := json.Marshal(whole)
		if got, _ := json.Marshal(streamed); string(got) != string(want) {
			t.Errorf("%s:\nstream %s\nwhole  %s", body, got, want)
		}
	}
}

// assemble returns the message of the events of a stream.
func assemble(t *testing.T, stream string) messageRead {
	t.Helper()
	var m messageRead
	for _, e := range events(t, stream) {
		step := parse[struct {
			Type    string
			Index   int
			Message json.RawMessage
			Block   json.RawMessage `json:"content_block"`
			Delta   struct {
				Text, Thinking, Signature string
				PartialJSON               string  `json:"partial_json"`
				StopReason                string  `json:"stop_reason"`
				StopSequence              *string `json:"stop_sequence"`
			}
			Usage json.RawMessage
		}](t, []byte(e.data))
		if e.name != step.Type {
			t.Fatalf("event %s of type %s", e.name, step.Type)
		}
		switch e.name {
		case "message_start":
			m = parse[messageRead](t, step.Message)
			if m.Usage.Output != 1 {
				t.Errorf("%d output tokens at the start", m.Usage.Output)
			}
		case "content_block_start":
			m.Content = append(m.Content, parse[messageRead](t, fmt.Appendf(nil, `{"content":[%s]}`, step.Block)).Content...)
			if len(m.Content) != step.Index+1 {
				t.Fatalf("block %d starts after %d blocks", step.Index, len(m.Content)-1)
			}
			m.Content[step.Index].Input = nil
		case "content_block_delta":
			b := &m.Content[step.Index]
			b.Text += step.Delta.Text
			b.Thinking += step.Delta.Thinking
			b.Signature += step.Delta.Signature
			b.Input = append(b.Input, step.Delta.PartialJSON...)
		case "message_delta":
			m.StopReason, m.StopSequence = step.Delta.StopReason, step.Delta.StopSequence
			if err := json.Unmarshal(step.Usage, &m.Usage); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}
