package strictjson

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestScanStoresTheMembersOfItsTable(t *testing.T) {
	t.Parallel()
	body := []byte(" {\"mod\\u0065l\" : \"claude \\\"3\\\" \\ud83d\\ude00\",\n\"max_tokens\":7, \"max_tokens\\u0020\": 5,\t" +
		`"other":{"model":[1,{"max_tokens":null}]},"stream":true,"system":[{"a":[]},{}],` +
		`"thinking":{"budget_tokens":9223372036854775807},"metadata":{"user_id":null},` +
		`"max_tokens_":[],"messages":[{"role":"user","content":"\ud800"},{"role":"user","content":[{}]}]} `)

	var fields [messagesFields]Value
	if f := messagesTable.Scan(body, fields[:]); f != nil {
		t.Fatal(f)
	}
	if got, want := fields[slotModel].Text(body), `claude "3" 😀`; got != want {
		t.Errorf("model is %q, want %q", got, want)
	}
	if n, ok := fields[slotMaxTokens].Int(body); n != 7 || !ok {
		t.Errorf("max_tokens is %d, %t, want 7", n, ok)
	}
	if n, ok := fields[slotBudget].Int(body); n != 1<<63-1 || !ok {
		t.Errorf("thinking.budget_tokens is %d, %t", n, ok)
	}
	if !fields[slotStream].Bool(body) {
		t.Error("stream is not true")
	}
	if v := fields[slotSystem]; v.Kind != Array || v.Len != 2 || string(v.Raw(body)) != `[{"a":[]},{}]` {
		t.Errorf("system is %+v, %s", v, v.Raw(body))
	}
	if v := fields[slotUser]; v != (Value{}) {
		t.Errorf("a null was stored as %+v", v)
	}
	if v := fields[0]; v.Kind != Object || v.Start != 1 || v.End != len(body)-1 || v.Len != 10 {
		t.Errorf("the body is %+v", v)
	}
}

func TestValueMethodsCheckTheKind(t *testing.T) {
	t.Parallel()
	body := []byte(`{"model":"true","prompt":["5","6"],"n":5,"stop":"x"}`)
	fields := make([]Value, completionsFields)
	if f := completionsTable.Scan(body, fields); f != nil {
		t.Fatal(f)
	}
	if fields[slotCModel].Bool(body) || fields[slotN].Bool(body) || (Value{}).Bool(body) {
		t.Error("Bool returned true for a value that is not a boolean")
	}
	if _, ok := fields[slotStop].Int(body); ok {
		t.Error("Int returned true for a string")
	}
	if fields[slotN].Text(body) != "" || (Value{}).Text(body) != "" {
		t.Error("Text returned a text for a value that is not a string")
	}
	if fields[slotPrompt].Len != 2 {
		t.Errorf("prompt has %d elements, want 2", fields[slotPrompt].Len)
	}
}

func TestScanAcceptsUnusualValidBodies(t *testing.T) {
	t.Parallel()
	const head = `{"model":"m","prompt":"p",`
	for _, rest := range []string{
		`"n":1}`, `"n":128}`, `"n":null}`, `"seed":-9223372036854775808}`, `"seed":-0}`,
		`"stop":[]}`, `"stop":["a","b"]}`, `"stop":null}`, `"nullable":null}`,
		`"grid":[1,2.5,[null],1e308,-1.5E-400]}`,
		`"stream_options":{}}`, `"stream_options":{"x":1,"x":2}}`,
		`"other":1e999999,"other":2,"Other":3}`,             // there is no rule for other
		`"stop":"a","stop":"b","STOP":5}`,                   // stop is not Deciding
		`"a\ud800":"\udc00\ud800","\uD83D\uDE00":"\uDE00"}`, // as Python clients send them
		`"":0," model":0,"model ":0,"model\u0000":0}`,
		`"\u006e":3}`,
		`"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx":0}`,
		`"` + strings.Repeat(`\u006d`, 100) + `":0}`,
		`"deep":` + nested(MaxDepth-1) + `}`,
		`"grid":` + nested(MaxDepth-1) + `}`,
	} {
		fields := make([]Value, completionsFields)
		if f := completionsTable.Scan([]byte(head+rest), fields); f != nil {
			t.Errorf("%s\n\t%v", rest, f)
		}
	}
}

func TestScanStoresTheLastOfRepeatedMembers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, want string }{
		{`"metadata":{"user_id":"a"},"metadata":{"user_id":"b"}`, "b"},
		{`"metadata":{"user_id":"a","user_id":"b"}`, "b"},
		{`"metadata":{"user_id":"a","user_id":null}`, ""},
		{`"metadata":{"user_id":"a"},"metadata":{}`, ""},
		{`"metadata":{"user_id":"a"},"metadata":null`, ""},
	} {
		body := []byte(`{"model":"m","max_tokens":1,"messages":[],` + c.body + `}`)
		fields := make([]Value, messagesFields)
		if f := messagesTable.Scan(body, fields); f != nil {
			t.Errorf("%s: %v", c.body, f)
		} else if got := fields[slotUser].Text(body); got != c.want {
			t.Errorf("%s: user_id is %q, want %q", c.body, got, c.want)
		}
	}
}

func TestScanClearsTheFieldsOfAbsentMembers(t *testing.T) {
	t.Parallel()
	fields := make([]Value, completionsFields)
	for _, body := range []string{`{"model":"m","prompt":"p","n":2}`, `{"model":"m","prompt":"p"}`} {
		if f := completionsTable.Scan([]byte(body), fields); f != nil {
			t.Fatal(f)
		}
	}
	if fields[slotN].Kind != 0 {
		t.Errorf("n of the first body was not cleared: %+v", fields[slotN])
	}
}

// TestScanAllocatesNothing is not parallel: it counts allocations of the process.
func TestScanAllocatesNothing(t *testing.T) {
	cases := append(bodies[:len(bodies):len(bodies)], struct {
		name string
		body []byte
	}{"escaped names", []byte(`{"mod\u0065l":"\u0061","max_token\u0073":1,"m\u0065ssages":[],"temperature":1e3}`)})
	for _, c := range cases {
		var fields [messagesFields]Value
		var refused *fault.Fault
		allocs := testing.AllocsPerRun(3, func() { refused = messagesTable.Scan(c.body, fields[:]) })
		if refused != nil {
			t.Errorf("%s: %v", c.name, refused)
		}
		if allocs != 0 {
			t.Errorf("%s: %v allocations", c.name, allocs)
		}
	}
}

// nested is an array of depth brackets.
func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}
