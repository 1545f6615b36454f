package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Names maps keys of [jobFields], "ext_info.<member>" and "metadata.<member>"
// to the names of a model's input. A field without a name is not sent, so that a
// caller's own members cannot change a priced field. A name that ends in
// ":string" sends a number as a string.
type Names map[string]string

// jobField is a field of a job. Operators name it by its key in [jobFields].
type jobField struct {
	param    string
	required bool
	value    func(backends.Job) any // nil if the job does not set it
}

// jobFields are all fields of a job except the model, by their keys in the
// configuration. A job that sets a required field is refused if the model has no
// name for it. Otherwise the caller would pay for something that is not sent. The
// gateway itself implements the fields that are not required.
var jobFields = map[string]jobField{
	"prompt":          {"prompt", true, text(func(j backends.Job) string { return j.Prompt })},
	"negative_prompt": {"negative_prompt", true, text(func(j backends.Job) string { return j.NegativePrompt })},
	"enhance_prompt":  {"enhance_prompt", true, enabled(func(j backends.Job) string { return j.EnhancePrompt })},
	"generation_mode": {"generation_mode", true, text(func(j backends.Job) string { return j.GenerationMode })},
	"scene_type":      {"scene_type", true, text(func(j backends.Job) string { return j.SceneType })},
	"input_region":    {"input_region", true, text(func(j backends.Job) string { return j.InputRegion })},
	"seed": {"seed", true, func(j backends.Job) any {
		if j.Seed == nil {
			return nil
		}
		return *j.Seed
	}},
	"first_frame":         {"inputs", true, text(func(j backends.Job) string { return j.Frame(backends.FirstFrame) })},
	"last_frame":          {"inputs", true, text(func(j backends.Job) string { return j.Frame(backends.LastFrame) })},
	"reference_images":    {"inputs", true, references("image")},
	"reference_videos":    {"inputs", true, references("video")},
	"reference_types":     {"inputs[%d].reference_type", true, perInput(func(i backends.Input) string { return i.ReferenceType })},
	"object_ids":          {"inputs[%d].object_id", true, perInput(func(i backends.Input) string { return i.ObjectID })},
	"voice_ids":           {"inputs[%d].voice_id", true, perInput(func(i backends.Input) string { return i.VoiceID })},
	"input_texts":         {"inputs[%d].text", true, perInput(func(i backends.Input) string { return i.Text })},
	"keep_original_sound": {"inputs[%d].keep_original_sound", true, perInput(func(i backends.Input) string { return i.KeepOriginalSound })},
	"subject_images":      {"subject_inputs", true, perSubject(func(s backends.SubjectInput) string { return s.URL })},
	"subject_ids":         {"subject_inputs[%d].id", true, perSubject(func(s backends.SubjectInput) string { return s.ID })},
	"subject_names":       {"subject_inputs[%d].name", true, perSubject(func(s backends.SubjectInput) string { return s.Name })},
	"duration": {"output.duration", true, func(j backends.Job) any {
		if seconds := j.Output.Seconds(); seconds != "" {
			return json.Number(seconds)
		}
		return nil
	}},
	"resolution":        {"output.resolution", true, text(func(j backends.Job) string { return strings.ToLower(j.Output.Resolution) })},
	"aspect_ratio":      {"output.aspect_ratio", true, text(func(j backends.Job) string { return j.Output.AspectRatio })},
	"audio":             {"output.audio_generation", true, enabled(func(j backends.Job) string { return j.Output.AudioGeneration })},
	"enhance_switch":    {"output.enhance_switch", true, enabled(func(j backends.Job) string { return j.Output.EnhanceSwitch })},
	"frame_interpolate": {"output.frame_interpolate", true, enabled(func(j backends.Job) string { return j.Output.FrameInterpolate })},
	"media_name":        {"output.media_name", false, text(func(j backends.Job) string { return j.Output.MediaName })},
	"class_id":          {"output.class_id", true, above(func(j backends.Job) int { return int(j.Output.ClassID) }, 0)},
	"count":             {"output.count", true, above(func(j backends.Job) int { return j.Output.Count }, 1)},
	"format":            {"output.format", true, text(func(j backends.Job) string { return j.Output.Format })},
	"width":             {"output.width", true, above(func(j backends.Job) int { return j.Output.Width }, 0)},
	"height":            {"output.height", true, above(func(j backends.Job) int { return j.Output.Height }, 0)},
	"fps":               {"output.fps", true, above(func(j backends.Job) int { return j.Output.FPS }, 0)},
	"response_format": {"response_format", true, func(j backends.Job) any {
		if format := member(j, "response_format"); format != "" && format != "url" { // the results are URLs
			return format
		}
		return nil
	}},
	"user": {"user", false, text(func(j backends.Job) string { return member(j, "user") })},
}

// member returns a field of /v1/video/generations that is a string, or "".
func member(j backends.Job, name string) string {
	var value Text
	_ = json.Unmarshal(j.Fields[name], &value) // a Text accepts any value
	return string(value)
}

// known are the fields of /v1/video/generations that are in [jobFields].
var known = map[string]bool{
	"model": true, "prompt": true, "image": true, "duration": true, "width": true, "height": true, "fps": true, "seed": true, "n": true,
	"response_format": true, "user": true,
}

// CheckFields returns an error if a job sets a required field that is not in
// supported. If extended is set, the members of ext_info are supported too.
func CheckFields(job backends.Job, supported []string, extended bool) error {
	for _, key := range slices.Sorted(maps.Keys(jobFields)) {
		if field := jobFields[key]; field.required && !slices.Contains(supported, key) {
			if value := field.value(job); value != nil && value != false {
				return field.refusal(job, "this service has no field for it")
			}
		}
	}
	for path := range extras(job) {
		if !extended || !strings.HasPrefix(path, "ext_info.") {
			return backends.Invalid(path, "this service has no field for it")
		}
	}
	return nil
}

// extras returns the members of ext_info and metadata that are not [jobFields],
// by their paths.
func extras(job backends.Job) map[string]any {
	all := make(map[string]any)
	add := func(path string, raw json.RawMessage) {
		var members Object
		_ = json.Unmarshal(raw, &members) // an Object accepts any value
		for name, value := range members {
			all[path+name] = value
		}
	}
	add("ext_info.", job.ExtInfo)
	for name, raw := range job.Fields {
		switch {
		case name == "metadata":
			add("metadata.", raw)
		case !known[name] && string(raw) != "null":
			all[name] = raw
		}
	}
	for _, path := range job.Adopted {
		delete(all, path)
	}
	return all
}

// refusal returns the error for this field. If the field is a list, the error
// names the first element that sets it.
func (f jobField) refusal(job backends.Job, reason string) *backends.Error {
	param := f.param
	if strings.Contains(param, "%d") {
		list, _ := f.value(job).([]string)
		param = fmt.Sprintf(param, slices.IndexFunc(list, func(value string) bool { return value != "" }))
	}
	return backends.Invalid(param, reason)
}

func text(get func(backends.Job) string) func(backends.Job) any {
	return func(j backends.Job) any {
		if value := get(j); value != "" {
			return value
		}
		return nil
	}
}

func enabled(get func(backends.Job) string) func(backends.Job) any {
	return func(j backends.Job) any {
		if value := get(j); value != "" {
			return value == backends.Enabled
		}
		return nil
	}
}

// above returns a number if it is greater than its default, and otherwise nil.
func above(get func(backends.Job) int, initial int) func(backends.Job) any {
	return func(j backends.Job) any {
		if value := get(j); value > initial {
			return value
		}
		return nil
	}
}

// references returns the URLs of the inputs of a category that are not frames.
func references(category string) func(backends.Job) any {
	return func(j backends.Job) any {
		var list []string
		for _, input := range j.Inputs {
			isFrame := input.Usage == backends.FirstFrame || input.Usage == backends.LastFrame
			if isVideo := input.Category == "video"; !isFrame && isVideo == (category == "video") {
				list = append(list, input.URL)
			}
		}
		if list == nil {
			return nil
		}
		return list
	}
}

// perInput returns one value for each input, in order, or nil if no input sets
// it.
func perInput(get func(backends.Input) string) func(backends.Job) any {
	return func(j backends.Job) any { return each(j.Inputs, get) }
}

// perSubject returns one value for each subject, in order, or nil if no subject
// sets it.
func perSubject(get func(backends.SubjectInput) string) func(backends.Job) any {
	return func(j backends.Job) any { return each(j.SubjectInputs, get) }
}

func each[E any](elements []E, get func(E) string) any {
	list := make([]string, len(elements))
	found := false
	for i, element := range elements {
		list[i] = get(element)
		found = found || list[i] != ""
	}
	if !found {
		return nil
	}
	return list
}

// CheckNames returns an error if a key is not one that [Names] allows.
func CheckNames(names Names) error {
	for key := range names {
		if _, known := jobFields[key]; !known && !strings.HasPrefix(key, "ext_info.") && !strings.HasPrefix(key, "metadata.") {
			return fmt.Errorf("input %q: unknown field; allowed: %s, ext_info.<name> and metadata.<name>",
				key, strings.Join(slices.Sorted(maps.Keys(jobFields)), ", "))
		}
	}
	return nil
}

// omitted is a name that removes a default name: the field is not sent.
const omitted = "-"

// Input returns the input of a model for a job. The names in configured replace
// those in defaults.
func Input(job backends.Job, defaults, configured Names) (map[string]any, error) {
	names := maps.Clone(defaults)
	maps.Copy(names, configured)
	input := make(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(jobFields)) {
		field := jobFields[key]
		value := field.value(job)
		if value == nil {
			continue
		}
		name, named := names[key]
		switch {
		case named && name != omitted:
			name, isString := strings.CutSuffix(name, ":string")
			if isString {
				value = fmt.Sprint(value)
			}
			input[name] = value
		case field.required && !named && value != false:
			return nil, field.refusal(job, "this model has no input for it")
		}
	}
	// The caller's own members do not replace fields of the job.
	for path, value := range extras(job) {
		name, named := names[path]
		if !named {
			return nil, backends.Invalid(path, "this model has no input for it")
		}
		if _, found := input[name]; !found && name != omitted {
			input[name] = value
		}
	}
	return input, nil
}

// maxLinks is the maximum number of results of a job.
const maxLinks = 100

// Links returns the URLs in a model's output. They are the output itself, the elements of a
// list, or the members of an object in the order of their names. If key is not empty, only
// members with this name count.
func Links(raw json.RawMessage, key string) []string {
	var value any
	if len(raw) == 0 || json.Unmarshal(raw, &value) != nil {
		return nil
	}
	var list []string
	var walk func(value any, name string)
	walk = func(value any, name string) {
		if len(list) >= maxLinks {
			return
		}
		switch value := value.(type) {
		case string:
			if link := Link(value); link != "" && (key == "" || name == key) {
				list = append(list, link)
			}
		case []any:
			for _, element := range value {
				walk(element, name)
			}
		case map[string]any:
			for _, member := range slices.Sorted(maps.Keys(value)) {
				walk(value[member], member)
			}
		}
	}
	walk(value, "")
	return list
}

// prefixes begin the gateway's model names. Services do not use them.
var prefixes = []string{"video-", "image-"}

// Models maps the gateway's model names to the service's.
type Models map[string]string

// Name returns the service's name for a model: the configured one, or the model
// without the prefix "video-" or "image-".
func (m Models) Name(model string) string {
	if name, configured := m[model]; configured {
		return name
	}
	for _, prefix := range prefixes {
		if name, found := strings.CutPrefix(model, prefix); found && name != "" {
			return name
		}
	}
	return model
}
