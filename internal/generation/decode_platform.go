package generation

import (
	"bytes"
	"encoding/json"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// maxIgnored is the maximum number of unknown members that are reported to the
// caller.
const maxIgnored = 100

// platformBody is the common part of the bodies for videos and images.
type platformBody struct {
	Model          *string        `json:"model"`
	Prompt         *string        `json:"prompt"`
	NegativePrompt string         `json:"negative_prompt"`
	EnhancePrompt  Switch         `json:"enhance_prompt"`
	SceneType      string         `json:"scene_type"`
	InputRegion    string         `json:"input_region"`
	SessionID      string         `json:"session_id"`
	SessionContext string         `json:"session_context"`
	ExtInfo        strictjson.Raw `json:"ext_info"`
}

type videoBody struct {
	platformBody
	GenerationMode string `json:"generation_mode"`
	Inputs         []struct {
		URL               *string `json:"url"`
		Category          string  `json:"category"`
		ReferenceType     string  `json:"reference_type"`
		ObjectID          string  `json:"object_id"`
		VoiceID           string  `json:"voice_id"`
		KeepOriginalSound Switch  `json:"keep_original_sound"`
		Usage             string  `json:"usage"`
		Text              string  `json:"text"`
	} `json:"inputs"`
	SubjectInputs []struct {
		URL  *string `json:"url"`
		ID   string  `json:"id"`
		Name string  `json:"name"`
	} `json:"subject_inputs"`
	Output struct {
		Duration         *int32 `json:"duration"`
		Resolution       string `json:"resolution"`
		AspectRatio      string `json:"aspect_ratio"`
		AudioGeneration  Switch `json:"audio_generation"`
		Audio            *bool  `json:"audio"`
		EnhanceSwitch    Switch `json:"enhance_switch"`
		FrameInterpolate Switch `json:"frame_interpolate"`
		MediaName        string `json:"media_name"`
		ClassID          int64  `json:"class_id"`
	} `json:"output"`
}

type imageBody struct {
	platformBody
	Inputs []struct {
		URL           *string `json:"url"`
		ReferenceType string  `json:"reference_type"`
		Text          string  `json:"text"`
	} `json:"inputs"`
	Output struct {
		Resolution  string `json:"resolution"`
		AspectRatio string `json:"aspect_ratio"`
		MediaName   string `json:"media_name"`
		ClassID     int64  `json:"class_id"`
		Count       *int32 `json:"count"`
		Format      string `json:"format"`
	} `json:"output"`
	Seed *int64 `json:"seed"`
}

// DecodeVideo decodes a body of /v1/platform/video. It returns an error of the
// strict decoder, or for an absent required field. Unknown members have no effect;
// ignored has the paths of the first hundred.
func DecodeVideo(body []byte) (r Request, ignored []string, refused *fault.Fault) {
	var b videoBody
	if refused = strictjson.Decode(body, &b, strictjson.Ignored(&ignored), strictjson.MaxMembers(MaxMembers)); refused != nil {
		return Request{}, nil, refused
	}
	if r, refused = b.request(catalog.Video); refused != nil {
		return Request{}, nil, refused
	}
	r.GenerationMode = b.GenerationMode
	for i, in := range b.Inputs {
		if in.URL == nil {
			return Request{}, nil, missing(at("inputs", i, "url"))
		}
		r.Inputs = append(r.Inputs, Input{
			URL: *in.URL, Category: in.Category, ReferenceType: in.ReferenceType, ObjectID: in.ObjectID, VoiceID: in.VoiceID,
			KeepOriginalSound: in.KeepOriginalSound, Usage: in.Usage, Text: in.Text,
		})
	}
	for i, in := range b.SubjectInputs {
		if in.URL == nil {
			return Request{}, nil, missing(at("subject_inputs", i, "url"))
		}
		r.Subjects = append(r.Subjects, Subject{URL: *in.URL, ID: in.ID, Name: in.Name})
	}
	out := b.Output
	r.Output = Output{
		Resolution: out.Resolution, AspectRatio: out.AspectRatio, AudioGeneration: out.AudioGeneration, Audio: out.Audio,
		EnhanceSwitch: out.EnhanceSwitch, FrameInterpolate: out.FrameInterpolate, MediaName: out.MediaName, ClassID: out.ClassID,
	}
	if out.Duration != nil {
		r.Output.Duration = new(catalog.Seconds(*out.Duration) * catalog.Second)
	}
	return r, ignored[:min(len(ignored), maxIgnored)], nil
}

// DecodeImage is [DecodeVideo] for a body of /v1/platform/image.
func DecodeImage(body []byte) (r Request, ignored []string, refused *fault.Fault) {
	var b imageBody
	if refused = strictjson.Decode(body, &b, strictjson.Ignored(&ignored), strictjson.MaxMembers(MaxMembers)); refused != nil {
		return Request{}, nil, refused
	}
	if r, refused = b.request(catalog.Image); refused != nil {
		return Request{}, nil, refused
	}
	r.Seed = b.Seed
	for i, in := range b.Inputs {
		if in.URL == nil {
			return Request{}, nil, missing(at("inputs", i, "url"))
		}
		r.Inputs = append(r.Inputs, Input{URL: *in.URL, ReferenceType: in.ReferenceType, Text: in.Text})
	}
	out := b.Output
	r.Output = Output{
		Resolution: out.Resolution, AspectRatio: out.AspectRatio, MediaName: out.MediaName, ClassID: out.ClassID,
		Count: toInt(out.Count), Format: out.Format,
	}
	return r, ignored[:min(len(ignored), maxIgnored)], nil
}

// request returns a request with the common members.
func (b *platformBody) request(kind catalog.Kind) (Request, *fault.Fault) {
	switch {
	case b.Model == nil:
		return Request{}, missing("model")
	case b.Prompt == nil:
		return Request{}, missing("prompt")
	}
	r := Request{
		Kind: kind, Model: *b.Model, Prompt: *b.Prompt, NegativePrompt: b.NegativePrompt, EnhancePrompt: b.EnhancePrompt,
		SceneType: b.SceneType, InputRegion: b.InputRegion, SessionID: b.SessionID, SessionContext: b.SessionContext,
	}
	switch {
	case len(b.ExtInfo) == 0 || string(b.ExtInfo) == "null":
	case b.ExtInfo[0] != '{':
		return Request{}, fault.At(fault.InvalidParameter, "ext_info", "`ext_info` must be an object")
	default:
		r.ExtInfo = json.RawMessage(bytes.Clone(b.ExtInfo))
	}
	return r, nil
}

func missing(param string) *fault.Fault {
	return fault.At(fault.MissingParameter, param, "`%s` is required", param)
}

func toInt(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}
