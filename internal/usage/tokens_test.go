package usage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestUsageIsReadInTheFormatsOfBothVendors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		usage string
		want  Tokens  // in both dialects
		chat  *Tokens // in the openai dialect, if it differs
	}{
		{name: "messages", usage: `{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":40}`,
			want: Tokens{Input: 10, CacheWrite5m: 20, CacheRead: 30, Output: 40}},
		{name: "cache lifetimes with a remainder", usage: `{"input_tokens":1,"cache_creation_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4},"output_tokens":2}`,
			want: Tokens{Input: 1, CacheWrite5m: 16, CacheWrite1h: 4, Output: 2}},
		{name: "only cache lifetimes", usage: `{"cache_creation":{"ephemeral_1h_input_tokens":4},"input_tokens":1,"output_tokens":2}`,
			want: Tokens{Input: 1, CacheWrite1h: 4, Output: 2}},
		{name: "separate reasoning", usage: `{"input_tokens":1,"output_tokens":50,"output_tokens_details":{"reasoning_tokens":20}}`,
			want: Tokens{Input: 1, Output: 30, Reasoning: 20}},
		{name: "completions", usage: `{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":20}}`,
			want: Tokens{Input: 40, CacheRead: 60, Output: 30, Reasoning: 20}},
		{name: "details of null", usage: `{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":null,"completion_tokens_details":null}`,
			want: Tokens{Input: 100, Output: 50}},
		{name: "messages cache figures included in prompt_tokens", usage: `{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":60},"cache_read_input_tokens":60,"cache_creation_input_tokens":10}`,
			want: Tokens{Input: 30, CacheRead: 60, CacheWrite5m: 10, Output: 5}},
		{name: "cache hits by another name", usage: `{"prompt_tokens":100,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36,"completion_tokens":5}`,
			want: Tokens{Input: 36, CacheRead: 64, Output: 5}},
		{name: "cached tokens included in input_tokens", usage: `{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":5}`,
			want: Tokens{Input: 40, CacheRead: 60, Output: 5}},
		{name: "both vendors' names, one of them zero", usage: `{"prompt_tokens":0,"completion_tokens":0,"input_tokens":7,"output_tokens":8}`,
			want: Tokens{Input: 7, Output: 8}, chat: &Tokens{}},
		{name: "reasoning in addition to the output", usage: `{"prompt_tokens":9,"completion_tokens":12,"completion_tokens_details":{"reasoning_tokens":300}}`,
			want: Tokens{Input: 9, Reasoning: 300}},
		{name: "reasoning in addition to the output, by the total", usage: `{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428,"prompt_tokens_details":{"cached_tokens":128},"completion_tokens_details":{"reasoning_tokens":2809}}`,
			want: Tokens{Input: 9992, CacheRead: 128, Output: 1499, Reasoning: 2809}},
		{name: "reasoning that is only in the total", usage: `{"prompt_tokens":20,"completion_tokens":198,"total_tokens":623}`,
			want: Tokens{Input: 20, Output: 198, Reasoning: 405}},
		{name: "reasoning included in the output, by the total", usage: `{"prompt_tokens":20,"completion_tokens":198,"total_tokens":218,"completion_tokens_details":{"reasoning_tokens":100}}`,
			want: Tokens{Input: 20, Output: 98, Reasoning: 100}},
		{name: "a total of input, caches and output", usage: `{"input_tokens":1,"cache_read_input_tokens":20,"cache_creation_input_tokens":30,"output_tokens":2,"total_tokens":53}`,
			want: Tokens{Input: 1, CacheRead: 20, CacheWrite5m: 30, Output: 2}},
		{name: "a total that is slightly greater than its parts", usage: `{"prompt_tokens":20,"completion_tokens":198,"total_tokens":220,"completion_tokens_details":{"reasoning_tokens":100}}`,
			want: Tokens{Input: 20, Output: 98, Reasoning: 100}},
		{name: "more cached tokens than input", usage: `{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":10}}`,
			want: Tokens{CacheRead: 10, Output: 1}},
		{name: "names with escapes", usage: `{"inp\u0075t_tokens":3,"\u006futput_token\u0073":4,"input_t\u00f6kens":99,"\n_tokens":98}`,
			want: Tokens{Input: 3, Output: 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, d := range []*Format{Message, Completion} {
				want := test.want
				if d == Completion && test.chat != nil {
					want = *test.chat
				}
				body := `{"usage":` + test.usage + `}`
				for _, stream := range []bool{false, true} {
					if stream {
						body = "data: " + body + "\n\n"
					}
					got := read(d, stream, "", []byte(body))
					if got.Tokens != want || !got.Input || !got.Output {
						t.Errorf("messages %v, stream %v: %+v, want %+v", d == Message, stream, got, want)
					}
				}
			}
		})
	}
}

func TestAFigureThatIsNotACountIsIgnored(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		`-1`, `-1.0`, `null`, `true`, `{}`, `{"input_tokens":9}`, `[]`, `[1]`, `NaN`, `Infinity`, `+1`, `0x10`, `1_0`, `1e`, `1.0.0`,
		`"12.0"`, `"1e1"`, `"-1"`, `" 12"`, `"twelve"`, `""`, `"1\u0662"`, `["12"]`,
	} {
		body := fmt.Sprintf(`{"usage":{"input_tokens":%s,"output_tokens":3}}`, value)
		got := read(Message, false, "", []byte(body))
		if got.Input || got.Tokens != (Tokens{Output: 3}) || !got.Finished {
			t.Errorf("%s: %+v, want no report of the input", value, got)
		}
	}
}

func TestAFigureIsReadInEachNotation(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int64{
		`12`: 12, `12.0`: 12, `12.000`: 12, `1.2e1`: 12, `1.2E+1`: 12, `120e-1`: 12, `"12"`: 12, `"0012"`: 12, `0`: 0, `0.0`: 0, `0e5`: 0,
		`11.5`: 12, `11.01`: 12, `1e-9`: 1, `1e300`: maxFigure, `1e999`: maxFigure, `"9007199254740993"`: maxFigure,
	} {
		body := []byte(fmt.Sprintf(`{"usage":{"input_tokens":%s,"output_tokens":3}}`, value))
		for _, size := range []int{len(body), 1} {
			got := read(Message, false, "", slices.Collect(slices.Chunk(body, size))...)
			if !got.Input || got.Tokens != (Tokens{Input: want, Output: 3}) || !got.Finished {
				t.Errorf("%s: %+v, want %d", value, got, want)
			}
		}
	}
}

func TestALaterReportDoesNotReduceFigures(t *testing.T) {
	t.Parallel()
	event := func(usage string) string { return "data: {\"usage\":{" + usage + "}}\n\n" }
	for name, c := range map[string]struct {
		stream string
		want   Tokens
	}{
		"the last is used": {event(`"input_tokens":1,"output_tokens":2`) + event(`"input_tokens":3,"output_tokens":4`), Tokens{Input: 3, Output: 4}},
		"a missing figure": {event(`"input_tokens":1,"output_tokens":2`) + event(`"output_tokens":4`), Tokens{Input: 1, Output: 4}},
		"less input":       {event(`"input_tokens":5,"cache_read_input_tokens":5,"output_tokens":2`) + event(`"input_tokens":7,"cache_read_input_tokens":0,"output_tokens":4`), Tokens{Input: 7, CacheRead: 5, Output: 4}},
		"less output":      {event(`"input_tokens":5,"output_tokens":9,"output_tokens_details":{"reasoning_tokens":2}`) + event(`"input_tokens":6,"output_tokens":0,"output_tokens_details":{"reasoning_tokens":3}`), Tokens{Input: 6, Output: 6, Reasoning: 3}},
		"the same sum":     {event(`"input_tokens":9,"output_tokens":9`) + event(`"input_tokens":2,"cache_read_input_tokens":7,"output_tokens":9,"output_tokens_details":{"reasoning_tokens":5}`), Tokens{Input: 2, CacheRead: 7, Output: 4, Reasoning: 5}},
		"less, more, less": {event(`"output_tokens":5`) + event(`"output_tokens":1`) + event(`"output_tokens":9`) + event(`"output_tokens":7`), Tokens{Output: 9}},
		"less, incomplete": {event(`"input_tokens":5,"output_tokens":9`) + "data: {\"usage\":{\"input_tokens\":1,\"output_to", Tokens{Input: 5, Output: 9}},
		"less, malformed":  {event(`"input_tokens":5,"output_tokens":9`) + "data: {\"usage\":{\"input_tokens\":1,]\n\n", Tokens{Input: 5, Output: 9}},
	} {
		if got := read(Message, true, "", []byte(c.stream)); got.Tokens != c.want {
			t.Errorf("%s: %+v, want %+v", name, got.Tokens, c.want)
		}
	}
}

func TestAFigureIsLimitedTo2To53(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"9007199254740993", "18446744073709551616", strings.Repeat("9", 5000)} {
		body := fmt.Sprintf(`{"usage":{"prompt_tokens":%s,"completion_tokens":3}}`, value)
		got := read(Completion, false, "", []byte(body))
		if !got.Input || got.Tokens.Input != maxFigure {
			t.Errorf("%.20s: input %d, want 2^53", value, got.Tokens.Input)
		}
	}
}

func TestUsageIsOnlyReadFromKnownMembers(t *testing.T) {
	t.Parallel()
	const figures = `{"input_tokens":9,"output_tokens":9,"prompt_tokens":9,"completion_tokens":9}`
	for _, body := range []string{
		`{"content":[{"type":"tool_use","input":{"usage":` + figures + `}}]}`,
		`{"content":[{"type":"text","text":"\"usage\":{\"input_tokens\":9}"}]}`,
		`{"metadata":{"usage":` + figures + `},"a":[` + figures + `]}`,
		`{"choices":[{"message":{"usage":` + figures + `}}]}`,
		`{"usage":{"iterations":[` + figures + `]}}`,
		`{"usage":null}`, `{"usage":[]}`, `{"usage":"input_tokens"}`,
		`{"input_tokens":9,"output_tokens":9}`,
	} {
		for _, d := range []*Format{Message, Completion} {
			if got := read(d, false, "", []byte(body)); got.Input || got.Output || got.Tokens != (Tokens{}) {
				t.Errorf("%s: %+v, want no usage", body, got.Tokens)
			}
		}
	}
}
