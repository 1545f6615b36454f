package tasks_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
)

// TestGatewaysAreChained uses one gateway as its own generation service: a gateway can be the
// backend of another gateway.
func TestGatewaysAreChained(t *testing.T) {
	config := configOf(t.Name(), "")
	w := startWith(t, config)
	inner, outer := w.fundedKey(t), w.fundedKey(t)
	config.App += `
		backend next {
			models video-f-* image-f-*
			adapter platform {
				url http://` + w.Address + `
				key ` + inner.Secret + `
				model video-f-1 video-e-1
				model image-f-1 image-e-1
			}
		}
		backend flat {
			models sora-next
			adapter generations {
				url http://` + w.Address + `
				key ` + inner.Secret + `
				model sora-next sora-2
			}
		}
	`
	config.App = strings.Replace(config.App, "models video-a-* video-b-* video-c-* video-d-* video-e-* video-f-* image-*", "models video-e-* image-e-*", 1)
	if err := w.Reload(config); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, body string
		kind       backends.JobKind
		status     backends.Status
		want       string // the status on the platform
	}{
		"a video":      {videoPath, bodyFor(videoPath, object{"model": "video-f-1", "output.duration": 8}), backends.Video, succeeded("https://cdn.example/1.mp4"), "success"},
		"an image":     {imagePath, bodyFor(imagePath, object{"model": "image-f-1"}), backends.Image, failed(backends.ContentRejected, "unsafe"), "failed"},
		"a generation": {generationsPath, `{"model":"sora-next","duration":2.5,"extra":[1.50]}`, backends.Generations, succeeded("https://cdn.example/2.mp4"), "success"},
	} {
		t.Run(name, func(t *testing.T) {
			task := w.submit(t, outer, c.path, c.body).Task_ID
			there := decoded[page](t, w.get(t, inner, tasksPath+"?limit=1")).Data[0]
			if job := w.service.job(t, there.Task_ID); job.Kind != c.kind || c.kind == backends.Generations && string(job.Fields["extra"]) != "[1.50]" {
				t.Errorf("the job is %+v", job)
			}
			w.finish(t, inner, there.Task_ID, c.status)
			var end resource
			for end.Completed_At == nil {
				end = decoded[resource](t, w.get(t, outer, tasksPath+"/"+task+"?wait=10"))
			}
			if end.Status != c.want || c.want == "success" && end.Result.URL != c.status.Results[0].URL ||
				c.want == "failed" && (end.Error.Reason != "CONTENT_REJECTED" || end.Error.Message != "unsafe") {
				t.Errorf("the task ended as %+v", end)
			}
		})
	}
	// The outer gateway returns the refusal of the inner gateway.
	got := w.post(t, outer, videoPath, bodyFor(videoPath, object{"model": "video-f-1", "output.duration": 15}))
	refusal{422, "UPSTREAM_REJECTED", "output.duration", "4, 8 or 12"}.check(t, videoPath, got)
	w.checkWallet(t, inner, "98.70", "0")
	w.checkWallet(t, outer, "98.70", "0")
	w.Verify(t)
}
