package caddymodule_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// vendor is a generation service that accepts any submission in the form of each adapter
// and records its body.
type vendor struct {
	mu     sync.Mutex
	bodies []string
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	defer v.mu.Unlock()
	submits := r.Method == http.MethodPost && !strings.Contains(r.Header.Get("X-Tc-Action"), "Describe")
	if submits {
		v.bodies = append(v.bodies, string(body))
	}
	w.Header().Set("Content-Type", "application/json")
	status := http.StatusOK
	if strings.HasPrefix(r.URL.Path, "/v1/models/") {
		status = http.StatusCreated
	}
	w.WriteHeader(status)
	id := fmt.Sprintf("job-%d", len(v.bodies))
	_, _ = fmt.Fprintf(w, `{"id":%q,"task_id":%[1]q,"request_id":%[1]q,"status":"queued","Response":{"TaskId":%[1]q,"RequestId":"r"}}`, id)
}

// take returns the recorded bodies and deletes them.
func (v *vendor) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	bodies := v.bodies
	v.bodies = nil
	return bodies
}

// adapters has all adapters with an HTTP service, and the options of each.
var adapters = []struct{ name, options, model string }{
	{"platform", "key sk-there", ""},
	{"generations", "key sk-there", ""},
	{"openai", "key sk-there", ""},
	{"replicate", "key r8_there", "owner/model"},
	{"fal", "key there", "owner/model"},
	{"vod", "secret_id i\nsecret_key k\nsub_app_id 1", "Kling/2.1"},
}

// A field is a field of docs/reference/tasks.md with a value, and another field that the
// request needs with it.
type field struct {
	path, model, name string
	value             string
	beside            string
}

const (
	link        = "https://pictures.example/one.png"
	video       = "/v1/platform/video"
	image       = "/v1/platform/image"
	generations = "/v1/video/generations"
)

// documented has the fields of docs/reference/tasks.md#platform-body and
// docs/reference/tasks.md#video-generations. Name is the member of the body. If a field is
// within a list or an object, value is all of that list or object.
var documented = []field{
	{video, "video-a-1", "prompt", `"MARK"`, ""},
	{video, "video-a-1", "negative_prompt", `"MARK"`, ""},
	{video, "video-a-1", "enhance_prompt", `"enabled"`, ""},
	{video, "video-a-1", "generation_mode", `"MARK"`, ""},
	{video, "video-a-1", "scene_type", `"lip_sync"`, ""},
	{video, "video-a-1", "input_region", `"oversea"`, ""},
	{video, "video-a-1", "ext_info", `{"MARK":1}`, ""},
	{video, "video-a-1", "inputs", `[{"url":"https://pictures.example/MARK.png"}]`, ""},
	{video, "video-a-1", "inputs", `[{"url":"https://pictures.example/MARK.mp4","category":"video"}]`, ""},
	{video, "video-a-1", "inputs", `[{"url":"https://pictures.example/MARK.png","usage":"firstFrame"}]`, ""},
	{video, "video-a-1", "inputs", `[{"url":"` + link + `","usage":"firstFrame"},{"url":"https://pictures.example/MARK.png","usage":"lastFrame"}]`, ""},
	{video, "video-d-1", "inputs", `[{"url":"` + link + `","reference_type":"style"}]`, `"inputs":[{"url":"` + link + `"}]`},
	{video, "video-a-1", "inputs", `[{"url":"` + link + `","category":"video","reference_type":"base"}]`, `"inputs":[{"url":"` + link + `","category":"video"}]`},
	{video, "video-c-q2", "inputs", `[{"url":"` + link + `","object_id":"MARK"}]`, `"inputs":[{"url":"` + link + `"}]`},
	{video, "video-c-q2", "inputs", `[{"url":"` + link + `","object_id":"o","voice_id":"MARK"}]`, `"inputs":[{"url":"` + link + `","object_id":"o"}]`},
	{video, "video-a-1", "inputs", `[{"url":"` + link + `","category":"video","keep_original_sound":"disabled"}]`, `"inputs":[{"url":"` + link + `","category":"video"}]`},
	{video, "video-f-1", "inputs", `[{"url":"` + link + `","text":"MARK"}]`, `"inputs":[{"url":"` + link + `"}]`},
	{video, "video-a-1", "subject_inputs", `[{"url":"https://pictures.example/MARK.png","id":"i"}]`, ""},
	{video, "video-a-1", "subject_inputs", `[{"url":"` + link + `","id":"MARK"}]`, ""},
	{video, "video-c-1", "subject_inputs", `[{"url":"` + link + `","name":"MARK"}]`, ""},
	{video, "video-a-1", "output", `{"duration":10}`, ""},
	{video, "video-a-1", "output", `{"resolution":"1080P"}`, ""},
	{video, "video-a-1", "output", `{"aspect_ratio":"9:16"}`, ""},
	{video, "video-d-1", "output", `{"audio_generation":"enabled"}`, ""},
	{video, "video-d-1", "output", `{"audio":true}`, ""},
	{video, "video-a-1", "output", `{"enhance_switch":"enabled"}`, ""},
	{video, "video-c-1", "output", `{"frame_interpolate":"enabled"}`, ""},
	{video, "video-a-1", "output", `{"class_id":7}`, ""},
	{image, "image-a-1", "prompt", `"MARK"`, ""},
	{image, "image-a-1", "negative_prompt", `"MARK"`, ""},
	{image, "image-a-1", "enhance_prompt", `"enabled"`, ""},
	{image, "image-a-1", "input_region", `"oversea"`, ""},
	{image, "image-a-1", "ext_info", `{"MARK":1}`, ""},
	{image, "image-a-1", "seed", `4711`, ""},
	{image, "image-a-1", "inputs", `[{"url":"https://pictures.example/MARK.png"}]`, ""},
	{image, "image-a-1", "output", `{"resolution":"2K"}`, ""},
	{image, "image-a-1", "output", `{"aspect_ratio":"9:16"}`, ""},
	{image, "image-a-1", "output", `{"class_id":7}`, ""},
	{image, "image-a-1", "output", `{"count":2}`, ""},
	{image, "image-a-1", "output", `{"format":"png"}`, ""},
	{generations, "any-1", "prompt", `"MARK"`, ""},
	{generations, "any-1", "image", `"https://pictures.example/MARK.png"`, ""},
	{generations, "any-1", "image", `"data:image/png;base64,MARK"`, ""},
	{generations, "any-1", "image", `"MARKMARK"`, ""},
	{generations, "any-1", "duration", `7`, ""},
	{generations, "any-1", "width", `640`, `"height":360`},
	{generations, "any-1", "height", `640`, `"width":360`},
	{generations, "any-1", "fps", `24`, ""},
	{generations, "any-1", "seed", `4711`, ""},
	{generations, "any-1", "n", `2`, ""},
	{generations, "any-1", "response_format", `"MARK"`, ""},
	{generations, "any-1", "metadata", `{"negative_prompt":"MARK"}`, ""},
	{generations, "any-1", "metadata", `{"style":"MARK"}`, ""},
	{generations, "any-1", "metadata", `{"quality_level":"MARK"}`, ""},
	{generations, "any-1", "metadata", `{"anything":["MARK"]}`, ""},
	{generations, "any-1", "unheard_of", `"MARK"`, ""},
}

// TestEveryDocumentedFieldArrivesOrIsRefused submits each field through the gateway: the
// field is in the body that the service gets, or the submission is refused and costs
// nothing.
func TestEveryDocumentedFieldArrivesOrIsRefused(t *testing.T) {
	models := []string{"video-a-1", "video-c-1", "video-c-q2", "video-d-1", "video-f-1", "image-a-1", "any-1"}
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			v := new(vendor)
			server := httptest.NewServer(v)
			t.Cleanup(server.Close)
			options := a.options
			if a.model != "" {
				for _, model := range models {
					options += "\nmodel " + model + " " + a.model
				}
			}
			g := gatetest.Start(t, gatetest.Config{Site: "modelgate_tasks", App: `
				base_url https://ai.example
				family A video-a-* image-a-*
				family C video-c-*
				family D video-d-*
				family F video-f-*
				limits {
					unfinished_tasks 1000
				}
				price * {
					second 0.01
					image 0.01
				}
				backend there {
					models *
					adapter ` + a.name + ` {
						url ` + server.URL + `
						` + options + `
					}
				}
			`})
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "100")
			headers := "Authorization: Bearer " + key.Secret + "\nContent-Type: application/json"
			held := g.Wallet(t, key.UserID).Held

			// submit submits a body and returns the body that the service got. It is empty if
			// the submission was refused, which must cost nothing.
			submit := func(path, body string) (sent string, answer gatetest.Answer) {
				answer = g.Do(t, http.MethodPost, path, headers, body)
				bodies := v.take()
				now := g.Wallet(t, key.UserID).Held
				defer func() { held = now }()
				if answer.Status != http.StatusOK {
					if answer.Status != http.StatusUnprocessableEntity && answer.Status != http.StatusBadRequest {
						t.Errorf("%s %s: got %d %s", path, body, answer.Status, answer.Body)
					}
					if len(bodies) > 0 || now != held {
						t.Errorf("%s %s: refused, but the service got %q and the hold grew by %v", path, body, bodies, now-held)
					}
					return "", answer
				}
				var created struct {
					TaskID string `json:"task_id"`
				}
				if err := json.Unmarshal([]byte(answer.Body), &created); err != nil || len(bodies) != 1 {
					t.Fatalf("%s %s: got %s, the service got %q: %v", path, body, answer.Body, bodies, err)
				}
				return strings.ReplaceAll(bodies[0], backends.Token(created.TaskID), "TOKEN"), answer
			}
			arrived := 0
			for _, f := range documented {
				base := fmt.Sprintf(`"model":%q,"duration":5`, f.model)
				if f.path != generations {
					base = fmt.Sprintf(`"model":%q`, f.model)
					if f.name != "prompt" {
						base += `,"prompt":"a fox"`
					}
				} else if f.name == "duration" {
					base = fmt.Sprintf(`"model":%q`, f.model)
				}
				with := fmt.Sprintf(`{%s,%q:%s`, base, f.name, f.value)
				without := "{" + base
				switch {
				case strings.HasPrefix(f.beside, `"`+f.name+`":`):
					without += "," + f.beside
				case f.beside != "":
					with, without = with+","+f.beside, without+","+f.beside
				}
				if f.name == "prompt" && f.path != generations {
					without += `,"prompt":"a fox"`
				} else if f.name == "duration" {
					without += `,"duration":5`
				}
				sent, answer := submit(f.path, with+"}")
				if answer.Status != http.StatusOK {
					if !strings.Contains(answer.Body, `"param":"`) || strings.Contains(answer.Body, `"param":""`) {
						t.Errorf("%s: the refusal names no field: %s", with, answer.Body)
					}
					continue
				}
				arrived++
				if plain, _ := submit(f.path, without+"}"); plain == sent {
					t.Errorf("%s: %s did not arrive: %s", f.path, f.value, sent)
				}
				if strings.Contains(f.value, "MARK") && !strings.Contains(sent, "MARK") {
					t.Errorf("%s: the value of %s did not arrive: %s", f.path, f.name, sent)
				}
			}
			if arrived == 0 {
				t.Error("no field arrived")
			}
			g.Verify(t)
		})
	}
}
