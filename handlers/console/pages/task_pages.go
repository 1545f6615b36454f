package pages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

var oneTask = load{"task", "/api/task/self/{task_id}", ""}

// taskPages show, submit and cancel generation tasks.
var taskPages = []page{
	{path: "/tasks", name: "tasks", nav: true, filtered: true, unfinished: unfinishedTask, loads: []load{
		{"tasks", "/api/task/self/", "status key_id p"},
		{"keys", "/api/token/?page_size=100", ""},
	}},
	{path: "/tasks/new", name: "task_new", section: "tasks", loads: []load{taskModels}, actions: composing},
	{path: "/tasks/{task_id}", name: "task", section: "tasks", unfinished: unfinishedTask, loads: []load{oneTask, allKeys}, actions: map[string]*action{
		"cancel_task": do("POST", "/api/task/self/{task_id}/cancel", "", after("/tasks/{task_id}", "task_cancelled")),
	}},
	{path: "/tasks/{again}/again", name: "task_again", section: "tasks", loads: []load{{"again", "/api/task/self/{again}", ""}, taskModels}, actions: composing},
}

// taskModels are the models, or the one that the query of the page names.
var taskModels = load{"models", "/api/task/models/?page_size=100", "model"}

// composing are the actions of a page on which a task is composed.
var composing = map[string]*action{
	"price_task":  do("POST", "/api/task/self/?dry_run=true", composed(), ""),
	"submit_task": do("POST", "/api/task/self/", composed(), after("/tasks/{task_id}", "task_submitted")),
}

// maxRows is how many inputs, and how many subjects, a form has.
const maxRows = 5

// composed returns the fields of a task.
func composed() string {
	fields := make([]string, 0, 1+10*maxRows)
	fields = append(fields, "type model prompt negative_prompt enhance_prompt scene_type seed:int output.duration:int output.resolution "+
		"output.aspect_ratio output.audio_generation output.frame_interpolate output.count:int output.format output.media_name")
	for i := range maxRows {
		for _, name := range []string{"url", "usage", "category", "reference_type", "object_id", "voice_id", "text"} {
			fields = append(fields, fieldOf("inputs", i, name))
		}
		for _, name := range []string{"url", "id", "name"} {
			fields = append(fields, fieldOf("subject_inputs", i, name))
		}
	}
	return strings.Join(fields, " ")
}

// fieldOf returns the name of a field of an element of a list.
func fieldOf(list string, n int, name string) string { return fmt.Sprintf("%s[%d].%s", list, n, name) }

// unfinishedTask reports whether a page shows a task that has not ended.
func unfinishedTask(data map[string]any) bool {
	items := get[[]any](data, "tasks", "items")
	if task, one := data["task"]; one {
		items = []any{task}
	}
	return slices.ContainsFunc(items, func(item any) bool {
		return get[any](item, "completed_at") == nil
	})
}

// taskFunctions are those of the templates of these pages.
var taskFunctions = template.FuncMap{
	"typed":           typed,
	"cut":             cut,
	"members":         parameters,
	"choices":         choices,
	"rows":            func(most any) int { return rows(integer(most)) },
	"field_of":        fieldOf,
	"progress":        func(text any) string { return strings.TrimSuffix(fmt.Sprint(text), "%") },
	"days":            days,
	"reference_types": referenceTypes,
	"words":           func(words ...string) []string { return words },
	"curl":            curl,
}

// rows returns how many inputs a form offers of those that a model takes; zero is any number.
func rows(most int64) int {
	if most == 0 || most > maxRows {
		return maxRows
	}
	return int(most)
}

// days returns how many days some seconds are; a day that has begun counts.
func days(seconds any) int64 {
	const day = 24 * 60 * 60
	return (integer(seconds) + day - 1) / day
}

// typed returns the value of a field of a task that is being composed: what was typed, or else what
// the earlier task had.
func typed(v *View, name string) string {
	if v.Form.Has("do") {
		return v.Form.Get(name)
	}
	value := get[any](v.Data, "again", "request")
	for part := range strings.SplitSeq(name, ".") {
		member, index, isElement := strings.Cut(strings.TrimSuffix(part, "]"), "[")
		value = get[any](value, member)
		if isElement {
			list, _ := value.([]any)
			n, _ := strconv.Atoi(index)
			value = nil
			if n < len(list) {
				value = list[n]
			}
		}
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// cut returns the beginning of a text, of at most n characters.
func cut(n int, text any) string {
	if text == nil {
		return ""
	}
	runes := []rune(strings.Join(strings.Fields(fmt.Sprint(text)), " "))
	if len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return string(runes)
}

// parameter is one value of a request, by its path.
type parameter struct{ Name, Value string }

// parameters returns the values of a request except its model and its prompt, in the order of their
// paths.
func parameters(prefix string, value any) (all []parameter) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if path := strings.TrimPrefix(prefix+"."+name, "."); path != "model" && path != "prompt" {
				all = append(all, parameters(path, v[name])...)
			}
		}
	case []any:
		for i, element := range v {
			all = append(all, parameters(fmt.Sprintf("%s[%d]", prefix, i), element)...)
		}
	default:
		all = append(all, parameter{prefix, fmt.Sprint(v)})
	}
	return all
}

// choices returns the numbers that a field may have, one by one.
func choices(allowed any) (numbers []string) {
	for _, one := range get[[]any](allowed) {
		from, to, isRange := strings.Cut(fmt.Sprint(one), "-")
		if !isRange {
			to = from
		}
		for n := integer(from); n <= integer(to) && len(numbers) < 100; n++ {
			numbers = append(numbers, strconv.FormatInt(n, 10))
		}
	}
	return numbers
}

// referenceTypes returns the words for the type of a reference, without the category that they are
// for. A word may be for both.
func referenceTypes(allowed []any) (words []string) {
	for _, one := range allowed {
		_, word, found := strings.Cut(fmt.Sprint(one), ":")
		if !found {
			word = fmt.Sprint(one)
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// curl returns a command that submits a task as an earlier one.
func curl(origin string, task map[string]any) (string, error) {
	path := map[string]string{"video": "/v1/platform/video", "image": "/v1/platform/image"}[fmt.Sprint(task["form"])]
	path = cmp.Or(path, "/v1/video/generations")
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(task["request"]); err != nil {
		return "", err
	}
	return fmt.Sprintf("curl %s%s \\\n  -H \"Authorization: Bearer $KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d '%s'",
		origin, path, strings.ReplaceAll(visible(strings.TrimSpace(body.String())), "'", `'\''`)), nil
}

// visible escapes the characters of a JSON text that change how the text beside them is shown, such
// as marks of the direction: what a reader copies is what it shows.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.Is(unicode.Cf, r) && r != '\u200d' && r < 0x10000 { // U+200D joins emoji
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
