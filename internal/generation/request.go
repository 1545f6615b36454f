// Package generation defines the request for a video or an image. It decodes
// the request bodies, checks a request against the family of its model,
// and computes its price. A [Request] comes from a decoder, which checks the
// form of a body. [Check] checks the rules and sets the defaults. The resulting
// [Checked] is priced, stored and sent. The package imports backends,
// internal/catalog, internal/egress, internal/fault, internal/strictjson and
// money.
package generation

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// Switch is an option that is enabled or disabled. Empty: not set.
type Switch string

// The values of a Switch.
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

// Request is a request for a generation, with the fields of
// docs/reference/tasks.md#platform-body and
// docs/reference/tasks.md#video-generations. An empty string, list or number
// means not set, except for pointers.
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
	ExtInfo        json.RawMessage `json:"ext_info,omitempty"` // an object, unchanged
	Seed           *int64          `json:"seed,omitempty"`

	// RemixOf is the task whose video this one changes, and Source the job of that
	// task. Both are only set for /v1/videos/{id}/remix.
	RemixOf string        `json:"remix_of,omitempty"`
	Source  *backends.Ref `json:"source,omitempty"`

	// Fields are the unchanged members of a body of /v1/video/generations,
	// including unknown ones, without the image, which is Inputs[0]. A body of
	// /v1/videos becomes one of these. Nil for a platform task.
	Fields map[string]json.RawMessage `json:"fields,omitzero"`
}

// Passing reports whether r came from /v1/video/generations, which passes
// unknown members on, or from /v1/videos.
func (r *Request) Passing() bool { return r.Fields != nil }

// param returns the path of a field of the output in the caller's body.
func (r *Request) param(field string) string {
	if r.Passing() {
		return field
	}
	return "output." + field
}

// Input is a reference image, a reference video or a frame.
type Input struct {
	// URL is the address of the input. For /v1/video/generations it may be a
	// data URL or plain Base64.
	URL string `json:"url"`

	Category          string `json:"category,omitempty"` // image or video; checked: never empty
	ReferenceType     string `json:"reference_type,omitempty"`
	ObjectID          string `json:"object_id,omitempty"`
	VoiceID           string `json:"voice_id,omitempty"`
	KeepOriginalSound Switch `json:"keep_original_sound,omitempty"`
	Usage             string `json:"usage,omitempty"` // checked: never empty
	Text              string `json:"text,omitempty"`
}

// Subject is an image of a subject that must look the same throughout the
// video.
type Subject struct {
	URL  string `json:"url"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Output describes the requested result.
type Output struct {
	Duration         *catalog.Seconds `json:"duration,omitempty"`
	Resolution       string           `json:"resolution,omitempty"`
	AspectRatio      string           `json:"aspect_ratio,omitempty"`
	AudioGeneration  Switch           `json:"audio_generation,omitempty"`
	Audio            *bool            `json:"audio,omitempty"` // checked: nil, replaced by AudioGeneration
	EnhanceSwitch    Switch           `json:"enhance_switch,omitempty"`
	FrameInterpolate Switch           `json:"frame_interpolate,omitempty"`
	MediaName        string           `json:"media_name,omitempty"`
	ClassID          int64            `json:"class_id,omitempty"` // default 0: other
	Count            *int             `json:"count,omitempty"`    // of images, or n of /v1/video/generations; checked: never nil
	Format           string           `json:"format,omitempty"`   // of images: jpeg or png

	// Only for /v1/video/generations.
	Width  *int `json:"width,omitempty"`  // pixels
	Height *int `json:"height,omitempty"` // pixels
	FPS    *int `json:"fps,omitempty"`
}

// Checked is a request that passed [Check]: it is valid and has its defaults.
type Checked struct {
	Request

	// Family is the label of its model's family. It is empty for a model of
	// /v1/video/generations that is in no family.
	Family string `json:"family,omitempty"`
}

// Fingerprint returns a hash that distinguishes requests with the same
// idempotency key. It is computed before [Check] sets defaults, so white space,
// the order of members and later changes of defaults do not change it.
func (r *Request) Fingerprint() (journal.ID, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return journal.ID{}, fmt.Errorf("fingerprint of a generation: %w", err)
	}
	return journal.IDOf("generation", string(text)), nil
}
