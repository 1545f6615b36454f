package strictjson

import (
	"bytes"
	encodingjson "encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// seeds are the cases in which parsers of JSON are known to differ.
var seeds = []string{
	`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`,
	`{"model":"m","prompt":["a","b"],"n":2,"stop":null,"stream_options":{"include_usage":true}}`,
	`{"mod\u0065l":"\u006d\n","prompt":"","stop":["\ud83d\ude00","\\\""]}`,
	`{"model":"\ud800","prompt":"\udc00\ud800"}`, `{"model":"\ud83d\ud83d\ude00","prompt":""}`,
	`{"model":"a","model":"b"}`, `{"Model":"a"}`, `{"model":"m","prompt":"p","N":1}`, "{\"\u017feed\":1}",
	`{"model":"m","prompt":"p","n":1e0}`, `{"model":"m","prompt":"p","n":-0}`, `{"n":0}`, `{"n":01}`, `{"n":1.}`,
	`{"seed":9223372036854775807,"model":"m","prompt":"p"}`, `{"seed":9223372036854775808}`, `{"seed":1E400}`,
	`{"model":"m","prompt":"p","grid":[1e400,[[[]]],-1.5e-7]}`, `{"x":[[[[{"a":{}}]]]],"y":{}}`,
	"\uFEFF{}", "{\"x\":\"\xff\"}", "{\"x\":\"\xed\xa0\x80\"}", "{\"x\":\"\x00\"}", "{\"x\":\"\x7f\u2028\"}", "{\"x\":\"\\u0000\"}",
	`{} {}`, `{}x`, " \t\r\n{}\n", "{}\v", `{"x":1,}`, `{"x":[1,]}`, `{,}`, `{"x":nul}`, `{"x":NaN}`, `{'x':1}`, `{"x":1 /**/}`,
	`{"x":"\x41"}`, `{"x":"\u12"}`, `{"x":"`, `{"x`, `{`, ``, `null`, `[]`, `"x"`,
	`{"x":` + nested(MaxDepth-1) + `}`, `{"x":` + nested(MaxDepth) + `}`,
	`{"messages":[null]}`, `{"messages":[{"role":null}]}`, `{"thinking":{"budget_tokens":1,"Budget_Tokens":2}}`,
	`{"metadata":{"user_id":"a"},"metadata":{"user_id":null},"model":"m","max_tokens":1,"messages":[]}`,
	`{"model":"m","prompt":"p","tokens":[1,[2,3],"x",[]],"grid":[[1,2],3]}`, `{"tokens":[[1,"x"]]}`, `{"tokens":[[[1]]]}`,
	`{"model":"m","prompt":"p","tier":"a","tier":null,"parts":[{"type":"text"},"x",{"type":"te\u0078t","source":{"url":1,"url":null}},{"type":"image","source":"x"}]}`,
	`{"model":"m","prompt":"p","parts":{"type":"tool","source":{"url":[{"url":2}]}}}`, `{"parts":[{"Type":"x"}]}`, `{"parts":[{"type":"\ud800"}]}`,
	`{"x":[{"y":1}],"cachedContent":{},"tools":[{"type":null,"x":false},{"z":"\ud800","Type_":1}, {} ]}`, `{"tools":[{"Cached_Content":1}],"Tools":0}`,
	"{\"_cachedContent\u212a\":1,\"c\\u0061ched-content\":[1],\"\":0}",
}

// FuzzScan compares the scan with a second implementation of the same rules, over the tokens
// of jsontext.
func FuzzScan(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, c := range []struct {
			table  *Table
			fields int
		}{{&noRules, 1}, {messagesTable, messagesFields}, {completionsTable, completionsFields}, {closedTable, 1}} {
			fields, want := make([]Value, c.fields), make([]Value, c.fields)
			var notes []Note
			refused := c.table.ScanNotes(body, fields, &notes)
			code, wantNotes := read(body, c.table, want)
			if refused == nil != (code == "") {
				t.Fatalf("scan returned %v, the reader of jsontext %q", refused, code)
			}
			if refused == nil && !slices.Equal(fields, want) {
				t.Fatalf("scan stored %+v, the reader of jsontext %+v", fields, want)
			}
			if refused == nil && !slices.Equal(notes, wantNotes) {
				t.Fatalf("scan noted %+v, the reader of jsontext %+v", notes, wantNotes)
			}
			if refused != nil {
				if (refused.Code == fault.InvalidJSON) != (refused.Param == "") {
					t.Fatalf("%v: a syntax error names a parameter, or another error does not", refused)
				}
				continue
			}
			for _, v := range fields {
				sameValue(t, body, v)
			}
		}
	})
}

// sameValue compares v with the value that encoding/json reads at its position.
func sameValue(t *testing.T, body []byte, v Value) {
	switch v.Kind {
	case String:
		var want string
		if err := encodingjson.Unmarshal(v.Raw(body), &want); err != nil || v.Text(body) != want {
			t.Fatalf("text is %q, want %q (%v)", v.Text(body), want, err)
		}
	case Integer:
		var want int64
		err := encodingjson.Unmarshal(v.Raw(body), &want)
		if n, ok := v.Int(body); ok != (err == nil) || ok && n != want {
			t.Fatalf("integer is %d, %t, want %d (%v)", n, ok, want, err)
		}
	case Bool:
		if want := string(v.Raw(body)) == "true"; v.Bool(body) != want {
			t.Fatalf("boolean is not %t", want)
		}
	}
}

// read is the second implementation. It returns the code of an error, or sets fields and
// returns the notes. If a body has two errors, it may return the code of either one.
func read(body []byte, table *Table, fields []Value) (fault.Code, []Note) {
	// jsontext refuses halves of surrogate pairs. An escape of the same length replaces
	// them, so that all offsets remain valid.
	replaced := replaceHalfPairs(body)
	if !jsontext.Value(replaced).IsValid(jsontext.AllowDuplicateNames(true)) {
		return fault.InvalidJSON, nil
	}
	r := reader{index: -1, body: body, fields: fields, dec: jsontext.NewDecoder(bytes.NewReader(replaced), jsontext.AllowDuplicateNames(true))}
	if r.dec.PeekKind() != jsontext.KindBeginObject {
		return fault.InvalidJSON, nil
	}
	fields[0] = r.value(Rule{Members: table})
	return r.code, r.notes
}

type reader struct {
	body   []byte
	dec    *jsontext.Decoder
	fields []Value
	notes  []Note
	depth  int // open objects
	index  int // the index in an array of the outermost object; -1: not in such an array
	code   fault.Code
}

func (r *reader) value(rule Rule) Value {
	kind := r.dec.PeekKind()
	if kind != jsontext.KindBeginObject && kind != jsontext.KindBeginArray {
		raw, _ := r.dec.ReadValue()
		v := Value{End: int(r.dec.InputOffset()), Start: int(r.dec.InputOffset()) - len(raw)}
		switch kind {
		case jsontext.KindString:
			v.Kind = String
			original := r.body[v.Start:v.End]
			r.refuseIf((rule.Slot != 0 || rule.Note != 0) && !bytes.Equal(original, replaceHalfPairs(original)))
		case jsontext.KindNumber:
			v.Kind = Number
			if !bytes.ContainsAny(raw, ".eE") {
				v.Kind = Integer
			}
			_, err := strconv.ParseFloat(string(raw), 64)
			r.refuseIf(rule.Kinds&Number != 0 && err != nil)
			if rule.Kinds&(Integer|Number) == Integer {
				n, err := strconv.ParseInt(string(raw), 10, 64)
				r.refuseIf(err != nil || rule.Min != 0 && n < rule.Min || rule.Max != 0 && n > rule.Max)
			}
		case jsontext.KindNull:
			v.Kind = Null
		default:
			v.Kind = Bool
		}
		return v
	}

	_, _ = r.dec.ReadToken()
	v := Value{Start: int(r.dec.InputOffset()) - 1}
	r.refuseIf(r.dec.StackDepth() > MaxDepth)
	counts := rule.Members != nil || rule.Slot != 0
	if kind == jsontext.KindBeginArray {
		v.Kind = Array
		counts = counts || rule.Elem != 0
		for r.dec.PeekKind() != jsontext.KindEndArray {
			if r.depth == 1 && !rule.Required { // Required marks an array within an array, see below
				r.index = v.Len
			}
			v.Len++
			elem := r.value(Rule{Kinds: rule.Elem, Elem: rule.Inner, Members: rule.Members, Required: true})
			r.refuseIf(rule.Elem != 0 && elem.Kind&widened(rule.Elem) == 0)
			if rule.Elements != 0 {
				r.fields[rule.Elements].Kind |= elem.Kind
				r.fields[rule.Elements].Len += elem.Len
			}
		}
	} else {
		v.Kind = Object
		r.depth++
		v.Len = r.members(rule.Members, v.Start)
		r.depth--
	}
	_, _ = r.dec.ReadToken()
	v.End = int(r.dec.InputOffset())
	if !counts {
		v.Len = 0
	}
	return v
}

func (r *reader) members(table *Table, start int) (members int) {
	var rules []Rule
	if table != nil {
		for _, rule := range table.rules {
			rules = append(rules, rule.Rule)
		}
		if table.common != nil {
			for _, rule := range table.common.rules {
				rules = append(rules, rule.Rule)
			}
		}
	}
	seen, given := make(map[string]bool), make(map[string]bool)
	for r.dec.PeekKind() != jsontext.KindEndObject {
		at := int(r.dec.InputOffset())
		at += bytes.IndexByte(r.body[at:], '"')
		token, _ := r.dec.ReadToken()
		name := token.String()
		members++
		known := slices.IndexFunc(rules, func(rule Rule) bool { return rule.Name == name })
		if known < 0 {
			known = slices.IndexFunc(rules, func(rule Rule) bool { return rule.AnySpelling && foldName(rule.Name) == foldName(name) })
		}
		if known < 0 {
			r.refuseIf(slices.ContainsFunc(rules, func(rule Rule) bool { return rule.Deciding && strings.EqualFold(rule.Name, name) }))
			v := r.value(Rule{})
			if r.depth == 1 {
				r.index = -1
			}
			if table != nil && table.unknown != nil && v.Kind != Null && string(v.Raw(r.body)) != "false" {
				v.Len = 0
				r.notes = append(r.notes, Note{Name: table.unknown.Note, Object: start, At: at, Index: r.index, Value: v})
			}
			continue
		}
		rule := rules[known]
		r.refuseIf(rule.Deciding && seen[rule.Name])
		seen[rule.Name] = true
		if known < len(table.rules) { // shared rules have no slots
			for _, slot := range table.rules[known].slots {
				r.fields[slot] = Value{}
			}
		}
		if r.depth == 1 {
			r.index = -1
		}
		v := r.value(rule)
		if r.depth == 1 {
			r.index = -1
		}
		if rule.Note != 0 && v.Kind != Null && (v.Kind != String || !slices.Contains(rule.Usual, strings.Trim(string(v.Raw(r.body)), `"`))) {
			r.notes = append(r.notes, Note{Name: rule.Note, Object: start, At: at, Index: r.index, Value: v})
		}
		if v.Kind == Null && rule.Kinds != 0 && rule.Kinds&Null == 0 {
			continue
		}
		given[rule.Name] = true
		r.refuseIf(rule.Kinds != 0 && v.Kind&widened(rule.Kinds) == 0)
		if rule.Slot != 0 {
			r.fields[rule.Slot] = v
		}
	}
	for _, rule := range rules {
		if rule.Required && !given[rule.Name] {
			r.code = fault.MissingParameter
		}
		if rule.Absent != 0 && !given[rule.Name] {
			end := int(r.dec.InputOffset())
			end += bytes.IndexByte(r.body[end:], '}') + 1
			r.notes = append(r.notes, Note{Name: rule.Absent, Object: start, At: start, Index: r.index, Value: Value{Kind: Object, Start: start, End: end}})
		}
	}
	return members
}

// foldName returns a name in lower case without underscores and hyphens.
func foldName(name string) string {
	return strings.NewReplacer("_", "", "-", "", "\u017f", "s").Replace(strings.ToLower(name))
}

func (r *reader) refuseIf(wrong bool) {
	if wrong {
		r.code = fault.InvalidParameter
	}
}

func widened(k Kind) Kind {
	if k&Number != 0 {
		k |= Integer
	}
	return k
}

var escapes = regexp.MustCompile(`(?s)\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.`)

// replaceHalfPairs replaces halves of surrogate pairs by the escape of U+FFFD.
func replaceHalfPairs(body []byte) []byte {
	return escapes.ReplaceAllFunc(body, func(escape []byte) []byte {
		if len(escape) == 6 {
			return []byte(`\uFFFD`)
		}
		return escape
	})
}

// FuzzDecode compares Decode with encoding/json, which is less strict: encoding/json must
// accept each body that Decode accepts, with the same result.
func FuzzDecode(f *testing.F) {
	for _, seed := range append(seeds, decodeSeeds...) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var strict, lax submission
		refused := Decode(body, &strict)

		var tolerant submission
		var ignored []string
		tolerantErr := Decode(body, &tolerant, Ignored(&ignored))
		switch {
		case refused == nil && (tolerantErr != nil || len(ignored) > 0):
			t.Fatalf("accepted without Ignored; with it the error is %v and the list %q", tolerantErr, ignored)
		case tolerantErr == nil && len(ignored) > 0 && refused.Param != ignored[0]:
			t.Fatalf("Ignored listed %q, but without it the error is %v", ignored, refused)
		}
		if refused != nil {
			return
		}
		lenient := encodingjson.NewDecoder(bytes.NewReader(body))
		lenient.DisallowUnknownFields()
		if err := lenient.Decode(&lax); err != nil {
			t.Fatalf("encoding/json refuses: %v", err)
		}
		if !reflect.DeepEqual(strict, lax) {
			t.Fatalf("decoded %+v, encoding/json %+v", strict, lax)
		}
	})
}
