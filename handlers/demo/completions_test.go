package demo

import (
	"reflect"
	"strings"
	"testing"
)

// completed is a completion, a chat completion, or a chunk of a stream.
type completed struct {
	Object  string
	Choices []struct {
		Index        int
		Text         string
		Message      turn
		Delta        turn
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt        int `json:"prompt_tokens"`
		Completion    int `json:"completion_tokens"`
		Total         int `json:"total_tokens"`
		PromptDetails struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// turn is the message of a choice of chat.
type turn struct {
	Role, Content string
	ToolCalls     []struct {
		Index    int
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// result is the content of a choice: its text or arguments, and its ending.
type result struct{ Text, Tool, End string }

// add appends the content of the choices to all, by index.
func (c completed) add(all map[int]result) {
	for _, choice := range c.Choices {
		s := all[choice.Index]
		s.Text += choice.Text
		for _, t := range []turn{choice.Message, choice.Delta} {
			s.Text += t.Content
			for _, call := range t.ToolCalls {
				s.Tool += call.Function.Name
				s.Text += call.Function.Arguments
			}
		}
		if choice.FinishReason != nil {
			s.End += *choice.FinishReason
		}
		all[choice.Index] = s
	}
}

// whole requests JSON and returns the choices.
func whole(t *testing.T, path, body string) (map[int]result, completed) {
	t.Helper()
	got := read[completed](t, path, body)
	all := map[int]result{}
	got.add(all)
	if got.Usage.Total != got.Usage.Prompt+got.Usage.Completion {
		t.Errorf("usage %+v", got.Usage)
	}
	return all, got
}

// streamed requests a stream with usage and returns its choices and its last chunk.
func streamed(t *testing.T, path, body string) (map[int]result, completed) {
	t.Helper()
	got := post(path, strings.Replace(body, `{`, `{"stream":true,"stream_options":{"include_usage":true},`, 1))
	all := map[int]result{}
	var last completed
	list := events(t, got.Body.String())
	if list[len(list)-1].data != "[DONE]" {
		t.Fatalf("the stream ends in %q", list[len(list)-1].data)
	}
	for _, e := range list[:len(list)-1] {
		if last.Usage != nil {
			t.Errorf("%s follows the usage", e.data)
		}
		last = parse[completed](t, []byte(e.data))
		if usageOnly := len(last.Choices) == 0; usageOnly != (last.Usage != nil) || !strings.Contains(e.data, `"usage":`) {
			t.Errorf("chunk %s", e.data)
		}
		last.add(all)
	}
	return all, last
}

func TestCompletionsContinueThePrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields             string
		result             map[int]result
		prompt, completion int
	}{
		{`"prompt":"hello there"`, map[int]result{0: {Text: " You said: hello there", End: "stop"}}, 2, 4},
		{`"prompt":["hello there"]`, map[int]result{0: {Text: " You said: hello there", End: "stop"}}, 2, 4},
		{`"prompt":"hello there","suffix":"end"`, map[int]result{0: {Text: " You said: hello there", End: "stop"}}, 2, 4},
		{`"prompt":"hello there","max_tokens":3`, map[int]result{0: {Text: " You said: hello", End: "length"}}, 2, 3},
		{`"prompt":"hello there","max_tokens":0,"echo":true`, map[int]result{0: {Text: "hello there", End: "length"}}, 2, 0},
		{`"prompt":"hello there","echo":true`, map[int]result{0: {Text: "hello there You said: hello there", End: "stop"}}, 2, 4},
		{`"prompt":"hello there","stop":" there"`, map[int]result{0: {Text: " You said: hello", End: "stop"}}, 2, 3},
		{`"prompt":"hello there","stop":["none"," hello"],"max_tokens":9`, map[int]result{0: {Text: " You said:", End: "stop"}}, 2, 2},
		{`"prompt":"hello there","stop":null,"n":2`, map[int]result{
			0: {Text: " You said: hello there", End: "stop"},
			1: {Text: " You said: hello there", End: "stop"}}, 2, 8},
		{`"prompt":["one","two two two"],"n":2,"echo":true,"max_tokens":4`, map[int]result{
			0: {Text: "one You said: one", End: "stop"},
			1: {Text: "one You said: one", End: "stop"},
			2: {Text: "two two two You said: two two", End: "length"},
			3: {Text: "two two two You said: two two", End: "length"}}, 4, 14},
	} {
		for mode, send := range map[string]func(*testing.T, string, string) (map[int]result, completed){"whole": whole, "stream": streamed} {
			all, last := send(t, completionsPath, `{"model":"m",`+c.fields+`}`)
			if !reflect.DeepEqual(all, c.result) {
				t.Errorf("%s %s: %+v", mode, c.fields, all)
			}
			if last.Usage.Prompt != c.prompt || last.Usage.Completion != c.completion || last.Object != "text_completion" {
				t.Errorf("%s %s: %+v", mode, c.fields, last.Usage)
			}
		}
	}
}

func TestBestOfIsCountedButNotShown(t *testing.T) {
	t.Parallel()
	all, got := whole(t, completionsPath, `{"model":"m","prompt":"hello there","n":2,"best_of":5}`)
	if len(all) != 2 || got.Usage.Completion != 5*4 {
		t.Errorf("%d choices, %+v", len(all), got.Usage)
	}
}

// TestAStreamReportsUsageOnlyOnRequest checks streams without stream_options.
func TestAStreamReportsUsageOnlyOnRequest(t *testing.T) {
	t.Parallel()
	for _, path := range []string{completionsPath, chatPath} {
		got := post(path, `{"model":"m","stream":true,"prompt":"hi","messages":[{"role":"user","content":"hi"}]}`).Body.String()
		if strings.Contains(got, "usage") || strings.Contains(got, `"choices":[]`) || !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestChoicesAreInterleavedInAStream(t *testing.T) {
	t.Parallel()
	for _, path := range []string{completionsPath, chatPath} {
		got := post(path, `{"model":"m","stream":true,"n":2,"prompt":"hi","messages":[{"role":"user","content":"hi"}]}`).Body.String()
		list := events(t, got)
		for i, e := range list[:len(list)-1] {
			if chunk := parse[completed](t, []byte(e.data)); chunk.Choices[0].Index != i%2 {
				t.Errorf("%s: event %d: %s", path, i, e.data)
			}
		}
	}
}
