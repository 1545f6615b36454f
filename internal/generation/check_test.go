package generation_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

func TestTheModelIsRequired(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]fault.Code{
		"video-a-1": "", "video-a-2.1_x": "", "video-A-1": fault.ModelNotFound, "video-z-1": fault.ModelNotFound,
		"": fault.InvalidModel, "a-1": fault.InvalidModel, "image-a-1": fault.InvalidModel, "Video-a-1": fault.InvalidModel, "video-": fault.InvalidModel,
		"video-a": fault.InvalidModel, "video-a-": fault.InvalidModel, "video--1": fault.InvalidModel, "video-a--1": fault.InvalidModel,
		"video-a 1-1": fault.InvalidModel, "video-a-1/x": fault.InvalidModel, "video-ä-1": fault.InvalidModel, "video-a-1\n": fault.InvalidModel,
		"video-a-" + strings.Repeat("1", 300): fault.InvalidModel,
	} {
		r := generation.Request{Kind: catalog.Video, Model: model, Prompt: "p"}
		if _, refused := generation.Check(standard(t), r); want == "" && refused != nil || want != "" && !refusedAt(refused, want, "model") {
			t.Errorf("%q was answered %v, want %q", model, refused, want)
		}
	}
	none, err := catalog.NewFamilies(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, refused := generation.Check(none, generation.Request{Kind: catalog.Image, Model: "image-a-1", Prompt: "p"}); !refusedAt(refused, fault.ModelNotFound, "model", `"image-a-1"`) {
		t.Errorf("without any family the answer is %v", refused)
	}
}

func TestStructureOfInputs(t *testing.T) {
	t.Parallel()
	input := func(pairs ...string) object {
		in := object{"url": anImage}
		for i := 0; i < len(pairs); i += 2 {
			in[pairs[i]] = pairs[i+1]
		}
		return in
	}
	first, last := input("usage", "firstFrame"), input("usage", "lastFrame")
	for name, c := range map[string]struct {
		model  string
		inputs []any
		param  string // empty: accepted
		words  string
	}{
		"a first frame":                          {"video-b-1", []any{first}, "", ""},
		"both frames":                            {"video-b-1", []any{first, last}, "", ""},
		"both frames, the last first":            {"video-b-1", []any{last, first}, "", ""},
		"frames and a reference":                 {"video-b-1", []any{input(), first, last}, "", ""},
		"two first frames":                       {"video-b-1", []any{first, input(), first}, "inputs[2].usage", "is a second firstFrame"},
		"two last frames":                        {"video-b-1", []any{first, last, last}, "inputs[2].usage", "is a second lastFrame"},
		"only a last frame":                      {"video-b-1", []any{input(), last}, "inputs[1].usage", "requires another input as the firstFrame"},
		"an unknown usage":                       {"video-b-1", []any{input("usage", "FirstFrame")}, "inputs[0].usage", `reference, firstFrame or lastFrame, not "FirstFrame"`},
		"an empty usage":                         {"video-b-1", []any{input("usage", "")}, "", ""},
		"a video":                                {"video-a-1", []any{input("category", "video")}, "", ""},
		"an unknown category":                    {"video-a-1", []any{input("category", "audio")}, "inputs[0].category", `image or video, not "audio"`},
		"a video as first frame":                 {"video-a-1", []any{input("category", "video", "usage", "firstFrame")}, "inputs[0].usage", "a firstFrame is an image"},
		"a video as last frame":                  {"video-a-1", []any{first, input("category", "video", "usage", "lastFrame")}, "inputs[1].usage", "a lastFrame is an image"},
		"sound of a video":                       {"video-a-1", []any{input("category", "video", "keep_original_sound", "enabled")}, "", ""},
		"no sound of a video":                    {"video-a-1", []any{input("category", "video", "keep_original_sound", "disabled")}, "", ""},
		"sound of an image":                      {"video-a-1", []any{input("keep_original_sound", "enabled")}, "inputs[0].keep_original_sound", "category video"},
		"no sound of an image":                   {"video-a-1", []any{input("keep_original_sound", "disabled")}, "", ""},
		"an unknown value for sound":             {"video-a-1", []any{input("category", "video", "keep_original_sound", "yes")}, "inputs[0].keep_original_sound", "enabled or disabled"},
		"a video reference for an image":         {"video-a-1", []any{input("reference_type", "feature")}, "inputs[0].reference_type", "only for the category video"},
		"a reference of another family":          {"video-a-1", []any{input("reference_type", "asset", "category", "video")}, "inputs[0].reference_type", `feature or base for family A, not "asset"`},
		"a subject of a video":                   {"video-c-q2", []any{input("object_id", "o", "category", "video")}, "inputs[0].object_id", "category image"},
		"a voice of a video":                     {"video-c-q2", []any{input("voice_id", "v", "category", "video")}, "inputs[0].voice_id", "category image"},
		"a voice and all subjects":               {"video-c-q2", []any{input("object_id", "o", "voice_id", "v"), input("object_id", "p"), input("category", "video")}, "", ""},
		"a voice and an image without a subject": {"video-c-q2", []any{input("object_id", "o", "voice_id", "v"), input()}, "inputs[0].voice_id", "`inputs[1].object_id` is missing"},
		"a voice without a subject":              {"video-c-q2", []any{input("voice_id", "v")}, "inputs[0].voice_id", "`inputs[0].object_id` is missing"},
		"subjects without a voice":               {"video-c-q2", []any{input("object_id", "o"), input()}, "", ""},
		"a text for a video":                     {"video-f-1", []any{input("text", "x", "category", "video")}, "", ""},
		"a special address":                      {"video-a-1", []any{input(), input("url", "http://2130706433/a.png")}, "inputs[1].url", "can be read in different ways"},
		"a private address":                      {"video-a-1", []any{input("url", "http://10.0.0.1/a.png")}, "inputs[0].url", "is a special address"},
		"no URL":                                 {"video-a-1", []any{input("url", "a.png")}, "inputs[0].url", "absolute http or https URL"},
		"Base64":                                 {"video-a-1", []any{input("url", "data:image/png;base64,AAAA")}, "inputs[0].url", "absolute http or https URL"},
		"an empty URL":                           {"video-a-1", []any{input("url", "")}, "inputs[0].url", "absolute http or https URL"},
		"a user in the URL":                      {"image-a-1", []any{input("url", "https://u:p@files.example/a.png")}, "inputs[0].url", "without a user"},
		"a long URL":                             {"image-a-1", []any{input("url", anImage+"?"+strings.Repeat("é", 8192))}, "inputs[0].url", "at most 8192 characters"},
	} {
		_, refused := check(standard(t), submission(c.model, object{"inputs": c.inputs}))
		if c.param == "" && refused != nil || c.param != "" && !refusedAt(refused, fault.InvalidParameter, c.param, c.words, "`"+c.param+"`") {
			t.Errorf("%s was answered %v, want a refusal at %q with %q", name, refused, c.param, c.words)
		}
	}
	_, refused := check(standard(t), submission("video-a-1", object{"subject_inputs": []any{object{"url": "http://[::1]/", "id": "s"}}}))
	if !refusedAt(refused, fault.InvalidParameter, "subject_inputs[0].url", "special address") {
		t.Errorf("a special address of a subject was answered %v", refused)
	}
}

func TestDefaultsOfInputsAreSet(t *testing.T) {
	t.Parallel()
	body := submission("video-a-1", object{"inputs": []any{
		object{"url": anImage, "keep_original_sound": "disabled"},
		object{"url": anImage, "category": "video", "reference_type": "base", "keep_original_sound": "disabled"},
		object{"url": anImage, "usage": "firstFrame"},
	}})
	r, _, refused := generation.DecodeVideo(body)
	if refused != nil {
		t.Fatal(refused)
	}
	got, refused := generation.Check(standard(t), r)
	want := []generation.Input{
		{URL: anImage, Category: "image", Usage: "reference"},
		{URL: anImage, Category: "video", Usage: "reference", ReferenceType: "base", KeepOriginalSound: generation.Disabled},
		{URL: anImage, Category: "image", Usage: "firstFrame"},
	}
	if refused != nil || !reflect.DeepEqual(got.Inputs, want) || got.Family != "A" {
		t.Errorf("inputs are %+v, %v", got.Inputs, refused)
	}
	if r.Inputs[0].Usage != "" || r.Output.Duration != nil {
		t.Error("Check changed its argument")
	}
}

func TestLengthsAreCountedInCharacters(t *testing.T) {
	t.Parallel()
	for param, limit := range map[string]int{
		"session_id": 50, "session_context": 1000, "output.media_name": 64, "prompt": 32768, "negative_prompt": 32768, "generation_mode": 1000,
	} {
		if param == "generation_mode" {
			try(t, "video-a-1", object{param: strings.Repeat("图", limit)}, true, "")
			try(t, "video-a-1", object{param: strings.Repeat("图", limit+1)}, false, param, "at most 1000 characters, not 1001")
			continue
		}
		for _, character := range []string{"a", "图", "🎬"} {
			for _, model := range []string{"video-a-1", "image-a-1"} {
				try(t, model, object{param: strings.Repeat(character, limit)}, true, "")
				try(t, model, object{param: strings.Repeat(character, limit+1)}, false, param, "at most", "characters, not")
			}
		}
		if param != "prompt" {
			try(t, "video-a-1", object{param: ""}, true, "")
		}
	}
}

func TestOtherFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		param  string
		value  any
		passes bool
		words  string
	}{
		"region mainland":           {"input_region", "mainland", true, ""},
		"region oversea":            {"input_region", "oversea", true, ""},
		"an unknown region":         {"input_region", "Oversea", false, "mainland or oversea"},
		"any mode":                  {"generation_mode", "any-mode", true, ""},
		"a name":                    {"output.media_name", "my film (1) 图.mp4", true, ""},
		"a slash":                   {"output.media_name", "a/b", false, "must not contain"},
		"a backslash":               {"output.media_name", `a\b`, false, "must not contain"},
		"a null":                    {"output.media_name", "a\x00", false, "must not contain"},
		"a line break":              {"output.media_name", "a\r\nb", false, "must not contain"},
		"delete":                    {"output.media_name", "a\x7f", false, "must not contain"},
		"a control character of C1": {"output.media_name", "a\u0085", false, "must not contain"},
		"a right-to-left override":  {"output.media_name", "a\u202egnp.mp4", false, "must not contain"},
		"a line separator":          {"output.media_name", "a\u2028b", false, "must not contain"},
		"a zero-width space":        {"output.media_name", "a\u200bb", false, "must not contain"},
		"one dot":                   {"output.media_name", ".", false, "part of a link"},
		"two dots":                  {"output.media_name", "..", false, "part of a link"},
		"three dots":                {"output.media_name", "...", true, ""},
		"a class":                   {"output.class_id", 3, true, ""},
		"a negative class":          {"output.class_id", -1, false, "at least 0, not -1"},
		"an empty prompt":           {"prompt", "", false, "must not be empty"},
		"a prompt of white space":   {"prompt", " \n\t\u3000", false, "must not be empty"},
		"a long value is truncated": {"output.resolution", strings.Repeat("9", 1000), false, "9…"},
		"a value with a quote":      {"scene_type", `a"b`, false, `"a\"b"`},
		"any object as ext_info":    {"ext_info", object{"a": []any{1, nil}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, "video-a-1", object{c.param: c.value}, c.passes, c.param, c.words)
		})
	}
}

func TestAnImageNeedsAPromptOrInputs(t *testing.T) {
	t.Parallel()
	try(t, "image-a-1", object{"prompt": ""}, false, "prompt", "without `inputs`")
	try(t, "image-a-1", object{"prompt": "  "}, false, "prompt", "without `inputs`")
	try(t, "image-a-1", object{"prompt": "", "inputs": references(1)}, true, "")
	try(t, "video-a-1", object{"prompt": "", "inputs": references(1)}, false, "prompt")
}

func TestAFamilyCanDisableStructureRules(t *testing.T) {
	t.Parallel()
	families := standard(t, catalog.FamilyRow{Family: "B", Video: catalog.Override{MaxInputs: new(0), LastFrameAlone: new(true)}, Image: catalog.Override{MaxInputs: new(0)}})
	for _, members := range []object{
		{"inputs": references(100)},
		{"inputs": []any{object{"url": anImage, "usage": "lastFrame"}}},
	} {
		if _, refused := check(families, submission("video-b-1", members)); refused != nil {
			t.Error(refused)
		}
	}
	if _, refused := check(families, submission("image-b-1", object{"inputs": references(100)})); refused != nil {
		t.Error(refused)
	}
	// Other families keep the rules.
	if _, refused := check(families, submission("video-d-1", object{"inputs": references(4)})); !refusedAt(refused, fault.InvalidParameter, "inputs") {
		t.Errorf("another family was answered %v", refused)
	}
}

func TestAReferenceTypeIsForItsCategory(t *testing.T) {
	t.Parallel()
	families := standard(t, catalog.FamilyRow{Family: "B", Video: catalog.Override{ReferenceType: []catalog.ReferenceType{"image:x", "y"}}})
	for word, c := range map[string]struct{ category, words string }{
		"x": {"video", "x is allowed only for the category image"}, "z": {"video", "must be y for family B"},
	} {
		input := object{"url": anImage, "reference_type": word, "category": c.category}
		if _, refused := check(families, submission("video-b-1", object{"inputs": []any{input}})); !refusedAt(refused, fault.InvalidParameter, "inputs[0].reference_type", c.words) {
			t.Errorf("%s for a %s was answered %v", word, c.category, refused)
		}
	}
}
