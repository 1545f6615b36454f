package generation_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

// TestAJobHasAllFieldsOfTheRequest sets every field of a request. The job must have
// all of them, except those that identify the caller.
func TestAJobHasAllFieldsOfTheRequest(t *testing.T) {
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
		t.Errorf("the job is\n%+v, want\n%+v", got, want)
	}
	// A new field of a job must be set in this test.
	for _, filled := range []any{want.Inputs[0], want.SubjectInputs[0], want.Output} {
		for field, value := range reflect.ValueOf(filled).Fields() {
			if value.IsZero() {
				t.Errorf("the test does not set %T.%s", filled, field.Name)
			}
		}
	}
	checked.Kind, checked.Fields = catalog.Video, map[string]json.RawMessage{"x": json.RawMessage("1")}
	if got := checked.Job(); got.Kind != backends.Generations || string(got.Fields["x"]) != "1" {
		t.Errorf("a job of /v1/video/generations is %s with the fields %v", got.Kind, got.Fields)
	}
	checked.Kind, checked.Fields, checked.Output = catalog.Image, nil, generation.Output{}
	if got := checked.Job(); got.Kind != backends.Image || got.Output != (backends.Output{}) {
		t.Errorf("an image is %s with the output %+v", got.Kind, got.Output)
	}
}
