package usage

import "testing"

func TestRequestTextCountsWhatIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want int64
	}{
		"prompt":        {`{"model":"m","prompt":"hello"}`, 5},
		"prompts":       {`{"prompt":["ab","cd\n"],"suffix":"x"}`, 6},
		"string":        {`{"system":"sys","messages":[{"role":"user","content":"été"}]}`, 8},
		"blocks":        {`{"messages":[{"role":"user","content":[{"type":"text","text":"four"},{"type":"image","source":{"data":"AAAA"}}]}]}`, 4},
		"tool results":  {`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"ab"}]},{"type":"tool_result","content":"cd"}]}]}`, 4},
		"tool use":      {`{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"n","input":{"a":1}}]}]}`, 5},
		"chat's calls":  {`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]}]}`, 3},
		"tools":         {`{"messages":[],"tools":[{"name":"n"}]}`, int64(len(`[{"name":"n"}]`)) - 2},
		"nothing":       {`{"model":"m","metadata":{"text":"no"}}`, 0},
		"not JSON":      {`{"prompt":"abc`, 3},
		"an odd nested": {`{"prompt":[["a"],{"text":"b"}]}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := RequestText([]byte(c.body)); got != c.want {
				t.Errorf("%d bytes of text, want %d", got, c.want)
			}
		})
	}
}
