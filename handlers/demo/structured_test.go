package demo

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAnswersHaveTheFormThatTheRequestAsksFor checks each way to ask for JSON, whole and streamed.
func TestAnswersHaveTheFormThatTheRequestAsksFor(t *testing.T) {
	t.Parallel()
	const (
		schema  = `{"type":"object","required":["steps","answer"],"properties":{"answer":{"type":"string"},"steps":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/step"}}},"$defs":{"step":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}}}`
		fitting = `{"answer":"example","steps":[{"n":1}]}`
		said    = `{"answer":"You said: hi"}`
		user    = `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}],`
		input   = `{"model":"m","input":"hi",`
		tool    = `{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}`
	)
	for _, c := range []struct{ path, body, want string }{
		{chatPath, user + `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}}`, fitting},
		{chatPath, user + `"response_format":{"type":"json_object"}}`, said},
		{chatPath, user + `"response_format":{"type":"text"}}`, "You said: hi"},
		{chatPath, user + `"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f","parameters":` + tool + `}}]}`, `{"city":"example"}`},
		{responsesPath, input + `"text":{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}}`, fitting},
		{responsesPath, input + `"text":{"format":{"type":"json_object"}}}`, said},
		{responsesPath, input + `"text":{"verbosity":"low"}}`, "You said: hi"},
		{messagesPath, user + `"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}}`, fitting},
		{messagesPath, user + `"output_format":{"type":"json_schema","schema":` + schema + `}}`, fitting},
		{messagesPath, user + `"output_config":{"effort":"low"}}`, "You said: hi"},
	} {
		if got := textOf(parse[any](t, post(c.path, c.body).Body.Bytes())); got != c.want {
			t.Errorf("%s %s: %s", c.path, c.body, got)
		}
		text := ""
		for _, e := range events(t, post(c.path, strings.Replace(c.body, "{", `{"stream":true,`, 1)).Body.String()) {
			if strings.Contains(e.data, `"delta":`) {
				text += deltaOf(t, e.data)
			}
		}
		if text != c.want {
			t.Errorf("%s %s: the stream has %q", c.path, c.body, text)
		}
	}
}

// textOf returns the first text of an answer, or the arguments of a call: the first of these members.
func textOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"choices", "output", "content", "message", "tool_calls", "function", "text", "arguments"} {
			if text, ok := v[name].(string); ok {
				return text
			}
			if text := textOf(v[name]); text != "" {
				return text
			}
		}
	case []any:
		if len(v) > 0 {
			return textOf(v[0])
		}
	}
	return ""
}

// deltaOf returns the text in an event of a stream.
func deltaOf(t *testing.T, data string) string {
	t.Helper()
	e := parse[struct {
		Type    string
		Delta   json.RawMessage
		Choices []struct{ Delta json.RawMessage }
	}](t, []byte(data))
	if text := ""; json.Unmarshal(e.Delta, &text) == nil {
		return text
	}
	if len(e.Choices) > 0 {
		return textOf(parse[any](t, e.Choices[0].Delta))
	}
	return textOf(parse[any](t, e.Delta))
}

// TestBlocksOfTextHaveNoCitations checks that a text has no member citations: some SDKs refuse null.
func TestBlocksOfTextHaveNoCitations(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{``, `,"stream":true`} {
		if got := post(messagesPath, messagesBody(`"hi"`, fields)).Body.String(); strings.Contains(got, "citations") {
			t.Error(got)
		}
	}
}

// TestChatReturnsLogprobs checks that the tokens of a choice are its text.
func TestChatReturnsLogprobs(t *testing.T) {
	t.Parallel()
	type tokenRead struct {
		Token   string
		Bytes   []int
		Logprob *float64
		Top     []struct{ Token string } `json:"top_logprobs"`
	}
	type choices struct {
		Choices []struct {
			Logprobs *struct{ Content []tokenRead }
		}
	}
	joined := func(all ...choices) (text string) {
		for _, a := range all {
			if len(a.Choices) == 0 || a.Choices[0].Logprobs == nil {
				continue
			}
			for _, token := range a.Choices[0].Logprobs.Content {
				if text += token.Token; len(token.Bytes) != len(token.Token) || token.Logprob == nil || *token.Logprob >= 0 || len(token.Top) != 1 {
					t.Errorf("%+v", token)
				}
			}
		}
		return text
	}
	const body = `{"model":"m","logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"hé there"}]`
	if got := joined(read[choices](t, chatPath, body+`}`)); got != "You said: hé there" {
		t.Error(got)
	}
	if got := joined(read[choices](t, chatPath, strings.Replace(body, "true", "false", 1)+`}`)); got != "" {
		t.Error(got)
	}
	var chunks []choices
	for _, e := range events(t, post(chatPath, body+`,"stream":true}`).Body.String()) {
		if e.data != "[DONE]" {
			chunks = append(chunks, parse[choices](t, []byte(e.data)))
		}
	}
	if got := joined(chunks...); got != "You said: hé there" {
		t.Error(got)
	}
}

func TestModerationsNameEveryCategory(t *testing.T) {
	t.Parallel()
	got := read[struct {
		Results []struct {
			Categories map[string]bool
			Scores     map[string]float64  `json:"category_scores"`
			Types      map[string][]string `json:"category_applied_input_types"`
		}
	}](t, "/v1/moderations", `{"model":"m","input":"hi"}`)
	for _, name := range []string{
		"harassment", "harassment/threatening", "sexual", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm/intent",
		"self-harm/instructions", "self-harm", "sexual/minors", "violence", "violence/graphic",
	} {
		r := got.Results[0]
		flagged, exists := r.Categories[name]
		if _, scored := r.Scores[name]; !exists || flagged || !scored || len(r.Types[name]) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
