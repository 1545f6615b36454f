package backends

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// JobKind is the endpoint that accepted a job.
type JobKind string

// The kinds of job.
const (
	Video       JobKind = "video"       // POST /v1/platform/video
	Image       JobKind = "image"       // POST /v1/platform/image
	Generations JobKind = "generations" // POST /v1/video/generations
)

// Makes returns the type of file that a job of this kind produces.
func (k JobKind) Makes() MediaType {
	if k == Image {
		return ImageFile
	}
	return VideoFile
}

// The values of fields that switch a feature on or off. If such a field is empty,
// the service decides.
const (
	Enabled  = "enabled"
	Disabled = "disabled"
)

// The usages of an input. The usage is always set, because its default differs
// between services.
const (
	FirstFrame = "firstFrame"
	LastFrame  = "lastFrame"
	Reference  = "reference"
)

// Job is a request to generate images or videos. It has the fields of
// docs/reference/tasks.md#platform-body and
// docs/reference/tasks.md#video-generations. It is valid, and its defaults are
// set. It contains nothing that identifies the caller: no session_id,
// session_context or keys.
type Job struct {
	// Token identifies the task at services that accept an id from their
	// client: see [Token].
	Token string `json:"token"`

	// NotifyURL is where a [Notified] service may call when the job has
	// changed. It is empty if the service must not call.
	NotifyURL string `json:"notify_url,omitempty"`

	Kind           JobKind         `json:"kind"`
	Model          string          `json:"model"` // the name in the caller's request
	Prompt         string          `json:"prompt,omitempty"`
	NegativePrompt string          `json:"negative_prompt,omitempty"`
	EnhancePrompt  string          `json:"enhance_prompt,omitempty"` // Enabled, Disabled or empty
	GenerationMode string          `json:"generation_mode,omitempty"`
	Inputs         []Input         `json:"inputs,omitempty"`
	SubjectInputs  []SubjectInput  `json:"subject_inputs,omitempty"`
	Output         Output          `json:"output,omitzero"`
	SceneType      string          `json:"scene_type,omitempty"`
	InputRegion    string          `json:"input_region,omitempty"` // "mainland", "oversea" or empty
	Seed           *int64          `json:"seed,omitempty"`
	ExtInfo        json.RawMessage `json:"ext_info,omitempty"` // an object, forwarded unchanged

	// Fields are the members of a body of /v1/video/generations, including
	// unknown ones, without the image, which is Inputs[0]. It is nil for other
	// kinds. The fields above include the defaults and take precedence.
	Fields map[string]json.RawMessage `json:"fields,omitempty"`

	// Source is the earlier job whose result this one changes. It is nil unless the
	// job is for [Remixer.Remix].
	Source *Ref `json:"source,omitempty"`

	// Adopted are the paths of the members of Fields and ExtInfo whose values
	// are also in the fields above, such as "seconds" or "metadata.duration". An
	// adapter that sends the fields above need not send these members.
	Adopted []string `json:"adopted,omitempty"`
}

// Input is a reference image, reference video or frame.
type Input struct {
	// URL is where the service reads the input. In a job of kind Generations it
	// may be a data URL or plain Base64.
	URL string `json:"url"`

	Category          string `json:"category,omitempty"` // "image" or "video"; set on video jobs
	ReferenceType     string `json:"reference_type,omitempty"`
	ObjectID          string `json:"object_id,omitempty"`
	VoiceID           string `json:"voice_id,omitempty"`
	KeepOriginalSound string `json:"keep_original_sound,omitempty"` // Enabled, Disabled or empty
	Usage             string `json:"usage,omitempty"`               // FirstFrame, LastFrame or Reference; set on video jobs
	Text              string `json:"text,omitempty"`
}

// SubjectInput is an image of a subject that must look the same throughout the
// video.
type SubjectInput struct {
	URL  string `json:"url"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Output describes the requested result. If a field is zero, the service decides.
type Output struct {
	Duration         float64 `json:"duration,omitempty"`     // seconds; an integer, except for the kind Generations
	Resolution       string  `json:"resolution,omitempty"`   // such as "720P" or "2K"
	AspectRatio      string  `json:"aspect_ratio,omitempty"` // such as "16:9"
	AudioGeneration  string  `json:"audio_generation,omitempty"`
	EnhanceSwitch    string  `json:"enhance_switch,omitempty"`
	FrameInterpolate string  `json:"frame_interpolate,omitempty"`
	MediaName        string  `json:"media_name,omitempty"`
	ClassID          int64   `json:"class_id,omitempty"`

	Count  int    `json:"count,omitempty"`  // images, or n of /v1/video/generations
	Format string `json:"format,omitempty"` // of images: "jpeg" or "png"

	// These fields are only set for the kind Generations.
	Width  int `json:"width,omitempty"`  // pixels
	Height int `json:"height,omitempty"` // pixels
	FPS    int `json:"fps,omitempty"`
}

// Frame returns the URL of the first input with this usage, or "".
func (j Job) Frame(usage string) string {
	for _, input := range j.Inputs {
		if input.Usage == usage {
			return input.URL
		}
	}
	return ""
}

// Choices returns how many results the job requests: at least one.
func (j Job) Choices() int { return max(1, j.Output.Count) }

// maxDecimals is the precision of a duration that is sent: milliseconds.
const maxDecimals = 3

// Seconds returns the duration as the shortest decimal number, or "" if it is
// not set.
func (o Output) Seconds() string {
	if o.Duration <= 0 {
		return ""
	}
	text := strconv.FormatFloat(o.Duration, 'f', maxDecimals, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// Named returns the error of a submission with the field path of the caller's
// body: the fields of /v1/video/generations are at the top level.
func (j Job) Named(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || j.Kind != Generations || e.Param == "" {
		return err
	}
	named := *e
	named.Param = strings.TrimPrefix(e.Param, "output.")
	if other, has := fieldsOf[named.Param]; has {
		named.Param = other
	}
	return &named
}

// fieldsOf maps fields of the platform body to those fields of
// /v1/video/generations that have another name.
var fieldsOf = map[string]string{
	"inputs":       "image",
	"inputs[0]":    "image",
	"count":        "n",
	"resolution":   "width",
	"aspect_ratio": "width",
}
