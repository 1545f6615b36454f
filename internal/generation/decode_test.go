package generation_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

func TestDecodeVideoReadsAllFields(t *testing.T) {
	t.Parallel()
	got, ignored, refused := generation.DecodeVideo([]byte(`{
		"model":"video-c-q2","prompt":"p","negative_prompt":"n","enhance_prompt":"enabled","generation_mode":"g",
		"inputs":[{"url":"u","category":"image","reference_type":"r","object_id":"o","voice_id":"v","keep_original_sound":"disabled","usage":"firstFrame","text":"t"}],
		"subject_inputs":[{"url":"u","id":"i","name":"n"}],
		"output":{"duration":5,"resolution":"1080p","aspect_ratio":"4:3","audio_generation":"enabled","audio":false,"enhance_switch":"disabled",
			"frame_interpolate":"enabled","media_name":"m","class_id":7},
		"scene_type":"s","input_region":"mainland","session_id":"i","session_context":"c","ext_info":{"a": 1.0}}`))
	want := generation.Request{
		Kind: catalog.Video, Model: "video-c-q2", Prompt: "p", NegativePrompt: "n", EnhancePrompt: generation.Enabled, GenerationMode: "g",
		Inputs: []generation.Input{{
			URL: "u", Category: "image", ReferenceType: "r", ObjectID: "o", VoiceID: "v",
			KeepOriginalSound: generation.Disabled, Usage: "firstFrame", Text: "t",
		}},
		Subjects: []generation.Subject{{URL: "u", ID: "i", Name: "n"}},
		Output: generation.Output{
			Duration: new(5 * catalog.Second), Resolution: "1080p", AspectRatio: "4:3", AudioGeneration: generation.Enabled, Audio: new(false),
			EnhanceSwitch: generation.Disabled, FrameInterpolate: generation.Enabled, MediaName: "m", ClassID: 7,
		},
		SceneType: "s", InputRegion: "mainland", SessionID: "i", SessionContext: "c", ExtInfo: json.RawMessage(`{"a": 1.0}`),
	}
	if refused != nil || len(ignored) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("was read as\n%+v, %v, %v, want\n%+v", got, ignored, refused, want)
	}
}

func TestDecodeImageReadsAllFields(t *testing.T) {
	t.Parallel()
	got, ignored, refused := generation.DecodeImage([]byte(`{
		"model":"image-a-1","prompt":"p","negative_prompt":"n","enhance_prompt":"disabled","inputs":[{"url":"u","text":"t","reference_type":"mask"}],
		"output":{"resolution":"2K","aspect_ratio":"1:1","media_name":"m","class_id":7,"count":9,"format":"png"},
		"scene_type":"s","input_region":"oversea","session_id":"i","session_context":"c","ext_info":{},"seed":-1}`))
	want := generation.Request{
		Kind: catalog.Image, Model: "image-a-1", Prompt: "p", NegativePrompt: "n", EnhancePrompt: generation.Disabled,
		Inputs:    []generation.Input{{URL: "u", ReferenceType: "mask", Text: "t"}},
		Output:    generation.Output{Resolution: "2K", AspectRatio: "1:1", MediaName: "m", ClassID: 7, Count: new(9), Format: "png"},
		SceneType: "s", InputRegion: "oversea", SessionID: "i", SessionContext: "c", ExtInfo: json.RawMessage(`{}`), Seed: new(int64(-1)),
	}
	if refused != nil || len(ignored) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("was read as\n%+v, %v, %v, want\n%+v", got, ignored, refused, want)
	}
}

func TestUnknownMembersAreReportedAsIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ model, members, want string }{
		{"video-a-1", `"x":1,"Prompt":"q","output":{"count":2,"format":"png","Duration":99,"duration":10},"inputs":[{"url":"u","weight":1}],"seed":3,"n":2`, "x Prompt output.count output.format output.Duration inputs[0].weight seed n"},
		{"image-a-1", `"generation_mode":"g","subject_inputs":[{}],"output":{"duration":"x","audio":1,"frame_interpolate":0},"inputs":[{"url":"u","usage":"firstFrame","category":3}]`, "generation_mode subject_inputs output.duration output.audio output.frame_interpolate inputs[0].usage inputs[0].category"},
		{"video-a-1", `"a b":{"deep":[{}]}`, `["a b"]`},
		{"video-a-1", `"ext_info":{"any":1,"thing":{}}`, ""},
	} {
		decode := generation.DecodeVideo
		if strings.HasPrefix(c.model, "image") {
			decode = generation.DecodeImage
		}
		_, ignored, refused := decode([]byte(`{"model":"` + c.model + `","prompt":"p",` + c.members + `}`))
		if refused != nil || strings.Join(ignored, " ") != c.want {
			t.Errorf("%s ignored %q, %v, want %q", c.members, ignored, refused, c.want)
		}
	}
	var many strings.Builder
	for n := range 300 {
		fmt.Fprintf(&many, `,"x%d":0`, n)
	}
	_, ignored, refused := generation.DecodeVideo([]byte(`{"model":"m","prompt":"p"` + many.String() + `}`))
	if refused != nil || len(ignored) != 100 || ignored[99] != "x99" {
		t.Errorf("%d of 300 ignored members are reported, %v", len(ignored), refused)
	}
}

func TestInvalidBodiesAreRefused(t *testing.T) {
	t.Parallel()
	both := []func([]byte) (generation.Request, []string, *fault.Fault){generation.DecodeVideo, generation.DecodeImage}
	for name, c := range map[string]struct {
		body  string
		code  fault.Code
		param string
	}{
		"nothing":                         {``, fault.InvalidJSON, ""},
		"two values":                      {`{"model":"m","prompt":"p"} {}`, fault.InvalidJSON, ""},
		"a list":                          {`[]`, fault.InvalidJSON, ""},
		"a byte order mark":               {"\uFEFF{}", fault.InvalidJSON, ""},
		"broken UTF-8":                    {"{\"model\":\"\xff\",\"prompt\":\"p\"}", fault.InvalidJSON, ""},
		"too deep":                        {`{"model":"m","prompt":"p","ext_info":` + strings.Repeat(`{"a":`, 64) + `1` + strings.Repeat(`}`, 64) + `}`, fault.InvalidJSON, ""},
		"no model":                        {`{"prompt":"p"}`, fault.MissingParameter, "model"},
		"a null for the model":            {`{"model":null,"prompt":"p"}`, fault.MissingParameter, "model"},
		"no prompt":                       {`{"model":"m"}`, fault.MissingParameter, "prompt"},
		"a model twice":                   {`{"model":"m","prompt":"p","model":"m"}`, fault.InvalidParameter, "model"},
		"a model twice, escaped":          {`{"model":"m","prompt":"p","mod\u0065l":"m"}`, fault.InvalidParameter, "model"},
		"a name twice, deep":              {`{"model":"m","prompt":"p","ext_info":{"a":{"b":1,"b":2}}}`, fault.InvalidParameter, "ext_info.a.b"},
		"a name twice, ignored":           {`{"model":"m","prompt":"p","x":1,"x":2}`, fault.InvalidParameter, "x"},
		"a prompt of numbers":             {`{"model":"m","prompt":1}`, fault.InvalidParameter, "prompt"},
		"inputs that are not a list":      {`{"model":"m","prompt":"p","inputs":{}}`, fault.InvalidParameter, "inputs"},
		"an input that is not an object":  {`{"model":"m","prompt":"p","inputs":["u"]}`, fault.InvalidParameter, "inputs[0]"},
		"a null among the inputs":         {`{"model":"m","prompt":"p","inputs":[null]}`, fault.InvalidParameter, "inputs[0]"},
		"an input without a URL":          {`{"model":"m","prompt":"p","inputs":[{"url":"u"},{"text":"t"}]}`, fault.MissingParameter, "inputs[1].url"},
		"an input of numbers":             {`{"model":"m","prompt":"p","inputs":[{"url":1}]}`, fault.InvalidParameter, "inputs[0].url"},
		"an output that is not an object": {`{"model":"m","prompt":"p","output":[]}`, fault.InvalidParameter, "output"},
		"a class with a fraction":         {`{"model":"m","prompt":"p","output":{"class_id":1.0}}`, fault.InvalidParameter, "output.class_id"},
		"information in a list":           {`{"model":"m","prompt":"p","ext_info":[]}`, fault.InvalidParameter, "ext_info"},
		"information in a string":         {`{"model":"m","prompt":"p","ext_info":"{}"}`, fault.InvalidParameter, "ext_info"},
		"a session of numbers":            {`{"model":"m","prompt":"p","session_id":1}`, fault.InvalidParameter, "session_id"},
	} {
		for n, decode := range both {
			if _, _, refused := decode([]byte(c.body)); !refusedAt(refused, c.code, c.param) {
				t.Errorf("%s was answered %v by decoder %d, want %s at %q", name, refused, n, c.code, c.param)
			}
		}
	}
	for _, c := range []struct{ members, param string }{
		{`"output":{"duration":5.0}`, "output.duration"},
		{`"output":{"duration":"5"}`, "output.duration"},
		{`"output":{"duration":5e0}`, "output.duration"},
		{`"output":{"duration":99999999999}`, "output.duration"},
		{`"output":{"audio":"enabled"}`, "output.audio"},
		{`"output":{"audio_generation":true}`, "output.audio_generation"},
		{`"subject_inputs":[{"id":1,"url":"u"}]`, "subject_inputs[0].id"},
	} {
		if _, _, refused := generation.DecodeVideo([]byte(`{"model":"m","prompt":"p",` + c.members + `}`)); !refusedAt(refused, fault.InvalidParameter, c.param) {
			t.Errorf("%s was answered %v", c.members, refused)
		}
	}
	if _, _, refused := generation.DecodeVideo([]byte(`{"model":"m","prompt":"p","subject_inputs":[{"id":"i"}]}`)); !refusedAt(refused, fault.MissingParameter, "subject_inputs[0].url") {
		t.Errorf("a subject without a URL was answered %v", refused)
	}
	for _, c := range []struct{ members, param string }{
		{`"output":{"count":"1"}`, "output.count"},
		{`"output":{"count":1.5}`, "output.count"},
		{`"seed":1e3`, "seed"},
		{`"seed":9223372036854775808`, "seed"},
	} {
		if _, _, refused := generation.DecodeImage([]byte(`{"model":"m","prompt":"p",` + c.members + `}`)); !refusedAt(refused, fault.InvalidParameter, c.param) {
			t.Errorf("%s was answered %v", c.members, refused)
		}
	}
}

func TestNullMeansAbsent(t *testing.T) {
	t.Parallel()
	got, ignored, refused := generation.DecodeVideo([]byte(`{"model":"video-a-1","prompt":"p","inputs":null,"output":{"duration":null,"audio":null},"session_id":null,"ext_info":null,"subject_inputs":null}`))
	want := generation.Request{Kind: catalog.Video, Model: "video-a-1", Prompt: "p"}
	if refused != nil || len(ignored) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("was read as %+v, %v, %v", got, ignored, refused)
	}
}

func TestACheckedRequestSurvivesItsJSON(t *testing.T) {
	t.Parallel()
	for _, body := range [][]byte{
		submission("video-c-q2", object{"output.duration": 7, "output.audio": true, "ext_info": object{"a": 1}, "inputs": references(2)}),
		submission("image-a-1", object{"output.count": 3, "seed": 5}),
	} {
		want, refused := check(standard(t), body)
		if refused != nil {
			t.Fatal(refused)
		}
		sameAfterJSON(t, want)
	}
	r, refused := generation.DecodeGenerations([]byte(`{"model":"x","duration":2.5,"n":2,"metadata":{"style":"s"}}`))
	if refused != nil {
		t.Fatal(refused)
	}
	want, refused := generation.Check(standard(t), r)
	if refused != nil {
		t.Fatal(refused)
	}
	sameAfterJSON(t, want)
	empty, _ := generation.DecodeGenerations([]byte(`{}`))
	empty.Model = "x"
	if want, refused = generation.Check(standard(t), empty); refused != nil {
		t.Fatal(refused)
	}
	sameAfterJSON(t, want)
}

func sameAfterJSON(t *testing.T, want generation.Checked) {
	t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got generation.Checked
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) || got.Passing() != want.Passing() {
		t.Errorf("%s became\n%+v, %v, want\n%+v", text, got, err, want)
	}
}

// FuzzDecode passes any text to the three decoders and their result to Check.
// It is refused with a fault, or checked; checking the result again gives the
// same.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"model":"video-c-q2","prompt":"p","inputs":[{"url":"https://a.example/x","usage":"firstFrame","object_id":"o","voice_id":"v"}],"output":{"duration":5,"audio":true,"resolution":"1080p"}}`,
		`{"model":"image-a-1","prompt":"","inputs":[{"url":"http://127.1/","reference_type":"mask"}],"output":{"count":9,"format":"png"},"x":1}`,
		`{"model":"video-a-1","prompt":"p","subject_inputs":[{"url":"https://a.example/","id":"i"}],"scene_type":"lip_sync","ext_info":{"a":[1]}}`,
		`{"model":"e-1","image":"data:image/png;base64,AAAA","duration":4,"n":2,"width":1280,"height":720,"metadata":{"duration":"4","x":null}}`,
		`{"model":"e-1","image":"https://a.example/x.png","seconds":"8","Duration":9}`, `{}`, `{"duration":1e-7}`, `{"output":{"media_name":"\u0000"}}`,
	} {
		f.Add([]byte(body))
	}
	families := standard(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		video, ignored, refused := generation.DecodeVideo(body)
		agree(t, families, video, refused)
		if len(ignored) > 100 {
			t.Fatalf("%d ignored", len(ignored))
		}
		image, _, refused := generation.DecodeImage(body)
		agree(t, families, image, refused)
		decodeAndCheck, refused := generation.DecodeGenerations(body)
		agree(t, families, decodeAndCheck, refused)
	})
}

func agree(t *testing.T, families *catalog.Families, r generation.Request, refused *fault.Fault) {
	if refused == nil {
		var checked generation.Checked
		if checked, refused = generation.Check(families, r); refused == nil {
			again, twice := generation.Check(families, checked.Request)
			if twice != nil || !reflect.DeepEqual(again, checked) {
				t.Fatalf("checked twice it is %+v, %v, not %+v", again, twice, checked)
			}
			return
		}
	}
	if refused.Status() < 400 || refused.Status() >= 500 || refused.Message == "" || len(refused.Message) > 1000 {
		t.Fatalf("refused by %+v", refused)
	}
}
