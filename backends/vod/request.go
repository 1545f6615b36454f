package vod

import (
	"fmt"
	"math"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
)

// modelNames maps the first word of the gateway's model names to the service's
// names.
var modelNames = map[string]string{
	// videos
	"hailuo": "Hailuo", "kling": "Kling", "vidu": "Vidu", "gv": "GV", "os": "OS", "hunyuan": "Hunyuan",
	"mingmou": "Mingmou", "pixverse": "PixVerse", "jimeng": "Jimeng",
	// images
	"og": "OG", "gg": "GG", "si": "SI", "qwen": "Qwen",
}

// The service's spellings of the gateway's values.
var (
	switches   = map[string]string{backends.Enabled: "Enabled", backends.Disabled: "Disabled"}
	usages     = map[string]string{backends.FirstFrame: "FirstFrame", backends.LastFrame: "LastFrame", backends.Reference: "Reference"}
	categories = map[string]string{"image": "Image", "video": "Video"}
	regions    = map[string]string{"mainland": "Mainland", "oversea": "Oversea"}
)

// fields are the fields of a job that the service supports.
var fields = []string{
	"prompt", "negative_prompt", "enhance_prompt", "scene_type", "input_region", "seed",
	"first_frame", "last_frame", "reference_images", "reference_videos", "reference_types", "object_ids", "voice_ids",
	"input_texts", "keep_original_sound", "subject_images", "subject_ids", "subject_names",
	"duration", "resolution", "aspect_ratio", "audio", "enhance_switch", "frame_interpolate", "media_name", "class_id", "count", "format",
}

// submission is the body of CreateAigcVideoTask and CreateAigcImageTask.
type submission struct {
	SubAppID       uint64        `json:"SubAppId"`
	ModelName      string        `json:"ModelName"`
	ModelVersion   string        `json:"ModelVersion"`
	FileInfos      []fileInfo    `json:"FileInfos,omitempty"`
	SubjectInfos   []subjectInfo `json:"SubjectInfos,omitempty"`
	Prompt         string        `json:"Prompt,omitempty"`
	NegativePrompt string        `json:"NegativePrompt,omitempty"`
	EnhancePrompt  string        `json:"EnhancePrompt,omitempty"`
	OutputConfig   outputConfig  `json:"OutputConfig"`
	InputRegion    string        `json:"InputRegion,omitempty"`
	SceneType      string        `json:"SceneType,omitempty"`
	Seed           *int64        `json:"Seed,omitempty"`
	SessionID      string        `json:"SessionId"`
	ExtInfo        string        `json:"ExtInfo,omitempty"` // the text of an object
}

type fileInfo struct {
	Type              string `json:"Type"`
	Category          string `json:"Category,omitempty"`
	URL               string `json:"Url,omitempty"`
	Base64            string `json:"Base64,omitempty"`
	ReferenceType     string `json:"ReferenceType,omitempty"`
	ObjectID          string `json:"ObjectId,omitempty"`
	VoiceID           string `json:"VoiceId,omitempty"`
	KeepOriginalSound string `json:"KeepOriginalSound,omitempty"`
	Usage             string `json:"Usage,omitempty"`
	Text              string `json:"Text,omitempty"`
}

type subjectInfo struct {
	ID        string   `json:"Id,omitempty"`
	Name      string   `json:"Name,omitempty"`
	ImageURLs []string `json:"ImageUrls"`
}

type outputConfig struct {
	StorageMode      string `json:"StorageMode"`
	MediaName        string `json:"MediaName,omitempty"`
	ClassID          int64  `json:"ClassId,omitempty"`
	Duration         int64  `json:"Duration,omitempty"`
	Resolution       string `json:"Resolution,omitempty"`
	AspectRatio      string `json:"AspectRatio,omitempty"`
	AudioGeneration  string `json:"AudioGeneration,omitempty"`
	EnhanceSwitch    string `json:"EnhanceSwitch,omitempty"`
	FrameInterpolate string `json:"FrameInterpolate,omitempty"`
	OutputImageCount int    `json:"OutputImageCount,omitempty"`
	OutputFormat     string `json:"OutputFormat,omitempty"`
}

// temporary means that the service deletes results after seven days. The
// gateway copies them before.
const temporary = "Temporary"

// translate returns the request for a job.
func (v *VOD) translate(job backends.Job) (submission, error) {
	name, version, err := v.model(job.Model)
	if err != nil {
		return submission{}, err
	}
	out := job.Output
	switch {
	case out.Duration != math.Trunc(out.Duration):
		return submission{}, backends.Invalid("output.duration", fmt.Sprintf("must be whole seconds for this service, not %s", out.Seconds()))
	case job.Kind != backends.Image && job.Choices() > 1:
		return submission{}, backends.Invalid("output.count", fmt.Sprintf("this service generates 1 video for a job, not %d", job.Choices()))
	case out.Width > 0 || out.Height > 0 || out.FPS > 0:
		return submission{}, backends.Invalid("output.width", "this service does not support width, height and frame rate; allowed: resolution and ratio")
	}
	if err := wire.CheckFields(job, fields, true); err != nil {
		return submission{}, err
	}
	s := submission{
		SubAppID: v.app, ModelName: name, ModelVersion: version,
		Prompt: job.Prompt, NegativePrompt: job.NegativePrompt, EnhancePrompt: switches[job.EnhancePrompt],
		InputRegion: regions[job.InputRegion], SceneType: job.SceneType, Seed: job.Seed,
		SessionID: job.Token, ExtInfo: string(job.ExtInfo),
		OutputConfig: outputConfig{
			StorageMode: temporary, MediaName: out.MediaName, ClassID: out.ClassID, Duration: int64(out.Duration),
			Resolution: out.Resolution, AspectRatio: out.AspectRatio, AudioGeneration: switches[out.AudioGeneration],
			EnhanceSwitch: switches[out.EnhanceSwitch], FrameInterpolate: switches[out.FrameInterpolate],
		},
	}
	if job.Kind == backends.Image {
		s.OutputConfig.OutputImageCount, s.OutputConfig.OutputFormat = out.Count, out.Format
	}
	for _, input := range job.Inputs {
		s.FileInfos = append(s.FileInfos, file(input, job.Kind))
	}
	for _, subject := range job.SubjectInputs {
		s.SubjectInfos = append(s.SubjectInfos, subjectInfo{ID: subject.ID, Name: subject.Name, ImageURLs: []string{subject.URL}})
	}
	return s, nil
}

// file returns the service's form of an input. The usage of a video task's input is always
// sent. The default of the service is a first frame, that of the gateway is a reference.
func file(input backends.Input, kind backends.JobKind) fileInfo {
	f := fileInfo{
		Type: "Url", URL: input.URL, Category: categories[input.Category], ReferenceType: input.ReferenceType,
		ObjectID: input.ObjectID, VoiceID: input.VoiceID, KeepOriginalSound: switches[input.KeepOriginalSound],
		Usage: usages[input.Usage], Text: input.Text,
	}
	if f.Usage == "" && kind != backends.Image {
		f.Usage = usages[backends.Reference]
	}
	if !strings.Contains(input.URL, "://") {
		// A data URL, or only Base64.
		_, data, isURL := strings.Cut(input.URL, ";base64,")
		if !isURL {
			data = input.URL
		}
		f.Type, f.URL, f.Base64 = "Base64", "", data
	}
	return f
}

// model returns the service's name and version of a model: the configured ones,
// or those of video-{name}-{version}.
func (v *VOD) model(ours string) (name, version string, err error) {
	if theirs, configured := v.Models[ours]; configured {
		name, version, _ = strings.Cut(theirs, "/")
		return name, version, nil
	}
	_, rest, _ := strings.Cut(ours, "-")
	word, version, _ := strings.Cut(rest, "-")
	name, known := modelNames[strings.ToLower(word)]
	if !known || version == "" {
		return "", "", backends.Invalid("model", fmt.Sprintf("no model of this service is known for %q", backends.Text(ours)))
	}
	return name, version, nil
}
