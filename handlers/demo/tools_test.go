package demo

import (
	"encoding/json"
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
	} {
		if got := (&tool{schema: json.RawMessage(c.schema)}).arguments(); got != c.want {
			t.Errorf("%s: %s, want %s", c.schema, got, c.want)
		}
	}
}

func TestDeepSchemasAreLimited(t *testing.T) {
	t.Parallel()
	const levels = 1000
	schema := strings.Repeat(`{"required":["a"],"properties":{"a":`, levels) + `{}` + strings.Repeat(`}}`, levels)
	got := (&tool{schema: json.RawMessage(schema)}).arguments()
	if n := strings.Count(got, "a"); n != maxSchemaDepth {
		t.Errorf("%d levels: %s", n, got)
	}
}
