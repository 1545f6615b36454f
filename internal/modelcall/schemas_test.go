package modelcall

import "testing"

// usualBodies are typical calls, with tools and a history.
var usualBodies = map[string]string{
	"messages": `{"model":"m","max_tokens":5,"stream":true,"temperature":1,"top_p":0.9,"top_k":5,"stop_sequences":["x"],"metadata":{"user_id":"u"},` +
		`"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"low"},` +
		`"tools":[{"name":"t","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},{"type":"custom","name":"c","strict":true}],"tool_choice":{"type":"auto"},` +
		`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"s"},{"type":"tool_use","id":"1","name":"t","input":{"file_id":"x"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}],"is_error":false}]}]}`,
	"completions": `{"model":"m","prompt":["a","b"],"max_tokens":5,"n":2,"best_of":3,"echo":true,"logprobs":1,"seed":1,"stop":"x","suffix":"y","user":"u","top_k":5,"min_p":0.1}`,
	"chat": `{"model":"m","max_completion_tokens":5,"stream":true,"stream_options":{"include_usage":true},"temperature":1,"frequency_penalty":0,"presence_penalty":0,"seed":1,"user":"u",` +
		`"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto","parallel_tool_calls":true,"store":false,"metadata":{"a":"b"},` +
		`"messages":[{"role":"system","content":"s"},{"role":"user","name":"n","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"1","content":"x"}]}`,
}

// The test is not parallel, because it counts the allocations of the process.
func TestAUsualBodyIsScannedWithoutAllocation(t *testing.T) {
	for name, schema := range map[string]*Schema{"messages": Messages, "count_tokens": CountTokens, "completions": Completions, "chat": Chat} {
		body := []byte(usualBodies[name])
		if schema == CountTokens {
			body = []byte(usualBodies["messages"])
		}
		var q Request
		if n := testing.AllocsPerRun(10, func() {
			if f := schema.members.ScanNotes(body, q.values[:], &q.notes); f != nil {
				t.Fatal(name, f)
			}
		}); n != 0 || len(q.notes) != 0 {
			t.Errorf("%s: %v allocations, noted %+v", name, n, q.notes)
		}
	}
}
