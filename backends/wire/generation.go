package wire

import (
	"encoding/json"
	"maps"
	"strconv"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Generation is the body of POST /v1/video/generations for a job of that kind:
// the fields as the caller wrote them, and what the job knows better, which are
// the model and the defaults that were filled in.
func Generation(job backends.Job, model string) ([]byte, error) {
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
		"width":    whole(job.Output.Width),
		"height":   whole(job.Output.Height),
		"fps":      whole(job.Output.FPS),
		"n":        whole(job.Output.Count),
	} {
		if !given(fields, name) && text != "" {
			fields[name] = json.RawMessage(text)
		}
	}
	if !given(fields, "prompt") && job.Prompt != "" {
		if fields["prompt"], err = Encode(job.Prompt); err != nil {
			return nil, backends.Invalid("prompt", "it cannot be written as JSON")
		}
	}
	// The job has the image as an input, and Fields does not repeat it.
	if len(job.Inputs) > 0 && !given(fields, "image") {
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

// given tells whether a caller gave a field a value. Null is none: what was
// priced then is the default.
func given(fields map[string]json.RawMessage, name string) bool {
	value, there := fields[name]
	return there && string(value) != "null"
}

// whole is a number as JSON has it, or "" for none.
func whole(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}
