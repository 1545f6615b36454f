package demo

import (
	"reflect"
	"strings"
	"testing"
)

const chatWeather = `"tools":[
	{"type":"custom","custom":{"name":"free"}},
	{"type":"function","function":{"name":"weather","parameters":{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}}},
	{"type":"function","function":{"name":"clock"}}]`

func TestChatAnswersTheLastUserText(t *testing.T) {
	t.Parallel()
	const user = `"messages":[{"role":"system","content":"sss"},{"role":"user","content":[{"type":"text","text":"hello there"},{"type":"image_url","image_url":{"url":"u"}}]}]`
	everything := map[int]result{0: {Text: "You said: hello there", End: "stop"}}
	weatherCall := map[int]result{0: {Tool: "weather", Text: `{"city":"example"}`, End: "tool_calls"}}
	for _, c := range []struct {
		fields     string
		result     map[int]result
		completion int
	}{
		{user, everything, 4},
		{user + `,"max_tokens":3`, map[int]result{0: {Text: "You said: hello", End: "length"}}, 3},
		{user + `,"max_tokens":3,"max_completion_tokens":2`, map[int]result{0: {Text: "You said:", End: "length"}}, 2},
		{user + `,"max_tokens":2,"max_completion_tokens":99`, everything, 4},
		{user + `,"stop":" there"`, map[int]result{0: {Text: "You said: hello", End: "stop"}}, 3},
		{user + `,"stop":["You"]`, map[int]result{0: {Text: "", End: "stop"}}, 0},
		{user + `,"n":3,"max_tokens":1`, map[int]result{0: {Text: "You", End: "length"}, 1: {Text: "You", End: "length"}, 2: {Text: "You", End: "length"}}, 3},
		{user + `,` + chatWeather, weatherCall, tokens(`{"city":"example"}`)},
		{user + `,"tool_choice":"required",` + chatWeather, weatherCall, tokens(`{"city":"example"}`)},
		{user + `,"tool_choice":{"type":"function","function":{"name":"clock"}},` + chatWeather, map[int]result{0: {Tool: "clock", Text: `{}`, End: "tool_calls"}}, 1},
		{user + `,"tool_choice":"none",` + chatWeather, everything, 4},
		{user + `,"max_tokens":1,` + chatWeather, map[int]result{0: {Text: "You", End: "length"}}, 1},
		{`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","tool_call_id":"c","content":"rain"}],` + chatWeather,
			map[int]result{0: {Text: "The tool answered: rain", End: "stop"}}, tokens("The tool answered: rain")},
		{`"messages":[{"role":"tool","content":"rain"},{"role":"assistant","content":"It rains."},{"role":"user","content":"hi"}],` + chatWeather, weatherCall, 3},
	} {
		for mode, send := range map[string]func(*testing.T, string, string) (map[int]result, completed){"whole": whole, "stream": streamed} {
			all, last := send(t, chatPath, `{"model":"m",`+c.fields+`}`)
			if !reflect.DeepEqual(all, c.result) {
				t.Errorf("%s %s: %+v", mode, c.fields, all)
			}
			if last.Usage.Completion != c.completion {
				t.Errorf("%s %s: %+v", mode, c.fields, last.Usage)
			}
			object := map[string]string{"whole": "chat.completion", "stream": "chat.completion.chunk"}[mode]
			if last.Object != object {
				t.Errorf("%s %s: object %q", mode, c.fields, last.Object)
			}
		}
	}
}

func TestChatCountsMessagesAndTools(t *testing.T) {
	t.Parallel()
	_, got := whole(t, chatPath, `{"model":"m","tool_choice":"none",
		"messages":[{"role":"developer","content":"sss"},{"role":"user","content":"aaa bbb"}],
		"tools":[{"type":"function","function":{"name":"nnn","description":"ddd eee","parameters":{}}}]}`)
	if got.Usage.Prompt != 1+2+1+2+1 {
		t.Errorf("%+v", got.Usage)
	}
}

// TestAStreamedToolCallIsNamedOnce checks that the id, type and name of a call are in its
// first piece only.
func TestAStreamedToolCallIsNamedOnce(t *testing.T) {
	t.Parallel()
	got := post(chatPath, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}],`+chatWeather+`}`).Body.String()
	for _, once := range []string{`"id":"call_`, `"type":"function"`, `"name":"weather"`, `"role":"assistant"`} {
		if n := strings.Count(got, once); n != 1 {
			t.Errorf("the stream contains %s %d times: %s", once, n, got)
		}
	}
}
