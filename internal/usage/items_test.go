package usage

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestTheToolsOfAResponseAreCounted(t *testing.T) {
	t.Parallel()
	const (
		search = `{"type":"web_search_call","action":{"type":"search"}}`
		page   = `{"type":"web_search_call","action":{"type":"open_page"}}`
		files  = `{"type":"file_search_call","queries":["x"]}`
		code   = `{"id":"ci_1","type":"code_interpreter_call","code":"1","container_id":"cntr_1"}`
		again  = `{"container_id":"cntr_1","code":"2","id":"ci_2","type":"code_interpreter_call"}`
		second = `{"type":"code_interpreter_call","container_id":"cntr_2"}`
		hidden = `{"type":"code_interpreter_call","container_id":null}`
		shell  = `{"type":"shell_call","action":{"commands":["ls"]},"environment":{"type":"container_reference","container_id":"cntr_1"}}`
		own    = `{"type":"function_call","name":"f","arguments":"{}"},{"type":"computer_call","action":{"type":"click"}}`
	)
	done := func(item string) string {
		return "event: response.output_item.added\ndata: {\"item\":" + item + "}\n\n" +
			"event: response.output_item.done\ndata: {\"item\":" + item + ",\"type\":\"response.output_item.done\"}\n\n"
	}
	completed := func(members string) string {
		return `data: {"type":"response.completed","response":{"service_tier":"default",` + members + `,"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n"
	}
	for name, c := range map[string]struct {
		body string
		want []ToolUse
	}{
		"none":                  {`{"output":[` + own + `]}`, nil},
		"as JSON":               {`{"output":[` + search + `,` + files + `,` + page + `,` + search + `,` + own + `]}`, []ToolUse{{"web_search", 2}, {"file_search", 1}}},
		"in a stream":           {done(search) + done(page) + done(search) + completed(`"output":[`+search+`,`+page+`,`+search+`]`), []ToolUse{{"web_search", 2}}},
		"broken off":            {done(search) + done(files), []ToolUse{{"web_search", 1}, {"file_search", 1}}},
		"only in the last list": {completed(`"output":[` + search + `]`), []ToolUse{{"web_search", 1}}},
		"one container":         {`{"output":[` + code + `,` + again + `,` + shell + `]}`, []ToolUse{{"code_interpreter", 1}}},
		"two containers":        {`{"output":[` + code + `,` + second + `,` + again + `]}`, []ToolUse{{"code_interpreter", 2}}},
		"the first by a shell":  {`{"output":[` + shell + `,` + code + `,` + second + `]}`, []ToolUse{{"shell", 1}, {"code_interpreter", 1}}},
		"no container is shown": {`{"output":[` + hidden + `,` + hidden + `,` + code + `]}`, []ToolUse{{"code_interpreter", 3}}},
		"containers of a stream": {
			done(code) + done(again) + done(second) + completed(`"output":[`+code+`,`+again+`,`+second+`]`), []ToolUse{{"code_interpreter", 2}},
		},
		"more containers than are stored": {
			`{"output":[` + strings.TrimSuffix(strings.Repeat(code+",", 3)+containers(2*maxContainers), ",") + `]}`, []ToolUse{{"code_interpreter", 2*maxContainers + 1}},
		},
		"the report has more": {completed(`"tool_usage":{"image_gen":{"input_tokens":5},"web_search":{"num_requests":3}},"output":[` + search + `]`), []ToolUse{{"web_search", 3}}},
		"the report has less": {completed(`"tool_usage":{"web_search":{"num_requests":0}},"output":[` + search + `]`), []ToolUse{{"web_search", 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := reportOf(t, Response, c.body[0] != '{', c.body)
			if len(report.Tools)+len(c.want) > 0 && !reflect.DeepEqual(report.Tools, c.want) {
				t.Errorf("the tools are %v, want %v", report.Tools, c.want)
			}
			if !report.CountsTools {
				t.Error("a tool that is not listed could have run")
			}
		})
	}
}

// containers returns the uses of n containers, each followed by a comma.
func containers(n int) string {
	var items strings.Builder
	for i := range n {
		fmt.Fprintf(&items, `{"type":"code_interpreter_call","container_id":"cntr_other_%d"},`, i)
	}
	return items.String()
}

func TestALongLastEventIsRead(t *testing.T) {
	t.Parallel()
	body := `data: {"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"` +
		strings.Repeat("x", 10<<20) + `"}]}],"usage":{"input_tokens":7,"output_tokens":9}}}` + "\n\n"
	got := read(Response, true, "", []byte(body))
	if !got.Finished || got.TooLong || got.Tokens != (Tokens{Input: 7, Output: 9}) {
		t.Errorf("wrong results: %+v", got)
	}
}

func TestAResponseIsFinishedAtTheEndOfItsLastEvent(t *testing.T) {
	t.Parallel()
	r := New(Response, true, "")
	defer r.Release()
	for _, part := range []struct {
		text     string
		finished bool
	}{
		{"event: response.completed\n", false},
		{`data: {"type":"response.completed","response":{"usage":{"input_tokens":1`, false},
		{`,"output_tokens":1}}}`, true},
		{"\n\n", true},
	} {
		r.Write([]byte(part.text))
		if r.Finished() != part.finished {
			t.Fatalf("after %q Finished is %v", part.text, !part.finished)
		}
	}
}

func TestAnAnswerWithoutOutputCountsItsTotalAsInput(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int64{
		`{"usage":{"prompt_tokens":8,"total_tokens":8}}`:                   8,
		`{"usage":{"total_tokens":5}}`:                                     5,
		`{"usage":{"prompt_tokens":0,"total_tokens":5}}`:                   5,
		`{"usage":{"prompt_tokens":0,"total_tokens":0}}`:                   -1, // no input has no tokens: it is estimated
		`{"usage":{"input_tokens":4,"output_tokens":0}}`:                   4,
		`{"results":[{"index":0}],"meta":{"api_version":{"version":"2"}}}`: -1,
	} {
		r := New(InputOnly, false, "")
		r.Write([]byte(body))
		r.Close()
		tokens, input, output := r.Tokens()
		if input != (want >= 0) || input != output || input && tokens != (Tokens{Input: want}) {
			t.Errorf("%s: %+v, input %v, output %v", body, tokens, input, output)
		}
	}
}

func TestContentWithoutDeltasOfAResponseIsCounted(t *testing.T) {
	t.Parallel()
	const (
		items = `[{"type":"message","content":[{"type":"output_text","text":"Hello"}]},{"type":"function_call","name":"f","arguments":"{}"}]`
		last  = `data: {"type":"response.completed","response":{"output":` + items + `,"usage":null}}` + "\n\n"
	)
	for name, c := range map[string]struct {
		body string
		want int64
	}{
		"in the last event": {last, 8},
		"before the type":   {`data: {"response":{"output":` + items + `,"usage":null},"type":"response.completed"}` + "\n\n", 8},
		"in an item":        {`data: {"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}` + "\n\n", 5},
		"in both":           {`data: {"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}` + "\n\n" + last, 8},
		"also as deltas":    {`data: {"type":"response.output_text.delta","delta":"Hello there"}` + "\n\n" + last, 11},
		"a failed tool":     {`data: {"type":"response.output_item.done","item":{"type":"web_search_call","action":{"type":"search"}}}` + "\n\n" + `data: {"type":"response.failed","response":{"usage":null}}` + "\n\n", 0},
	} {
		r := New(Response, true, "")
		r.Write([]byte(c.body))
		r.Close()
		if got := r.TextBytes(); got != c.want || !r.Began() {
			t.Errorf("%s: %d bytes, want %d; began: %v", name, got, c.want, r.Began())
		}
	}
}
