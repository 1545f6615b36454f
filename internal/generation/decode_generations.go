package generation

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// generationsBody has the known members of /v1/video/generations.
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

// MaxMembers is the maximum number of members of a body, at all depths
// together.
const MaxMembers = 10_000

// deciding are members that affect routing or price, or have their own limit.
// Some backends ignore the case of names, so a member that differs only in case
// is refused.
var deciding = strictjson.NewTable(
	strictjson.Rule{Name: "model", Deciding: true},
	strictjson.Rule{Name: "duration", Deciding: true},
	strictjson.Rule{Name: "seconds", Deciding: true},
	strictjson.Rule{Name: "n", Deciding: true},
	strictjson.Rule{Name: "width", Deciding: true},
	strictjson.Rule{Name: "height", Deciding: true},
	strictjson.Rule{Name: "fps", Deciding: true},
	strictjson.Rule{Name: "prompt", Deciding: true},
	strictjson.Rule{Name: "image", Deciding: true},
	strictjson.Rule{Name: "negative_prompt", Deciding: true},
	strictjson.Rule{Name: "user", Deciding: true},
	strictjson.Rule{Name: "response_format", Deciding: true},
	strictjson.Rule{Name: "metadata", Deciding: true},
)

// DecodeGenerations decodes a body of /v1/video/generations. All members are
// optional, including the model: the caller sets a default. Unknown members are
// passed on in Fields. The image, a URL or Base64, becomes the first frame.
func DecodeGenerations(body []byte) (Request, *fault.Fault) {
	var b generationsBody
	if refused := strictjson.Decode(body, &b, strictjson.Ignored(nil), strictjson.MaxMembers(MaxMembers)); refused != nil {
		return Request{}, refused
	}
	if refused := deciding.Scan(body, nil); refused != nil {
		return Request{}, refused
	}
	r := Request{
		Kind: catalog.Video, Model: b.Model, Prompt: b.Prompt, Seed: b.Seed, Fields: make(map[string]json.RawMessage),
		Output: Output{Duration: b.Duration, Count: toInt(b.N), Width: toInt(b.Width), Height: toInt(b.Height), FPS: toInt(b.FPS)},
	}
	if err := json.Unmarshal(body, &r.Fields); err != nil {
		return Request{}, fault.New(fault.InvalidJSON, "the body cannot be read: %v", err)
	}
	if b.Image != "" {
		r.Inputs = []Input{{URL: b.Image, Category: string(catalog.Image), Usage: FirstFrame}}
	}
	delete(r.Fields, "image")
	refused := r.adopt(aliasesOf(r.Fields))
	return r, refused
}

// harmless are members, at the top level and in metadata, that can change
// neither the resolution nor the sound of the result.
var harmless = map[string]bool{
	"model": true, "prompt": true, "duration": true, "seconds": true, "width": true, "height": true, "fps": true, "seed": true, "n": true,
	"response_format": true, "user": true, "negative_prompt": true, "style": true, "aspect_ratio": true, "session_id": true, "session_context": true,
}

// soundMembers are members, as returned by [normalize], with which services are known to
// enable sound; soundOff are the values that disable it.
var (
	soundMembers = map[string]bool{"audio": true, "audiogeneration": true, "generateaudio": true}
	soundOff     = map[string]bool{`false`: true, `"disabled"`: true, `"Disabled"`: true}
)

// opaque reports whether r has members of unknown meaning, which may request
// another resolution or sound.
func (r *Request) opaque() bool {
	for name, raw := range r.Fields {
		if name == "metadata" {
			var metadata map[string]json.RawMessage
			if json.Unmarshal(raw, &metadata) != nil || !allHarmless(metadata) {
				return true
			}
		} else if !isHarmless(name, raw) {
			return true
		}
	}
	return false
}

// isHarmless reports whether a member can change neither the resolution nor the
// sound. It may be an alias, which must have the priced value.
func isHarmless(name string, raw json.RawMessage) bool {
	if harmless[name] || soundOff[string(raw)] && soundMembers[normalize(name)] {
		return true
	}
	of := quantityOf(name)
	return of != nil && !of.opaque && !of.counts || slices.Contains(qualities, normalize(name)) && !sizeText.MatchString(strings.Trim(string(raw), `"`))
}

func allHarmless(members map[string]json.RawMessage) bool {
	for name, raw := range members {
		if !isHarmless(name, raw) {
			return false
		}
	}
	return true
}
