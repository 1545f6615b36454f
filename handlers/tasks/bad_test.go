package tasks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// bad are submissions that must be refused.
var bad = []struct {
	path, body string
	status     int
	code       fault.Code
	param      string
}{
	{videoPath, ``, 400, fault.InvalidJSON, ""},
	{videoPath, `null`, 400, fault.InvalidJSON, ""},
	{videoPath, `[]`, 400, fault.InvalidJSON, ""},
	{videoPath, `"x"`, 400, fault.InvalidJSON, ""},
	{videoPath, `{`, 400, fault.InvalidJSON, ""},
	{videoPath, `{"model":"video-e-1","prompt":"x"}{}`, 400, fault.InvalidJSON, ""},
	{videoPath, "\ufeff" + `{"model":"video-e-1","prompt":"x"}`, 400, fault.InvalidJSON, ""},
	{videoPath, "{\"model\":\"video-e-1\",\"prompt\":\"\xff\"}", 400, fault.InvalidJSON, ""},
	{videoPath, `{"model":"video-e-1","prompt":"x","prompt":"y"}`, 400, fault.InvalidParameter, "prompt"},
	{videoPath, `{"model":"video-e-1","prompt":"x","x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, 400, fault.InvalidJSON, ""},
	{videoPath, `model=video-e-1&prompt=x`, 400, fault.InvalidJSON, ""},
	{videoPath, `{}`, 400, fault.MissingParameter, "model"},
	{videoPath, `{"Model":"video-e-1","prompt":"x"}`, 400, fault.MissingParameter, "model"},
	{videoPath, `{"model":"video-e-1"}`, 400, fault.MissingParameter, "prompt"},
	{videoPath, `{"model":null,"prompt":"x"}`, 400, fault.MissingParameter, "model"},
	{videoPath, `{"model":7,"prompt":"x"}`, 400, fault.InvalidParameter, "model"},
	{videoPath, `{"model":"","prompt":"x"}`, 400, fault.InvalidModel, "model"},
	{videoPath, `{"model":"e-1","prompt":"x"}`, 400, fault.InvalidModel, "model"},
	{videoPath, `{"model":"video-e","prompt":"x"}`, 400, fault.InvalidModel, "model"},
	{videoPath, `{"model":"image-e-1","prompt":"x"}`, 400, fault.InvalidModel, "model"},
	{videoPath, `{"model":"video-e-1\u0000","prompt":"x"}`, 400, fault.InvalidModel, "model"},
	{videoPath, `{"model":"video-e-` + strings.Repeat("1", 300) + `","prompt":"x"}`, 400, fault.InvalidModel, "model"},
	{videoPath, `{"model":"video-nobodys-1","prompt":"x"}`, 404, fault.ModelNotFound, "model"},
	{videoPath, asking(videoPath, object{"prompt": " \n"}), 400, fault.InvalidParameter, "prompt"},
	{videoPath, asking(videoPath, object{"prompt": []any{}}), 400, fault.InvalidParameter, "prompt"},
	{videoPath, asking(videoPath, object{"enhance_prompt": "on"}), 400, fault.InvalidParameter, "enhance_prompt"},
	{videoPath, asking(videoPath, object{"input_region": "moon"}), 400, fault.InvalidParameter, "input_region"},
	{videoPath, asking(videoPath, object{"scene_type": "lip_sync"}), 400, fault.InvalidParameter, "scene_type"},
	{videoPath, asking(videoPath, object{"session_id": 7}), 400, fault.InvalidParameter, "session_id"},
	{videoPath, asking(videoPath, object{"ext_info": "{}"}), 400, fault.InvalidParameter, "ext_info"},
	{videoPath, asking(videoPath, object{"inputs": object{}}), 400, fault.InvalidParameter, "inputs"},
	{videoPath, asking(videoPath, object{"inputs": []any{object{}}}), 400, fault.MissingParameter, "inputs[0].url"},
	{videoPath, asking(videoPath, object{"inputs": []any{object{"url": "https://files.example/a.png", "usage": "lastFrame"}}}), 400, fault.InvalidParameter, "inputs[0].usage"},
	{videoPath, asking(videoPath, object{"subject_inputs": []any{object{"url": "https://files.example/a.png"}}}), 400, fault.InvalidParameter, "subject_inputs"},
	{videoPath, asking(videoPath, object{"output": []any{}}), 400, fault.InvalidParameter, "output"},
	{videoPath, asking(videoPath, object{"output.duration": 5}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, asking(videoPath, object{"output.duration": -8}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, asking(videoPath, object{"output.duration": 8.5}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, asking(videoPath, object{"output.duration": "8"}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, `{"model":"video-e-1","prompt":"x","output":{"duration":99999999999999999999}}`, 400, fault.InvalidParameter, "output.duration"},
	{videoPath, `{"model":"video-e-1","prompt":"x","output":{"duration":1e400}}`, 400, fault.InvalidParameter, "output.duration"},
	{videoPath, asking(videoPath, object{"output.resolution": "4K"}), 400, fault.InvalidParameter, "output.resolution"},
	{videoPath, asking(videoPath, object{"output.aspect_ratio": "1:1"}), 400, fault.InvalidParameter, "output.aspect_ratio"},
	{videoPath, asking(videoPath, object{"output.audio": "true"}), 400, fault.InvalidParameter, "output.audio"},
	{videoPath, asking(videoPath, object{"output.frame_interpolate": "enabled"}), 400, fault.InvalidParameter, "output.frame_interpolate"},
	{videoPath, asking(videoPath, object{"output.media_name": "../a"}), 400, fault.InvalidParameter, "output.media_name"},
	{videoPath, asking(videoPath, object{"output.media_name": strings.Repeat("界", 65)}), 400, fault.InvalidParameter, "output.media_name"},
	{videoPath, asking(videoPath, object{"output.class_id": -1}), 400, fault.InvalidParameter, "output.class_id"},
	{imagePath, asking(imagePath, object{"model": "video-e-1"}), 400, fault.InvalidModel, "model"},
	{imagePath, asking(imagePath, object{"prompt": ""}), 400, fault.InvalidParameter, "prompt"},
	{imagePath, asking(imagePath, object{"output.count": 2}), 400, fault.InvalidParameter, "output.count"},
	{imagePath, asking(imagePath, object{"output.count": 0}), 400, fault.InvalidParameter, "output.count"},
	{imagePath, asking(imagePath, object{"output.format": "gif"}), 400, fault.InvalidParameter, "output.format"},
	{generationsPath, ``, 400, fault.InvalidJSON, ""},
	{generationsPath, `{}`, 400, fault.MissingParameter, "model"}, // there is no default model
	{generationsPath, `{"model":"nobodys","duration":1}`, 404, fault.ModelNotFound, "model"},
	{generationsPath, `{"model":"sora-2"}`, 400, fault.MissingParameter, "duration"},
	{generationsPath, `{"model":"sora-2\u0007","duration":1}`, 400, fault.InvalidParameter, "model"},
	{generationsPath, `{"model":"sora-` + strings.Repeat("2", 300) + `","duration":1}`, 400, fault.InvalidParameter, "model"},
	{generationsPath, `{"model":"sora-2","duration":"1"}`, 400, fault.InvalidParameter, "duration"},
	{generationsPath, `{"model":"sora-2","duration":0}`, 400, fault.InvalidParameter, "duration"},
	{generationsPath, `{"model":"sora-2","duration":-1}`, 400, fault.InvalidParameter, "duration"},
	{generationsPath, `{"model":"sora-2","duration":1e308}`, 400, fault.InvalidParameter, "duration"},
	{generationsPath, `{"model":"sora-2","duration":1,"Duration":9}`, 400, fault.InvalidParameter, "duration"},
	{generationsPath, `{"model":"sora-2","duration":1,"seconds":"9"}`, 400, fault.InvalidParameter, "seconds"},
	{generationsPath, `{"model":"sora-2","duration":1,"n":0}`, 400, fault.InvalidParameter, "n"},
	{generationsPath, `{"model":"sora-2","duration":1,"n":1000000}`, 400, fault.InvalidParameter, "n"},
	{generationsPath, `{"model":"sora-2","duration":1,"width":0}`, 400, fault.InvalidParameter, "width"},
	{generationsPath, `{"model":"sora-2","duration":1,"metadata":[]}`, 400, fault.InvalidParameter, "metadata"},
	{generationsPath, `{"model":"sora-2","duration":1,"image":"not an image"}`, 400, fault.InvalidParameter, "image"},
	{generationsPath, `{"model":"video-e-1","duration":5}`, 400, fault.InvalidParameter, "duration"}, // a rule of the family
}

func TestABadSubmissionIsRefusedAndCostsNothing(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	t.Run("each", func(t *testing.T) {
		for _, c := range bad {
			t.Run(c.path+" "+c.body[:min(len(c.body), 80)], func(t *testing.T) {
				t.Parallel()
				want := refusal{c.status, c.code, c.param, ""}
				want.check(t, c.path, w.post(t, key, c.path, c.body))
				want.check(t, c.path, w.post(t, key, c.path+"?dry_run=true", c.body))
			})
		}
	})
	w.untouched(t, key)
}

// special are addresses of internal networks in several spellings. The full table is in
// package egress.
var special = []string{
	"http://127.0.0.1/a.png", "https://localhost/a.png", "https://LOCALHOST./a.png", "https://a.localhost/a.png", "http://127.1/a.png", "http://2130706433/a.png",
	"http://0x7f000001/a.png", "http://0177.0.0.1/a.png", "http://127.0.0.1.:80/a.png", "http://[::1]/a.png", "http://[::ffff:127.0.0.1]/a.png", "http://[::]/a.png",
	"http://0/a.png", "http://0.0.0.0/a.png", "http://10.0.0.1/a.png", "http://172.16.0.1/a.png", "http://192.168.1.1/a.png", "http://169.254.169.254/latest/meta-data",
	"http://[fd00::1]/a.png", "http://[fe80::1%25eth0]/a.png", "http://100.64.0.1/a.png", "http://[64:ff9b::7f00:1]/a.png", "http://①②⑦.⓪.⓪.①/a.png", "http://%31%32%37.0.0.1/a.png",
	"https://user:secret@files.example/a.png", "ftp://files.example/a.png", "file:///etc/passwd", "gopher://files.example/", "//files.example/a.png", "/a.png", "",
	"https://files.example/" + strings.Repeat("a", 8192),
}

func TestInputsOfSpecialAddressesAreRefusedInEverySpelling(t *testing.T) {
	w := start(t, "")
	key := w.rich(t)
	trap := "http://" + w.Backend.Address + "/a.png"
	t.Run("each", func(t *testing.T) {
		for _, address := range append(special, trap, strings.Replace(trap, "127.0.0.1", "127.000.000.001", 1)) {
			t.Run(address[:min(len(address), 60)], func(t *testing.T) {
				t.Parallel()
				for path, bodies := range map[string][]string{
					videoPath: {
						asking(videoPath, object{"inputs": []any{object{"url": address}}}),
						asking(videoPath, object{"model": "video-a-1", "subject_inputs": []any{object{"url": address, "id": "s"}}}),
					},
					imagePath: {asking(imagePath, object{"inputs": []any{object{"url": address}}})},
				} {
					for i, body := range bodies {
						param := []string{"inputs[0].url", "subject_inputs[0].url"}[i]
						refusal{http.StatusBadRequest, fault.InvalidParameter, param, ""}.check(t, path, w.post(t, key, path, body))
					}
				}
				if strings.Contains(address, "://") {
					body := asking(generationsPath, object{"model": "sora-2", "duration": 1, "image": address})
					refusal{http.StatusBadRequest, fault.InvalidParameter, "image", ""}.check(t, generationsPath, w.post(t, key, generationsPath, body))
				}
			})
		}
	})
	w.untouched(t, key)
	if n := w.Backend.Total(); n != 0 {
		t.Errorf("%d connections reached a trap", n)
	}
}

// untouched checks that the refused submissions made no task, no job and no hold.
func (w *fixture) untouched(t testing.TB, key gatetest.Key) {
	t.Helper()
	if jobs := w.service.asked(); len(jobs) != 0 {
		t.Errorf("the backend was asked for %+v", jobs)
	}
	w.has(t, key, "100", "0")
	w.Verify(t)
}
