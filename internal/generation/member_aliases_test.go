package generation_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

// places are positions of a member; %s is the member.
var places = []struct{ body, path string }{
	{`%s`, ""},
	{`"metadata":{%s}`, "metadata."},
	{`"metadata":{"parameters":{%s}}`, "metadata.parameters."},
	{`"metadata":{"Output":{%s}}`, "metadata.Output."},
	{`"metadata":{"metadata":{"input":{%s}}}`, "metadata.metadata.input."},
	{`"parameters":{%s}`, "parameters."},
	{`"extra_body":{%s}`, "extra_body."},
	{`"extra_body":"{\"input\":{%s}}"`, "extra_body.input."},
}

// TestAliasesMustHaveThePricedValue sets each quantity by each of its names at
// each position. The same value must be accepted, a different one refused.
func TestAliasesMustHaveThePricedValue(t *testing.T) {
	t.Parallel()
	const base = `"model":"any","duration":4,"n":2,"fps":24,"width":1280,"height":720`
	for _, c := range []struct {
		names     string
		same      string // separated by spaces
		different string
	}{
		{"duration seconds Duration DURATION SECONDS durationSeconds duration_seconds Duration-Seconds video_duration \u017feconds", `4 4.0 4e0 "4" "4.0"`, `12 0 -4 4.1 "12" "0x10p-2" "400e-2" "+4" "4e0" "04" "4\u0020" "4/1" "soon" "" [4] {"a":4} true null`},
		{"n N sampleCount sample_count num_videos number_of_videos num_outputs batch_size Count", `2 "2"`, `9 1 2.0 2e0 -2 "9" "+2" "02" "0x2" "" [2] false null 99999999999`},
		{"model Model model_name modelName MODEL_ID model-version", `"any"`, `"expensive" "Any" "" 1 null ["any"]`},
		{"width Width video_width", `1280 "1280"`, `3840 "01280" null`},
		{"height HEIGHT", `720 "720"`, `2160 720.5 null`},
		{"fps FPS frame_rate framesPerSecond", `24 "24"`, `12 23.976 null`},
		{"size Video_Size", `"1280x720" "1280*720" "720p" 720 "ultra"`, `"3840x2160" "1280x1080" "1080P" "4k" 1080`},
		{"resolution Resolution", `"720P" "720p" "720" "1280X720"`, `"1080p" "2K" "1440p" "720x1280"`},
		{"num_frames frames numFrames frame_count", `96 97 "96" ["https://files.example/a.png"]`, `100000 98 95 0 "096" 96.0 null`},
	} {
		for name := range strings.FieldsSeq(c.names) {
			for _, place := range places {
				if place.path == "" && slices.Contains([]string{"model", "duration", "n", "fps", "width", "height", "Duration", "DURATION", "SECONDS", "\u017feconds", "N", "Model", "FPS", "Width", "HEIGHT"}, name) {
					continue // the priced member, or one that differs only in case
				}
				for value := range strings.FieldsSeq(c.same) {
					body := aliased(base, place.body, name, value)
					if _, refused := decodeAndCheck(t, body); refused != nil {
						t.Errorf("%s was answered %v", body, refused)
					}
				}
				for value := range strings.FieldsSeq(c.different) {
					body := aliased(base, place.body, name, value)
					_, refused := decodeAndCheck(t, body)
					switch {
					case value == "null" && place.path == "": // treated as absent
						if refused != nil {
							t.Errorf("%s was answered %v", body, refused)
						}
					case !refusedAt(refused, fault.InvalidParameter, place.path+name, "must have the same value as"):
						t.Errorf("%s was answered %v, want a refusal at %s", body, refused, place.path+name)
					}
				}
			}
		}
	}
}

func aliased(base, place, name, value string) string {
	member := `"` + name + `":` + value
	return `{` + base + `,` + within(place, member) + `}`
}

// within puts a member into a position, which may be inside a JSON string.
func within(place, member string) string {
	if strings.Contains(place, `\"`) {
		member = strings.ReplaceAll(strings.ReplaceAll(member, `\`, `\\`), `"`, `\"`)
	}
	return fmt.Sprintf(place, member)
}

func TestTheValueOfAnAliasIsPricedAndSent(t *testing.T) {
	t.Parallel()
	for _, place := range places {
		got, refused := decodeAndCheck(t, `{`+within(place.body, `"modelName":"e-1","DurationSeconds":"12","sampleCount":3,"size":"720x1280","frameRate":30`)+`}`)
		out := got.Job().Output
		if refused != nil || got.Model != "e-1" || got.Family != "E" || out.Duration != 12 || out.Count != 3 || out.Width != 720 || out.Height != 1280 || out.FPS != 30 || out.Resolution != "720P" {
			t.Errorf("in %q: output %+v of model %q, %v", place.path, out, got.Model, refused)
		}
	}
	// Two aliases must agree. A number of frames needs duration and frame rate.
	for body, param := range map[string]string{
		`{"model":"any","metadata":{"duration":4,"Duration":12}}`:                               "metadata.duration", // capitals sort first
		`{"model":"any","metadata":{"durationSeconds":4,"output":{"seconds":5}}}`:               "metadata.output.seconds",
		`{"model":"any","size":"1280x720","metadata":{"resolution":"1080P"}}`:                   "metadata.resolution",
		`{"model":"any","resolution":"1080P","metadata":{"size":"1280x720"}}`:                   "metadata.size",
		`{"model":"any","duration":4,"num_frames":96}`:                                          "num_frames",
		`{"model":"any","fps":24,"num_frames":96}`:                                              "num_frames",
		`{"model":"any","duration":4,"metadata":{"fps":24,"size":{"width":1}},"num_frames":99}`: "num_frames",
	} {
		if _, refused := decodeAndCheck(t, body); !refusedAt(refused, fault.InvalidParameter, param, "must have the same value as") {
			t.Errorf("%s was answered %v, want a refusal at %s", body, refused, param)
		}
	}
}

// TestTheCostOfCheckingABodyIsLinear limits the allocations for the largest
// bodies.
func TestTheCostOfCheckingABodyIsLinear(t *testing.T) {
	const size = 4 << 20
	for name, body := range map[string]string{
		"members":    `{"model":"any"` + strings.Repeat(`,"a":0`, size/6) + `}`,
		"numbers":    `{"model":"any","duration":4,"a":[0` + strings.Repeat(`,0`, size/2) + `]}`,
		"texts":      `{"model":"any","duration":4,"a":[""` + strings.Repeat(`,"{"`, size/4) + `]}`,
		"paths":      `{"model":"any","duration":4,"a":{"` + strings.Repeat("a", size/2) + `":[0` + strings.Repeat(`,{"b":0}`, 9000) + `]}}`,
		"containers": `{"model":"any","input":` + strings.Repeat(`{"metadata":`, 50) + `"` + strings.Repeat("a", size) + `"` + strings.Repeat("}", 51),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if c, refused := decodeAndCheck(t, body); refused == nil {
			_, _ = c.Quote(&bySecond)
		}
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 16*size {
			t.Errorf("%s: %d MiB were allocated for %d MiB", name, spent>>20, size>>20)
		}
	}
}

func TestAMemberThatDiffersOnlyInCaseIsRefused(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"Metadata": `{"duration":12,"n":100}`, "METADATA": `{}`, "Prompt": `"p"`, "Image": `"x"`, "Negative_Prompt": `"p"`, "FPS": `1`, "User": `"u"`, "Response_Format": `"u"`,
	} {
		if _, refused := decodeAndCheck(t, `{"model":"e-1","`+name+`":`+value+`}`); !refusedAt(refused, fault.InvalidParameter, strings.ToLower(name), "must have exactly this spelling") {
			t.Errorf("%s was answered %v", name, refused)
		}
	}
}

// TestHarmlessMembersArePassedOn checks members whose values have no common meaning
// among services.
func TestHarmlessMembersArePassedOn(t *testing.T) {
	t.Parallel()
	for _, members := range []string{
		`"metadata":{"mode":"pro","quality_level":"high"}`, `"mode":"pro"`, `"scenes":[{"duration":1},{"duration":3}]`, `"metadata":{"camera":{"duration":9}}`,
		`"metadata":{"videos":["https://files.example/a.mp4"],"amount":0.5}`, `"size":"auto"`, `"metadata":{"size":["1:1"]}`,
	} {
		if got, refused := decodeAndCheck(t, `{"model":"any","duration":4,`+members+`}`); refused != nil || *got.Output.Duration != 4*catalog.Second {
			t.Errorf("%s was answered %v", members, refused)
		}
	}
}

func TestExtInfoMustNotContradictThePrice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model string
		info  object
		param string // empty: accepted
	}{
		{"video-e-1", object{"a": 1, "mode": "pro"}, ""},
		{"video-e-1", object{"duration": 8, "Resolution": "720p", "model": "video-e-1", "n": 1}, ""},
		{"video-e-1", object{"durationSeconds": 12}, "ext_info.durationSeconds"},
		{"video-e-1", object{"parameters": object{"Resolution": "1080p"}}, "ext_info.parameters.Resolution"},
		{"video-e-1", object{"size": "3840x2160"}, "ext_info.size"},
		{"video-e-1", object{"size": "ultra"}, "ext_info.size"},
		{"video-e-1", object{"n": 2}, "ext_info.n"},
		{"video-e-1", object{"model_name": "expensive"}, "ext_info.model_name"},
		{"image-a-1", object{"count": 9}, "ext_info.count"},
		{"image-a-1", object{"resolution": "1k", "count": 1}, ""},
	} {
		members := object{"ext_info": c.info}
		if c.model == "video-e-1" {
			members["output.duration"] = 8
		}
		got, refused := check(standard(t), submission(c.model, members))
		if c.param == "" && refused != nil || c.param != "" && !refusedAt(refused, fault.InvalidParameter, c.param) {
			t.Errorf("%v was answered %v, want a refusal at %q", c.info, refused, c.param)
		}
		if refused == nil && (got.Output.Width != nil || got.Output.FPS != nil) {
			t.Errorf("%v changed the output to %+v", c.info, got.Output)
		}
	}
}

func TestEchoedFieldsAreLimited(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return strings.Repeat("图", n) }
	for _, c := range []struct {
		member string
		max    int // characters
		value  func(n int) any
	}{
		{"prompt", 32768, func(n int) any { return text(n) }},
		{"negative_prompt", 32768, func(n int) any { return text(n) }},
		{"user", 1000, func(n int) any { return text(n) }},
		{"response_format", 1000, func(n int) any { return text(n) }},
		{"metadata", 256 << 10, func(n int) any { return object{"a": strings.Repeat("a", n-len(`{"a":""}`))} }},
	} {
		for n, passes := range map[int]bool{c.max: true, c.max + 1: false} {
			body, err := json.Marshal(object{"model": "any", c.member: c.value(n)})
			if err != nil {
				t.Fatal(err)
			}
			words := fmt.Sprintf("at most %d ", c.max)
			if _, refused := decodeAndCheck(t, string(body)); passes && refused != nil || !passes && !refusedAt(refused, fault.InvalidParameter, c.member, words, fmt.Sprintf("not %d", n)) {
				t.Errorf("%s of %d was answered %v", c.member, n, refused)
			}
		}
	}
	for path, body := range map[string][]byte{
		"ext_info":               submission("video-a-1", object{"ext_info": object{"a": strings.Repeat("a", 256<<10)}}),
		"inputs[0].object_id":    submission("video-c-q2", object{"inputs": []any{object{"url": anImage, "object_id": text(1001)}}}),
		"inputs[0].text":         submission("video-f-1", object{"inputs": []any{object{"url": anImage, "text": text(1001)}}}),
		"subject_inputs[0].name": submission("video-c-1", object{"subject_inputs": []any{object{"url": anImage, "name": text(1001)}}}),
	} {
		if _, refused := check(standard(t), body); !refusedAt(refused, fault.InvalidParameter, path, "at most") {
			t.Errorf("a long %s was answered %v", path, refused)
		}
	}
}

func TestTheNumberOfMembersIsLimited(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for n := range generation.MaxMembers - 2 {
		fmt.Fprintf(&members, `,"m%d":0`, n)
	}
	all := `{"model":"video-a-1","prompt":"p"` + members.String()
	for end, passes := range map[string]bool{`}`: true, `,"one_more":[]}`: false, `,"more":{"deep":[{"er":1}]}}`: false} {
		_, _, video := generation.DecodeVideo([]byte(all + end))
		_, _, image := generation.DecodeImage([]byte(all + end))
		_, decodeAndCheck := generation.DecodeGenerations([]byte(all + end))
		for _, refused := range []*fault.Fault{video, image, decodeAndCheck} {
			if passes && refused != nil || !passes && !refusedAt(refused, fault.InvalidJSON, "", "more than 10000 members") {
				t.Errorf("with %s the answer is %v", end, refused)
			}
		}
	}
}
