package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Names are the names that a model's input has for what a job says, by our
// words for it: those of [jobFields], and "ext_info.<member>" and
// "metadata.<member>" for what callers may hand through. What has no name is
// not sent, so that a caller cannot change what was priced with a member of their own. A
// name that ends in ":string" takes a number as a string.
type Names map[string]string

// jobField is a field of a job. Operators name it by its key in [jobFields].
type jobField struct {
	param string
	owed  bool
	value func(backends.Job) any // nil if the job does not say it
}

// jobFields are all fields of a job but the model, by our words. If a job sets a field
// that is owed and the service has no name for it, the job is refused: the caller would
// pay for something that is left out. The gateway itself does what the other fields ask
// for: it names the file, and knows the caller's user.
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
	"reference_types":     {"inputs[%d].reference_type", true, ofInputs(func(i backends.Input) string { return i.ReferenceType })},
	"object_ids":          {"inputs[%d].object_id", true, ofInputs(func(i backends.Input) string { return i.ObjectID })},
	"voice_ids":           {"inputs[%d].voice_id", true, ofInputs(func(i backends.Input) string { return i.VoiceID })},
	"input_texts":         {"inputs[%d].text", true, ofInputs(func(i backends.Input) string { return i.Text })},
	"keep_original_sound": {"inputs[%d].keep_original_sound", true, ofInputs(func(i backends.Input) string { return i.KeepOriginalSound })},
	"subject_images":      {"subject_inputs", true, ofSubjects(func(s backends.SubjectInput) string { return s.URL })},
	"subject_ids":         {"subject_inputs[%d].id", true, ofSubjects(func(s backends.SubjectInput) string { return s.ID })},
	"subject_names":       {"subject_inputs[%d].name", true, ofSubjects(func(s backends.SubjectInput) string { return s.Name })},
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
	"class_id":          {"output.class_id", true, more(func(j backends.Job) int { return int(j.Output.ClassID) }, 0)},
	"count":             {"output.count", true, more(func(j backends.Job) int { return j.Output.Count }, 1)},
	"format":            {"output.format", true, text(func(j backends.Job) string { return j.Output.Format })},
	"width":             {"output.width", true, more(func(j backends.Job) int { return j.Output.Width }, 0)},
	"height":            {"output.height", true, more(func(j backends.Job) int { return j.Output.Height }, 0)},
	"fps":               {"output.fps", true, more(func(j backends.Job) int { return j.Output.FPS }, 0)},
	"response_format": {"response_format", true, func(j backends.Job) any {
		if format := member(j, "response_format"); format != "" && format != "url" { // links are what is answered
			return format
		}
		return nil
	}},
	"user": {"user", false, text(func(j backends.Job) string { return member(j, "user") })},
}

// member returns a field of /v1/video/generations that is a text; empty if it is not set.
func member(j backends.Job, name string) string {
	var value Text
	_ = json.Unmarshal(j.Fields[name], &value) // a Text takes anything
	return string(value)
}

// known are the fields of /v1/video/generations that [jobFields] read.
var known = map[string]bool{
	"model": true, "prompt": true, "image": true, "duration": true, "width": true, "height": true, "fps": true, "seed": true, "n": true,
	"response_format": true, "user": true,
}

// CheckFields returns an error if a job sets a field that its service does not take. The
// service takes the fields in takes and, if extended is set, the members of ext_info.
func CheckFields(job backends.Job, takes []string, extended bool) error {
	for _, word := range slices.Sorted(maps.Keys(jobFields)) {
		if field := jobFields[word]; field.owed && !slices.Contains(takes, word) {
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

// extras returns the members that a job passes on beside its [jobFields], by their paths.
func extras(job backends.Job) map[string]any {
	all := make(map[string]any)
	within := func(path string, raw json.RawMessage) {
		var members Object
		_ = json.Unmarshal(raw, &members) // an Object takes anything
		for name, value := range members {
			all[path+name] = value
		}
	}
	within("ext_info.", job.ExtInfo)
	for name, raw := range job.Fields {
		switch {
		case name == "metadata":
			within("metadata.", raw)
		case !known[name] && string(raw) != "null":
			all[name] = raw
		}
	}
	for _, path := range job.Adopted {
		delete(all, path)
	}
	return all
}

// refusal returns the error for the field. In a list it names the first element that
// sets it.
func (f jobField) refusal(job backends.Job, why string) *backends.Error {
	param := f.param
	if strings.Contains(param, "%d") {
		list, _ := f.value(job).([]string)
		param = fmt.Sprintf(param, slices.IndexFunc(list, func(value string) bool { return value != "" }))
	}
	return backends.Invalid(param, why)
}

func text(of func(backends.Job) string) func(backends.Job) any {
	return func(j backends.Job) any {
		if value := of(j); value != "" {
			return value
		}
		return nil
	}
}

func enabled(of func(backends.Job) string) func(backends.Job) any {
	return func(j backends.Job) any {
		if value := of(j); value != "" {
			return value == backends.Enabled
		}
		return nil
	}
}

// more is a number that is said when it is above what goes without saying.
func more(of func(backends.Job) int, least int) func(backends.Job) any {
	return func(j backends.Job) any {
		if value := of(j); value > least {
			return value
		}
		return nil
	}
}

// references are the addresses of the inputs of a category that are no frames.
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

// ofInputs returns one value of each input, in their order; nil if no input sets it.
func ofInputs(of func(backends.Input) string) func(backends.Job) any {
	return func(j backends.Job) any { return each(j.Inputs, of) }
}

// ofSubjects returns one value of each subject, in their order; nil if no subject sets
// it.
func ofSubjects(of func(backends.SubjectInput) string) func(backends.Job) any {
	return func(j backends.Job) any { return each(j.SubjectInputs, of) }
}

func each[E any](elements []E, of func(E) string) any {
	list := make([]string, len(elements))
	said := false
	for i, element := range elements {
		list[i] = of(element)
		said = said || list[i] != ""
	}
	if !said {
		return nil
	}
	return list
}

// CheckNames refuses names for what is none of our words.
func CheckNames(names Names) error {
	for word := range names {
		if _, known := jobFields[word]; !known && !strings.HasPrefix(word, "ext_info.") && !strings.HasPrefix(word, "metadata.") {
			return fmt.Errorf("input %q: there are %s, ext_info.<name> and metadata.<name>",
				word, strings.Join(slices.Sorted(maps.Keys(jobFields)), ", "))
		}
	}
	return nil
}

// dropped as a name leaves a thing out where a service has a name by default.
const dropped = "-"

// Input says a job in the words of a model: usual names, and those that were
// configured instead.
func Input(job backends.Job, usual, configured Names) (map[string]any, error) {
	names := maps.Clone(usual)
	maps.Copy(names, configured)
	input := make(map[string]any)
	for _, word := range slices.Sorted(maps.Keys(jobFields)) {
		field := jobFields[word]
		value := field.value(job)
		if value == nil {
			continue
		}
		name, named := names[word]
		switch {
		case named && name != dropped:
			name, asText := strings.CutSuffix(name, ":string")
			if asText {
				value = fmt.Sprint(value)
			}
			input[name] = value
		case field.owed && !named && value != false:
			return nil, field.refusal(job, "this model has no input for it")
		}
	}
	// What callers hand through comes last, and never in the place of a thing
	// that has been said.
	for path, value := range extras(job) {
		name, named := names[path]
		if !named {
			return nil, backends.Invalid(path, "this model has no input for it")
		}
		if _, said := input[name]; !said && name != dropped {
			input[name] = value
		}
	}
	return input, nil
}

// maxLinks is as many as a job can be asked for results.
const maxLinks = 100

// Links returns the addresses in an output whose form is the model's: of a
// string itself, of a list its elements', of an object its members', in
// the order of their names. Inner is the name that an object has for the address
// of a file; empty: any.
func Links(raw json.RawMessage, inner string) []string {
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
			if link := Link(value); link != "" && (inner == "" || name == inner) {
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
