package strictjson

import (
	"strings"
	"testing"
)

// TestScanErrors has every error of a scan with its exact text. It uses the table of
// messages for bodies with messages or max_tokens, and that of completions for all others.
func TestScanErrors(t *testing.T) {
	t.Parallel()
	const p = `{"model":"m","prompt":"p",`
	for _, c := range []struct{ body, want string }{
		// The frame of the body.
		{"", "INVALID_JSON: invalid JSON at byte 0: expected an object, found the end of the body"},
		{" \n", "INVALID_JSON: invalid JSON at byte 2: expected an object, found the end of the body"},
		{"[]", "INVALID_JSON: invalid JSON at byte 0: expected an object, found '['"},
		{"null", "INVALID_JSON: invalid JSON at byte 0: expected an object, found 'n'"},
		{"\uFEFF{}", "INVALID_JSON: invalid JSON at byte 0: a byte order mark"},
		{"\xfe\xff{}", "INVALID_JSON: invalid JSON at byte 0: expected an object, found the byte 0xFE"},
		{"\v{}", `INVALID_JSON: invalid JSON at byte 0: expected an object, found '\v'`},
		{`{"model":"m","prompt":"p"}{}`, "INVALID_JSON: invalid JSON at byte 26: expected the end of the body, found '{'"},
		{"{\"model\":\"m\",\"prompt\":\"p\"} \x00", `INVALID_JSON: invalid JSON at byte 27: expected the end of the body, found '\x00'`},
		{"{", "INVALID_JSON: invalid JSON at byte 1: expected a name in quotes, found the end of the body"},
		{"{model:1}", "INVALID_JSON: invalid JSON at byte 1: expected a name in quotes, found 'm'"},
		{"{,}", "INVALID_JSON: invalid JSON at byte 1: expected a name in quotes, found ','"},
		{`{"model" 1}`, "INVALID_JSON: invalid JSON at byte 9: expected ':', found '1'"},
		{`{"x" 1}`, "INVALID_JSON: invalid JSON at byte 5: expected ':', found '1'"},
		{p + `}`, "INVALID_JSON: invalid JSON at byte 26: expected a name in quotes, found '}'"},
		{p + `"x":1]`, "INVALID_JSON: invalid JSON at byte 31: expected ',' or '}', found ']'"},
		{p + `"x":1 'y'}`, `INVALID_JSON: invalid JSON at byte 32: expected ',' or '}', found '\''`},
		{p + `"n":}`, "INVALID_JSON: invalid JSON at byte 30: expected a value, found '}'"},
		{p + `"n":`, "INVALID_JSON: invalid JSON at byte 30: expected a value, found the end of the body"},
		{p + `"stop":["a",]}`, "INVALID_JSON: invalid JSON at byte 38: expected a value, found ']'"},
		{p + `"stop":["a" "b"]}`, "INVALID_JSON: invalid JSON at byte 38: expected ',' or ']', found '\"'"},
		{p + `"stop":["a"}`, "INVALID_JSON: invalid JSON at byte 37: expected ',' or ']', found '}'"},

		// Skipped values obey the same grammar.
		{`{"x":}`, "INVALID_JSON: invalid JSON at byte 5: expected a value, found '}'"},
		{`{"x":é}`, "INVALID_JSON: invalid JSON at byte 5: expected a value, found 'é'"},
		{`{"x":NaN}`, "INVALID_JSON: invalid JSON at byte 5: expected a value, found 'N'"},
		{`{"x":[1,]}`, "INVALID_JSON: invalid JSON at byte 8: expected a value, found ']'"},
		{`{"x":[1 2]}`, "INVALID_JSON: invalid JSON at byte 8: expected ',' or ']', found '2'"},
		{`{"x":[1}}`, "INVALID_JSON: invalid JSON at byte 7: expected ',' or ']', found '}'"},
		{`{"x":{"y":1]}`, "INVALID_JSON: invalid JSON at byte 11: expected ',' or '}', found ']'"},
		{`{"x":{"y":1,}}`, "INVALID_JSON: invalid JSON at byte 12: expected a name in quotes, found '}'"},
		{`{"x":{"y"}}`, "INVALID_JSON: invalid JSON at byte 9: expected ':', found '}'"},
		{`{"x":{1:1}}`, "INVALID_JSON: invalid JSON at byte 6: expected a name in quotes, found '1'"},
		{`{"x":[`, "INVALID_JSON: invalid JSON at byte 6: expected a value, found the end of the body"},
		{`{"x":tRue}`, "INVALID_JSON: invalid JSON at byte 6: expected true, found 'R'"},
		{`{"x":fals}`, "INVALID_JSON: invalid JSON at byte 9: expected false, found '}'"},
		{`{"x":nul`, "INVALID_JSON: invalid JSON at byte 8: expected null, found the end of the body"},
		{`{"x":truex}`, "INVALID_JSON: invalid JSON at byte 9: expected ',' or '}', found 'x'"},

		// Numbers.
		{`{"x":-}`, "INVALID_JSON: invalid JSON at byte 6: expected a digit, found '}'"},
		{`{"x":+1}`, "INVALID_JSON: invalid JSON at byte 5: expected a value, found '+'"},
		{`{"x":.5}`, "INVALID_JSON: invalid JSON at byte 5: expected a value, found '.'"},
		{`{"x":1.}`, "INVALID_JSON: invalid JSON at byte 7: expected a digit, found '}'"},
		{`{"x":1e}`, "INVALID_JSON: invalid JSON at byte 7: expected a digit, found '}'"},
		{`{"x":1e+}`, "INVALID_JSON: invalid JSON at byte 8: expected a digit, found '}'"},
		{`{"x":01}`, "INVALID_JSON: invalid JSON at byte 6: expected ',' or '}', found '1'"},
		{`{"x":0x1}`, "INVALID_JSON: invalid JSON at byte 6: expected ',' or '}', found 'x'"},
		{`{"n":-}`, "INVALID_JSON: invalid JSON at byte 6: expected a digit, found '}'"},

		// Strings.
		{`{"x":"`, "INVALID_JSON: invalid JSON at byte 6: expected the end of a string, found the end of the body"},
		{`{"x":"\`, "INVALID_JSON: invalid JSON at byte 6: a bad escape in a string"},
		{`{"x":"\"}`, "INVALID_JSON: invalid JSON at byte 9: expected the end of a string, found the end of the body"},
		{`{"x":"\a"}`, "INVALID_JSON: invalid JSON at byte 6: a bad escape in a string"},
		{`{"x":"\n\U0041"}`, "INVALID_JSON: invalid JSON at byte 8: a bad escape in a string"},
		{`{"x":"\u00g1"}`, "INVALID_JSON: invalid JSON at byte 6: a bad escape in a string"},
		{`{"x":"\u00`, "INVALID_JSON: invalid JSON at byte 6: a bad escape in a string"},
		{"{\"x\":\"a\nb\"}", "INVALID_JSON: invalid JSON at byte 7: a bare control character U+000A in a string"},
		{"{\"x\":\"é\x00\"}", "INVALID_JSON: invalid JSON at byte 8: a bare control character U+0000 in a string"},
		{"{\"x\":\"é\xff\"}", "INVALID_JSON: invalid JSON at byte 8: a string is not valid UTF-8"},
		{"{\"x\":\"\xed\xa0\x80\"}", "INVALID_JSON: invalid JSON at byte 6: a string is not valid UTF-8"},
		{"{\"x\":\"\xc0\xaf\"}", "INVALID_JSON: invalid JSON at byte 6: a string is not valid UTF-8"},
		{"{\"x\":\"ab\xe4\xb8\"}", "INVALID_JSON: invalid JSON at byte 8: a string is not valid UTF-8"},
		{"{\"mod\xffel\":1}", "INVALID_JSON: invalid JSON at byte 5: a string is not valid UTF-8"},

		// Depth, with and without rules.
		{`{"x":` + nested(MaxDepth) + `}`, "INVALID_JSON: invalid JSON at byte 68: nested deeper than 64 levels"},
		{`{"x":` + strings.Repeat(`{"y":`, MaxDepth), "INVALID_JSON: invalid JSON at byte 320: nested deeper than 64 levels"},
		{`{"grid":` + nested(MaxDepth) + `}`, "INVALID_JSON: invalid JSON at byte 71: nested deeper than 64 levels"},

		// Missing members: the first one in the order of the table.
		{"{}", "MISSING_PARAMETER (model): `model` is required"},
		{`{"model":"m"}`, "MISSING_PARAMETER (prompt): `prompt` is required"},
		{`{"model":null,"prompt":"p"}`, "MISSING_PARAMETER (model): `model` is required"},
		{`{"model":nul`, "INVALID_JSON: invalid JSON at byte 12: expected null, found the end of the body"},
		{`{"messages":[{"role":"user","content":""},{"content":""}]}`, "MISSING_PARAMETER (messages[1].role): `messages[1].role` is required"},
		{`{"messages":[{"role":"user","content":null}]}`, "MISSING_PARAMETER (messages[0].content): `messages[0].content` is required"},
		{`{"messages":null}`, "MISSING_PARAMETER (messages): `messages` is required"},
		{`{"messages":[],"stream":null}`, "MISSING_PARAMETER (model): `model` is required"},
		{`{"messages":[],"model":"m"}`, "MISSING_PARAMETER (max_tokens): `max_tokens` is required"},

		// Kinds.
		{`{"model":5}`, "INVALID_PARAMETER (model): `model` must be a string, not a number"},
		{`{"model":["m"]}`, "INVALID_PARAMETER (model): `model` must be a string, not an array"},
		{`{"max_tokens":"5"}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer, not a string"},
		{`{"max_tokens":5.0}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer, not a number with a fraction or an exponent"},
		{`{"max_tokens":1e2}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer, not a number with a fraction or an exponent"},
		{`{"max_tokens":true}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer, not a boolean"},
		{`{"messages":{}}`, "INVALID_PARAMETER (messages): `messages` must be an array of objects, not an object"},
		{`{"messages":["hi"]}`, "INVALID_PARAMETER (messages[0]): `messages[0]` must be an object, not a string"},
		{`{"messages":[{"role":"user","content":""},null]}`, "INVALID_PARAMETER (messages[1]): `messages[1]` must be an object, not null"},
		{`{"messages":[{"role":false}]}`, "INVALID_PARAMETER (messages[0].role): `messages[0].role` must be a string, not a boolean"},
		{`{"messages":[{"content":{}}]}`, "INVALID_PARAMETER (messages[0].content): `messages[0].content` must be a string or an array of objects, not an object"},
		{`{"messages":[{"content":[{},[]]}]}`, "INVALID_PARAMETER (messages[0].content[1]): `messages[0].content[1]` must be an object, not an array"},
		{`{"messages":[],"tools":[{"input_schema":[]}]}`, "INVALID_PARAMETER (tools[0].input_schema): `tools[0].input_schema` must be an object, not an array"},
		{`{"messages":[],"thinking":{"type":1}}`, "INVALID_PARAMETER (thinking.type): `thinking.type` must be a string, not a number"},
		{`{"messages":[],"temperature":"hot"}`, "INVALID_PARAMETER (temperature): `temperature` must be a number, not a string"},
		{p + `"stop":["a",1]}`, "INVALID_PARAMETER (stop[1]): `stop[1]` must be a string, not a number"},
		{p + `"stop":["a",null]}`, "INVALID_PARAMETER (stop[1]): `stop[1]` must be a string, not null"},
		{p + `"nullable":0}`, "INVALID_PARAMETER (nullable): `nullable` must be a boolean or null, not a number"},
		{p + `"grid":[1,[],{}]}`, "INVALID_PARAMETER (grid[2]): `grid[2]` must be a number or an array, not an object"},

		// Ranges.
		{`{"max_tokens":0}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer of at least 1"},
		{`{"max_tokens":-0}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer of at least 1"},
		{`{"max_tokens":9223372036854775808}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must be an integer of at least 1"},
		{`{"n":129}`, "INVALID_PARAMETER (n): `n` must be an integer from 1 to 128"},
		{`{"n":18446744073709551617}`, "INVALID_PARAMETER (n): `n` must be an integer from 1 to 128"},
		{`{"seed":-9223372036854775809}`, "INVALID_PARAMETER (seed): `seed` must be an integer of 64 bits"},
		{`{"messages":[],"temperature":1e309}`, "INVALID_PARAMETER (temperature): `temperature` is too large a number"},
		{`{"messages":[],"temperature":-1` + strings.Repeat("0", 310) + `}`, "INVALID_PARAMETER (temperature): `temperature` is too large a number"},

		// Repeated members and case variants of Deciding ones.
		{`{"model":"a","model":"b"}`, "INVALID_PARAMETER (model): `model` is given twice"},
		{`{"model":"a","mod\u0065l":"a"}`, "INVALID_PARAMETER (model): `model` is given twice"},
		{`{"n":null,"n":1}`, "INVALID_PARAMETER (n): `n` is given twice"},
		{`{"Model":"a"}`, "INVALID_PARAMETER (model): `model` must have exactly this spelling, not \"Model\""},
		{`{"\u004dODEL":"a"}`, "INVALID_PARAMETER (model): `model` must have exactly this spelling, not \"MODEL\""},
		{"{\"max_to\u212aens\":1}", "INVALID_PARAMETER (max_tokens): `max_tokens` must have exactly this spelling, not \"max_to\u212aens\""},
		{`{"max_token\u017f":1}`, "INVALID_PARAMETER (max_tokens): `max_tokens` must have exactly this spelling, not \"max_tokenſ\""},
		{`{"messages":[],"thinking":{"Budget_tokens":1}}`, "INVALID_PARAMETER (thinking.budget_tokens): `thinking.budget_tokens` must have exactly this spelling, not \"Budget_tokens\""},
		{`{"messages":[],"thinking":{},"thinking":{}}`, "INVALID_PARAMETER (thinking): `thinking` is given twice"},
		{`{"messages":[],"Thinking":{}}`, "INVALID_PARAMETER (thinking): `thinking` must have exactly this spelling, not \"Thinking\""},
		{p + `"stream_options":{"include_usage":true,"include_usage":false}}`, "INVALID_PARAMETER (stream_options.include_usage): `stream_options.include_usage` is given twice"},

		// Text that different parsers read differently.
		{`{"model":"a\ud800"}`, "INVALID_PARAMETER (model): `model` contains half of a surrogate pair"},
		{`{"model":"\udc00\ud800"}`, "INVALID_PARAMETER (model): `model` contains half of a surrogate pair"},
		{`{"model":"\ud83d\u0041"}`, "INVALID_PARAMETER (model): `model` contains half of a surrogate pair"},
	} {
		table, size := completionsTable, int(completionsFields)
		if strings.Contains(c.body, `"messages"`) || strings.Contains(c.body, "max_to") {
			table, size = messagesTable, messagesFields
		}
		f := table.Scan([]byte(c.body), make([]Value, size))
		if f == nil {
			t.Errorf("%s\n\tpasses, want %s", c.body, c.want)
		} else if f.Error() != c.want {
			t.Errorf("%s\n\t is %s\n\twant %s", c.body, f, c.want)
		}
	}
}
