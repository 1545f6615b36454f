package generation

import (
	"encoding/json"
	"strconv"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// videosBody has the members of /v1/videos, which OpenAI's API had until 2026-09-24.
type videosBody struct {
	Model          string         `json:"model"`
	Prompt         *string        `json:"prompt"`
	Seconds        strictjson.Raw `json:"seconds"` // a number, in that API in a string
	Size           string         `json:"size"`
	InputReference *struct {
		ImageURL string `json:"image_url"`
		FileID   string `json:"file_id"`
	} `json:"input_reference"`
}

// DecodeVideos decodes a body of /v1/videos. The result is that of
// [DecodeGenerations] for the same request. Unknown members are refused: they
// could change what the result costs.
func DecodeVideos(body []byte) (Request, *fault.Fault) {
	var b videosBody
	if refused := strictjson.Decode(body, &b, strictjson.MaxMembers(MaxMembers)); refused != nil {
		return Request{}, refused
	}
	r := Request{Kind: catalog.Video, Model: b.Model}
	if refused := r.setPrompt(b.Prompt); refused != nil {
		return Request{}, refused
	}
	if given := newAlias(ranks["seconds"], "seconds", orNull(b.Seconds)); string(given.raw) != "null" && !adoptDuration(&r, &given) {
		return Request{}, invalid("seconds", `must be a number of seconds, such as "8"`)
	}
	if b.Size != "" {
		if refused := r.setSize(b.Size); refused != nil {
			return Request{}, refused
		}
	}
	if reference := b.InputReference; reference != nil {
		if reference.FileID != "" {
			return Request{}, invalid("input_reference.file_id", "is not supported: send the image as a file, or as `input_reference.image_url`")
		}
		if reference.ImageURL == "" {
			return Request{}, missing("input_reference.image_url")
		}
		r.Inputs = []Input{{URL: reference.ImageURL, Category: imageCategory, Usage: FirstFrame}}
	}
	refused := r.setFields()
	return r, refused
}

// setFields sets Fields to the body of /v1/video/generations for r, without the image.
func (r *Request) setFields() *fault.Fault {
	body, err := json.Marshal(struct {
		Model    string           `json:"model,omitempty"`
		Prompt   string           `json:"prompt"`
		Duration *catalog.Seconds `json:"duration,omitempty"`
		Width    *int             `json:"width,omitempty"`
		Height   *int             `json:"height,omitempty"`
	}{r.Model, r.Prompt, r.Output.Duration, r.Output.Width, r.Output.Height})
	if err == nil {
		err = json.Unmarshal(body, &r.Fields)
	}
	if err != nil {
		return fault.New(fault.InvalidParameter, "the body cannot be read: %v", err)
	}
	return nil
}

// orNull returns a member, or null if it is absent.
func orNull(raw strictjson.Raw) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return json.RawMessage(raw)
}

func (r *Request) setPrompt(prompt *string) *fault.Fault {
	if prompt == nil {
		return missing("prompt")
	}
	r.Prompt = *prompt
	return (&check{Request: *r}).prompt()
}

// setSize sets width and height by a size such as 1280x720.
func (r *Request) setSize(size string) *fault.Fault {
	parts := sizeText.FindStringSubmatch(size)
	if parts == nil || parts[2] == "" {
		return invalid("size", "must be a width and a height such as 1280x720, not %s", quote(size))
	}
	width, _ := strconv.Atoi(parts[1])
	height, _ := strconv.Atoi(parts[2])
	r.Output.Width, r.Output.Height = &width, &height
	return nil
}

// Original is a finished video of /v1/videos.
type Original struct {
	ID      string
	Model   string
	Seconds float64 // zero: not known
	Size    string  // such as 1280x720; empty: not known
	Ref     backends.Ref
}

// DecodeRemix decodes a body of /v1/videos/{id}/remix. The result requests a video like the original,
// with another prompt.
func DecodeRemix(body []byte, original Original) (Request, *fault.Fault) {
	var b struct {
		Prompt *string `json:"prompt"`
	}
	if refused := strictjson.Decode(body, &b, strictjson.MaxMembers(MaxMembers)); refused != nil {
		return Request{}, refused
	}
	r := Request{
		Kind: catalog.Video, Model: original.Model, RemixOf: original.ID, Source: &original.Ref,
	}
	if refused := r.setPrompt(b.Prompt); refused != nil {
		return Request{}, refused
	}
	if original.Seconds > 0 {
		seconds, refused := catalog.ParseSeconds(strconv.FormatFloat(original.Seconds, 'f', -1, 64))
		if refused != nil {
			return Request{}, refused
		}
		r.Output.Duration = &seconds
	}
	if original.Size != "" {
		if refused := r.setSize(original.Size); refused != nil {
			return Request{}, refused
		}
	}
	refused := r.setFields()
	return r, refused
}

// Size returns the requested size, such as 1280x720, or "" if the service decides it.
func (c *Checked) Size() string {
	out := c.Job().Output
	if out.Resolution == "" && (out.Width == 0 || out.Height == 0) {
		return ""
	}
	width, height := out.Size()
	return strconv.Itoa(width) + "x" + strconv.Itoa(height)
}
