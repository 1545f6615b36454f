package tasks_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestTheAnswerHasTheTaskAndTheIgnoredMembers(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	w.checkWallet(t, key, "100", "0")

	got := w.post(t, key, videoPath, bodyFor(videoPath, nil))
	if !regexp.MustCompile(`^\{"task_id":"task_[A-Z2-7]{26}","status":"queued"\}$`).MatchString(got.Body) {
		t.Errorf("answered %s", got.Body)
	}
	if got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers %v", got.Header)
	}
	w.checkWallet(t, key, "100", "0.80") // 8 seconds, the default duration of the family

	// An unknown member has no effect, and the answer lists it as ignored.
	got = w.post(t, key, imagePath, bodyFor(imagePath, object{"prmopt": "x", "Model": "y", "output.duration": 5, "inputs": []any{object{"url": "https://files.example/a.png", "usage": "firstFrame"}}}))
	task := decoded[resource](t, got)
	if want := `"ignored":["Model","inputs[0].usage","output.duration","prmopt"]}`; !strings.HasSuffix(got.Body, want) {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	if job := w.service.job(t, task.Task_ID); job.Kind != backends.Image || job.Model != "image-e-1" || job.Output.Count != 1 || job.Output.Resolution != "1K" {
		t.Errorf("the job is %+v", job)
	}
	w.checkWallet(t, key, "100", "0.85")
	w.Verify(t)
}

func TestADryRunReturnsThePriceWithoutACharge(t *testing.T) {
	w := start(t, "")
	unfunded := w.NewKey(t, nil)
	for path, c := range map[string]struct{ body, want string }{
		videoPath: {bodyFor(videoPath, object{"output.audio": true, "x": 1}),
			`{"dry_run":true,"model":"video-e-1","family":"E","price":"1.60","hold":"1.60","currency":"USD","rule":"1 video × 8 s × 0.20 per second (with sound)","ignored":["x"]}`},
		imagePath: {bodyFor(imagePath, object{"model": "image-a-1", "output.count": 3}),
			`{"dry_run":true,"model":"image-a-1","family":"A","price":"0.15","hold":"0.15","currency":"USD","rule":"3 images × 0.05 per image"}`},
		generationsPath: {`{"model":"sora-2","duration":2.5}`,
			`{"dry_run":true,"model":"sora-2","price":"0.50","hold":"0.50","currency":"USD","rule":"1 video × 2.5 s × 0.20 per second (with sound)"}`},
	} {
		for range 2 {
			// A dry run uses neither the session id nor the idempotency key.
			body := strings.Replace(c.body, `{`, `{"session_id":"dry",`, 1)
			if path == generationsPath {
				body = c.body
			}
			got := w.post(t, unfunded, path+"?dry_run=true", body, "Idempotency-Key: dry")
			if got.Status != 200 || got.Body != c.want {
				t.Errorf("%s: answered %d %s, want %s", path, got.Status, got.Body, c.want)
			}
		}
	}
	if jobs := w.service.submissions(); len(jobs) != 0 {
		t.Errorf("the backend received %+v", jobs)
	}
	w.checkWallet(t, unfunded, "0", "0")
	if list := decoded[page](t, w.get(t, unfunded, tasksPath)); len(list.Data) != 0 {
		t.Errorf("tasks were created: %+v", list)
	}
	refusal{400, fault.InvalidParameter, "output.duration", "4, 8 or 12"}.check(t, videoPath, w.post(t, unfunded, videoPath+"?dry_run=true", bodyFor(videoPath, object{"output.duration": 5})))
	for query, param := range map[string]string{"dry_run=1": "dry_run", "dry_run=": "dry_run", "dry_run": "dry_run", "dry_run=TRUE": "dry_run", "dry_run=true&dry_run=false": "dry_run", "dryrun=true": "dryrun", "%zz": ""} {
		for _, path := range []string{videoPath, imagePath, generationsPath} {
			refusal{400, fault.InvalidParameter, param, ""}.check(t, path, w.post(t, unfunded, path+"?"+query, bodyFor(path, nil)))
		}
	}
	// Without money, no task is created.
	refusal{402, fault.InsufficientQuota, "", "no money for this request: 0.00 is available"}.check(t, videoPath, w.post(t, unfunded, videoPath+"?dry_run=false", bodyFor(videoPath, nil)))
	w.Credit(t, unfunded.UserID, "0.79")
	refusal{402, fault.InsufficientQuota, "", "may cost up to 0.80, and 0.79 is available"}.check(t, videoPath, w.post(t, unfunded, videoPath, bodyFor(videoPath, nil)))
	w.Verify(t)
}

func TestBudgetsOfKeyAndUserLimitSubmissions(t *testing.T) {
	w := start(t, "")
	key := w.NewKey(t, object{"limits": object{"budget": "1.00"}})
	w.Credit(t, key.UserID, "100")
	w.submit(t, key, videoPath, bodyFor(videoPath, nil))
	refusal{402, fault.InsufficientKeyQuota, "", "the budget of this API key has 0.20 left"}.check(t, videoPath, w.post(t, key, videoPath, bodyFor(videoPath, nil)))
	w.checkWallet(t, key, "100", "0.80")

	other := w.fundedKey(t)
	w.MustAdmin(t, http.MethodPost, "/modelgate/users/"+other.UserID+"/limits", object{"budget": "0.50"}, nil)
	refusal{402, fault.InsufficientQuota, "", "the budget of your account has 0.50 left"}.check(t, videoPath, w.post(t, other, videoPath, bodyFor(videoPath, nil)))
	w.checkWallet(t, other, "100", "0")
	w.Verify(t)
}

func TestARejectedSubmissionIsRolledBack(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	w.service.acceptBy(func(job backends.Job) error {
		if job.Prompt == "no" {
			return backends.Invalid("prompt", "the service does not draw this")
		}
		return nil
	})
	body := bodyFor(videoPath, object{"prompt": "no", "session_id": "s1"})
	for range 2 { // the refusal frees the session id and the idempotency key
		refusal{422, fault.UpstreamRejected, "prompt", "the service does not draw this"}.check(t, videoPath, w.post(t, key, videoPath, body, "Idempotency-Key: k1"))
	}
	w.checkWallet(t, key, "100", "0")
	if list := decoded[page](t, w.get(t, key, tasksPath)); len(list.Data) != 0 {
		t.Errorf("tasks were created: %+v", list)
	}
	w.submit(t, key, videoPath, bodyFor(videoPath, object{"session_id": "s1"}), "Idempotency-Key: k1")
	w.Verify(t)
}

// TestOtherMembersForTheLengthAreRefused checks members that a service may use instead of the
// priced one.
func TestOtherMembersForTheLengthAreRefused(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	for _, name := range []string{"video_length", "clip_length", "n_frames", "videoLength", "length", "total_frames", "length_seconds", "output_duration", "duration_ms", "extend_duration"} {
		refusal{400, fault.InvalidParameter, "metadata." + name, "must have the same value as"}.check(t, generationsPath,
			w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"metadata":{"`+name+`":60}}`))
		refusal{400, fault.InvalidParameter, name, "must have the same value as"}.check(t, generationsPath,
			w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"`+name+`":60}`))
		refusal{400, fault.InvalidParameter, "ext_info." + name, "must have the same value as"}.check(t, videoPath,
			w.post(t, key, videoPath, bodyFor(videoPath, object{"ext_info": object{name: 60}})))
	}
	w.submit(t, key, generationsPath, `{"model":"sora-2","duration":2,"fps":24,"metadata":{"video_length":2,"n_frames":49}}`)
	refusal{400, fault.InvalidParameter, "instances[0].duration", "must have the same value as"}.check(t, generationsPath,
		w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"instances":[{"prompt":"x","duration":30}]}`))
	refusal{400, fault.InvalidParameter, "candidate_count", "must have the same value as"}.check(t, generationsPath,
		w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,"n":1,"candidate_count":4}`))
	// If it is the only member for the length or the number, it is priced.
	w.submit(t, key, generationsPath, `{"model":"sora-2","metadata":{"video_length":3,"num_clips":2}}`)
	w.submit(t, key, generationsPath, `{"model":"sora-2","milliseconds":1000}`)
	w.checkWallet(t, key, "100", "1.80")
}
