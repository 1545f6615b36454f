package generation

import (
	"encoding/json"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// generationsBody is the members of /v1/video/generations that are read.
type generationsBody struct {
	Model          string                    `json:"model"`
	Prompt         string                    `json:"prompt"`
	Image          string                    `json:"image"`
	Duration       *catalog.Seconds          `json:"duration"`
	Width          *int32                    `json:"width"`
	Height         *int32                    `json:"height"`
	FPS            *int32                    `json:"fps"`
	Seed           *int64                    `json:"seed"`
	N              *int32                    `json:"n"`
	ResponseFormat string                    `json:"response_format"`
	User           string                    `json:"user"`
	Metadata       map[string]strictjson.Raw `json:"metadata"`
}

// deciding are the members that decide routing or price. Backends are known that
// read names without regard for case, so a twin of one of these is refused.
var deciding = strictjson.NewTable(
	strictjson.Rule{Name: "model", Deciding: true},
	strictjson.Rule{Name: "duration", Deciding: true},
	strictjson.Rule{Name: "seconds", Deciding: true},
	strictjson.Rule{Name: "n", Deciding: true},
	strictjson.Rule{Name: "width", Deciding: true},
	strictjson.Rule{Name: "height", Deciding: true},
)

// DecodeGenerations reads a body of /v1/video/generations. All of its members
// are optional, the model too: the caller fills in a default one. Members that
// are not known pass on in Fields. The image, a URL or Base64, becomes the first
// frame.
func DecodeGenerations(body []byte) (Request, *fault.Fault) {
	var b generationsBody
	var unknown []string
	if refused := strictjson.Decode(body, &b, strictjson.Ignored(&unknown)); refused != nil {
		return Request{}, refused
	}
	if refused := deciding.Scan(body, nil); refused != nil {
		return Request{}, refused
	}
	r := Request{
		Kind: catalog.Video, Model: b.Model, Prompt: b.Prompt, Seed: b.Seed, Fields: make(map[string]json.RawMessage),
		Output: Output{Duration: b.Duration, Count: wide(b.N), Width: wide(b.Width), Height: wide(b.Height), FPS: wide(b.FPS)},
	}
	if err := json.Unmarshal(body, &r.Fields); err != nil {
		return Request{}, fault.New(fault.InvalidJSON, "the body cannot be read: %v", err)
	}
	if b.Image != "" {
		r.Inputs = []Input{{URL: b.Image, Category: string(catalog.Image), Usage: FirstFrame}}
	}
	delete(r.Fields, "image")
	if refused := r.adopt(b.Metadata); refused != nil {
		return Request{}, refused
	}
	return r, nil
}

// twins are places where backends are known to look for what decides the price
// or the model, and to prefer what they find there. They are allowed as long as
// they say the same as the member itself, or say it alone.
var twins = []struct {
	metadata bool // in metadata, else at the top
	name     string
	adopt    func(r *Request, text string) (same bool)
	means    string
}{
	{false, "seconds", adoptDuration, "duration"},
	{true, "duration", adoptDuration, "duration"},
	{true, "seconds", adoptDuration, "duration"},
	{true, "n", adoptCount, "n"},
	{true, "model", adoptModel, "model"},
}

// adopt takes over what the twins say, and refuses one that contradicts.
func (r *Request) adopt(metadata map[string]strictjson.Raw) *fault.Fault {
	for _, twin := range twins {
		raw, path := []byte(r.Fields[twin.name]), twin.name
		if twin.metadata {
			raw, path = metadata[twin.name], "metadata."+twin.name
		}
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		text := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &text); err != nil {
				return fault.New(fault.InvalidJSON, "the body cannot be read: %v", err)
			}
		}
		if !twin.adopt(r, text) {
			return fault.At(fault.InvalidParameter, path, "`%s` must say the same as `%s`, which decides the price", path, twin.means)
		}
	}
	return nil
}

func adoptDuration(r *Request, text string) bool {
	n, refused := catalog.ParseSeconds(text)
	if refused == nil && r.Output.Duration == nil {
		r.Output.Duration = &n
	}
	return refused == nil && *r.Output.Duration == n
}

func adoptCount(r *Request, text string) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	if err == nil && r.Output.Count == nil {
		r.Output.Count = new(int(n))
	}
	return err == nil && *r.Output.Count == int(n)
}

func adoptModel(r *Request, text string) bool {
	if r.Model == "" {
		r.Model = text
	}
	return r.Model == text
}

// harmless are the members, at the top and in metadata, that can change neither
// the resolution nor the sound of what is generated.
var harmless = map[string]bool{
	"model": true, "prompt": true, "duration": true, "seconds": true, "width": true, "height": true, "fps": true, "seed": true, "n": true,
	"response_format": true, "user": true, "negative_prompt": true, "style": true,
}

// opaque tells whether r has members of which nobody here knows what they do:
// they may ask for another resolution, or for sound.
func (r *Request) opaque() bool {
	for name, raw := range r.Fields {
		if name == "metadata" {
			var metadata map[string]json.RawMessage
			if json.Unmarshal(raw, &metadata) != nil || !allHarmless(metadata) {
				return true
			}
		} else if !harmless[name] {
			return true
		}
	}
	return false
}

func allHarmless(members map[string]json.RawMessage) bool {
	for name := range members {
		if !harmless[name] {
			return false
		}
	}
	return true
}
