package generation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

// videoTable and imageTable have the rows of docs/guide/generation.md#families. A cell has the
// allowed values and, after a slash, the default.
var videoTable = []struct {
	model      string
	duration   string
	resolution string
	ratio      string // text: the default applies only without inputs
	audio      bool
	interpol   bool
	scene      string
	reference  string // category:value
	subject    string // required field of a subject; empty: not supported
	ids        bool
	text       bool
	inputs     int
}{
	{"video-a-1", "5 10 / 5", "720P 1080P / 720P", "16:9 9:16 1:1 / 16:9 text", false, false, "motion_control avatar_i2v lip_sync", "video:feature video:base", "id", false, false, 7},
	{"video-b-1", "6 10 / 6", "768P 1080P / 768P", "", false, false, "", "", "", false, false, 3},
	{"video-c-1", "1 2 3 4 5 6 7 8 9 10 / 5", "720P 1080P / 720P", "16:9 9:16 4:3 3:4 1:1", true, true, "template_effect", "", "name", false, false, 7},
	{"video-c-q2", "1 2 3 4 5 6 7 8 9 10 / 5", "720P 1080P / 720P", "4:3 3:4", true, true, "template_effect", "", "name", true, false, 7},
	{"video-d-1", "8 / 8", "720P 1080P / 720P", "16:9 9:16 / 16:9", true, false, "", "image:asset image:style video:asset video:style", "", false, false, 3},
	{"video-e-1", "4 8 12 / 8", "720P / 720P", "16:9 9:16 / 16:9 text", true, false, "", "", "", false, false, 3},
	{"video-f-1", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 / 5", "540P 720P 1080P 2K 4K / 720P", "16:9 9:16 4:3 3:4 1:1 2:3 3:2 21:9", false, false, "", "", "", false, true, 7},
}

var imageTable = []struct {
	model      string
	resolution string
	ratio      string
	inputs     int
	count      int // maximum number
}{
	{"image-a-1", "1K 2K 4K / 1K", "16:9 9:16 1:1 4:3 3:4 3:2 2:3 21:9", 10, 9},
	{"image-b-1", "1K 2K 4K / 1K", "16:9 9:16 1:1 4:3 3:4 3:2 2:3 21:9 4:5 5:4", 3, 1},
	{"image-c-1", "1080P 2K 4K / 1080P", "16:9 9:16 1:1 4:3 3:4 3:2 2:3 21:9", 7, 1},
	{"image-d-1", "1K 2K 4K / 1K", "16:9 9:16 1:1 4:3 3:4 3:2 2:3 21:9 4:5 5:4", 3, 1},
	{"image-e-1", "1K 2K 4K / 1K", "16:9 9:16 1:1 4:3 3:4 3:2 2:3 21:9 4:5 5:4", 3, 1},
	{"image-f-1", "1K 2K 4K / 1K", "16:9 9:16 1:1 4:3 3:4 3:2 2:3 21:9 4:5 5:4", 3, 1},
}

// Values that a cell may contain, and some that no cell contains.
var (
	allResolutions = []string{"360P", "480P", "540P", "720P", "768P", "1080P", "1K", "2K", "4K", "8K"}
	allRatios      = []string{"16:9", "9:16", "1:1", "4:3", "3:4", "3:2", "2:3", "21:9", "4:5", "5:4", "9:21", "2:1"}
	allScenes      = []string{"motion_control", "avatar_i2v", "lip_sync", "template_effect", "3d_panorama", "image_expand", "Motion_Control"}
	allReferences  = []string{"feature", "base", "asset", "style", "mask", "Asset"}
)

// cell splits "720P 1080P / 720P text" into the allowed values, the default, and
// whether the default applies only without inputs.
func cell(text string) (allowed []string, byDefault string, textOnly bool) {
	before, after, _ := strings.Cut(text, "/")
	after, textOnly = strings.CutSuffix(after, "text")
	return strings.Fields(before), strings.TrimSpace(after), textOnly
}

// try checks that a submission is accepted, or that it is refused at param with a
// message that contains all words.
func try(t *testing.T, model string, members object, passes bool, param string, words ...string) generation.Checked {
	t.Helper()
	checked, refused := check(standard(t), submission(model, members))
	switch {
	case passes && refused != nil:
		t.Errorf("%s with %v: %v", model, members, refused)
	case !passes && !refusedAt(refused, fault.InvalidParameter, param, append(words, "`"+param+"`")...):
		t.Errorf("%s with %v was answered %v, want a refusal at %s with %q", model, members, refused, param, words)
	}
	return checked
}

func TestEveryCellOfTheTableForVideos(t *testing.T) {
	t.Parallel()
	for _, row := range videoTable {
		t.Run(row.model, func(t *testing.T) {
			t.Parallel()
			bare := try(t, row.model, nil, true, "")

			allowed, byDefault, _ := cell(row.duration)
			if got := bare.Output.Duration.String(); got != byDefault {
				t.Errorf("the default duration is %s s, want %s", got, byDefault)
			}
			for n := -1; n <= 17; n++ {
				word := fmt.Sprint(n)
				got := try(t, row.model, object{"output.duration": n}, slices.Contains(allowed, word), "output.duration", "not "+word, allowed[0], allowed[len(allowed)-1])
				if got.Output.Duration != nil && got.Output.Duration.String() != word {
					t.Errorf("%d s became %v", n, got.Output.Duration)
				}
			}

			allowed, byDefault, _ = cell(row.resolution)
			if bare.Output.Resolution != byDefault {
				t.Errorf("the default resolution is %s, want %s", bare.Output.Resolution, byDefault)
			}
			for _, word := range allResolutions {
				for _, spelling := range []string{word, strings.ToLower(word)} {
					got := try(t, row.model, object{"output.resolution": spelling}, slices.Contains(allowed, word), "output.resolution", append(allowed, spelling)...)
					if got.Model != "" && got.Output.Resolution != word {
						t.Errorf("%s is stored as %s", spelling, got.Output.Resolution)
					}
				}
			}

			ratios, byDefault, textOnly := cell(row.ratio)
			withInput := try(t, row.model, object{"inputs": references(1)}, true, "")
			wantWithInput := byDefault
			if textOnly {
				wantWithInput = ""
			}
			if bare.Output.AspectRatio != byDefault || withInput.Output.AspectRatio != wantWithInput {
				t.Errorf("the default ratio is %q, with an input %q, want %q and %q", bare.Output.AspectRatio, withInput.Output.AspectRatio, byDefault, wantWithInput)
			}
			for _, word := range allRatios {
				words := append(slices.Clone(ratios), word)
				if len(ratios) == 0 {
					words = []string{"is not supported by family"}
				}
				try(t, row.model, object{"output.aspect_ratio": word}, slices.Contains(ratios, word), "output.aspect_ratio", words...)
				try(t, row.model, object{"output.aspect_ratio": word, "inputs": references(1)}, slices.Contains(ratios, word), "output.aspect_ratio")
			}

			for _, word := range allScenes {
				try(t, row.model, object{"scene_type": word}, slices.Contains(strings.Fields(row.scene), word), "scene_type", strings.Fields(row.scene)...)
			}
			for _, category := range []string{"", "image", "video"} {
				for _, word := range allReferences {
					input := object{"url": anImage, "reference_type": word}
					key := "image:" + word
					if category != "" {
						input["category"], key = category, category+":"+word
					}
					try(t, row.model, object{"inputs": []any{input}}, slices.Contains(strings.Fields(row.reference), key), "inputs[0].reference_type")
				}
			}
			for n := range 13 {
				try(t, row.model, object{"inputs": references(n)}, n <= row.inputs, "inputs", fmt.Sprintf("at most %d", row.inputs), fmt.Sprintf("not %d", n))
			}
			try(t, row.model, object{"inputs": []any{object{"url": anImage, "object_id": "o"}}}, row.ids, "inputs[0].object_id", "is not supported")
			try(t, row.model, object{"inputs": []any{object{"url": anImage, "object_id": "o", "voice_id": "v"}}}, row.ids, "inputs[0].object_id")
			try(t, row.model, object{"inputs": []any{object{"url": anImage, "text": "x"}}}, row.text, "inputs[0].text", "is not supported")
		})
	}
}

func TestEverySwitchOfTheTable(t *testing.T) {
	t.Parallel()
	for _, row := range videoTable {
		byDefault := generation.Switch("")
		if row.audio {
			byDefault = generation.Disabled
		}
		want := func(requested generation.Switch) generation.Switch {
			if row.audio {
				return requested
			}
			return ""
		}
		for _, c := range []struct {
			members object
			param   string // path of the error if the family has no sound
			want    generation.Switch
		}{
			{nil, "", byDefault},
			{object{"output.audio": true}, "output.audio", want(generation.Enabled)},
			{object{"output.audio": false}, "", want(generation.Disabled)},
			{object{"output.audio_generation": "enabled"}, "output.audio_generation", want(generation.Enabled)},
			{object{"output.audio_generation": "disabled"}, "", want(generation.Disabled)},
			{object{"output.audio_generation": "disabled", "output.audio": true}, "", want(generation.Disabled)},
			{object{"output.audio_generation": "enabled", "output.audio": false}, "output.audio_generation", want(generation.Enabled)},
			{object{"output.audio_generation": "", "output.audio": true}, "output.audio", want(generation.Enabled)},
		} {
			got := try(t, row.model, c.members, row.audio || c.param == "", c.param, "is not supported by family")
			if got.Output.AudioGeneration != c.want || got.Output.Audio != nil {
				t.Errorf("%s with %v has the sound %q, want %q", row.model, c.members, got.Output.AudioGeneration, c.want)
			}
		}
		for word, passes := range map[string]bool{"enabled": row.interpol, "disabled": true} {
			got := try(t, row.model, object{"output.frame_interpolate": word}, passes, "output.frame_interpolate", "is not supported")
			if sent := string(got.Output.FrameInterpolate); row.interpol && sent != word || !row.interpol && sent != "" {
				t.Errorf("%s with frame_interpolate %s sends %q", row.model, word, sent)
			}
		}
		// The backend's default is unknown.
		if got := try(t, row.model, nil, true, ""); got.Output.FrameInterpolate != "" || got.Output.EnhanceSwitch != "" || got.EnhancePrompt != "" {
			t.Errorf("%s sends switches that the request does not set: %+v", row.model, got.Output)
		}
		for _, param := range []string{"output.audio_generation", "output.frame_interpolate", "output.enhance_switch", "enhance_prompt"} {
			try(t, row.model, object{param: "on"}, false, param, "enabled or disabled", `"on"`)
		}
		for _, word := range []string{"enabled", "disabled"} {
			got := try(t, row.model, object{"output.enhance_switch": word, "enhance_prompt": word}, true, "")
			if string(got.Output.EnhanceSwitch) != word || string(got.EnhancePrompt) != word {
				t.Errorf("%s sends enhance_switch %q and enhance_prompt %q, want %s", row.model, got.Output.EnhanceSwitch, got.EnhancePrompt, word)
			}
		}
	}
}

func TestSubjectsOfEveryFamily(t *testing.T) {
	t.Parallel()
	for _, row := range videoTable {
		for fields, has := range map[string]string{"neither": "", "id": "id", "name": "name", "both": "id name"} {
			subject := object{"url": anImage}
			for _, field := range strings.Fields(has) {
				subject[field] = "s"
			}
			got, refused := check(standard(t), submission(row.model, object{"subject_inputs": []any{subject}}))
			switch {
			case row.subject == "":
				if !refusedAt(refused, fault.InvalidParameter, "subject_inputs", "is not supported by family") {
					t.Errorf("%s with a subject of %s was answered %v", row.model, fields, refused)
				}
			case !strings.Contains(has, row.subject):
				if !refusedAt(refused, fault.MissingParameter, "subject_inputs[0]."+row.subject, "is required by family") {
					t.Errorf("%s with a subject of %s was answered %v", row.model, fields, refused)
				}
			case refused != nil || len(got.Subjects) != 1 || got.Subjects[0].URL != anImage:
				t.Errorf("%s with a subject of %s has %+v, %v", row.model, fields, got.Subjects, refused)
			}
		}
	}
}

func TestEveryCellOfTheTableForImages(t *testing.T) {
	t.Parallel()
	for _, row := range imageTable {
		bare := try(t, row.model, nil, true, "")
		allowed, byDefault, _ := cell(row.resolution)
		if bare.Output.Resolution != byDefault || *bare.Output.Count != 1 || bare.Output.AspectRatio != "" || bare.Output.Duration != nil || bare.Output.AudioGeneration != "" {
			t.Errorf("the defaults of %s are %+v", row.model, bare.Output)
		}
		for _, word := range allResolutions {
			got := try(t, row.model, object{"output.resolution": strings.ToLower(word)}, slices.Contains(allowed, word), "output.resolution", allowed...)
			if got.Model != "" && got.Output.Resolution != word {
				t.Errorf("%s is stored as %s", word, got.Output.Resolution)
			}
		}
		for _, word := range allRatios {
			try(t, row.model, object{"output.aspect_ratio": word}, slices.Contains(strings.Fields(row.ratio), word), "output.aspect_ratio", strings.Fields(row.ratio)...)
		}
		for n := range 13 {
			try(t, row.model, object{"inputs": references(n)}, n <= row.inputs, "inputs", fmt.Sprintf("at most %d", row.inputs))
			got := try(t, row.model, object{"output.count": n}, 1 <= n && n <= row.count, "output.count", fmt.Sprintf("not %d", n))
			if got.Model != "" && *got.Output.Count != n {
				t.Errorf("%d images became %d", n, *got.Output.Count)
			}
		}
		for _, word := range allReferences {
			try(t, row.model, object{"inputs": []any{object{"url": anImage, "reference_type": word}}}, word == "mask", "inputs[0].reference_type", "mask")
		}
		try(t, row.model, object{"inputs": []any{object{"url": anImage, "text": "x"}}}, true, "")
		for _, word := range allScenes {
			try(t, row.model, object{"scene_type": word}, false, "scene_type", "is not supported by images of family")
		}
		for word, passes := range map[string]bool{"jpeg": true, "png": true, "": true, "jpg": false, "PNG": false, "webp": false} {
			try(t, row.model, object{"output.format": word}, passes, "output.format", "jpeg or png")
		}
	}
}
