package tasks_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestASubmissionIsAnsweredWithItsTaskAndWhatHadNoEffect(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	w.has(t, key, "100", "0")

	got := w.post(t, key, videoPath, asking(videoPath, nil))
	if !regexp.MustCompile(`^\{"task_id":"task_[A-Z2-7]{26}","status":"queued"\}$`).MatchString(got.Body) {
		t.Errorf("answered %s", got.Body)
	}
	if got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers %v", got.Header)
	}
	w.has(t, key, "100", "0.80") // 8 seconds, the default duration of the family

	// An unknown member has no effect, and the answer lists it as ignored.
	got = w.post(t, key, imagePath, asking(imagePath, object{"prmopt": "x", "Model": "y", "output.duration": 5, "inputs": []any{object{"url": "https://files.example/a.png", "usage": "firstFrame"}}}))
	task := decoded[resource](t, got)
	if want := `"ignored":["Model","inputs[0].usage","output.duration","prmopt"]}`; !strings.HasSuffix(got.Body, want) {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	if job := w.service.job(t, task.Task_ID); job.Kind != backends.Image || job.Model != "image-e-1" || job.Output.Count != 1 || job.Output.Resolution != "1K" {
		t.Errorf("the backend was asked for %+v", job)
	}
	w.has(t, key, "100", "0.85")
	w.Verify(t)
}

func TestADryRunTellsThePriceAndSpendsNothing(t *testing.T) {
	w := start(t, "")
	poor := w.NewKey(t, nil)
	for path, c := range map[string]struct{ body, want string }{
		videoPath: {asking(videoPath, object{"output.audio": true, "x": 1}),
			`{"dry_run":true,"model":"video-e-1","family":"E","price":"1.60","hold":"1.60","currency":"USD","rule":"1 video × 8 s × 0.20 per second (with sound)","ignored":["x"]}`},
		imagePath: {asking(imagePath, object{"model": "image-a-1", "output.count": 3}),
			`{"dry_run":true,"model":"image-a-1","family":"A","price":"0.15","hold":"0.15","currency":"USD","rule":"3 images × 0.05 per image"}`},
		generationsPath: {`{"model":"sora-2","duration":2.5}`,
			`{"dry_run":true,"model":"sora-2","price":"0.50","hold":"0.50","currency":"USD","rule":"1 video × 2.5 s × 0.20 per second (with sound)"}`},
	} {
		for range 2 {
			// Neither is the session id used, nor the idempotency key.
			body := strings.Replace(c.body, `{`, `{"session_id":"dry",`, 1)
			if path == generationsPath {
				body = c.body
			}
			got := w.post(t, poor, path+"?dry_run=true", body, "Idempotency-Key: dry")
			if got.Status != 200 || got.Body != c.want {
				t.Errorf("%s: answered %d %s, want %s", path, got.Status, got.Body, c.want)
			}
		}
	}
	if jobs := w.service.asked(); len(jobs) != 0 {
		t.Errorf("the backend was asked: %+v", jobs)
	}
	w.has(t, poor, "0", "0")
	if list := decoded[page](t, w.get(t, poor, tasksPath)); len(list.Data) != 0 {
		t.Errorf("there are tasks: %+v", list)
	}
	refusal{400, fault.InvalidParameter, "output.duration", "4, 8 or 12"}.check(t, videoPath, w.post(t, poor, videoPath+"?dry_run=true", asking(videoPath, object{"output.duration": 5})))
	for query, param := range map[string]string{"dry_run=1": "dry_run", "dry_run=": "dry_run", "dry_run": "dry_run", "dry_run=TRUE": "dry_run", "dry_run=true&dry_run=false": "dry_run", "dryrun=true": "dryrun", "%zz": ""} {
		for _, path := range []string{videoPath, imagePath, generationsPath} {
			refusal{400, fault.InvalidParameter, param, ""}.check(t, path, w.post(t, poor, path+"?"+query, asking(path, nil)))
		}
	}
	// Without the money there is no task.
	refusal{402, fault.InsufficientQuota, "", "no money for this request: 0.00 is available"}.check(t, videoPath, w.post(t, poor, videoPath+"?dry_run=false", asking(videoPath, nil)))
	w.Credit(t, poor.UserID, "0.79")
	refusal{402, fault.InsufficientQuota, "", "may cost up to 0.80, and 0.79 is available"}.check(t, videoPath, w.post(t, poor, videoPath, asking(videoPath, nil)))
	w.Verify(t)
}

func TestTheBudgetsOfKeyAndUserHold(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, object{"limits": object{"budget": "1.00"}})
	w.Credit(t, key.UserID, "100")
	w.must(t, key, videoPath, asking(videoPath, nil))
	refusal{402, fault.InsufficientKeyQuota, "", "the budget of this API key has 0.20 left"}.check(t, videoPath, w.post(t, key, videoPath, asking(videoPath, nil)))
	w.has(t, key, "100", "0.80")

	other := w.rich(t)
	w.MustAdmin(t, http.MethodPost, "/modelgate/users/"+other.UserID+"/limits", object{"budget": "0.50"}, nil)
	refusal{402, fault.InsufficientQuota, "", "the budget of your account has 0.50 left"}.check(t, videoPath, w.post(t, other, videoPath, asking(videoPath, nil)))
	w.has(t, other, "100", "0")
	w.Verify(t)
}

func TestARefusalOfTheBackendLeavesNothingBehind(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	w.service.accepts(func(job backends.Job) error {
		if job.Prompt == "no" {
			return backends.Invalid("prompt", "the service does not draw this")
		}
		return nil
	})
	body := asking(videoPath, object{"prompt": "no", "session_id": "s1"})
	for range 2 { // neither the session id nor the idempotency key is used
		refusal{422, fault.UpstreamRejected, "prompt", "the service does not draw this"}.check(t, videoPath, w.post(t, key, videoPath, body, "Idempotency-Key: k1"))
	}
	w.has(t, key, "100", "0")
	if list := decoded[page](t, w.get(t, key, tasksPath)); len(list.Data) != 0 {
		t.Errorf("there are tasks: %+v", list)
	}
	w.must(t, key, videoPath, asking(videoPath, object{"session_id": "s1"}), "Idempotency-Key: k1")
	w.Verify(t)
}

// TestWhatChangesTheLengthElsewhereIsRefused: a service may use such a member
// instead of the one that is priced.
func TestWhatChangesTheLengthElsewhereIsRefused(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	for _, name := range []string{"video_length", "clip_length", "n_frames", "videoLength", "length", "total_frames", "length_seconds", "output_duration", "duration_ms", "extend_duration"} {
		refusal{400, fault.InvalidParameter, "metadata." + name, "must say the same as"}.check(t, generationsPath,
			w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"metadata":{"`+name+`":60}}`))
		refusal{400, fault.InvalidParameter, name, "must say the same as"}.check(t, generationsPath,
			w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"`+name+`":60}`))
		refusal{400, fault.InvalidParameter, "ext_info." + name, "must say the same as"}.check(t, videoPath,
			w.post(t, key, videoPath, asking(videoPath, object{"ext_info": object{name: 60}})))
	}
	w.must(t, key, generationsPath, `{"model":"sora-2","duration":2,"fps":24,"metadata":{"video_length":2,"n_frames":49}}`)
	refusal{400, fault.InvalidParameter, "instances[0].duration", "must say the same as"}.check(t, generationsPath,
		w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"instances":[{"prompt":"x","duration":30}]}`))
	refusal{400, fault.InvalidParameter, "candidate_count", "must say the same as"}.check(t, generationsPath,
		w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"n":1,"candidate_count":4}`))
	// If it is the only member for the length or the number, it is priced.
	w.must(t, key, generationsPath, `{"model":"sora-2","metadata":{"video_length":3,"num_clips":2}}`)
	w.must(t, key, generationsPath, `{"model":"sora-2","milliseconds":1000}`)
	w.has(t, key, "100", "1.80")
}
