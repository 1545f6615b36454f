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
// words for it: those of [items], and "ext_info.<member>" and
// "metadata.<member>" for what callers may hand through. What has no name is
// not sent, so that nobody changes by a member of his own what was priced. A
// name that ends in ":string" takes a number as a string.
type Names map[string]string

// items are our words, with the field they stand for. A job that says one of
// those that are owed is refused where the input has no name for it: it would
// be paid for and left out.
var items = map[string]struct {
	param string
	owed  bool
	value func(backends.Job) any // nil if the job does not say it
}{
	"prompt":          {"prompt", true, text(func(j backends.Job) string { return j.Prompt })},
	"negative_prompt": {"negative_prompt", false, text(func(j backends.Job) string { return j.NegativePrompt })},
	"enhance_prompt":  {"enhance_prompt", false, enabled(func(j backends.Job) string { return j.EnhancePrompt })},
	"scene_type":      {"scene_type", true, text(func(j backends.Job) string { return j.SceneType })},
	"seed": {"seed", false, func(j backends.Job) any {
		if j.Seed == nil {
			return nil
		}
		return *j.Seed
	}},
	"first_frame":      {"inputs", true, text(func(j backends.Job) string { return j.Frame(backends.FirstFrame) })},
	"last_frame":       {"inputs", true, text(func(j backends.Job) string { return j.Frame(backends.LastFrame) })},
	"reference_images": {"inputs", true, references("image")},
	"reference_videos": {"inputs", true, references("video")},
	"subject_images":   {"subject_inputs", true, subjects},
	"duration": {"output.duration", true, func(j backends.Job) any {
		if seconds := j.Output.Seconds(); seconds != "" {
			return json.Number(seconds)
		}
		return nil
	}},
	"resolution":   {"output.resolution", true, text(func(j backends.Job) string { return strings.ToLower(j.Output.Resolution) })},
	"aspect_ratio": {"output.aspect_ratio", true, text(func(j backends.Job) string { return j.Output.AspectRatio })},
	"audio":        {"output.audio_generation", true, enabled(func(j backends.Job) string { return j.Output.AudioGeneration })},
	"count":        {"output.count", true, more(func(j backends.Job) int { return j.Output.Count }, 1)},
	"format":       {"output.format", false, text(func(j backends.Job) string { return j.Output.Format })},
	"width":        {"output.width", true, more(func(j backends.Job) int { return j.Output.Width }, 0)},
	"height":       {"output.height", true, more(func(j backends.Job) int { return j.Output.Height }, 0)},
	"fps":          {"output.fps", true, more(func(j backends.Job) int { return j.Output.FPS }, 0)},
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

func subjects(j backends.Job) any {
	if len(j.SubjectInputs) == 0 {
		return nil
	}
	list := make([]string, len(j.SubjectInputs))
	for i, subject := range j.SubjectInputs {
		list[i] = subject.URL
	}
	return list
}

// CheckNames refuses names for what is none of our words.
func CheckNames(names Names) error {
	for word := range names {
		if _, known := items[word]; !known && !strings.HasPrefix(word, "ext_info.") && !strings.HasPrefix(word, "metadata.") {
			return fmt.Errorf("input %q: there are %s, ext_info.<name> and metadata.<name>",
				word, strings.Join(slices.Sorted(maps.Keys(items)), ", "))
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
	for _, word := range slices.Sorted(maps.Keys(items)) {
		item := items[word]
		value := item.value(job)
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
		case item.owed && !named && value != false:
			return nil, backends.Invalid(item.param, "this model has no input for it")
		}
	}
	// What callers hand through comes last, and never in the place of a thing
	// that has been said.
	for _, from := range []struct {
		word string
		raw  json.RawMessage
	}{{"ext_info.", job.ExtInfo}, {"metadata.", job.Fields["metadata"]}} {
		var members Object
		_ = json.Unmarshal(from.raw, &members) // an Object takes anything
		for member, value := range members {
			name, named := names[from.word+member]
			if _, said := input[name]; named && !said && name != dropped {
				input[name] = value
			}
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
