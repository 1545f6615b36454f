package generations

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

const key = "sk-hushhushhushhush"

var film = []byte(strings.Repeat("film ", 1000))

// form is the form of the answers of mockService.
type form int

const (
	flat    form = iota // as documented
	wrapped             // in code, message and data
	video               // an OpenAI video whose content needs the key
	old                 // wrapped, with the URL in fail_reason
)

// vendor has the status words of the forms.
var vendor = map[form]map[backends.State]string{
	flat:    {backends.Queued: "queued", backends.Running: "processing", backends.Succeeded: "succeeded", backends.Failed: "failed"},
	wrapped: {backends.Queued: "NOT_START", backends.Running: "IN_PROGRESS", backends.Succeeded: "SUCCESS", backends.Failed: "FAILURE"},
	video:   {backends.Queued: "queued", backends.Running: "in_progress", backends.Succeeded: "completed", backends.Failed: "failed"},
	old:     {backends.Queued: "SUBMITTED", backends.Running: "IN_PROGRESS", backends.Succeeded: "SUCCESS", backends.Failed: "FAILURE"},
}

// mockService simulates another gateway.
type mockService struct {
	backendstest.Jobs
	form form

	mu   sync.Mutex
	body string
}

var (
	taskPath    = regexp.MustCompile(`^/v1/video/generations/([^/]+)$`)
	contentPath = regexp.MustCompile(`^/v1/videos/([^/]+)/content$`)
)

// Op implements backendstest.MockService.
func (*mockService) Op(r *http.Request) backendstest.Op {
	switch {
	case r.URL.Path == "/v1/video/generations":
		return backendstest.Submit
	case taskPath.MatchString(r.URL.Path):
		return backendstest.Poll
	case contentPath.MatchString(r.URL.Path):
		return backendstest.Fetch
	}
	return backendstest.Other
}

// urlService is a mockService whose results are URLs.
type urlService struct{ *mockService }

// SetResultURL implements backendstest.ResultURLSetter.
func (s urlService) SetResultURL(address string) { s.SetURL(address) }

func (d *mockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+key {
		backendstest.JSON(w, 401, `{"error":{"code":"","message":"Invalid token","type":"new_api_error"}}`)
		return
	}
	switch d.Op(r) {
	case backendstest.Submit:
		d.submit(w, r)
	case backendstest.Poll:
		d.writeJob(w, r, taskPath.FindStringSubmatch(r.URL.Path)[1])
	default:
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = w.Write(film)
	}
}

func (d *mockService) submit(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.body = string(raw)
	d.mu.Unlock()
	if strings.Contains(string(raw), "too-long") {
		backendstest.JSON(w, 400, `{"code":"invalid_request","message":"duration is too long","param":"duration","type":"invalid_request_error"}`)
		return
	}
	switch id := d.Accept(""); d.form {
	case flat:
		backendstest.JSON(w, 201, `{"id":%q,"object":"video","model":"m","created_at":1800000000,"task_id":%[1]q,"status":"processing"}`, id)
	case video:
		backendstest.JSON(w, 200, `{"id":%q,"task_id":%[1]q,"object":"video","model":"m","status":"queued","progress":0,"created_at":1800000000}`, id)
	case wrapped:
		backendstest.JSON(w, 200, `{"code":"success","message":"","data":{"task_id":%q}}`, id)
	case old:
		backendstest.JSON(w, 200, `{"code":"success","message":"","data":%q}`, id)
	}
}

func (d *mockService) writeJob(w http.ResponseWriter, r *http.Request, id string) {
	if !d.Exists(id) {
		if d.form == wrapped {
			backendstest.JSON(w, 200, `{"code":"task_not_exist","message":"task_not_exist","data":null}`)
			return
		}
		backendstest.JSON(w, 404, `{"code":"task_not_exist","message":"task_not_exist","type":"invalid_request_error","param":""}`)
		return
	}
	state, word := d.State(vendor[d.form])
	status, _ := json.Marshal(word)
	link, _ := json.Marshal(d.URL())
	failed, done := state == backends.Failed, state == backends.Succeeded
	switch d.form {
	case flat:
		rest := `,"url":"","format":"mp4","error":null`
		if done {
			rest = fmt.Sprintf(`,"url":%s,"format":"mp4","metadata":{"duration":5},"error":null`, link)
		} else if failed {
			rest = `,"url":"","error":{"code":"content_rejected","message":"unsafe"}`
		}
		backendstest.JSON(w, 200, `{"task_id":%q,"status":%s%s}`, id, status, rest)
	case video:
		rest := `,"progress":50`
		if done {
			content, _ := json.Marshal("http://" + r.Host + "/v1/videos/" + id + "/content")
			rest = fmt.Sprintf(`,"progress":100,"metadata":{"url":%s}`, content)
		} else if failed {
			rest = `,"progress":100,"error":{"code":"content_rejected","message":"unsafe"}`
		}
		if state == backends.Queued {
			rest = `,"progress":0`
		}
		backendstest.JSON(w, 200, `{"id":%q,"task_id":%[1]q,"object":"video","status":%s%s}`, id, status, rest)
	case wrapped, old:
		progress, result, reason := "50%", `""`, `""`
		switch {
		case done && d.form == old:
			progress, reason = "100%", string(link)
		case done:
			progress, result = "100%", string(link)
		case failed:
			progress, reason = "100%", `"unsafe"`
		case state == backends.Queued:
			progress = "0%"
		}
		backendstest.JSON(w, 200, `{"code":"success","message":"","data":{"task_id":%q,"status":%s,"progress":%q,"result_url":%s,"fail_reason":%s,
			"submit_time":1800000000,"finish_time":0,"data":{"status":"SUCCESS","url":"https://other.example.com/x.mp4"}}}`, id, status, progress, result, reason)
	}
}

func newAdapter(t *testing.T, address string) *Generations {
	t.Helper()
	g := &Generations{URL: address, Key: key}
	if err := paymentstest.Provision(t, g); err != nil {
		t.Fatal(err)
	}
	return g
}

func job() backends.Job {
	return backends.Job{
		Token: backends.Token("task_1"), Kind: backends.Generations, Model: "m", Prompt: "a fox",
		Output: backends.Output{Duration: 5},
		Fields: map[string]json.RawMessage{"prompt": json.RawMessage(`"a fox"`)},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]form{"flat": flat, "wrapped": wrapped, "video": video, "old": old} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendstest.Run(t, backendstest.Service{
				Mock: func() backendstest.MockService {
					d := &mockService{form: answers}
					d.SetURL(backendstest.DefaultURL)
					if answers == video {
						return d
					}
					return urlService{d}
				},
				Backend: func(t *testing.T, address string) backends.Backend { return newAdapter(t, address) },
				Job:     job(), Secret: key, Content: film,
			})
		})
	}
}

func TestFieldsAreForwardedUnchanged(t *testing.T) {
	t.Parallel()
	seed := int64(0)
	for name, row := range map[string]struct {
		job  backends.Job
		want string
	}{
		"generations": {
			backends.Job{
				Kind: backends.Generations, Model: "ours", Prompt: "p", Output: backends.Output{Duration: 5, Count: 1, Width: 640},
				Fields: map[string]json.RawMessage{
					"model": json.RawMessage(`"ours"`), "prompt": json.RawMessage(`"p"`), "duration": json.RawMessage(`5.00`), "width": json.RawMessage(`640`), "seed": json.RawMessage(`0`),
					"image": json.RawMessage(`"data:image/png;base64,AA=="`), "metadata": json.RawMessage(`{"style":["x",1.50]}`), "new": json.RawMessage(`null`),
				},
			},
			`{"model":"theirs","prompt":"p","width":640,"seed":0,"duration":5,"n":1,"image":"data:image/png;base64,AA==","metadata":{"style":["x",1.50]},"new":null}`,
		},
		"null fields": {
			backends.Job{
				Kind: backends.Generations, Model: "m", Prompt: "p", Output: backends.Output{Duration: 5, Count: 1},
				Fields: map[string]json.RawMessage{"prompt": json.RawMessage(`"p"`), "duration": json.RawMessage(`null`), "n": json.RawMessage(`null`), "user": json.RawMessage(`null`)},
			},
			`{"model":"m","prompt":"p","duration":5,"n":1,"user":null}`,
		},
		"no fields": {backends.Job{Kind: backends.Generations, Model: "m"}, `{"model":"m"}`},
		"video": {
			backends.Job{
				Token: "tok", Kind: backends.Video, Model: "video-x-1", Prompt: "p", NegativePrompt: "n", EnhancePrompt: "enabled", GenerationMode: "g", Seed: &seed,
				Inputs:        []backends.Input{{URL: "https://x.example/a.png", Category: "image", Usage: "firstFrame"}, {URL: "https://x.example/b.png", Category: "image", Usage: "lastFrame"}},
				SubjectInputs: []backends.SubjectInput{{URL: "https://x.example/s.png", ID: "i", Name: "n"}},
				Output: backends.Output{
					Duration: 5, Resolution: "1080P", AspectRatio: "9:16", AudioGeneration: "enabled", EnhanceSwitch: "disabled",
					FrameInterpolate: "enabled", MediaName: "m", ClassID: 3,
				},
				SceneType: "lip_sync", InputRegion: "oversea", ExtInfo: json.RawMessage(`{"a":1}`),
			},
			`{"model":"video-x-1","prompt":"p","image":"https://x.example/a.png","images":["https://x.example/a.png","https://x.example/b.png"],"duration":5,"width":1080,"height":1920,"seed":0,
			"metadata":{"negative_prompt":"n","enhance_prompt":"enabled","generation_mode":"g","scene_type":"lip_sync","input_region":"oversea","resolution":"1080P","aspect_ratio":"9:16",
			"audio_generation":"enabled","enhance_switch":"disabled","frame_interpolate":"enabled","media_name":"m","class_id":3,"ext_info":{"a":1},
			"inputs":[{"url":"https://x.example/a.png","category":"image","usage":"firstFrame"},{"url":"https://x.example/b.png","category":"image","usage":"lastFrame"}],
			"subject_inputs":[{"url":"https://x.example/s.png","id":"i","name":"n"}]}}`,
		},
		"one image": {
			backends.Job{Kind: backends.Video, Model: "m", Prompt: "p", Inputs: []backends.Input{{URL: "https://x.example/a.png"}}},
			`{"model":"m","prompt":"p","image":"https://x.example/a.png","metadata":{"inputs":[{"url":"https://x.example/a.png"}]}}`,
		},
		"one video": {
			backends.Job{Kind: backends.Video, Model: "m", Prompt: "p", Inputs: []backends.Input{{URL: "https://x.example/a.mp4", Category: "video"}}},
			`{"model":"m","prompt":"p","images":["https://x.example/a.mp4"],"metadata":{"inputs":[{"url":"https://x.example/a.mp4","category":"video"}]}}`,
		},
	} {
		d := &mockService{}
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		g := newAdapter(t, server.URL)
		g.Models = map[string]string{"ours": "theirs"}
		if _, err := g.Submit(t.Context(), row.job); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got, want any
		if json.Unmarshal([]byte(d.body), &got) != nil || json.Unmarshal([]byte(row.want), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: sent\n%s, want\n%s", name, d.body, row.want)
		}
		if name == "generations" && !strings.Contains(d.body, `["x",1.50]`) || name == "generations" && !strings.Contains(d.body, `"duration":5.00`) {
			t.Errorf("a field was rewritten: %s", d.body)
		}
	}
	if _, err := newAdapter(t, "https://x.example").Submit(t.Context(), backends.Job{Kind: backends.Image}); backends.KindOf(err) != backends.Refused {
		t.Errorf("an image: %v", err)
	}
}

func TestRefusalsNameTheCallersField(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(new(mockService))
	t.Cleanup(server.Close)
	for kind, want := range map[backends.JobKind]string{backends.Generations: "duration", backends.Video: "output.duration"} {
		_, err := newAdapter(t, server.URL).Submit(t.Context(), backends.Job{Kind: kind, Model: "too-long"})
		if e := backendstest.CheckError(t, err, key); e == nil || e.Param != want || e.Reason != backends.InvalidInput || e.Message != "duration is too long" {
			t.Errorf("%s: %+v", kind, e)
		}
	}
}

func TestErrorsWithStatus200(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		submit, poll backends.Kind
	}{
		"invalid_request":          {backends.Refused, backends.Busy},
		"sensitive_words_detected": {backends.Refused, backends.Busy},
		"insufficient_user_quota":  {backends.Refused, backends.Busy},
		"rate_limit_exceeded":      {backends.Busy, backends.Busy},
		"do_request_failed":        {backends.Unconfirmed, backends.Busy},
		"task_not_exist":           {backends.Unconfirmed, backends.Gone},
		"TASK_NOT_FOUND":           {backends.Unconfirmed, backends.Gone},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			backendstest.JSON(w, 200, `{"code":%q,"message":"no","data":null}`, code)
		}))
		t.Cleanup(server.Close)
		g := newAdapter(t, server.URL)
		if _, err := g.Submit(t.Context(), job()); backends.KindOf(err) != want.submit {
			t.Errorf("submit: the error for %s is %v, want %s", code, err, want.submit)
		}
		if _, err := g.Poll(t.Context(), backends.Ref{ID: "x"}); backends.KindOf(err) != want.poll {
			t.Errorf("poll: the error for %s is %v, want %s", code, err, want.poll)
		}
	}
}

func TestEveryStatusWordIsKnown(t *testing.T) {
	t.Parallel()
	g := newAdapter(t, "https://x.example")
	for word, want := range map[string]backends.State{
		"NOT_START": backends.Queued, "SUBMITTED": backends.Queued, "QUEUED": backends.Queued, "IN_PROGRESS": backends.Running,
		"SUCCESS": backends.Succeeded, "FAILURE": backends.Failed, "queued": backends.Queued, "processing": backends.Running,
		"in_progress": backends.Running, "succeeded": backends.Succeeded, "failed": backends.Failed, "completed": backends.Succeeded,
		"Pending": backends.Queued, "UNKNOWN": backends.Unknown, "": backends.Unknown,
	} {
		got := g.status(task{Status: wire.Text(word), URL: backendstest.DefaultURL}, g.client.Base)
		if got.State != want {
			t.Errorf("the state for %q is %s, want %s", word, got.State, want)
		}
	}
}

func TestAResultThatNeedsTheKeyHasNoURL(t *testing.T) {
	t.Parallel()
	d := &mockService{form: video}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	g := newAdapter(t, server.URL)
	ref, err := g.Submit(t.Context(), job())
	if err != nil {
		t.Fatal(err)
	}
	d.SetState(backends.Succeeded)
	status, err := g.Poll(t.Context(), ref)
	if err != nil || status.State != backends.Succeeded || len(status.Results) != 1 || status.Results[0].URL != "" {
		t.Errorf("%+v, %v", status, err)
	}
}

func TestTheKeyIsNotNeededForOtherURLs(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]bool{
		"https://gate.example/v1/videos/x/content":       true,
		"https://gate.example:8443/v1/videos/x/content":  false,
		"http://gate.example/v1/videos/x/content":        false,
		"https://other.example/v1/videos/x/content":      false,
		"https://gate.example/files/x.mp4":               false,
		"https://me:it@gate.example/v1/videos/x/content": false,
		"": false,
	} {
		if got := needsKey("https://gate.example", link); got != want {
			t.Errorf("needsKey(%q) is %t, want %t", link, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Generations { return new(Generations) }, map[string]string{
		"generations": `{}`,
		"generations {\nurl https://x\nkey k\nmodel a b\n}": `{"url":"https://x","key":"k","models":{"a":"b"}}`,
		"generations {\nkey hush\nkey hush\n}":              ``,
		"generations {\nsecret hush\n}":                     ``,
		"generations hush":                                  ``,
	})
	for name, bad := range map[string]*Generations{
		"no key":    {URL: "https://x.example"},
		"no URL":    {Key: key},
		"a bad URL": {URL: "x.example", Key: key},
	} {
		if err := paymentstest.Provision(t, bad); err == nil {
			t.Errorf("Provision accepts a configuration with %s", name)
		}
	}
}
