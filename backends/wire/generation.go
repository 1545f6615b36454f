package wire

import (
	"encoding/json"
	"maps"
	"strconv"

	"github.com/caddy-modelgate/modelgate/backends"
)

// GenerationBody returns the body of POST /v1/video/generations for a job of
// that kind: the caller's fields, with the service's model name and the
// gateway's defaults.
func GenerationBody(job backends.Job, model string) ([]byte, error) {
	fields := maps.Clone(job.Fields)
	if fields == nil {
		fields = make(map[string]json.RawMessage)
	}
	name, err := Encode(model)
	if err != nil {
		return nil, backends.Invalid("model", "it cannot be written as JSON")
	}
	fields["model"] = name
	for name, text := range map[string]string{
		"duration": job.Output.Seconds(),
		"width":    positive(job.Output.Width),
		"height":   positive(job.Output.Height),
		"fps":      positive(job.Output.FPS),
		"n":        positive(job.Output.Count),
	} {
		if !isSet(fields, name) && text != "" {
			fields[name] = json.RawMessage(text)
		}
	}
	if !isSet(fields, "prompt") && job.Prompt != "" {
		if fields["prompt"], err = Encode(job.Prompt); err != nil {
			return nil, backends.Invalid("prompt", "it cannot be written as JSON")
		}
	}
	// The image is an input of the job and not in Fields.
	if len(job.Inputs) > 0 && !isSet(fields, "image") {
		if fields["image"], err = Encode(job.Inputs[0].URL); err != nil {
			return nil, backends.Invalid("inputs", "it cannot be written as JSON")
		}
	}
	body, err := Encode(fields)
	if err != nil {
		return nil, backends.Invalid("metadata", "the body cannot be written as JSON")
	}
	return body, nil
}

// isSet reports whether the caller set a field. A null does not count: the
// gateway has priced the default of the field.
func isSet(fields map[string]json.RawMessage, name string) bool {
	value, ok := fields[name]
	return ok && string(value) != "null"
}

// positive returns n as JSON, or "" if it is not positive.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}
