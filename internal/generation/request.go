// Package generation is what a video or an image to be generated is asked for
// by: the request as the whole house speaks of it, the decoders of the three
// bodies it comes in, the check against the family of its model, and its price.
//
// The way is always the same. A decoder knows the form of a body and refuses
// what is missing or has a wrong type. [Check] knows the rules and fills in the
// defaults. What it returns is what is priced, stored and sent on.
package generation

import (
	"encoding/json"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// Switch is a thing that is enabled or disabled. Empty: not said.
type Switch string

// The words of a Switch.
const (
	Enabled  Switch = "enabled"
	Disabled Switch = "disabled"
)

// The usages of an input.
const (
	FirstFrame = "firstFrame"
	LastFrame  = "lastFrame"
	Reference  = "reference"
)

// Request is a generation in the words of docs/reference/tasks.md#platform-body and
// docs/reference/tasks.md#video-generations. An empty string, list or number is as one that is not
// given, where no pointer tells the difference.
type Request struct {
	Kind           catalog.Kind    `json:"kind"`
	Model          string          `json:"model"`
	Prompt         string          `json:"prompt,omitempty"`
	NegativePrompt string          `json:"negative_prompt,omitempty"`
	EnhancePrompt  Switch          `json:"enhance_prompt,omitempty"`
	GenerationMode string          `json:"generation_mode,omitempty"`
	Inputs         []Input         `json:"inputs,omitempty"`
	Subjects       []Subject       `json:"subject_inputs,omitempty"`
	Output         Output          `json:"output,omitzero"`
	SceneType      string          `json:"scene_type,omitempty"`
	InputRegion    string          `json:"input_region,omitempty"`
	SessionID      string          `json:"session_id,omitempty"`
	SessionContext string          `json:"session_context,omitempty"`
	ExtInfo        json.RawMessage `json:"ext_info,omitempty"` // an object, as it was given
	Seed           *int64          `json:"seed,omitempty"`

	// Fields are the members of a body of /v1/video/generations as they were
	// written, unknown ones too, without the image: that is Inputs[0]. Nil for a
	// platform task.
	Fields map[string]json.RawMessage `json:"fields,omitzero"`
}

// Passing tells whether r came by /v1/video/generations, where what is not
// known passes on.
func (r *Request) Passing() bool { return r.Fields != nil }

// param is the path of a field of the output as the caller knows it.
func (r *Request) param(field string) string {
	if r.Passing() {
		return field
	}
	return "output." + field
}

// Input is a reference image, a reference video or a frame.
type Input struct {
	// URL is where the backend gets it. By /v1/video/generations it may be a data
	// URL, or Base64 alone.
	URL string `json:"url"`

	Category          string `json:"category,omitempty"` // image or video; checked: never empty
	ReferenceType     string `json:"reference_type,omitempty"`
	ObjectID          string `json:"object_id,omitempty"`
	VoiceID           string `json:"voice_id,omitempty"`
	KeepOriginalSound Switch `json:"keep_original_sound,omitempty"`
	Usage             string `json:"usage,omitempty"` // checked: never empty
	Text              string `json:"text,omitempty"`
}

// Subject is an image of a subject that is to look the same throughout.
type Subject struct {
	URL  string `json:"url"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Output says what the result is to be like.
type Output struct {
	Duration         *catalog.Seconds `json:"duration,omitempty"`
	Resolution       string           `json:"resolution,omitempty"`
	AspectRatio      string           `json:"aspect_ratio,omitempty"`
	AudioGeneration  Switch           `json:"audio_generation,omitempty"`
	Audio            *bool            `json:"audio,omitempty"` // checked: nil, and AudioGeneration says it
	EnhanceSwitch    Switch           `json:"enhance_switch,omitempty"`
	FrameInterpolate Switch           `json:"frame_interpolate,omitempty"`
	MediaName        string           `json:"media_name,omitempty"`
	ClassID          int64            `json:"class_id,omitempty"` // default 0: other
	Count            *int             `json:"count,omitempty"`    // of images, or n of /v1/video/generations; checked: never nil for them
	Format           string           `json:"format,omitempty"`   // of images: jpeg or png

	// Of /v1/video/generations alone.
	Width  *int `json:"width,omitempty"`  // pixels
	Height *int `json:"height,omitempty"` // pixels
	FPS    *int `json:"fps,omitempty"`
}

// Checked is a request that passed [Check]: it is valid, and its defaults are
// filled in.
type Checked struct {
	Request

	// Family is the label of its model's family. Empty for a model of
	// /v1/video/generations that no family has.
	Family string `json:"family,omitempty"`
}
