package tasks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// invalidSubmissions are submissions that must be refused.
var invalidSubmissions = []struct {
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
	{videoPath, `{"model":"video-unknown-1","prompt":"x"}`, 404, fault.ModelNotFound, "model"},
	{videoPath, bodyFor(videoPath, object{"prompt": " \n"}), 400, fault.InvalidParameter, "prompt"},
	{videoPath, bodyFor(videoPath, object{"prompt": []any{}}), 400, fault.InvalidParameter, "prompt"},
	{videoPath, bodyFor(videoPath, object{"enhance_prompt": "on"}), 400, fault.InvalidParameter, "enhance_prompt"},
	{videoPath, bodyFor(videoPath, object{"input_region": "moon"}), 400, fault.InvalidParameter, "input_region"},
	{videoPath, bodyFor(videoPath, object{"scene_type": "lip_sync"}), 400, fault.InvalidParameter, "scene_type"},
	{videoPath, bodyFor(videoPath, object{"session_id": 7}), 400, fault.InvalidParameter, "session_id"},
	{videoPath, bodyFor(videoPath, object{"ext_info": "{}"}), 400, fault.InvalidParameter, "ext_info"},
	{videoPath, bodyFor(videoPath, object{"inputs": object{}}), 400, fault.InvalidParameter, "inputs"},
	{videoPath, bodyFor(videoPath, object{"inputs": []any{object{}}}), 400, fault.MissingParameter, "inputs[0].url"},
	{videoPath, bodyFor(videoPath, object{"inputs": []any{object{"url": "https://files.example/a.png", "usage": "lastFrame"}}}), 400, fault.InvalidParameter, "inputs[0].usage"},
	{videoPath, bodyFor(videoPath, object{"subject_inputs": []any{object{"url": "https://files.example/a.png"}}}), 400, fault.InvalidParameter, "subject_inputs"},
	{videoPath, bodyFor(videoPath, object{"output": []any{}}), 400, fault.InvalidParameter, "output"},
	{videoPath, bodyFor(videoPath, object{"output.duration": 5}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, bodyFor(videoPath, object{"output.duration": -8}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, bodyFor(videoPath, object{"output.duration": 8.5}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, bodyFor(videoPath, object{"output.duration": "8"}), 400, fault.InvalidParameter, "output.duration"},
	{videoPath, `{"model":"video-e-1","prompt":"x","output":{"duration":99999999999999999999}}`, 400, fault.InvalidParameter, "output.duration"},
	{videoPath, `{"model":"video-e-1","prompt":"x","output":{"duration":1e400}}`, 400, fault.InvalidParameter, "output.duration"},
	{videoPath, bodyFor(videoPath, object{"output.resolution": "4K"}), 400, fault.InvalidParameter, "output.resolution"},
	{videoPath, bodyFor(videoPath, object{"output.aspect_ratio": "1:1"}), 400, fault.InvalidParameter, "output.aspect_ratio"},
	{videoPath, bodyFor(videoPath, object{"output.audio": "true"}), 400, fault.InvalidParameter, "output.audio"},
	{videoPath, bodyFor(videoPath, object{"output.frame_interpolate": "enabled"}), 400, fault.InvalidParameter, "output.frame_interpolate"},
	{videoPath, bodyFor(videoPath, object{"output.media_name": "../a"}), 400, fault.InvalidParameter, "output.media_name"},
	{videoPath, bodyFor(videoPath, object{"output.media_name": strings.Repeat("界", 65)}), 400, fault.InvalidParameter, "output.media_name"},
	{videoPath, bodyFor(videoPath, object{"output.class_id": -1}), 400, fault.InvalidParameter, "output.class_id"},
	{imagePath, bodyFor(imagePath, object{"model": "video-e-1"}), 400, fault.InvalidModel, "model"},
	{imagePath, bodyFor(imagePath, object{"prompt": ""}), 400, fault.InvalidParameter, "prompt"},
	{imagePath, bodyFor(imagePath, object{"output.count": 2}), 400, fault.InvalidParameter, "output.count"},
	{imagePath, bodyFor(imagePath, object{"output.count": 0}), 400, fault.InvalidParameter, "output.count"},
	{imagePath, bodyFor(imagePath, object{"output.format": "gif"}), 400, fault.InvalidParameter, "output.format"},
	{generationsPath, ``, 400, fault.InvalidJSON, ""},
	{generationsPath, `{}`, 400, fault.MissingParameter, "model"}, // there is no default model
	{generationsPath, `{"model":"unknown","duration":1}`, 404, fault.ModelNotFound, "model"},
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

func TestInvalidSubmissionsAreRefusedWithoutCharge(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	t.Run("each", func(t *testing.T) {
		for _, c := range invalidSubmissions {
			t.Run(c.path+" "+c.body[:min(len(c.body), 80)], func(t *testing.T) {
				t.Parallel()
				want := refusal{c.status, c.code, c.param, ""}
				want.check(t, c.path, w.post(t, key, c.path, c.body))
				want.check(t, c.path, w.post(t, key, c.path+"?dry_run=true", c.body))
			})
		}
	})
	w.checkUntouched(t, key)
}

// specialAddresses are addresses of internal networks in several spellings. The full table is in
// package egress.
var specialAddresses = []string{
	"http://127.0.0.1/a.png", "https://localhost/a.png", "https://LOCALHOST./a.png", "https://a.localhost/a.png", "http://127.1/a.png", "http://2130706433/a.png",
	"http://0x7f000001/a.png", "http://0177.0.0.1/a.png", "http://127.0.0.1.:80/a.png", "http://[::1]/a.png", "http://[::ffff:127.0.0.1]/a.png", "http://[::]/a.png",
	"http://0/a.png", "http://0.0.0.0/a.png", "http://10.0.0.1/a.png", "http://172.16.0.1/a.png", "http://192.168.1.1/a.png", "http://169.254.169.254/latest/meta-data",
	"http://[fd00::1]/a.png", "http://[fe80::1%25eth0]/a.png", "http://100.64.0.1/a.png", "http://[64:ff9b::7f00:1]/a.png", "http://①②⑦.⓪.⓪.①/a.png", "http://%31%32%37.0.0.1/a.png",
	"https://user:secret@files.example/a.png", "ftp://files.example/a.png", "file:///etc/passwd", "gopher://files.example/", "//files.example/a.png", "/a.png", "",
	"https://files.example/" + strings.Repeat("a", 8192),
}

func TestInputsOfSpecialAddressesAreRefusedInEverySpelling(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	trap := "http://" + w.Backend.Address + "/a.png"
	t.Run("each", func(t *testing.T) {
		for _, address := range append(specialAddresses, trap, strings.Replace(trap, "127.0.0.1", "127.000.000.001", 1)) {
			t.Run(address[:min(len(address), 60)], func(t *testing.T) {
				t.Parallel()
				for path, bodies := range map[string][]string{
					videoPath: {
						bodyFor(videoPath, object{"inputs": []any{object{"url": address}}}),
						bodyFor(videoPath, object{"model": "video-a-1", "subject_inputs": []any{object{"url": address, "id": "s"}}}),
					},
					imagePath: {bodyFor(imagePath, object{"inputs": []any{object{"url": address}}})},
				} {
					for i, body := range bodies {
						param := []string{"inputs[0].url", "subject_inputs[0].url"}[i]
						refusal{http.StatusBadRequest, fault.InvalidParameter, param, ""}.check(t, path, w.post(t, key, path, body))
					}
				}
				if strings.Contains(address, "://") {
					body := bodyFor(generationsPath, object{"model": "sora-2", "duration": 1, "image": address})
					refusal{http.StatusBadRequest, fault.InvalidParameter, "image", ""}.check(t, generationsPath, w.post(t, key, generationsPath, body))
				}
			})
		}
	})
	w.checkUntouched(t, key)
	if n := w.Backend.Total(); n != 0 {
		t.Errorf("%d connections reached the address of an input", n)
	}
}

// checkUntouched checks that the refused submissions created no task, no job and no hold.
func (w *fixture) checkUntouched(t testing.TB, key gatetest.Key) {
	t.Helper()
	if jobs := w.service.submissions(); len(jobs) != 0 {
		t.Errorf("the backend received %+v", jobs)
	}
	w.checkWallet(t, key, "100", "0")
	w.Verify(t)
}
