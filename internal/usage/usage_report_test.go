package usage

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reportOf reads an answer at once and byte by byte, and returns the report.
func reportOf(t *testing.T, d *Format, stream bool, body string) Report {
	t.Helper()
	var reports []Report
	for _, size := range []int{len(body), 1} {
		r := New(d, stream, "")
		for p := range slices.Chunk([]byte(body), max(size, 1)) {
			r.Write(p)
		}
		r.Close()
		reports = append(reports, r.Report())
	}
	if !reflect.DeepEqual(reports[0], reports[1]) {
		t.Errorf("at once: %+v\nbyte by byte: %+v", reports[0], reports[1])
	}
	return reports[0]
}

func TestTheReportHasAllThatDecidesThePrice(t *testing.T) {
	t.Parallel()
	const service = `"service_tier":"priority","speed":"fast","inference_geo":"us"`
	message := func(more string) string {
		return `{"type":"message","model":"claude-opus-5-20260101","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn",` +
			`"usage":{"input_tokens":10,"output_tokens":5` + more + `}}`
	}
	start := func(more string) string {
		return `event: message_start` + "\n" + `data: {"type":"message_start","message":{"model":"claude-opus-5-20260101","content":[],"usage":{"input_tokens":10,"output_tokens":1` + more + `}}}` + "\n\n" +
			`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n"
	}
	delta := func(more string) string {
		return `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5` + more + `}}` + "\n\n"
	}
	reported := Tokens{Input: 10, Output: 5}
	const search = `data: {"type":"content_block_start","content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}` + "\n\n"
	for name, c := range map[string]struct {
		format *Format
		body   string
		want   Report
	}{
		"only tokens": {Message, message(``), Report{Tokens: reported, CountsTools: true}},
		"nulls": {
			Message, message(`,"service_tier":null,"speed":null,"inference_geo":null,"server_tool_use":null,"iterations":null`),
			Report{Tokens: reported, CountsTools: true},
		},
		"a tier":      {Message, message(`,` + service), Report{Tokens: reported, Tier: "priority", Speed: "fast", Geo: "us", CountsTools: true}},
		"in a stream": {Message, start(`,`+service) + delta(``), Report{Tokens: reported, Tier: "priority", Speed: "fast", Geo: "us", CountsTools: true}},
		"tools": {
			Message, message(`,"server_tool_use":{"web_search_requests":3,"web_fetch_requests":0}`),
			Report{Tokens: reported, CountsTools: true, Tools: []ToolUse{{"web_search", 3}}},
		},
		"tools, the last number": {
			Message, start(`,"server_tool_use":{"web_search_requests":0}`) +
				delta(`,"server_tool_use":{"web_search_requests":1}`) + delta(`,"server_tool_use":{"web_search_requests":2,"x_requests":1}`),
			Report{Tokens: reported, CountsTools: true, Tools: []ToolUse{{"web_search", 2}, {"x", 1}}},
		},
		"passes": {
			Message, message(`,"iterations":[{"type":"compaction","input_tokens":180,"output_tokens":7},` +
				`{"type":"message","model":"m","input_tokens":10,"output_tokens":5,"cache_creation":{"ephemeral_1h_input_tokens":2}},` +
				`{"type":"advisor_message","model":"claude-sage-1","input_tokens":100,"cache_read_input_tokens":40,"output_tokens":9,"service_tier":"batch"},` +
				`{"type":"fallback_message","model":"b","input_tokens":1,"output_tokens":2},{"type":"new","input_tokens":3}],` + service),
			Report{
				Tokens: reported, CountsTools: true, Tier: "priority", Speed: "fast", Geo: "us",
				Passes: []Pass{
					{CompactionPass, "", Tokens{Input: 180, Output: 7}},
					{MessagePass, "m", Tokens{Input: 10, Output: 5, CacheWrite1h: 2}},
					{AdvisorPass, "claude-sage-1", Tokens{Input: 100, CacheRead: 40, Output: 9}},
					{FallbackPass, "b", Tokens{Input: 1, Output: 2}},
					{OtherPass, "", Tokens{Input: 3}},
				},
			},
		},
		"two lists of passes": {
			Message, start(``) + delta(`,"iterations":[{"type":"compaction","input_tokens":1}]`) +
				delta(`,"iterations":[{"type":"compaction","input_tokens":1},{"type":"message","input_tokens":10,"output_tokens":5}]`),
			Report{
				Tokens: reported, CountsTools: true,
				Passes: []Pass{{CompactionPass, "", Tokens{Input: 1}}, {MessagePass, "", Tokens{Input: 10, Output: 5}}},
			},
		},
		"tools of an incomplete stream": {
			Message, start(`,"server_tool_use":{"web_search_requests":0}`) + search + search +
				`data: {"type":"content_block_start","content_block":{"type":"tool_use","name":"web_search","input":{}}}` + "\n\n",
			Report{Tokens: Tokens{Input: 10, Output: 1}, CountsTools: true, Tools: []ToolUse{{"web_search", 2}}},
		},
		"tools that failed": {
			Message, start(``) + search + search + delta(`,"server_tool_use":{"web_search_requests":1}`),
			Report{Tokens: reported, CountsTools: true, Tools: []ToolUse{{"web_search", 1}}},
		},
		"tools that no report counts": {
			Message, start(``) + search + search + delta(``),
			Report{Tokens: reported, CountsTools: true, Tools: []ToolUse{{"web_search", 2}}},
		},
		"tools that no report counts, in one text": {
			Message, strings.Replace(message(`,"server_tool_use":null`), `"content":[`, `"content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}},`, 1),
			Report{Tokens: reported, CountsTools: true, Tools: []ToolUse{{"web_search", 1}}},
		},
		"an incomplete list": {
			Message, start(``) + `data: {"usage":{"iterations":[{"type":"compaction","input_tokens":7` + "\n\n" + delta(``),
			Report{Tokens: reported, CountsTools: true},
		},
		"chat": {
			Completion, `{"model":"gpt","service_tier":"flex","choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":100,"completion_tokens":50,` +
				`"prompt_tokens_details":{"cached_tokens":20,"audio_tokens":30,"image_tokens":10,"text_tokens":60},` +
				`"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":25,"image_tokens":1,"text_tokens":19}}}`,
			Report{Tier: "flex", Tokens: Tokens{
				Input: 40, CacheRead: 20, AudioInput: 30, ImageInput: 10, Output: 19, Reasoning: 5, AudioOutput: 25, ImageOutput: 1,
			}},
		},
		"cached audio": {
			Completion, `{"choices":[],"usage":{"input_tokens":100,"input_token_details":{"cached_tokens":60,"audio_tokens":50,"cached_tokens_details":{"audio_tokens":45}}}}`,
			Report{Tokens: Tokens{Input: 35, CacheRead: 60, AudioInput: 5}},
		},
		"audio that may be cached": {
			Completion, `{"choices":[],"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":60,"audio_tokens":50}}}`,
			Report{Tokens: Tokens{CacheRead: 60, AudioInput: 40}},
		},
		"chat chunks": {
			Completion, `data: {"model":"gpt","service_tier":"auto","choices":[{"delta":{"content":"a"}}]}` + "\n\n" +
				`data: {"model":"gpt","service_tier":"default","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"server_tool_use":{"web_search_requests":1}}}` + "\n\n",
			Report{Tier: "default", Tokens: reported, CountsTools: true, Tools: []ToolUse{{"web_search", 1}}},
		},
		"a tier that is too long": {
			Message, message(`,"service_tier":"` + strings.Repeat("x", 50) + `"`),
			Report{Tokens: reported, Tier: strings.Repeat("x", 48), CountsTools: true},
		},
	} {
		got := reportOf(t, c.format, !strings.HasPrefix(c.body, "{"), c.body)
		if c.format == Message && got.Model.String() != "claude-opus-5-20260101" {
			t.Errorf("%s: model %q", name, got.Model)
		}
		got.Model, got.Input, got.Output = Name{}, false, false
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestARefusalBeforeAnyOutputIsDeclined(t *testing.T) {
	t.Parallel()
	start := `data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":10,"output_tokens":1}}}` + "\n\n"
	text := `data: {"type":"content_block_start","content_block":{"type":"text","text":"I"}}` + "\n\n"
	refusal := `data: {"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":1}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
	for name, c := range map[string]struct {
		body     string
		declined bool
	}{
		"a stream":               {start + refusal, true},
		"after text":             {start + text + refusal, false},
		"a plain answer":         {`{"type":"message","content":[],"stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1}}`, true},
		"with content":           {`{"type":"message","content":[{"type":"text","text":"No"}],"stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1}}`, false},
		"with a thought":         {`{"type":"message","content":[{"type":"thinking","thinking":"","signature":"abc"}],"stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1}}`, false},
		"with an empty element":  {`{"type":"message","stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1},"content":[{}]}`, false},
		"with a tool call":       {`{"type":"message","content":[{"type":"tool_use","id":"a","name":"b","input":{}}],"stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1}}`, false},
		"with a search":          {`{"type":"message","content":[],"stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1,"server_tool_use":{"web_search_requests":1}}}`, false},
		"without a search":       {`{"type":"message","content":[],"stop_reason":"refusal","usage":{"input_tokens":10,"output_tokens":1,"server_tool_use":{"web_search_requests":0}}}`, true},
		"a stream with a search": {start + strings.Replace(refusal, `"output_tokens":1`, `"output_tokens":1,"server_tool_use":{"web_search_requests":1}`, 1), false},
		"another stop reason":    {`{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":1}}`, false},
		"no stop reason":         {`{"type":"message","content":[],"stop_reason":null,"usage":{"input_tokens":10}}`, false},
	} {
		report := reportOf(t, Message, !strings.HasPrefix(c.body, "{"), c.body)
		o := Outcome{Ended: Complete, Began: true, Tokens: report.Tokens, Input: true, Output: true, Declined: report.Declined}
		if _, basis := o.Bill(); report.Declined != c.declined || (basis == None) != c.declined {
			t.Errorf("%s: declined %v, basis %s", name, report.Declined, basis)
		}
	}
}

func TestTheSizeOfAReportIsBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"usage":{"input_tokens":1,"output_tokens":1,"server_tool_use":{"a_requests":1`)
	for i := range 1000 {
		b.WriteString(`,"tool` + strconv.Itoa(i) + `_requests":1`)
	}
	b.WriteString(`},"iterations":[{"type":"compaction","input_tokens":1}`)
	for range 2000 {
		b.WriteString(`,{"type":"advisor_message","input_tokens":9007199254740992}`)
	}
	b.WriteString(`]}}`)
	r := New(Message, false, "")
	r.Write([]byte(b.String()))
	r.Close()
	report := r.Report()
	if len(report.Tools) != maxTools || len(report.Passes) != maxPasses {
		t.Errorf("%d tools, %d passes", len(report.Tools), len(report.Passes))
	}
	if all := report.All(); all.Input != maxFigure || all.AllInput() < 0 {
		t.Errorf("All() = %+v", all)
	}
}

func TestAShorterListOfPassesIsIgnored(t *testing.T) {
	t.Parallel()
	event := func(passes string) string { return `data: {"usage":{"iterations":[` + passes + "]}}\n\n" }
	const one, two = `{"type":"compaction","input_tokens":5}`, `{"type":"compaction","input_tokens":7},{"type":"message","output_tokens":2}`
	for stream, want := range map[string]int64{event(one): 5, event(one) + event(two): 7, event(two) + event(one): 7, event(two) + event("") + event(one): 7} {
		if report := reportOf(t, Message, true, stream); report.All().Input != want {
			t.Errorf("%s: %+v, want %d", stream, report.Passes, want)
		}
	}
}

func TestReadingAUsualReportDoesNotAllocate(t *testing.T) {
	r := New(Message, true, "")
	defer r.Close()
	body := []byte(`data: {"type":"message_start","message":{"model":"claude-opus-5","usage":{"input_tokens":10,"service_tier":"standard","inference_geo":"global"}}}` + "\n\n" +
		`data: {"type":"message_delta","usage":{"output_tokens":5,"server_tool_use":{"web_search_requests":0}}}` + "\n\n")
	if n := testing.AllocsPerRun(100, func() {
		r.Write(body)
		if r.Report().Tier != "standard" {
			t.Error("the tier is not read")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
