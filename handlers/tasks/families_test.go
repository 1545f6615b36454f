package tasks_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func anImage(more object) object {
	input := object{"url": "https://files.example/a.png"}
	for name, value := range more {
		input[name] = value
	}
	return input
}

// inputs returns n images.
func inputs(n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = anImage(nil)
	}
	return all
}

// TestSubmissionsFollowTheFamilyTable checks that the backend receives the values of the table,
// including defaults. Package generation tests the whole table.
func TestSubmissionsFollowTheFamilyTable(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	for name, c := range map[string]struct {
		path  string
		given object
		want  backends.Output
	}{
		"A alone":        {videoPath, object{"model": "video-a-1"}, backends.Output{Duration: 5, Resolution: "720P", AspectRatio: "16:9"}},
		"A, longer":      {videoPath, object{"model": "video-a-1", "output.duration": 10, "output.resolution": "1080p", "output.aspect_ratio": "1:1"}, backends.Output{Duration: 10, Resolution: "1080P", AspectRatio: "1:1"}},
		"A, an image":    {videoPath, object{"model": "video-a-1", "inputs": inputs(7)}, backends.Output{Duration: 5, Resolution: "720P"}},
		"B":              {videoPath, object{"model": "video-b-1"}, backends.Output{Duration: 6, Resolution: "768P"}},
		"C with sound":   {videoPath, object{"model": "video-c-1", "output.audio": true, "output.frame_interpolate": "enabled", "output.duration": 1}, backends.Output{Duration: 1, Resolution: "720P", AudioGeneration: "enabled", FrameInterpolate: "enabled"}},
		"D":              {videoPath, object{"model": "video-d-1", "inputs": []any{anImage(object{"reference_type": "style"})}}, backends.Output{Duration: 8, Resolution: "720P", AspectRatio: "16:9", AudioGeneration: "disabled"}},
		"E":              {videoPath, object{"output.audio": true, "output.audio_generation": "disabled"}, backends.Output{Duration: 8, Resolution: "720P", AspectRatio: "16:9", AudioGeneration: "disabled"}},
		"F":              {videoPath, object{"model": "video-f-1", "output.duration": 15, "output.resolution": "4K", "output.aspect_ratio": "21:9"}, backends.Output{Duration: 15, Resolution: "4K", AspectRatio: "21:9"}},
		"images of A":    {imagePath, object{"model": "image-a-1", "output.count": 9, "inputs": inputs(10)}, backends.Output{Resolution: "1K", Count: 9}},
		"images of C":    {imagePath, object{"model": "image-c-1"}, backends.Output{Resolution: "1080P", Count: 1}},
		"images, others": {imagePath, object{"model": "image-b-1", "output.aspect_ratio": "4:5", "output.format": "png"}, backends.Output{Resolution: "1K", Count: 1, AspectRatio: "4:5", Format: "png"}},
	} {
		t.Run(name, func(t *testing.T) {
			task := w.submit(t, key, c.path, bodyFor(c.path, c.given))
			if got := w.service.job(t, task.Task_ID).Output; got != c.want {
				t.Errorf("the job is %+v, want %+v", got, c.want)
			}
		})
	}

	before := len(w.service.submissions())
	for name, c := range map[string]struct {
		path  string
		given object
		param string
		words string
	}{
		"A, 6 seconds":        {videoPath, object{"model": "video-a-1", "output.duration": 6}, "output.duration", "5 or 10 for family A, not 6"},
		"A with sound":        {videoPath, object{"model": "video-a-1", "output.audio": true}, "output.audio", "not supported by family A"},
		"A, 8 inputs":         {videoPath, object{"model": "video-a-1", "inputs": inputs(8)}, "inputs", "at most 7"},
		"A, style":            {videoPath, object{"model": "video-a-1", "inputs": []any{anImage(object{"reference_type": "style"})}}, "inputs[0].reference_type", ""},
		"B, a ratio":          {videoPath, object{"model": "video-b-1", "output.aspect_ratio": "16:9"}, "output.aspect_ratio", "not supported by family B"},
		"B, 720P":             {videoPath, object{"model": "video-b-1", "output.resolution": "720P"}, "output.resolution", "768P or 1080P"},
		"C, 11 seconds":       {videoPath, object{"model": "video-c-1", "output.duration": 11}, "output.duration", "1 to 10"},
		"D, interpolated":     {videoPath, object{"model": "video-d-1", "output.frame_interpolate": "enabled"}, "output.frame_interpolate", "not supported by family D"},
		"E, 4 inputs":         {videoPath, object{"inputs": inputs(4)}, "inputs", "at most 3"},
		"F, a scene":          {videoPath, object{"model": "video-f-1", "scene_type": "lip_sync"}, "scene_type", "not supported by family F"},
		"images of A, 10":     {imagePath, object{"model": "image-a-1", "output.count": 10}, "output.count", "1 to 9"},
		"images of C at 1K":   {imagePath, object{"model": "image-c-1", "output.resolution": "1K"}, "output.resolution", "1080P, 2K or 4K"},
		"images, others, 4:6": {imagePath, object{"model": "image-b-1", "output.aspect_ratio": "4:6"}, "output.aspect_ratio", ""},
	} {
		t.Run(name, func(t *testing.T) {
			refusal{400, fault.InvalidParameter, c.param, c.words}.check(t, c.path, w.post(t, key, c.path, bodyFor(c.path, c.given)))
		})
	}
	if n := len(w.service.submissions()) - before; n != 0 {
		t.Errorf("%d invalid submissions reached the backend", n)
	}
}
