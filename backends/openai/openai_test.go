package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

const key = "sk-proj-hushhushhush"

// film is the content of the videos of mockService.
var film = []byte(strings.Repeat("film ", 100_000))

// mockService simulates the videos API.
type mockService struct{ backendstest.Jobs }

var (
	submitPath  = regexp.MustCompile(`^/v1/videos$`)
	videoPath   = regexp.MustCompile(`^/v1/videos/([^/]+)$`)
	contentPath = regexp.MustCompile(`^/v1/videos/([^/]+)/content$`)
)

// Op implements backendstest.MockService.
func (*mockService) Op(r *http.Request) backendstest.Op {
	switch {
	case submitPath.MatchString(r.URL.Path) && r.Method == http.MethodPost:
		return backendstest.Submit
	case contentPath.MatchString(r.URL.Path):
		return backendstest.Fetch
	case videoPath.MatchString(r.URL.Path):
		return backendstest.Poll
	}
	return backendstest.Other
}

// statusWords has the API's words for the states of a job.
var statusWords = map[backends.State]string{
	backends.Queued: "queued", backends.Running: "in_progress", backends.Succeeded: "completed", backends.Failed: "failed",
}

func (d *mockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+key {
		backendstest.JSON(w, 401, `{"error":{"type":"invalid_request_error","code":"invalid_api_key","message":"Incorrect API key","param":null}}`)
		return
	}
	switch d.Op(r) {
	case backendstest.Submit:
		d.submit(w, r)
	case backendstest.Poll:
		d.poll(w, videoPath.FindStringSubmatch(r.URL.Path)[1])
	case backendstest.Fetch:
		if state, _ := d.State(statusWords); state != backends.Succeeded || !d.Exists(contentPath.FindStringSubmatch(r.URL.Path)[1]) {
			backendstest.JSON(w, 404, `{"error":{"message":"not ready"}}`)
			return
		}
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = w.Write(film)
	default:
		if submitPath.MatchString(r.URL.Path) {
			backendstest.JSON(w, 200, `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`)
			return
		}
		backendstest.JSON(w, 404, `{"error":{"message":"Invalid URL"}}`)
	}
}

// submit accepts a job. Like the API, it refuses bodies with seconds that are not a string, or with an
// unknown parameter.
func (d *mockService) submit(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body map[string]any
	if r.Method != http.MethodPost || json.Unmarshal(raw, &body) != nil {
		backendstest.JSON(w, 400, `{"error":{"message":"no JSON"}}`)
		return
	}
	refuse := func(param, message string) {
		backendstest.JSON(w, 400, `{"error":{"type":"invalid_request_error","code":"invalid_value","message":%q,"param":%q}}`, message, param)
	}
	if prompt, _ := body["prompt"].(string); prompt == "" {
		refuse("prompt", "Missing prompt")
		return
	} else if strings.Contains(prompt, "gore") {
		backendstest.JSON(w, 400, `{"error":{"type":"invalid_request_error","code":"moderation_blocked","message":"Blocked by moderation"}}`)
		return
	}
	for name, value := range body {
		text, isText := value.(string)
		switch name {
		case "model", "prompt":
		case "input_reference":
			if len(value.(map[string]any)) != 1 {
				refuse(name, "exactly one of image_url and file_id")
				return
			}
		case "seconds":
			if !isText || text != "4" && text != "8" && text != "12" {
				refuse(name, "Invalid value for seconds: supported are '4', '8' and '12'.")
				return
			}
		case "size":
			if !isText || !regexp.MustCompile(`^(720x1280|1280x720|1024x1792|1792x1024)$`).MatchString(text) {
				refuse(name, "Invalid size")
				return
			}
		default:
			refuse(name, "Unknown parameter")
			return
		}
	}
	d.poll(w, d.Accept(""))
}

// poll answers with the video, which always has the required members.
func (d *mockService) poll(w http.ResponseWriter, id string) {
	if !d.Exists(id) {
		backendstest.JSON(w, 404, `{"error":{"type":"invalid_request_error","message":"Video not found","code":null,"param":null}}`)
		return
	}
	state, word := d.State(statusWords)
	progress := map[backends.State]int{backends.Running: 42, backends.Succeeded: 100}[state]
	failure := "null"
	if state == backends.Failed {
		failure = `{"code":"moderation_blocked","message":"Your request was blocked."}`
	}
	status, _ := json.Marshal(word)
	backendstest.JSON(w, 200, `{"id":%q,"object":"video","model":"wan-2.2","status":%s,"progress":%d,"created_at":1800000000,
		"completed_at":null,"expires_at":null,"seconds":"8","size":"1280x720","prompt":"a fox","remixed_from_video_id":null,"error":%s}`,
		id, status, progress, failure)
}

func newAdapter(t *testing.T, address string) *OpenAI {
	t.Helper()
	o := &OpenAI{URL: address, Key: key}
	if err := paymentstest.Provision(t, o); err != nil {
		t.Fatal(err)
	}
	return o
}

func job() backends.Job {
	return backends.Job{
		Token: backends.Token("task_1"), Kind: backends.Video, Model: "video-wan-2.2", Prompt: "a fox",
		Output: backends.Output{Duration: 8, Resolution: "720P", AspectRatio: "16:9"},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	backendstest.Run(t, backendstest.Service{
		Mock:    func() backendstest.MockService { return new(mockService) },
		Backend: func(t *testing.T, address string) backends.Backend { return newAdapter(t, address) },
		Job:     job(),
		Secret:  key,
		Content: film,
	})
}

func TestJobsAreTranslated(t *testing.T) {
	t.Parallel()
	o := newAdapter(t, "https://render.example/")
	o.Models = map[string]string{"video-cheap": "wan-2.2-fast"}
	for name, row := range map[string]struct {
		change func(*backends.Job)
		want   string // JSON, or the param that is refused
	}{
		"a job":          {func(*backends.Job) {}, `{"model":"wan-2.2","prompt":"a fox","seconds":"8","size":"1280x720"}`},
		"portrait":       {func(j *backends.Job) { j.Output.AspectRatio = "9:16" }, `{"model":"wan-2.2","prompt":"a fox","seconds":"8","size":"720x1280"}`},
		"large":          {func(j *backends.Job) { j.Output.Resolution = "1080P" }, `{"model":"wan-2.2","prompt":"a fox","seconds":"8","size":"1792x1024"}`},
		"large portrait": {func(j *backends.Job) { j.Output = backends.Output{Resolution: "1080p", AspectRatio: "9:16"} }, `{"model":"wan-2.2","prompt":"a fox","size":"1024x1792"}`},
		"no output":      {func(j *backends.Job) { j.Output = backends.Output{} }, `{"model":"wan-2.2","prompt":"a fox"}`},
		"only a ratio":   {func(j *backends.Job) { j.Output = backends.Output{AspectRatio: "9:16"} }, `{"model":"wan-2.2","prompt":"a fox","size":"720x1280"}`},
		"another model":  {func(j *backends.Job) { j.Model, j.Output = "video-cheap", backends.Output{} }, `{"model":"wan-2.2-fast","prompt":"a fox"}`},
		"4.25 seconds":   {func(j *backends.Job) { j.Output = backends.Output{Duration: 4.25} }, `{"model":"wan-2.2","prompt":"a fox","seconds":"4.25"}`},
		"HTML and snow":  {func(j *backends.Job) { j.Prompt, j.Output = "<b>☃&", backends.Output{} }, `{"model":"wan-2.2","prompt":"<b>☃&"}`},
		"pixels":         {func(j *backends.Job) { j.Output = backends.Output{Width: 720, Height: 1280} }, `{"model":"wan-2.2","prompt":"a fox","size":"720x1280"}`},
		"other pixels":   {func(j *backends.Job) { j.Output.Width, j.Output.Height = 640, 480 }, "output.width"},
		"one edge":       {func(j *backends.Job) { j.Output.Width = 720 }, "output.width"},
		"another ratio":  {func(j *backends.Job) { j.Output.AspectRatio = "1:1" }, "output.resolution"},
		"4K":             {func(j *backends.Job) { j.Output.Resolution = "4K" }, "output.resolution"},
		"an image":       {func(j *backends.Job) { j.Kind = backends.Image }, "model"},
		"two videos":     {func(j *backends.Job) { j.Output.Count = 2 }, "output.count"},
		"n is 2":         {func(j *backends.Job) { j.Kind, j.Output.Count = backends.Generations, 2 }, "n"},
		"a subject":      {func(j *backends.Job) { j.SubjectInputs = make([]backends.SubjectInput, 1) }, "subject_inputs"},
		"two inputs":     {func(j *backends.Job) { j.Inputs = make([]backends.Input, 2) }, "inputs"},
		"two images":     {func(j *backends.Job) { j.Kind, j.Inputs = backends.Generations, make([]backends.Input, 2) }, "image"},
		"a last frame":   {func(j *backends.Job) { j.Inputs = []backends.Input{{Usage: backends.LastFrame}} }, "inputs[0]"},
		"a video":        {func(j *backends.Job) { j.Inputs = []backends.Input{{Category: "video"}} }, "inputs[0]"},
		"an input image": {func(j *backends.Job) {
			j.Inputs, j.Output = []backends.Input{{URL: "https://x.example/a.png", Usage: backends.FirstFrame}}, backends.Output{}
		}, `{"model":"wan-2.2","prompt":"a fox","input_reference":{"image_url":"https://x.example/a.png"}}`},
	} {
		j := job()
		row.change(&j)
		request, err := o.translate(j)
		if err != nil {
			if e := backendstest.CheckError(t, j.Named(err), key); e == nil || e.Kind != backends.Refused || e.Param != row.want {
				t.Errorf("%s: %v, want %s", name, err, row.want)
			}
			continue
		}
		got, _ := json.Marshal(request)
		var a, b submission
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(row.want), &b) != nil {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
			continue
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if string(x) != string(y) {
			t.Errorf("%s: got %s, want %s", name, x, y)
		}
	}
}

func TestSettings(t *testing.T) {
	paymentstest.Caddyfiles(t, func() *OpenAI { return new(OpenAI) }, map[string]string{
		"openai":                     `{}`,
		"openai {\nkey {env.KEY}\n}": `{"key":"{env.KEY}"}`,
		"openai {\nurl https://x\nkey k\nmodel a b\nmodel c d\n}": `{"url":"https://x","key":"k","models":{"a":"b","c":"d"}}`,
		"openai {\nkey hush\nkey hush\n}":                         ``,
		"openai {\nmodel a hush\nmodel a hush\n}":                 ``,
		"openai {\nmodel hush\n}":                                 ``,
		"openai {\nsecret hush\n}":                                ``,
		"openai hush":                                             ``,
	})
	t.Setenv("OPENAI_TEST_KEY", key)
	o := &OpenAI{URL: "https://render.example", Key: "{env.OPENAI_TEST_KEY}"}
	if err := paymentstest.Provision(t, o); err != nil || o.Key != key || o.client.Base != "https://render.example" {
		t.Errorf("%v: %s %s", err, o.Key.Reveal(), o.client.Base)
	}
	for name, bad := range map[string]*OpenAI{
		"no key":                 {URL: "https://render.example"},
		"an empty key":           {URL: "https://render.example", Key: "{env.OPENAI_NO_KEY}"},
		"no URL":                 {Key: key},
		"a URL without a scheme": {Key: key, URL: "render.example"},
		"a URL with a query":     {Key: key, URL: "https://render.example?x"},
		"a URL with a user":      {Key: key, URL: "https://me:hush@render.example"},
	} {
		if err := paymentstest.Provision(t, bad); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusalsNameTheGatewaysFieldAndReason(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*backends.Job)
		reason backends.Reason
		param  string
	}{
		"duration":                {func(j *backends.Job) { j.Output.Duration = 5 }, backends.InvalidInput, "output.duration"},
		"no prompt":               {func(j *backends.Job) { j.Prompt = "" }, backends.InvalidInput, "prompt"},
		"moderation":              {func(j *backends.Job) { j.Prompt = "gore" }, backends.ContentRejected, ""},
		"duration of generations": {func(j *backends.Job) { j.Kind, j.Output.Duration = backends.Generations, 5 }, backends.InvalidInput, "duration"},
	} {
		server := serve(t, new(mockService))
		j := job()
		row.change(&j)
		_, err := newAdapter(t, server).Submit(t.Context(), j)
		e := backendstest.CheckError(t, err, key)
		if e == nil || e.Kind != backends.Refused || e.Reason != row.reason || e.Param != row.param {
			t.Errorf("%s: %+v, want %s at %q", name, e, row.reason, row.param)
		}
	}
}

func TestARemixIsASubmissionOfThePromptAlone(t *testing.T) {
	t.Parallel()
	var asked []string
	answer := func(w http.ResponseWriter, _ *http.Request) { backendstest.JSON(w, 200, `{"id":"video_2"}`) }
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+string(body))
		answer(w, r)
	}))
	o := newAdapter(t, address)
	source, err := o.client.Ref("", "video_1")
	if err != nil {
		t.Fatal(err)
	}
	next := job()
	next.Kind, next.Prompt, next.Source = backends.Generations, "a wolf", &source
	ref, err := o.Remix(t.Context(), source, next)
	if want := `POST /v1/videos/video_1/remix {"prompt":"a wolf"}`; err != nil || ref.ID != "video_2" || len(asked) != 1 || asked[0] != want {
		t.Errorf("got %+v, %v after %q, want %s", ref, err, asked, want)
	}
	// A server without remixes refuses, so that there is no task.
	answer = func(w http.ResponseWriter, _ *http.Request) {
		backendstest.JSON(w, 404, `{"error":{"message":"Invalid URL"}}`)
	}
	_, err = o.Remix(t.Context(), source, next)
	if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != backends.Refused {
		t.Errorf("got %v", err)
	}
	// A video of another server, whose key may be another, is refused and not requested.
	source.Base, source.Account = "https://elsewhere.example", "another"
	if _, err = o.Remix(t.Context(), source, next); backends.KindOf(err) != backends.Refused || len(asked) != 2 {
		t.Errorf("got %v after %q", err, asked)
	}
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}
