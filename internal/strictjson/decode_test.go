package strictjson

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// submission has a field of each kind that console bodies have.
type submission struct {
	Model    string            `json:"model"`
	PlanID   int64             `json:"plan_id,omitzero"`
	Small    *uint8            `json:"small"`
	Ratio    float64           `json:"ratio"`
	Audio    *bool             `json:"audio"`
	Tags     []string          `json:"tags"`
	Inputs   []input           `json:"inputs"`
	Output   *output           `json:"output"`
	Labels   map[string]string `json:"labels"`
	ExtInfo  Raw               `json:"ext_info"`
	Any      any               `json:"any"`
	Amount   amount            `json:"amount"`
	Internal string            `json:"-"`
	paging
}

type input struct {
	URL string `json:"url"`
}

type output struct {
	Duration int `json:"duration"`
}

type paging struct {
	Page int `json:"p"`
}

// amount is a type that decodes itself.
type amount string

func (a *amount) UnmarshalText(text []byte) error {
	if strings.HasPrefix(string(text), "-") {
		return fault.New(fault.InvalidParameter, "must be greater than 0")
	}
	*a = amount(text)
	return nil
}

var decodeSeeds = []string{
	`{"model":"m","plan_id":3,"small":255,"ratio":1e3,"audio":false,"tags":["a"],"inputs":[{"url":"u"}],"output":{"duration":5},"labels":{"a":"b"},"ext_info":{"x":[null]},"any":[1],"amount":"9.90","p":2}`,
	`{"Model":"m"}`, `{"plan_id":5.0}`, `{"small":256}`, `{"ratio":1e400}`, `{"tags":[null]}`, `{"inputs":[{"url":1}]}`,
	`{"output":{"x":1},"y":2}`, `{"labels":{"a":null}}`, `{"ext_info":null}`, `{"amount":"-1"}`, `{"ext_info":{"a":1,"a":2}}`, `{"-":1}`,
}

func TestDecodeFillsTheFieldsOfAStruct(t *testing.T) {
	t.Parallel()
	var got submission
	if f := Decode([]byte(decodeSeeds[0]), &got); f != nil {
		t.Fatal(f)
	}
	small, audio := uint8(255), false
	want := submission{
		Model: "m", PlanID: 3, Small: &small, Ratio: 1000, Audio: &audio, Tags: []string{"a"},
		Inputs: []input{{"u"}}, Output: &output{5}, Labels: map[string]string{"a": "b"},
		ExtInfo: Raw(`{"x":[null]}`), Any: []any{1.0}, Amount: "9.90", paging: paging{2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

func TestDecodeTreatsNullAsAbsent(t *testing.T) {
	t.Parallel()
	var got submission
	body := `{"model":null,"plan_id":null,"small":null,"audio":null,"tags":null,"inputs":null,"output":null,"labels":null,"any":[null],"amount":null}`
	if f := Decode([]byte(body), &got); f != nil {
		t.Fatal(f)
	}
	if want := (submission{Any: []any{nil}}); !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

func TestDecodeListsIgnoredMembers(t *testing.T) {
	t.Parallel()
	body := `{"x":{"inner":1},"model":"m","output":{"duration":1,"count":2},"inputs":[{"url":"u"},{"0":0,"URL":0}],` +
		`"labels":{"free":"y"},"ext_info":{"free":1},"any":{"free":1},"a b":1,"Internal":"z","` + strings.Repeat("é", 40) + `":1,"Model":1}`
	var got submission
	ignored := []string{"from before"}
	if f := Decode([]byte(body), &got, Ignored(&ignored)); f != nil {
		t.Fatal(f)
	}
	want := []string{"from before", "x", "output.count", "inputs[1].0", "inputs[1].URL", `["a b"]`, "Internal", `["` + strings.Repeat("é", 32) + `…"]`, "Model"}
	if !reflect.DeepEqual(ignored, want) {
		t.Errorf("ignored %q\nwant    %q", ignored, want)
	}
	if got.Model != "m" || got.Inputs[1].URL != "" || got.Internal != "" {
		t.Errorf("an ignored member had an effect: %+v", got)
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, want string }{
		// Errors of the grammar, which are those of a scan.
		{``, "INVALID_JSON: invalid JSON at byte 0: expected an object, found the end of the body"},
		{`null`, "INVALID_JSON: invalid JSON at byte 0: expected an object, found 'n'"},
		{`[]`, "INVALID_JSON: invalid JSON at byte 0: expected an object, found '['"},
		{"\uFEFF{}", "INVALID_JSON: invalid JSON at byte 0: a byte order mark"},
		{`{}{}`, "INVALID_JSON: invalid JSON at byte 2: expected the end of the body, found '{'"},
		{"{\"model\":\"\xff\"}", "INVALID_JSON: invalid JSON at byte 10: a string is not valid UTF-8"},
		{`{"any":` + nested(MaxDepth) + `}`, "INVALID_JSON: invalid JSON at byte 70: nested deeper than 64 levels"},
		{`{"model":"\ud800"}`, "INVALID_JSON: invalid JSON at byte 10: half of a surrogate pair in a string"},
		{`{"x":[{"y":"\udc00"}]}`, "INVALID_JSON: invalid JSON at byte 12: half of a surrogate pair in a string"},

		// Names.
		{`{"x":1}`, "INVALID_PARAMETER (x): `x` is not a parameter"},
		{`{"Model":"m"}`, "INVALID_PARAMETER (Model): `Model` is not a parameter"},
		{`{"output":{"x":1}}`, "INVALID_PARAMETER (output.x): `output.x` is not a parameter"},
		{`{"inputs":[{},{"x":1}]}`, "INVALID_PARAMETER (inputs[1].x): `inputs[1].x` is not a parameter"},
		{`{"model":"a","model":"b"}`, "INVALID_PARAMETER (model): `model` is given twice"},
		{`{"model":"a","mod\u0065l":"b"}`, "INVALID_PARAMETER (model): `model` is given twice"},
		{`{"x":1,"x":1}`, "INVALID_PARAMETER (x): `x` is given twice"},
		{`{"x":[0,{"a":1,"a":1}]}`, "INVALID_PARAMETER (x[1].a): `x[1].a` is given twice"},
		{`{"ext_info":{"1":{"a/b":1,"a/b":1}}}`, "INVALID_PARAMETER (ext_info.1[\"a/b\"]): `ext_info.1[\"a/b\"]` is given twice"},
		{`{"labels":{"a":"1","a":"2"}}`, "INVALID_PARAMETER (labels.a): `labels.a` is given twice"},
		{`{"inputs":[{"url":"a"},{"url":"b","url":"c"}]}`, "INVALID_PARAMETER (inputs[1].url): `inputs[1].url` is given twice"},

		// Kinds.
		{`{"model":5}`, "INVALID_PARAMETER (model): `model` must be a string, not a number"},
		{`{"model":{}}`, "INVALID_PARAMETER (model): `model` must be a string, not an object"},
		{`{"plan_id":"5"}`, "INVALID_PARAMETER (plan_id): `plan_id` must be an integer, not a string"},
		{`{"plan_id":5.0}`, "INVALID_PARAMETER (plan_id): `plan_id` must be an integer, not a number with a fraction or an exponent"},
		{`{"plan_id":1e2}`, "INVALID_PARAMETER (plan_id): `plan_id` must be an integer, not a number with a fraction or an exponent"},
		{`{"small":-1}`, "INVALID_PARAMETER (small): `small` is out of range"},
		{`{"small":true}`, "INVALID_PARAMETER (small): `small` must be an integer, not a boolean"},
		{`{"ratio":"1"}`, "INVALID_PARAMETER (ratio): `ratio` must be a number, not a string"},
		{`{"audio":"enabled"}`, "INVALID_PARAMETER (audio): `audio` must be a boolean, not a string"},
		{`{"tags":"a"}`, "INVALID_PARAMETER (tags): `tags` must be an array, not a string"},
		{`{"tags":["a",[]]}`, "INVALID_PARAMETER (tags[1]): `tags[1]` must be a string, not an array"},
		{`{"tags":["a",null]}`, "INVALID_PARAMETER (tags[1]): `tags[1]` must be a string, not null"},
		{`{"inputs":{}}`, "INVALID_PARAMETER (inputs): `inputs` must be an array, not an object"},
		{`{"inputs":[null]}`, "INVALID_PARAMETER (inputs[0]): `inputs[0]` must be an object, not null"},
		{`{"inputs":["u"]}`, "INVALID_PARAMETER (inputs[0]): `inputs[0]` must be an object, not a string"},
		{`{"inputs":[{"url":1}]}`, "INVALID_PARAMETER (inputs[0].url): `inputs[0].url` must be a string, not a number"},
		{`{"output":[]}`, "INVALID_PARAMETER (output): `output` must be an object, not an array"},
		{`{"labels":{"a":1}}`, "INVALID_PARAMETER (labels.a): `labels.a` must be a string, not a number"},
		{`{"p":"2"}`, "INVALID_PARAMETER (p): `p` must be an integer, not a string"},

		// Ranges, and types that decode themselves.
		{`{"plan_id":9223372036854775808}`, "INVALID_PARAMETER (plan_id): `plan_id` is out of range"},
		{`{"small":256}`, "INVALID_PARAMETER (small): `small` is out of range"},
		{`{"ratio":1e400}`, "INVALID_PARAMETER (ratio): `ratio` is out of range"},
		{`{"any":1e400}`, "INVALID_PARAMETER (any): `any` is out of range"},
		{`{"amount":9.90}`, "INVALID_PARAMETER (amount): `amount` must be a string, not a number"},
		{`{"amount":"-1"}`, "INVALID_PARAMETER (amount): `amount` must be greater than 0"},
	} {
		var into submission
		f := Decode([]byte(c.body), &into)
		if f == nil {
			t.Errorf("%s\n\tpasses, want %s", c.body, c.want)
		} else if f.Error() != c.want {
			t.Errorf("%s\n\t is %s\n\twant %s", c.body, f, c.want)
		}
	}
}

func TestMaxMembersCountsMembersAtAllDepths(t *testing.T) {
	t.Parallel()
	const body = `{"model":"a:b\\\":\\","labels":{"c\":d":"e"},"ext_info":{"x":[{"y":":"},{"y":1}]}}` // seven
	for limit, want := range map[int]string{
		0: "", 6: "INVALID_JSON: the body has more than 6 members", 7: "", 1: "INVALID_JSON: the body has more than 1 members",
	} {
		var into submission
		var got string
		if f := Decode([]byte(body), &into, MaxMembers(limit)); f != nil {
			got = f.Error()
		}
		if got != want {
			t.Errorf("with a limit of %d members the error is %q, want %q", limit, got, want)
		}
	}
}

func TestDecodeIgnoresMembersWithoutAList(t *testing.T) {
	t.Parallel()
	var into submission
	if f := Decode([]byte(`{"model":"m","x":1,"output":{"y":2}}`), &into, Ignored(nil)); f != nil || into.Model != "m" {
		t.Errorf("the error is %v and the result %+v", f, into)
	}
	if f := Decode([]byte(`{"tags":["a",null],"x":1}`), &into, Ignored(nil)); f == nil || f.Param != "tags[1]" {
		t.Errorf("the error for a null in the tags is %v", f)
	}
}
