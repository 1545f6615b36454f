package generation_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/money"
)

// TestAJobSaysAllThatTheRequestSays fills in every field of a request, and finds
// each of them in the job, but for what is the caller's alone.
func TestAJobSaysAllThatTheRequestSays(t *testing.T) {
	t.Parallel()
	checked := generation.Checked{Family: "C", Request: generation.Request{
		Kind: catalog.Video, Model: "m", Prompt: "p", NegativePrompt: "n", EnhancePrompt: "e", GenerationMode: "g",
		Inputs:    []generation.Input{{URL: "u", Category: "c", ReferenceType: "r", ObjectID: "o", VoiceID: "v", KeepOriginalSound: "k", Usage: "s", Text: "t"}},
		Subjects:  []generation.Subject{{URL: "u", ID: "i", Name: "n"}},
		SceneType: "s", InputRegion: "r", SessionID: "secret", SessionContext: "secret", ExtInfo: json.RawMessage(`{}`), Seed: new(int64(3)),
		Output: generation.Output{
			Duration: new(5_500_000 * catalog.Seconds(1)), Resolution: "r", AspectRatio: "a", AudioGeneration: "s", EnhanceSwitch: "e", FrameInterpolate: "f",
			MediaName: "m", ClassID: 4, Count: new(2), Format: "f", Width: new(6), Height: new(7), FPS: new(8),
		},
	}}
	want := backends.Job{
		Kind: backends.Video, Model: "m", Prompt: "p", NegativePrompt: "n", EnhancePrompt: "e", GenerationMode: "g",
		Inputs:        []backends.Input{{URL: "u", Category: "c", ReferenceType: "r", ObjectID: "o", VoiceID: "v", KeepOriginalSound: "k", Usage: "s", Text: "t"}},
		SubjectInputs: []backends.SubjectInput{{URL: "u", ID: "i", Name: "n"}},
		SceneType:     "s", InputRegion: "r", ExtInfo: json.RawMessage(`{}`), Seed: new(int64(3)),
		Output: backends.Output{
			Duration: 5.5, Resolution: "r", AspectRatio: "a", AudioGeneration: "s", EnhanceSwitch: "e", FrameInterpolate: "f",
			MediaName: "m", ClassID: 4, Count: 2, Format: "f", Width: 6, Height: 7, FPS: 8,
		},
	}
	if got := checked.Job(); !reflect.DeepEqual(got, want) {
		t.Errorf("is\n%+v, want\n%+v", got, want)
	}
	// A field that a job gains is filled in here.
	for _, filled := range []any{want.Inputs[0], want.SubjectInputs[0], want.Output} {
		for field, value := range reflect.ValueOf(filled).Fields() {
			if value.IsZero() {
				t.Errorf("%T.%s is not filled in", filled, field.Name)
			}
		}
	}
	checked.Kind, checked.Fields = catalog.Video, map[string]json.RawMessage{"x": json.RawMessage("1")}
	if got := checked.Job(); got.Kind != backends.Generations || string(got.Fields["x"]) != "1" {
		t.Errorf("a passing one is %s with the fields %v", got.Kind, got.Fields)
	}
	checked.Kind, checked.Fields, checked.Output = catalog.Image, nil, generation.Output{}
	if got := checked.Job(); got.Kind != backends.Image || got.Output != (backends.Output{}) {
		t.Errorf("an image is %s with the output %+v", got.Kind, got.Output)
	}
}

func TestResultsCostWhatTheyAre(t *testing.T) {
	t.Parallel()
	pin := func(model string, price *catalog.Price, members object) json.RawMessage {
		checked, refused := check(standard(t), submission(model, members))
		if refused != nil {
			t.Fatal(refused)
		}
		quote, refused := checked.Quote(price)
		if refused != nil {
			t.Fatal(refused)
		}
		text, err := json.Marshal(quote)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	film := pin("video-c-1", &bySecond, object{"output.resolution": "1080P", "output.duration": 10}) // 3.00
	images := pin("image-a-1", &byImage, object{"output.count": 3})                                  // 0.16
	for name, c := range map[string]struct {
		pinned  json.RawMessage
		results []backends.Result
		want    string
	}{
		"nothing is told":          {film, []backends.Result{{}}, "3.00"},
		"as asked":                 {film, []backends.Result{{Duration: 10, Width: 1920, Height: 1088}}, "3.00"},
		"longer":                   {film, []backends.Result{{Duration: 10.04}}, "3.00"},
		"shorter":                  {film, []backends.Result{{Duration: 9.5}}, "2.85"},
		"smaller":                  {film, []backends.Result{{Duration: 10, Width: 704, Height: 1280}}, "1.00"},
		"of an odd size":           {film, []backends.Result{{Duration: 10, Width: 600, Height: 600}}, "3.00"},
		"two, where one was asked": {film, []backends.Result{{Duration: 5}, {Duration: 6}}, "3.00"},
		"no number":                {film, []backends.Result{{Duration: math.NaN()}}, "3.00"},
		"for ever":                 {film, []backends.Result{{Duration: math.Inf(1)}}, "3.00"},
		"before it began":          {film, []backends.Result{{Duration: -1}}, "3.00"},
		"images":                   {images, make([]backends.Result, 3), "0.16"},
		"fewer images":             {images, []backends.Result{{Width: 3840, Height: 2160}}, "0.06"},
		"more images":              {images, make([]backends.Result, 9), "0.16"},
		"no price":                 {nil, make([]backends.Result, 1), "0.00"},
	} {
		got, err := generation.Cost(c.pinned, c.results)
		if err != nil || got.String() != c.want {
			t.Errorf("%s costs %v, %v, want %s", name, got, err, c.want)
		}
	}
	if got, err := generation.Cost(json.RawMessage(`{"hold":1}`), nil); err == nil || got != money.Amount(0) {
		t.Errorf("a price of another form cost %v, %v", got, err)
	}
}
