package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestArgumentsFitTheSchema(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, want string }{
		{``, `{}`},
		{`null`, `{}`},
		{`true`, `{}`},
		{`{"type":"string"}`, `{}`},
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `{}`},
		{`{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, `{"a":"example"}`},
		{`{"required":["a"],"properties":{"a":{"type":"string","enum":["x","y"]}}}`, `{"a":"x"}`},
		{`{"required":["a"],"properties":{"a":{"const":{"k": [1]}}}}`, `{"a":{"k":[1]}}`},
		{`{"required":["a"],"properties":{"a":{"type":"string","default":"<d>"}}}`, `{"a":"<d>"}`},
		{`{"required":["a","b","c","d","e"],"properties":{"a":{"type":"integer"},"b":{"type":"number","minimum":2.5},"c":{"type":"boolean"},"d":{"type":"null"},"e":{"type":"array","items":{"type":"string"}}}}`,
			`{"a":1,"b":2.5,"c":true,"d":null,"e":[]}`},
		{`{"required":["a"],"properties":{"a":{"type":"array","minItems":1,"items":{"type":"integer"}}}}`, `{"a":[1]}`},
		{`{"required":["a"],"properties":{"a":{"type":["integer","null"]}}}`, `{"a":1}`},
		{`{"required":["a"],"properties":{"a":{"anyOf":[{"type":"boolean"},{"type":"null"}]}}}`, `{"a":true}`},
		{`{"required":["a"],"properties":{"a":{"type":"string","format":"date"}}}`, `{"a":"2026-01-31"}`},
		{`{"required":["a"],"properties":{"a":{"properties":{"b":{"type":"integer"}},"required":["b"]}}}`, `{"a":{"b":1}}`},
		{`{"required":["a","a"],"properties":{}}`, `{"a":"example"}`},
		{`{"required":["a"],"properties":{"a":{"type":"array","minItems":2,"items":{"type":"integer"}}}}`, `{"a":[1,1]}`},
		{`{"required":["a"],"properties":{"a":{"allOf":[{"type":"integer"}]}}}`, `{"a":1}`},
		{`{"$defs":{"B":{"required":["b"],"properties":{"b":{"enum":["x"]}}}},"required":["a"],"properties":{"a":{"$ref":"#/$defs/B"}}}`, `{"a":{"b":"x"}}`},
		{`{"$ref":"#/definitions/C","definitions":{"C":{"type":"object","required":["c"],"properties":{"c":{"type":"null"}}}}}`, `{"c":null}`},
		{`{"required":["a"],"properties":{"a":{"$ref":"#/$defs/missing"}}}`, `{"a":"example"}`},
	} {
		if got := sampleObject(json.RawMessage(c.schema)); got != c.want {
			t.Errorf("%s: %s, want %s", c.schema, got, c.want)
		}
	}
}

func TestDeepSchemasAreLimited(t *testing.T) {
	t.Parallel()
	const levels = 1000
	schema := strings.Repeat(`{"required":["a"],"properties":{"a":`, levels) + `{}` + strings.Repeat(`}}`, levels)
	got := sampleObject(json.RawMessage(schema))
	if n := strings.Count(got, "a"); n != maxSchemaDepth {
		t.Errorf("%d levels: %s", n, got)
	}
}

// TestRecursiveSchemasEnd generates values for schemas that refer to themselves: the first ends at null,
// the others would grow without an end.
func TestRecursiveSchemasEnd(t *testing.T) {
	t.Parallel()
	got := sampleObject(json.RawMessage(`{"required":["next"],"properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}`))
	if strings.Contains(got, "{}") || strings.Contains(got, "example") || !strings.Contains(got, `{"next":null}`) {
		t.Error(got)
	}
	names := strings.Split(strings.Repeat("x", 50), "")
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprint(i))
	}
	for _, schema := range []string{
		`{"$ref":"#"}`,
		`{"required":["a"],"properties":{"a":{"type":"array","minItems":1000000000,"items":{"$ref":"#"}}}}`,
		`{"required":[` + strings.Join(names, ",") + `],"properties":{` + strings.Join(names, `:{"$ref":"#"},`) + `:{"$ref":"#"}}}`,
	} {
		if got := sampleObject(json.RawMessage(schema)); len(got) > 1<<17 {
			t.Errorf("%s: %d bytes", schema, len(got))
		}
	}
}
